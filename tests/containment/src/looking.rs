//! Looking for a value wherever a sandbox, or what belljar leaves behind, could have it: from inside, and from outside.

use crate::{HeldGuard, Jail, around, tells_of_read_only};
use belljar_spec::BackendName;
use std::fs::{self, File};
use std::io::{BufRead, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a command inside finds the value: in the environment, in files and their names, in other processes and their
/// memory. Directories of the host that no sandbox can write are left out.
pub fn found_inside(jail: &Jail, value: &str) -> Vec<String> {
    // Reversed on the way in, or the search would find the value in its own arguments.
    let backwards: String = value.chars().rev().collect();
    let tools = tools(jail.sandbox.backend());
    jail.successes(&format!("{tools}{LOOK_INSIDE}"), &[&backwards])
}

/// In which files of a folder, or names of files, the value is.
pub fn found_in_folder(folder: &Path, value: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Ok(kind) = path.symlink_metadata().map(|metadata| metadata.file_type()) else { continue };
            let named = path.file_name().is_some_and(|name| holds(name.as_encoded_bytes(), value));
            if named || (kind.is_file() && File::open(&path).is_ok_and(|file| in_stream(file, value))) {
                found.push(path.clone());
            }
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Where the value is in the processes of a sandbox, as the host sees them: arguments, environment, memory, and the files
/// that are only there. `held` is one of its commands.
pub fn found_from_outside(held: &HeldGuard, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    for pid in whole(&held.pids()) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        for file in ["cmdline", "environ", "comm", "status"] {
            if fs::read(process.join(file)).is_ok_and(|bytes| holds(&bytes, value)) {
                found.push(format!("{pid}: {file}"));
            }
        }
        if in_memory(&process, value) {
            found.push(format!("{pid}: memory"));
        }
        for folder in PRIVATE_FOLDERS {
            let files = found_in_folder(&process.join("root").join(folder), value);
            found.extend(files.iter().map(|path| format!("{pid}: {}", path.display())));
        }
    }
    found
}

/// All processes of the sandbox that these are of, as the host sees them.
fn whole(some: &[u32]) -> Vec<u32> {
    let around: Vec<u32> = some.iter().copied().flat_map(around).collect();
    if !around.is_empty() {
        return around;
    }
    let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(inside) = some.iter().copied().find_map(space) else { return Vec::new() };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| space(*pid).as_ref() == Some(&inside)).collect()
}

/// Is the value in there?
pub fn holds(bytes: &[u8], value: &str) -> bool {
    // Only where it may begin: to compare at every byte takes minutes in a test that is not optimised.
    let (first, others) = value.as_bytes().split_first().expect("a value is not empty");
    let mut rest = bytes;
    while rest.skip_until(*first).is_ok_and(|count| count > 0) {
        if rest.starts_with(others) {
            return true;
        }
    }
    false
}

fn in_memory(process: &Path, value: &str) -> bool {
    let Ok(memory) = File::open(process.join("mem")) else { return false };
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    // A mapping that is not writable is of a file that every process can map.
    let own = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|how| how.starts_with("rw")));
    let mut ranges = own.filter_map(|line| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
    });
    ranges.any(|(from, to)| in_stream(Region { memory: &memory, at: from, end: to }, value))
}

/// A part of a process's memory.
struct Region<'m> {
    memory: &'m File,
    at: u64,
    end: u64,
}

impl Read for Region<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let room = into.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        // What has no page, as a part of a mapped file behind its end, is no memory.
        let count = self.memory.read_at(&mut into[..room], self.at).unwrap_or(0);
        self.at += count as u64;
        Ok(count)
    }
}

fn in_stream(mut stream: impl Read, value: &str) -> bool {
    let mut piece = vec![0; PIECE];
    let mut kept = 0;
    loop {
        match stream.read(&mut piece[kept..]) {
            Ok(count) if count > 0 => {
                let end = kept + count;
                if holds(&piece[..end], value) {
                    return true;
                }
                // The end of this piece may be the beginning of the value.
                let tail = end.min(value.len() - 1);
                piece.copy_within(end - tail..end, 0);
                kept = tail;
            }
            Ok(_) | Err(_) => return false,
        }
    }
}

const PIECE: usize = 1 << 20;
/// What a sandbox has of its own.
const PRIVATE_FOLDERS: [&str; 7] = ["home", "tmp", "dev/shm", "etc", "run", "var", "workspace"];

/// Defines `is_tool` inside: whether a folder is one of the runtimes and tools under home, of some gigabytes, that no process inside
/// can write. Where the kernel does not tell which mounts are read-only it is tried; and there each file takes milliseconds.
pub fn tools(backend: BackendName) -> &'static str {
    if tells_of_read_only(backend) { READ_ONLY } else { UNWRITABLE_AT_HOME }
}

const READ_ONLY: &str = r#"
def is_tool(folder):
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY) and not folder.startswith(('/etc', '/run'))
    except OSError:
        return False
"#;

const UNWRITABLE_AT_HOME: &str = r#"
def is_tool(folder):
    if not folder.startswith(('/root/', '/home/')):
        return False
    probe = os.path.join(folder, '.probe')
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY))
        os.unlink(probe)
    except OSError as error:
        return error.errno in (errno.EROFS, errno.EACCES)
    return False
"#;

const LOOK_INSIDE: &str = r#"
import re, stat
VALUE = sys.argv[1][::-1].encode()
SYSTEM = ('/usr', '/lib', '/lib64', '/lib32', '/bin', '/sbin', '/opt', '/proc', '/sys')
def look(where, data):
    if VALUE in data:
        print(where, flush=True)
def read(path):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        with open(path, 'rb') as f:
            tail = b''
            while True:
                piece = f.read(1 << 20)
                if not piece:
                    return
                look(path, tail + piece)
                tail = piece[-len(VALUE):]
    except OSError:
        pass
def belongs_to_the_host(folder):
    return folder in SYSTEM or is_tool(folder)
look('os.environ', repr(dict(os.environ)).encode())
for directory, folders, files in os.walk('/'):
    folders[:] = [f for f in folders if not belongs_to_the_host(os.path.join(directory, f))]
    look(directory, '\n'.join(folders + files).encode('utf-8', 'surrogateescape'))
    for name in files:
        read(os.path.join(directory, name))
def memory(pid):
    try:
        maps = open('/proc/%s/maps' % pid).read()
        with open('/proc/%s/mem' % pid, 'rb', 0) as mem:
            for start, end in re.findall(r'^([0-9a-f]+)-([0-9a-f]+) rw', maps, re.M):
                try:
                    mem.seek(int(start, 16))
                    look('/proc/%s/mem' % pid, mem.read(min(int(end, 16) - int(start, 16), 1 << 28)))
                except (OSError, ValueError, OverflowError):
                    pass
    except OSError:
        pass
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    for name in ('environ', 'cmdline', 'comm', 'status', 'mountinfo', 'stack', 'auxv'):
        read('/proc/%s/%s' % (pid, name))
    try:
        for fd in os.listdir('/proc/%s/fd' % pid):
            read('/proc/%s/fd/%s' % (pid, fd))
    except OSError:
        pass
    if int(pid) != os.getpid():
        memory(pid)
for directory, folders, files in os.walk('/proc'):
    folders[:] = [f for f in folders if not f.isdigit() and f not in ('self', 'thread-self')]
    for name in files:
        if name not in ('kcore', 'kmsg', 'kpagecount', 'kpageflags', 'kpagecgroup'):
            read(os.path.join(directory, name))
"#;

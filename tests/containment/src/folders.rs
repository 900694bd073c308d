//! Folders as a workspace shows them, and eyes for all that is in one.

use crate::{Jail, folder};
use belljar_engine::Engine;
use belljar_spec::workspace::{Layer, Shield, Shielded, View};
use belljar_spec::{BackendChoice, BackendName, SandboxError, SandboxSpec};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// One path, held like this.
pub fn shield(path: &str, what: Shielded) -> Shield {
    Shield { path: path.into(), what }
}

/// A folder with what a repository has, and the shields that belong to it.
pub fn repository() -> (TempDir, Vec<Shield>) {
    let folder = folder();
    for directory in [".git/hooks", ".git/objects", "src"] {
        fs::create_dir_all(folder.path().join(directory)).unwrap();
    }
    for (file, content) in [
        (".git/config", "[core]\n"),
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/hooks/pre-push", "true\n"),
        ("src/a", "a\n"),
    ] {
        fs::write(folder.path().join(file), content).unwrap();
    }
    let shields = vec![
        shield(".git", Shielded::Anchored),
        shield(".git/hooks", Shielded::Existing),
        shield(".git/config", Shielded::Existing),
    ];
    (folder, shields)
}

/// What is not there, and protected too.
pub fn missing() -> Vec<Shield> {
    vec![
        shield(".git/commondir", Shielded::MissingFile(".\n")),
        shield(".git/info/attributes", Shielded::MissingFile("")),
        shield(".husky", Shielded::MissingDirectory),
    ]
}

/// A layer for a folder.
pub fn layer() -> (TempDir, Layer) {
    layer_in(&std::env::temp_dir())
}

/// The same, on the filesystem of this place.
pub fn layer_in(place: &Path) -> (TempDir, Layer) {
    let directory = tempfile::Builder::new().prefix("belljar-containment-").tempdir_in(place).unwrap();
    let layer = Layer { upper: directory.path().join("upper"), work: directory.path().join("work") };
    fs::create_dir(&layer.upper).unwrap();
    fs::create_dir(&layer.work).unwrap();
    (directory, layer)
}

/// A jail whose workspace is seen like this.
pub fn viewed(
    backend: BackendName,
    workspace: TempDir,
    view: View,
    change: impl FnOnce(&mut SandboxSpec),
) -> Result<Jail, SandboxError> {
    let mut spec = SandboxSpec {
        backend: BackendChoice::Named(backend),
        workspace: Some(workspace.path().to_path_buf()),
        ..SandboxSpec::default()
    };
    change(&mut spec);
    let sandbox = Engine::new().with_view(view).create_blocking(&spec)?;
    Ok(Jail { sandbox, workspace })
}

/// What something is and who may use it, whose it is, and what is in it.
pub type Found = (u32, u32, Vec<u8>);

/// Everything in a folder, without what another process removes meanwhile.
pub fn everything(folder: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let Ok(about) = fs::symlink_metadata(entry.path()) else { continue };
            let content =
                if about.is_file() { fs::read(entry.path()).unwrap_or_default() } else { Vec::new() };
            let path = entry.path().strip_prefix(folder).unwrap().to_path_buf();
            found.insert(path, (about.mode(), about.uid(), content));
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// Everything that could change a path, tried on each of them wherever it is seen. What worked is printed.
const ATTACKS: &str = r#"
import shutil
AT_FDCWD, RENAME_EXCHANGE, O_TMPFILE = -100, 2, 0o20200000
def write(path, mode='w'):
    with open(path, mode) as f: f.write('evil')
def through_link(path):
    os.symlink(path, base + '/l'); write(base + '/l/evil' if os.path.isdir(path) else base + '/l')
def hard_link_out(path):
    os.link(path, base + '/h'); write(base + '/h')
def no_name(path):
    fd = os.open(base, O_TMPFILE | os.O_RDWR, 0o644); os.write(fd, b'evil')
    os.link('/proc/self/fd/%d' % fd, path + '/evil', follow_symlinks=True)
def exchange(path):
    write(base + '/x'); syscall(316, AT_FDCWD, ctypes.c_char_p((base + '/x').encode()), AT_FDCWD, ctypes.c_char_p(path.encode()), RENAME_EXCHANGE)
def replace(path):
    write(base + '/y'); os.rename(base + '/y', path)
def replace_by_folder(path):
    os.mkdir(base + '/z'); os.rename(base + '/z', path)
def mapped(path):
    import mmap
    fd = os.open(path, os.O_RDWR); mmap.mmap(fd, 1)[0] = 88
def truncated(path):
    fd = os.open(path, os.O_RDONLY); os.ftruncate(fd, 0)
def again(path):
    fd = os.open(path, os.O_RDONLY); os.open('/proc/self/fd/%d' % fd, os.O_RDWR)
# A kernel may say that it did these. What counts is whether it did.
def resized(path):
    # A size that none of them has.
    os.truncate(path, 3)
    if os.path.getsize(path) != 3: raise OSError()
def opened(path):
    os.chmod(path, 0o777)
    if os.stat(path).st_mode & 0o777 != 0o777: raise OSError()
def aged(path):
    os.utime(path, (1, 1))
    if os.stat(path).st_mtime != 1: raise OSError()
def unmount(path):
    syscall(166, ctypes.c_char_p(path.encode()), 2)
def mount_over(path):
    syscall(165, ctypes.c_char_p(b'none'), ctypes.c_char_p(path.encode()), ctypes.c_char_p(b'tmpfs'), 0, 0)
def remount(path):
    syscall(165, 0, ctypes.c_char_p(path.encode()), 0, 32 | 4096, 0)
def tree(path):
    syscall(428, AT_FDCWD, ctypes.c_char_p(path.encode()), 1)
def seen_from(prefix, path):
    write(prefix + path + ('/evil' if os.path.isdir(path) else ''))
TRIED = {
    'write': write, 'append': lambda p: write(p, 'a'), 'create in': lambda p: write(p + '/evil'),
    'mkdir in': lambda p: os.mkdir(p + '/evil'), 'mkdir': os.mkdir, 'truncate': resized,
    'unlink': os.unlink, 'rmdir': os.rmdir, 'remove tree': shutil.rmtree,
    'rename': lambda p: os.rename(p, base + '/r'), 'replace': replace, 'replace by folder': replace_by_folder,
    'exchange': exchange, 'symlink': lambda p: os.symlink('/tmp', p), 'symlink in': lambda p: os.symlink('/tmp', p + '/evil'),
    'through link': through_link, 'hard link out': hard_link_out, 'hard link in': lambda p: os.link(base + '/src/a', p + '/evil'),
    'no name': no_name, 'chmod': opened, 'times': aged,
    'xattr': lambda p: os.setxattr(p, 'user.evil', b'1'), 'mapped': mapped, 'truncated by descriptor': truncated,
    'opened again': again, 'unmount': unmount, 'mount over': mount_over, 'remount': remount, 'mount tree': tree,
    'by own root': lambda p: seen_from('/proc/self/root', p), 'by root of 1': lambda p: seen_from('/proc/1/root', p),
    'by parent': lambda p: os.rename(os.path.dirname(p), base + '/parent'),
    'exchanged parent': lambda p: (os.makedirs(base + '/q/hooks'), syscall(316, AT_FDCWD, ctypes.c_char_p((base + '/q').encode()), AT_FDCWD, ctypes.c_char_p(os.path.dirname(p).encode()), RENAME_EXCHANGE)),
}
for base in sys.argv[1].split(':'):
    for path in sys.argv[2].split(':'):
        for name, f in TRIED.items():
            if base + '/' + path == base + '/.husky' and 'parent' in name: continue
            attack('%s %s/%s' % (name, base, path), lambda: f(base + '/' + path))
            for rest in 'lhxyzrq':
                try: shutil.rmtree(base + '/' + rest) if os.path.isdir(base + '/' + rest) and not os.path.islink(base + '/' + rest) else os.unlink(base + '/' + rest)
                except OSError: pass
"#;

/// Tries them all on these paths below these folders, and gives those that worked.
pub fn attack_all(jail: &Jail, bases: &[&str], paths: &[&str]) -> Vec<String> {
    jail.successes(ATTACKS, &[&bases.join(":"), &paths.join(":")])
}

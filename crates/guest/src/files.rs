//! File operations, as the sandbox's user and inside its world: the kernel says what a path may reach.

use crate::stream::{Stream, fault};
use crate::{attributes, upload, watch};
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxAttributes, StatxFlags, fstat,
    fstatfs, mkdirat, openat, openat2, readlinkat, renameat, statat, statx, unlinkat,
};
use belljar_sys::rustix::io::{Errno, read};
use belljar_wire::frame::{CHUNK, Tag};
use belljar_wire::message::{Bytes, Entry, EntryKind, Fault, FileRoot, Metadata, Reply, Request};
use std::io;

/// Where paths start, and what holds them.
pub(crate) struct PathRoot {
    roots: Vec<Root>,
    /// All that is seen belongs to the sandbox, and its own root is the limit.
    is_private: bool,
    workspace: String,
}

/// A directory that paths are resolved beneath.
struct Root {
    directory: OwnedFd,
    /// Absolute paths begin with this; empty for `/`.
    prefix: String,
}

impl PathRoot {
    pub(crate) fn open(root: FileRoot, workspace: String) -> Result<PathRoot, Fault> {
        let open = |path: &str, prefix: &str| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(CWD, path, flags, Mode::empty());
            let directory = directory.map_err(|errno| fault(format!("open {path}"), errno))?;
            Ok(Root { directory, prefix: prefix.into() })
        };
        let (roots, is_private) = match root {
            FileRoot::Sandbox => (vec![open("/", "")?], true),
            FileRoot::Beneath(paths) => {
                (paths.iter().map(|path| open(path, path)).collect::<Result<_, Fault>>()?, false)
            }
        };
        Ok(PathRoot { roots, is_private, workspace })
    }

    /// Whether all that is seen belongs to the sandbox.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// A directory, for a command to start in.
    pub(crate) fn directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    pub(crate) fn resolve(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (root, path) = self.below_root(path)?;
        // Never our terminal, never wait for the other end of a pipe.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let flags =
            if flags.contains(OFlags::PATH) { flags - OFlags::NOCTTY - OFlags::NONBLOCK } else { flags };
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let opened = if self.is_private() {
            // All that is seen is the sandbox's, and the filter knows no openat2.
            openat(root, path, flags, mode)?
        } else {
            openat2(root, path, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?
        };
        refuse_own_proc(&opened)?;
        Ok(opened)
    }

    /// The directory that holds `path`, and the name in it.
    pub(crate) fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), Errno> {
        let trimmed = path.trim_end_matches('/');
        let (parent, name) = match trimmed.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((parent, name)) => (parent, name),
            None => (".", trimmed),
        };
        if matches!(name, "" | "." | "..") {
            return Err(Errno::INVAL);
        }
        Ok((self.directory(parent)?, name))
    }

    /// The directory that `path` lies beneath, and the path relative to that.
    fn below_root(&self, path: &str) -> Result<(&OwnedFd, String), Errno> {
        let absolute =
            if path.starts_with('/') { path.to_string() } else { format!("{}/{path}", self.workspace) };
        let below = |root: &Root| {
            let below = absolute.strip_prefix(root.prefix.as_str())?;
            // `/workspace-other` is not below `/workspace`.
            let is_below = root.prefix.is_empty() || below.is_empty() || below.starts_with('/');
            is_below.then(|| below.trim_start_matches('/').to_string())
        };
        let (root, below) =
            self.roots.iter().find_map(|root| Some((root, below(root)?))).ok_or(Errno::XDEV)?;
        Ok((&root.directory, if below.is_empty() { ".".into() } else { below }))
    }
}

/// To this process `/proc/self` is the guest, whichever process made the request: no command may read what it contains.
fn refuse_own_proc(opened: &OwnedFd) -> Result<(), Errno> {
    if !is_proc(opened)? {
        return Ok(());
    }
    let path = readlinkat(CWD, format!("/proc/self/fd/{}", opened.as_raw_fd()), Vec::new())?;
    let process = path.to_bytes().strip_prefix(b"/proc/").and_then(<[u8]>::first);
    if process.is_some_and(u8::is_ascii_digit) { Err(Errno::ACCESS) } else { Ok(()) }
}

/// Whether this is in a proc filesystem.
pub(crate) fn is_proc(opened: &OwnedFd) -> Result<bool, Errno> {
    Ok(fstatfs(opened)?.f_type as u32 == PROC_MAGIC)
}

/// Carries out one request and answers it.
pub(crate) fn answer(place: &PathRoot, request: Request, stream: &mut Stream) -> io::Result<()> {
    let reply = match &request {
        Request::Read { path } => return send_file(place, path, stream),
        Request::Write { path } => return upload::take(place, path, stream),
        Request::Mkdir { path, recursive } => {
            done(make_directory(place, path, *recursive), || format!("make {path}"))
        }
        Request::ReadDir { path } => return send_entries(place, path, stream),
        Request::Remove { path, recursive } => {
            done(remove(place, path, *recursive), || format!("remove {path}"))
        }
        Request::Stat { path } => match describe(place, path) {
            Ok(metadata) => Reply::Metadata(metadata),
            Err(errno) => Reply::Failed(fault(format!("look at {path}"), errno)),
        },
        Request::Rename { from, to } => done(rename(place, from, to), || format!("move {from} to {to}")),
        Request::Watch { path, recursive } => return watch::answer(place, path, *recursive, stream),
        Request::SetAttributes { path, prefix, attributes } => {
            done(attributes::set(place, path, prefix, attributes), || format!("write attributes of {path}"))
        }
        Request::Exec(_)
        | Request::Connect { .. }
        | Request::Pause
        | Request::Resume
        | Request::Listening => {
            Reply::Failed(fault("take something else for a file operation", Errno::INVAL))
        }
    };
    stream.send_message(&reply)
}

fn done<E: Into<io::Error>>(result: Result<(), E>, doing: impl FnOnce() -> String) -> Reply {
    match result {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(fault(doing(), error)),
    }
}

fn send_file(place: &PathRoot, path: &str, stream: &mut Stream) -> io::Result<()> {
    let opened = place.resolve(path, OFlags::RDONLY).and_then(regular);
    let file = match opened {
        Ok(file) => file,
        Err(errno) => return stream.send_message(&Reply::Failed(fault(format!("read {path}"), errno))),
    };
    stream.send_message(&Reply::Opened)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match read(&file, &mut buffer) {
            Ok(length) => {
                stream.send(Tag::Data, &buffer[..length])?;
                if length == 0 {
                    return Ok(());
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return stream.send_message(&Reply::Failed(fault(format!("read {path}"), errno))),
        }
    }
}

/// Devices and pipes have no content that could be read or replaced as a whole.
pub(crate) fn regular(file: OwnedFd) -> Result<OwnedFd, Errno> {
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

fn make_directory(place: &PathRoot, path: &str, recursive: bool) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(0o777);
    if !recursive {
        let (parent, name) = place.parent(path)?;
        return mkdirat(parent, name, mode);
    }
    match place.directory(path) {
        Err(Errno::NOENT) => {}
        other => return other.map(drop),
    }
    let (parent, _) = path.trim_end_matches('/').rsplit_once('/').unwrap_or((".", path));
    if !parent.is_empty() {
        make_directory(place, parent, true)?;
    }
    let (parent, name) = place.parent(path)?;
    match mkdirat(parent, name, mode) {
        // Another process made it in the meantime, which is what the request wants.
        Err(Errno::EXIST) => place.directory(path).map(drop),
        other => other,
    }
}

fn send_entries(place: &PathRoot, path: &str, stream: &mut Stream) -> io::Result<()> {
    let entries = place.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(list);
    match entries {
        Ok(entries) => {
            for some in entries.chunks(ENTRIES_A_MESSAGE) {
                stream.send_message(&Reply::Entries(some.to_vec()))?;
            }
            stream.send_message(&Reply::Entries(Vec::new()))
        }
        Err(errno) => stream.send_message(&Reply::Failed(fault(format!("list {path}"), errno))),
    }
}

pub(crate) fn list(directory: OwnedFd) -> Result<Vec<Entry>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind(&statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?),
            known => kind_of(known),
        };
        entries.push(Entry { name: Bytes(name.to_bytes().to_vec()), kind });
    }
    Ok(entries)
}

fn remove(place: &PathRoot, path: &str, recursive: bool) -> io::Result<()> {
    let (parent, name) = place.parent(path)?;
    let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match kind(&found) {
        // A mount cannot be removed: refused before its content is.
        EntryKind::Directory if is_mount(&parent, name, &found)? => Err(Errno::BUSY.into()),
        // Holds descriptors all the way down and follows no link.
        EntryKind::Directory if recursive => {
            std::fs::remove_dir_all(format!("/proc/self/fd/{}/{name}", parent.as_raw_fd()))
        }
        EntryKind::Directory => Err(Errno::ISDIR.into()),
        EntryKind::File | EntryKind::Symlink | EntryKind::Other => {
            Ok(unlinkat(parent, name, AtFlags::empty())?)
        }
    }
}

/// Whether something is mounted at a name. Two mounts may be of one device; gVisor and kernels before 5.8 tell only devices apart.
fn is_mount(parent: &OwnedFd, name: &str, found: &Stat) -> Result<bool, Errno> {
    let attributes = statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let is_root =
        attributes.is_ok_and(|attributes| attributes.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    Ok(is_root || found.st_dev != fstat(parent)?.st_dev)
}

fn rename(place: &PathRoot, from: &str, to: &str) -> Result<(), Errno> {
    let ((from, old), (to, new)) = (place.parent(from)?, place.parent(to)?);
    match renameat(from, old, to, new) {
        // Not what the same word means for a path: that it leads out.
        Err(Errno::XDEV) => Err(Errno::OPNOTSUPP),
        other => other,
    }
}

fn describe(place: &PathRoot, path: &str) -> Result<Metadata, Errno> {
    let found = place.resolve(path, OFlags::PATH | OFlags::NOFOLLOW)?;
    let stat = fstat(&found)?;
    let link = match kind(&stat) {
        // An empty path means the link that was opened (readlinkat(2)).
        EntryKind::Symlink => Some(Bytes(readlinkat(&found, c"", Vec::new())?.into_bytes())),
        EntryKind::File | EntryKind::Directory | EntryKind::Other => None,
    };
    Ok(Metadata {
        kind: kind(&stat),
        size: stat.st_size.try_into().unwrap_or(0),
        mtime_ms: stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000),
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
        link,
        attributes: match kind(&stat) {
            EntryKind::File | EntryKind::Directory => attributes::of(&found),
            EntryKind::Symlink | EntryKind::Other => Vec::new(),
        },
    })
}

fn kind(stat: &Stat) -> EntryKind {
    kind_of(FileType::from_raw_mode(stat.st_mode))
}

fn kind_of(file_type: FileType) -> EntryKind {
    match file_type {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

/// linux/magic.h
const PROC_MAGIC: u32 = 0x9fa0;
/// Names are at most 255 bytes: a message stays far below the longest frame.
const ENTRIES_A_MESSAGE: usize = 512;

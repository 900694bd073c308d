//! Files that are read into a prompt, and who named them. A person may name anything that is a file. A folder, and a file
//! that names others, may have been written by an agent: what they lead to must be beneath them and not a link, so that
//! nothing of the host gets into a prompt that the user did not put there. Nothing is waited for: a pipe in the place of a
//! file is refused.

use belljar_overlay::quote;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_sys::rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2, statat,
};
use belljar_sys::rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Who named a path, and so how far it may lead.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Named<'n> {
    /// A person: links count.
    ByPerson,
    /// A file of this folder.
    ByFileOf(&'n Path),
}

/// A file that is there and no folder.
pub(crate) fn file(named: Named<'_>, path: &Path) -> Result<File, SandboxError> {
    regular(start(named, path)?, path)
}

/// Gives a file, or one by one those of a folder whose names end in one of these, in the order of their names. Says how many.
pub(crate) fn each(
    named: Named<'_>,
    path: &Path,
    ends: &[&str],
    mut take: impl FnMut(&Path, File) -> Result<(), SandboxError>,
) -> Result<usize, SandboxError> {
    let open = start(named, path)?;
    if !kind(&open, path)?.is_dir() {
        take(path, regular(open, path)?)?;
        return Ok(1);
    }
    let names = texts(&open, path, ends)?;
    for name in &names {
        let path = path.join(name);
        // It may have become something else since it was looked at.
        let file = openat(&open, name, READING | OFlags::NOFOLLOW, Mode::empty());
        let file =
            file.map_err(|errno| if errno == Errno::LOOP { link(&path) } else { unreadable(&path, errno) })?;
        take(&path, regular(file, &path)?)?;
    }
    Ok(names.len())
}

fn start(named: Named<'_>, path: &Path) -> Result<OwnedFd, SandboxError> {
    let opened = match named {
        Named::ByPerson => open(path, READING, Mode::empty()),
        Named::ByFileOf(folder) => beneath(folder, path)?,
    };
    opened.map_err(|errno| match errno {
        Errno::LOOP if matches!(named, Named::ByFileOf(_)) => ErrorCode::RequestValue
            .error(format!("`{}` leads over a link, which is not followed here", shown(path)))
            .hint("write the path of the file itself"),
        errno => unreadable(path, errno),
    })
}

fn beneath(folder: &Path, path: &Path) -> Result<Result<OwnedFd, Errno>, SandboxError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_plain) {
        let message = format!("`{}` may lie outside of the folder of the file that names it", shown(path));
        return Err(ErrorCode::RequestValue.error(message).hint(hint!(
            "write a path below that folder, without `..`; a file elsewhere is given with {} or {}",
            CommandLine::Context,
            CommandLine::PromptFile
        )));
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(folder, flags, Mode::empty()).map_err(|errno| unreadable(folder, errno))?;
    let mut tries = 0;
    Ok(loop {
        match openat2(&folder, path, READING | OFlags::NOFOLLOW, Mode::empty(), CONFINED) {
            // A rename elsewhere that came in between.
            Err(Errno::AGAIN | Errno::INTR) if tries < RETRIES => tries += 1,
            opened => break opened,
        }
    })
}

/// The names of files that are meant to be read.
fn texts(folder: &OwnedFd, path: &Path, ends: &[&str]) -> Result<Vec<PathBuf>, SandboxError> {
    let failed = |errno| unreadable(path, errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes()));
        if !name.extension().is_some_and(|end| ends.iter().any(|known| end == *known)) {
            continue;
        }
        match statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode).is_symlink() => {
                return Err(link(&path.join(name)));
            }
            Ok(found) if FileType::from_raw_mode(found.st_mode).is_file() => names.push(name),
            // A folder, a pipe; or it has just gone.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(unreadable(&path.join(name), errno)),
        }
    }
    names.sort();
    Ok(names)
}

fn regular(open: OwnedFd, path: &Path) -> Result<File, SandboxError> {
    match kind(&open, path)? {
        FileType::RegularFile => Ok(File::from(open)),
        _ => Err(not_regular(path)),
    }
}

fn kind(open: &OwnedFd, path: &Path) -> Result<FileType, SandboxError> {
    let found = fstat(open).map_err(|errno| unreadable(path, errno))?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

fn link(path: &Path) -> SandboxError {
    let message = format!("`{}` is a link, and links in a folder of context are not followed", shown(path));
    ErrorCode::RequestValue
        .error(message)
        .hint(hint!("name the file itself with {}, or remove the link", CommandLine::Context.of("FILE")))
}

fn not_regular(path: &Path) -> SandboxError {
    let message = format!("`{}` cannot be read: it is not a regular file", shown(path));
    ErrorCode::RequestValue
        .error(message)
        .hint("name a regular file; a prompt out of a pipe comes over standard input")
}

fn unreadable(path: &Path, errno: Errno) -> SandboxError {
    match errno {
        // A socket, or a device that is not there.
        Errno::NXIO | Errno::NODEV => not_regular(path),
        errno => {
            let error = std::io::Error::from(errno);
            ErrorCode::RequestValue
                .error(format!("`{}` cannot be read: {error}", shown(path)))
                .hint("name a file that exists and that you can read")
                .caused_by(error)
        }
    }
}

fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

/// Without waiting: a pipe without a writer would block us for ever.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
const CONFINED: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const RETRIES: usize = 100;

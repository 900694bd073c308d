//! Agent context: `*.md` of some directories, appended to the repository's own `AGENTS.md`. Additive: no content is removed, and no
//! file replaces another, whatever its name. Nothing is changed on the host; a backend mounts the result.
//!
//! The content goes into the sandbox, so links are not followed: a repository could link to any file of this machine.

use belljar_spec::workspace::View;
use belljar_spec::{AgentContext, ErrorCode, SandboxError, Term, hint};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat, statat,
};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file of context.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    name: String,
    text: Vec<u8>,
}

/// The instruction files of this workspace, extended by these directories; `None` if these add nothing.
pub fn of(directories: &[PathBuf], view: Option<&View>) -> Result<Option<AgentContext>, SandboxError> {
    let mut pieces = Vec::new();
    let mut left = MAX_CONTEXT_BYTES;
    for directory in directories {
        pieces.extend(read(directory, &mut left)?);
    }
    if pieces.is_empty() {
        return Ok(None);
    }
    let (path, own) = match view {
        Some(view) => beneath(view)?,
        None => (NAME.to_string(), None),
    };
    Ok(Some(AgentContext { path, text: assembled(own.as_deref().unwrap_or_default(), &pieces), own }))
}

/// The files of a directory, in the order of their names' bytes.
fn read(directory: &Path, left: &mut u64) -> Result<Vec<Piece>, SandboxError> {
    let unusable = |what: &dyn std::fmt::Display| {
        let message = format!("the agent context `{}` cannot be used: {what}", directory.display());
        ErrorCode::RequestValue.error(message).hint("name a directory with files that end in `.md`")
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty()).map_err(|errno| unusable(&errno))?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&opened).map_err(|errno| unusable(&errno))? {
        let name = entry.map_err(|errno| unusable(&errno))?.file_name().to_bytes().to_vec();
        if name.ends_with(b".md") && !name.starts_with(b".") {
            names.push(name);
        }
    }
    names.sort();
    let mut pieces = Vec::new();
    for name in names {
        let shown = String::from_utf8_lossy(&name).escape_debug().to_string();
        let within = |errno: Errno| unusable(&format!("`{shown}`: {errno}"));
        // Only regular files count; links are skipped too.
        let found = statat(&opened, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(within)?;
        if !is_file(&found) {
            continue;
        }
        let text = regular(&opened, &name).map_err(within)?;
        let Some(text) = text.filter(|text| text.len() as u64 <= *left) else {
            return Err(unusable(&format!("it has more than {} KiB", MAX_CONTEXT_BYTES >> 10)));
        };
        *left -= text.len() as u64;
        pieces.push(Piece { name: shown, text });
    }
    Ok(pieces)
}

/// The file that agents read, and its own content. If it is a link to another file of the workspace, as `CLAUDE.md` often is, that
/// file is used.
fn beneath(view: &View) -> Result<(String, Option<Vec<u8>>), SandboxError> {
    let no_place = |what: &dyn std::fmt::Display| {
        let message =
            format!("agent context cannot be shown at `{}`: {what}", view.folder.join(NAME).display());
        ErrorCode::RequestValue
            .error(message)
            .hint(hint!("put a plain file in its place, or work without {}", Term::AgentContext))
    };
    // The overlay's file hides the folder's.
    let upper = view.layer.as_ref().map(|layer| layer.upper.as_path());
    for folder in upper.into_iter().chain([view.folder.as_path()]) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, folder, flags, Mode::empty()).map_err(|errno| no_place(&errno))?;
        let mut name = NAME.to_string();
        let mut found = match statat(&opened, NAME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(no_place(&errno)),
        };
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            name = link(&opened).ok_or_else(|| no_place(&"it is a link that leads elsewhere"))?;
            found = statat(&opened, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|_| no_place(&"it is a link that leads nowhere"))?;
        }
        if !is_file(&found) {
            return Err(no_place(&"it is no file"));
        }
        let owner = fstat(&opened).map_err(|errno| no_place(&errno))?.st_uid;
        if found.st_uid != owner && found.st_mode & 0o004 == 0 {
            return Err(no_place(&"it belongs to another user, who does not let others read it"));
        }
        let own = regular(&opened, name.as_bytes()).map_err(|errno| no_place(&errno))?;
        let own =
            own.ok_or_else(|| no_place(&format!("it has more than {} KiB", MAX_CONTEXT_BYTES >> 10)))?;
        return Ok((name, Some(own)));
    }
    Ok((NAME.to_string(), None))
}

/// The link's target, if that is a name in the same directory.
fn link(folder: &OwnedFd) -> Option<String> {
    let to = readlinkat(folder, NAME, Vec::new()).ok()?;
    let to = to.to_str().ok()?;
    let to = to.strip_prefix("./").unwrap_or(to);
    let is_plain = to.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    (is_plain && !to.is_empty() && to != "." && to != "..").then(|| to.to_string())
}

fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

/// A file's whole content, opened without following any link; `None` if it is too large.
fn regular(folder: impl AsFd, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    // Never wait for a pipe: one may have replaced the file by now.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat2(folder, std::ffi::OsStr::from_bytes(name), flags, Mode::empty(), resolve)?;
    if !is_file(&fstat(&file)?) {
        return Err(Errno::INVAL);
    }
    let mut text = Vec::new();
    let read = File::from(file).take(MAX_CONTEXT_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok((text.len() as u64 <= MAX_CONTEXT_BYTES).then_some(text))
}

fn assembled(own: &[u8], pieces: &[Piece]) -> Vec<u8> {
    let mut text = own.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    if !text.is_empty() {
        text.push(b'\n');
    }
    text.extend_from_slice(BEGINS.as_bytes());
    for piece in pieces {
        text.extend_from_slice(format!("\n<!-- {} -->\n", piece.name).as_bytes());
        text.extend_from_slice(&piece.text);
        if !piece.text.ends_with(b"\n") {
            text.push(b'\n');
        }
    }
    text.extend_from_slice(ENDS.as_bytes());
    text
}

/// Files that agents read.
const NAME: &str = "AGENTS.md";
/// Limit of all files together, and of the repository's own. A model reads them with every request.
const MAX_CONTEXT_BYTES: u64 = 256 << 10;
const BEGINS: &str = "<!-- belljar: agent context begins. It was added for this sandbox, and is no part of the repository. -->\n";
const ENDS: &str = "\n<!-- belljar: agent context ends. -->\n";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn context(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn seen(directories: &[&Path], folder: &Path) -> AgentContext {
        let directories: Vec<PathBuf> = directories.iter().map(|one| one.to_path_buf()).collect();
        of(&directories, Some(&View::plain(folder.into()))).unwrap().unwrap()
    }

    #[test]
    fn what_the_repository_says_comes_first_and_nothing_is_removed() {
        let folder = context(&[("AGENTS.md", "own rules")]);
        let operator = context(&[("20-b.md", "second\n"), ("10-a.md", "first"), ("Z.md", "capital\n")]);
        let repository = context(&[("10-a.md", "the same name\n")]);
        let seen = seen(&[operator.path(), repository.path()], folder.path());
        let text = String::from_utf8(seen.text).unwrap();
        assert!(text.starts_with("own rules\n\n<!-- belljar: agent context begins."), "{text}");
        assert!(text.ends_with("<!-- belljar: agent context ends. -->\n"), "{text}");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
        let order = ["first", "second", "capital", "the same name"].map(at);
        assert!(order.is_sorted(), "{order:?}: {text}");
        assert_eq!((seen.path.as_str(), seen.own.as_deref()), ("AGENTS.md", Some(&b"own rules"[..])));
        assert_eq!(fs::read_to_string(folder.path().join("AGENTS.md")).unwrap(), "own rules");
    }

    #[test]
    fn links_and_other_things_are_not_read() {
        let secret = context(&[("secret", "SECRET")]);
        let directory = context(&[("a.md", "told\n"), ("b.txt", "no\n"), (".c.md", "no\n")]);
        symlink(secret.path().join("secret"), directory.path().join("d.md")).unwrap();
        fs::create_dir(directory.path().join("e.md")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let text = String::from_utf8(seen(&[directory.path()], folder.path()).text).unwrap();
        assert!(text.contains("told") && !text.contains("SECRET") && !text.contains("no\n"), "{text}");
        // The repository's own file cannot link to files of this machine either.
        symlink(secret.path().join("secret"), folder.path().join("AGENTS.md")).unwrap();
        let error = of(&[directory.path().into()], Some(&View::plain(folder.path().into()))).unwrap_err();
        assert_eq!(error.code, ErrorCode::RequestValue);
    }

    #[test]
    fn a_link_beside_it_means_the_file_it_leads_to() {
        let folder = context(&[("CLAUDE.md", "own\n")]);
        symlink("CLAUDE.md", folder.path().join("AGENTS.md")).unwrap();
        let directory = context(&[("a.md", "told\n")]);
        let seen = seen(&[directory.path()], folder.path());
        assert_eq!((seen.path.as_str(), seen.own.as_deref()), ("CLAUDE.md", Some(&b"own\n"[..])));
    }

    #[test]
    fn no_file_is_no_context_and_too_much_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(of(&[empty.path().into()], None), Ok(None));
        assert_eq!(of(&[], None), Ok(None));
        let much = context(&[("a.md", &"x".repeat(200 << 10)), ("b.md", &"x".repeat(100 << 10))]);
        let error = of(&[much.path().into()], None).unwrap_err();
        assert_eq!(error.code, ErrorCode::RequestValue);
        assert_eq!(of(&["/no/such/place".into()], None).unwrap_err().code, ErrorCode::RequestValue);
    }
}

//! What an image is made from: the files of a folder, as one tar stream.
//!
//! An agent may have written the folder, and may still be writing. So no link is followed, by whatever name and whenever it
//! was made: it is sent as the link that it is. What is neither file, folder nor link is left out, and how much there is is
//! known, and bounded, before the first byte is read.

use super::ignore::Ignored;
use super::walk::{Found, Walk};
use belljar_spec::egress::Printable;
use belljar_spec::{ByteSize, ErrorCode, SandboxError};
use belljar_sys::rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use belljar_sys::rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A folder that an image is made from, as it was a moment ago.
#[derive(Debug)]
pub(super) struct Context {
    root: OwnedFd,
    folder: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File { size: u64 },
    Link { to: Vec<u8> },
}

impl Context {
    /// The folder, without what its `.dockerignore` leaves out. What is in `always` is sent in any case.
    pub(super) fn of(folder: &Path, always: &[&str]) -> Result<Context, SandboxError> {
        Context::within(folder, always, MAX_WORK)
    }

    /// The same, with no more work for `.dockerignore` than this.
    fn within(folder: &Path, always: &[&str], most_work: u64) -> Result<Context, SandboxError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(folder, flags, Mode::empty()).map_err(|errno| unreadable(folder, errno.into()))?;
        let mut context = Context { root, folder: folder.to_path_buf(), entries: Vec::new() };
        let ignored = context.text(IGNORE_FILE, MAX_IGNORE_BYTES)?.unwrap_or_default();
        if ignored.lines().any(|line| line.len() > MAX_PATTERN_BYTES && !line.starts_with('#')) {
            let why = io::Error::other(TooMuch::Pattern);
            return Err(unreadable(&folder.join(IGNORE_FILE), why));
        }
        // It is long, holds no file of the project, and in its configuration may be a token.
        let ignored = Ignored::parse(&ignored).after(&[".git"]);
        let walk = Walk { ignored: &ignored, always, most_work };
        let top = openat(&context.root, ".", flags, Mode::empty())
            .map_err(|errno| unreadable(folder, errno.into()))?;
        let mut found = Found::default();
        walk.folder(&top, &[], &ignored.top(), &mut found)
            .map_err(|(path, error)| unreadable(&folder.join(OsStr::from_bytes(&path)), error))?;
        context.entries = found.entries;
        context.fits()?;
        Ok(context)
    }

    /// How many bytes its files have. A few files without content may say more than there are numbers.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(Entry::bytes).fold(0, u64::saturating_add)
    }

    /// A file of the folder as text, if it is there and a file of its own.
    pub(super) fn text(&self, path: &str, longest: u64) -> Result<Option<String>, SandboxError> {
        let shown = self.folder.join(path);
        let file = match self.open(path.as_bytes()) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(unreadable(&shown, error)),
        };
        let mut text = String::new();
        file.take(longest + 1).read_to_string(&mut text).map_err(|error| unreadable(&shown, error))?;
        if text.len() as u64 > longest {
            return Err(unreadable(&shown, io::Error::other(TooMuch::Text(ByteSize::bytes(longest)))));
        }
        Ok(Some(text))
    }

    /// Writes it as a tar stream; `sent` hears how many bytes of files are on their way.
    pub(super) fn write(&self, out: impl Write, mut sent: impl FnMut(u64)) -> Result<(), SandboxError> {
        let mut archive = ::tar::Builder::new(out);
        let mut total = 0;
        for entry in &self.entries {
            let path = Path::new(OsStr::from_bytes(&entry.path));
            self.append(&mut archive, entry, path)
                .map_err(|error| unreadable(&self.folder.join(path), error))?;
            total += entry.bytes();
            sent(total);
        }
        archive.finish().map_err(|error| unreadable(&self.folder, error))
    }

    fn append(&self, archive: &mut ::tar::Builder<impl Write>, entry: &Entry, path: &Path) -> io::Result<()> {
        let mut header = ::tar::Header::new_gnu();
        header.set_mode(entry.mode & 0o7777);
        // As Docker's own client does: whose they are here means nothing in an image.
        header.set_uid(0);
        header.set_gid(0);
        match &entry.kind {
            Kind::Folder => {
                header.set_entry_type(::tar::EntryType::Directory);
                header.set_size(0);
                archive.append_data(&mut header, path, io::empty())
            }
            Kind::Link { to } => {
                header.set_entry_type(::tar::EntryType::Symlink);
                header.set_size(0);
                archive.append_link(&mut header, path, Path::new(OsStr::from_bytes(to)))
            }
            Kind::File { size } => {
                header.set_entry_type(::tar::EntryType::Regular);
                header.set_size(*size);
                let mut whole = Exactly { file: self.open(&entry.path)?, left: *size };
                archive.append_data(&mut header, path, &mut whole)
            }
        }
    }

    /// A file beneath the folder. No link is on the way to it, and nothing is waited for.
    fn open(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut tries = 0;
        let opened = loop {
            match openat2(&self.root, path, flags, Mode::empty(), CONFINED) {
                // A rename elsewhere that came in between.
                Err(Errno::AGAIN | Errno::INTR) if tries < RETRIES => tries += 1,
                opened => break opened?,
            }
        };
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::RegularFile => Ok(File::from(opened)),
            _ => Err(io::Error::other("it is no longer a file")),
        }
    }

    fn fits(&self) -> Result<(), SandboxError> {
        let bytes = self.bytes();
        if bytes <= MAX_BYTES && self.entries.len() <= MAX_ENTRIES {
            return Ok(());
        }
        let mut tops: BTreeMap<&[u8], u64> = BTreeMap::new();
        for entry in &self.entries {
            let top = entry.path.split(|byte| *byte == b'/').next().unwrap_or_default();
            // What is empty counts too, where there are too many.
            let sum = tops.entry(top).or_default();
            *sum = sum.saturating_add(entry.bytes()).saturating_add(1);
        }
        let most = tops.iter().max_by_key(|(_, bytes)| **bytes);
        let most = Printable::new(most.map(|(top, _)| *top).unwrap_or_default());
        let message = format!(
            "`{}` has {} in {} files and folders to make an image from, and at most {} in {MAX_ENTRIES} are sent",
            Printable::new(self.folder.as_os_str().as_bytes()),
            ByteSize::bytes(bytes),
            self.entries.len(),
            ByteSize::bytes(MAX_BYTES),
        );
        Err(ErrorCode::RequestValue
            .error(message)
            .hint(format!("name what the image does not need in `{IGNORE_FILE}`; most of it is in `{most}`")))
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        match self.kind {
            Kind::File { size } => size,
            Kind::Folder | Kind::Link { .. } => 0,
        }
    }
}

/// As many bytes of a file as were promised, or an error: what is written behind it must not become its end.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// A bound of a file that says something about the folder, on its way through an `io::Error`.
#[derive(Debug, thiserror::Error)]
pub(super) enum TooMuch {
    #[error("it is longer than {0}")]
    Text(ByteSize),
    #[error("it has a pattern of more than {} bytes", MAX_PATTERN_BYTES)]
    Pattern,
    #[error("to compare its patterns with all that is in the folder takes too long")]
    Work,
}

impl TooMuch {
    fn hint(&self) -> &'static str {
        match self {
            TooMuch::Text(_) => "shorten it",
            TooMuch::Pattern | TooMuch::Work => {
                "use fewer and shorter patterns, without `**`: a folder that is named is not looked into"
            }
        }
    }
}

fn unreadable(path: &Path, error: io::Error) -> SandboxError {
    let shown = Printable::new(path.as_os_str().as_bytes());
    if let Some(bound) = error.get_ref().and_then(|inner| inner.downcast_ref::<TooMuch>()) {
        let message = format!("`{shown}` is too much: {bound}");
        return ErrorCode::RequestValue.error(message).hint(bound.hint());
    }
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        let message = format!("`{shown}` is a link, or behind one, and links are not followed here");
        return ErrorCode::RequestValue.error(message).hint("put the file itself there");
    }
    ErrorCode::ImageFailed.error(format!("cannot read `{shown}`: {error}")).hint(format!(
        "see to it that you can read it, or name it in `{IGNORE_FILE}`; and try again if it changed meanwhile"
    )).caused_by(error)
}

/// What says which files are left out.
pub(super) const IGNORE_FILE: &str = ".dockerignore";
/// Nothing but names beneath it leads out of a folder.
const CONFINED: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// As often as a rename may come in between.
const RETRIES: u32 = 32;
/// People write a few hundred lines of a few words.
const MAX_IGNORE_BYTES: u64 = 64 << 10;
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Steps, of which a processor does some hundred million a second. A million files and a hundred patterns take less.
const MAX_WORK: u64 = 20_000_000_000;
/// A source tree is smaller by far; a data set has no place in an image.
const MAX_BYTES: u64 = 2 << 30;
pub(super) const MAX_ENTRIES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::super::walk::DEEPEST;
    use super::*;
    use belljar_sys::rustix::fs::{CWD, mkfifoat};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Names, and what is in them or where they lead.
    fn sent(context: &Context) -> BTreeMap<String, String> {
        let mut stream = Vec::new();
        context.write(&mut stream, |_| {}).unwrap();
        let mut archive = ::tar::Archive::new(stream.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let text = match entry.link_name().unwrap() {
                Some(to) => format!("-> {}", to.display()),
                None => {
                    let mut text = String::new();
                    entry.read_to_string(&mut text).unwrap();
                    text
                }
            };
            (path, text)
        });
        entries.collect()
    }

    fn names(context: &Context) -> Vec<String> {
        sent(context).into_keys().collect()
    }

    #[test]
    fn a_folder_is_sent_as_it_is_but_for_what_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".git", ".belljar", "src", "node_modules"] {
            fs::create_dir(at(name)).unwrap();
        }
        for (name, text) in [
            (".git/config", "a token"),
            (".belljar/Dockerfile", "FROM x"),
            (".dockerignore", "node_modules\n.belljar\n*ignore\n*.log"),
            ("src/main.rs", "fn main() {}"),
            ("node_modules/x", "x"),
            ("a.log", "x"),
            ("run", "#!/bin/sh"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        fs::set_permissions(at("run"), fs::Permissions::from_mode(0o755)).unwrap();
        let long = "n".repeat(200);
        fs::write(at(&long), "long").unwrap();
        let context = Context::of(folder.path(), &[".belljar/Dockerfile", ".dockerignore"]).unwrap();
        let sent = sent(&context);
        assert_eq!(
            sent.keys().map(String::as_str).collect::<Vec<_>>(),
            [".belljar/Dockerfile", ".dockerignore", long.as_str(), "run", "src", "src/main.rs"]
        );
        assert_eq!(sent["src/main.rs"], "fn main() {}");
        assert_eq!(context.bytes(), sent.values().map(|text| text.len() as u64).sum::<u64>());
    }

    #[test]
    fn no_link_is_followed_and_nothing_is_waited_for() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "of the host").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(outside.path(), at("out")).unwrap();
        symlink(outside.path().join("secret"), at("secret")).unwrap();
        symlink("/proc/self/root/etc", at("proc")).unwrap();
        mkfifoat(CWD, at("pipe"), Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let context = Context::of(folder.path(), &[]).unwrap();
        assert_eq!(names(&context), ["out", "proc", "secret"]);
        assert!(sent(&context).values().all(|text| text.starts_with("-> ")));
        assert_eq!(context.text("secret", 100).unwrap_err().code, ErrorCode::RequestValue);
        assert_eq!(context.text("out/secret", 100).unwrap_err().code, ErrorCode::RequestValue);
        assert_eq!(context.text("missing/secret", 100).unwrap(), None);
    }

    #[test]
    fn what_becomes_a_link_meanwhile_is_not_followed_either() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "of the host").unwrap();
        for turn in ["file itself", "its folder"] {
            let folder = tempfile::tempdir().unwrap();
            let below = folder.path().join("below");
            fs::create_dir(&below).unwrap();
            fs::write(below.join("file"), "of the folder").unwrap();
            let context = Context::of(folder.path(), &[]).unwrap();
            fs::remove_file(below.join("file")).unwrap();
            match turn {
                "its folder" => {
                    fs::remove_dir(&below).unwrap();
                    symlink(outside.path(), &below).unwrap();
                }
                _ => symlink(outside.path().join("file"), below.join("file")).unwrap(),
            }
            let mut stream = Vec::new();
            assert_eq!(
                context.write(&mut stream, |_| {}).unwrap_err().code,
                ErrorCode::RequestValue,
                "{turn}"
            );
            assert!(!String::from_utf8_lossy(&stream).contains("of the host"), "{turn}");
        }
    }

    #[test]
    fn a_file_that_shrinks_or_grows_does_not_spoil_the_stream() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "0123456789").unwrap();
        let context = Context::of(folder.path(), &[]).unwrap();
        fs::write(&file, "0123456789 and more").unwrap();
        assert_eq!(sent(&context)["file"], "0123456789");
        fs::write(&file, "0").unwrap();
        assert_eq!(context.write(io::sink(), |_| {}).unwrap_err().code, ErrorCode::ImageFailed);
    }

    #[test]
    fn too_much_is_refused_before_it_is_read_and_where_it_is_is_said() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let sparse = File::create(folder.path().join("data/huge")).unwrap();
        sparse.set_len(10 << 40).unwrap();
        let error = Context::of(folder.path(), &[]).unwrap_err();
        assert_eq!(error.code, ErrorCode::RequestValue);
        assert!(error.message.contains("10t"), "{}", error.message);
        assert!(error.hint.unwrap().to_string().contains("`data`"));
    }

    #[test]
    fn sizes_that_come_to_more_than_a_number_holds_are_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let mut context = Context::of(folder.path(), &[]).unwrap();
        // As large as a sparse file of a tmpfs may be: two of them and two bytes are one more than a number holds.
        let largest = i64::MAX as u64;
        let entry = |number: u64, size: u64| {
            let path = format!("data/{number}").into_bytes();
            Entry { path, kind: Kind::File { size }, mode: 0o644 }
        };
        for sizes in [vec![largest, largest, 2], vec![largest; 3], vec![largest; 4]] {
            context.entries = (0..).zip(&sizes).map(|(number, size)| entry(number, *size)).collect();
            assert_eq!(context.bytes(), u64::MAX, "{sizes:?}");
            let error = context.fits().unwrap_err();
            assert_eq!(error.code, ErrorCode::RequestValue, "{sizes:?}");
            assert!(error.hint.unwrap().to_string().contains("`data`"));
        }
    }

    #[test]
    fn an_ignore_file_that_is_made_to_take_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let ignore = folder.path().join(IGNORE_FILE);
        for number in 0..100 {
            fs::write(folder.path().join(format!("{}{number}", "a".repeat(200))), "").unwrap();
        }
        let within = |text: &str, work: u64| {
            fs::write(&ignore, text).unwrap();
            Context::within(folder.path(), &[], work).map(|context| context.entries.len())
        };
        // What people write takes a look or two for each name and line.
        assert_eq!(within("node_modules\ntarget\n*.log\n**/*.o\n", 1_000_000).unwrap(), 101);
        let slow = "**/*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n".repeat(1900);
        for (text, why) in [
            (slow.as_str(), "takes too long"),
            ("a".repeat(MAX_PATTERN_BYTES + 1).as_str(), "a pattern of more than"),
            ("a\n".repeat(40_000).as_str(), "longer than 64k"),
        ] {
            let error = within(text, 1_000_000).unwrap_err();
            assert!(error.message.contains(why) && error.message.contains(IGNORE_FILE), "{}", error.message);
            assert_eq!(error.code, ErrorCode::RequestValue);
            assert!(error.hint.is_some());
        }
        // What is long and says nothing is not compared with anything.
        assert_eq!(within(&format!("#{}", "a".repeat(2 * MAX_PATTERN_BYTES)), 1_000_000).unwrap(), 101);
    }

    #[test]
    fn a_folder_too_deep_is_an_error_and_no_overflow() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("d/".repeat(DEEPEST + 50))).unwrap();
        assert_eq!(Context::of(folder.path(), &[]).unwrap_err().code, ErrorCode::ImageFailed);
    }
}

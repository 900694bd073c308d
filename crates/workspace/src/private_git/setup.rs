//! Makes a sandbox's git directory out of the host's: a snapshot of its refs, HEAD, index and unfinished operations, a safe part of
//! its config, copies of its hooks. Objects are not copied.
//!
//! No git is started: a start must not take longer because a folder is a repository. The host's files are read below one
//! descriptor, following no link, since an agent may have written there before.

use super::worktrees::NOT_HERE;
use super::{HostGit, Synced, config, refs};
use crate::foreign::{BENEATH_ONLY, Foreign, ForeignError, make_folder};
use crate::inert::{Git, GitError};
use crate::settings::HostFiles;
use belljar_spec::workspace::BorrowedObjects;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{Mode, OFlags, open, openat2};
use belljar_sys::rustix::io::Errno;
use std::cell::Cell;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Why a sandbox gets no git directory of its own for a repository.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Host(#[from] ForeignError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot make `{}`: {source}", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Unsupported(String),
}

impl SetupError {
    pub(super) fn make(path: &Path) -> impl FnOnce(io::Error) -> SetupError {
        let path = path.to_path_buf();
        move |source| SetupError::Make { path, source }
    }
}

/// A repository of the host, opened for reading.
pub(super) struct HostFilesOfGit<'h> {
    pub(super) host: &'h HostGit,
    pub(super) own: Foreign,
    pub(super) common: Foreign,
}

impl<'h> HostFilesOfGit<'h> {
    pub(super) fn open(host: &'h HostGit) -> Result<HostFilesOfGit<'h>, SetupError> {
        Ok(HostFilesOfGit { host, own: Foreign::open(&host.own)?, common: Foreign::open(&host.common)? })
    }
}

/// Fills `directory`, which is new and empty. `work_tree` is the value of `core.worktree` inside, if it needs one.
pub(super) fn fill(
    host: &HostGit,
    directory: &Path,
    borrowed: &[BorrowedObjects],
    work_tree: Option<&str>,
    placeholders: &[String],
    files: &HostFiles,
) -> Result<Synced, SetupError> {
    let source = HostFilesOfGit::open(host)?;
    let target = Target::open(directory)?;
    for name in [
        "objects",
        "objects/info",
        "objects/pack",
        "refs",
        "refs/heads",
        "refs/tags",
        "info",
        "hooks",
        "logs",
    ] {
        target.make_directory(name)?;
    }
    let alternates: String = borrowed
        .iter()
        .filter(|one| one.inside.ends_with("/objects"))
        .fold(String::new(), |list, one| list + &one.inside + "\n");
    target.write("objects/info/alternates", alternates.as_bytes())?;
    let written = config::write(&source, &target, work_tree, files)?;
    let (synced, names) = snapshot(&source, &target, written.is_reftable)?;
    unfinished(&source, &target, &names)?;
    logs(&source, &target, &synced)?;
    info(&source, &target, &written.ignored_everywhere, placeholders)?;
    hooks(&source, &target)?;
    other_worktrees(&source, &target)?;
    Ok(synced)
}

/// HEAD, refs and index are several reads: if HEAD or its branch moved meanwhile, all is read again. Also returns the names in the
/// worktree's git directory.
fn snapshot(
    source: &HostFilesOfGit<'_>,
    target: &Target<'_>,
    is_reftable: bool,
) -> Result<(Synced, Vec<String>), SetupError> {
    let mut tries = SNAPSHOT_TRIES;
    loop {
        let names = source.own.names(".")?;
        let found = if is_reftable { refs::by_git(source, &Git::find()?)? } else { refs::of_files(source)? };
        index(source, target, &names)?;
        found.refuse_symbolic_branch()?;
        let is_same = match is_reftable {
            true => found.is_same_place(&refs::by_git(source, &Git::find()?)?),
            false => found.is_where_files_say(source)?,
        };
        tries -= 1;
        if is_same || tries == 0 {
            return Ok((found.write(target)?, names));
        }
    }
}

/// The index, with its modification time: git compares it with those of files, to see which may have changed since.
fn index(source: &HostFilesOfGit<'_>, target: &Target<'_>, names: &[String]) -> Result<(), SetupError> {
    let shared = names.iter().map(String::as_str).filter(|name| name.starts_with("sharedindex."));
    for name in shared.chain(["index"]) {
        if let Some(file) = source.own.file(name)? {
            target.copy(file, name, MAX_INDEX_BYTES)?;
        }
    }
    Ok(())
}

/// A merge, rebase, cherry-pick, revert or bisection that the user has in progress.
fn unfinished(source: &HostFilesOfGit<'_>, target: &Target<'_>, names: &[String]) -> Result<(), SetupError> {
    for name in names.iter().map(String::as_str) {
        let is_state =
            STATE_FILES.contains(&name) || name.starts_with("BISECT_") || name.starts_with("MERGE_");
        if is_state {
            copy_file(&source.own, target, name, name)?;
        } else if STATE_DIRECTORIES.contains(&name) {
            copy_directory(&source.own, target, name)?;
        }
    }
    Ok(())
}

/// The reflogs of HEAD and the branch, so that `@{1}` and `git reflog` work, and the stash.
fn logs(source: &HostFilesOfGit<'_>, target: &Target<'_>, synced: &Synced) -> Result<(), SetupError> {
    copy_end(&source.own, target, "logs/HEAD")?;
    let branch = synced.head.strip_prefix("ref: ").map(|name| format!("logs/{name}"));
    for path in branch.into_iter().chain(["logs/refs/stash".to_string()]) {
        copy_end(&source.common, target, &path)?;
    }
    Ok(())
}

fn info(
    source: &HostFilesOfGit<'_>,
    target: &Target<'_>,
    everywhere: &[u8],
    placeholders: &[String],
) -> Result<(), SetupError> {
    copy_file(&source.common, target, "info/attributes", "info/attributes")?;
    copy_file(&source.own, target, "info/sparse-checkout", "info/sparse-checkout")?;
    copy_file(&source.common, target, "shallow", "shallow")?;
    // An agent without the user's global ignore patterns would commit files that they exclude.
    let mut ignored = source.common.read("info/exclude", MAX_FILE_BYTES)?.unwrap_or_default();
    if !everywhere.is_empty() {
        ignored.extend_from_slice(b"\n# What the user of this machine ignores in every repository:\n");
        ignored.extend_from_slice(everywhere);
    }
    // `git stash -u` and `git clean` would fail on them.
    if !placeholders.is_empty() {
        ignored.extend_from_slice(b"\n# Read-only here, and not in the folder:\n");
        placeholders.iter().for_each(|path| ignored.extend_from_slice(format!("/{path}\n").as_bytes()));
    }
    target.write("info/exclude", &ignored)
}

/// Copies that the sandbox can change: tools that install hooks must work, and no change goes back to the host.
fn hooks(source: &HostFilesOfGit<'_>, target: &Target<'_>) -> Result<(), SetupError> {
    for name in source.common.names("hooks").unwrap_or_default() {
        if name.ends_with(".sample") {
            continue;
        }
        let path = format!("hooks/{name}");
        match source.common.file(&path) {
            Ok(Some(file)) => {
                target.copy(file, &path, MAX_FILE_BYTES)?;
                let place = target.directory.join(&path);
                fs::set_permissions(&place, Permissions::from_mode(0o755))
                    .map_err(SetupError::make(&place))?;
            }
            // A link into the work tree is a usual way to share hooks.
            Err(_) => {
                let link = fs::read_link(source.host.common.join(&path));
                if let Ok(link) = link.as_ref().map(PathBuf::as_path) {
                    let place = target.directory.join(&path);
                    symlink(link, &place).map_err(SetupError::make(&place))?;
                }
            }
            Ok(None) => {}
        }
    }
    Ok(())
}

/// Other worktrees of the repository, as far as git needs them to refuse their branches.
fn other_worktrees(source: &HostFilesOfGit<'_>, target: &Target<'_>) -> Result<(), SetupError> {
    let mut heads: Vec<(String, Vec<u8>)> = Vec::new();
    for name in source.common.names("worktrees")?.into_iter().take(MAX_WORKTREES) {
        let directory = format!("worktrees/{name}");
        if source.host.own == source.host.common.join(&directory) {
            continue;
        }
        heads.extend(
            source.common.read(&format!("{directory}/HEAD"), MAX_FILE_BYTES)?.map(|head| (name, head)),
        );
    }
    if source.host.own != source.host.common
        && let Some(head) = source.common.read("HEAD", MAX_FILE_BYTES)?
    {
        heads.push(("main-worktree".to_string(), head));
    }
    if !heads.is_empty() {
        target.make_directory("worktrees")?;
    }
    for (name, head) in heads {
        let directory = format!("worktrees/{name}");
        target.make_directory(&directory)?;
        for (file, content) in [
            ("HEAD", head.as_slice()),
            ("commondir", b"../..\n".as_slice()),
            ("gitdir", format!("{NOT_HERE}/.git\n").as_bytes()),
            ("locked", b"a worktree on the host\n".as_slice()),
        ] {
            target.write(&format!("{directory}/{file}"), content)?;
        }
    }
    Ok(())
}

fn copy_file(source: &Foreign, target: &Target<'_>, from: &str, to: &str) -> Result<(), SetupError> {
    match source.file(from)? {
        Some(file) => target.copy(file, to, MAX_FILE_BYTES),
        None => Ok(()),
    }
}

/// A directory of plain files.
fn copy_directory(source: &Foreign, target: &Target<'_>, path: &str) -> Result<(), SetupError> {
    if source.below(path)?.is_none() {
        return Ok(());
    }
    target.make_directory(path)?;
    for name in source.names(path)?.into_iter().take(MAX_STATE_FILES) {
        let path = format!("{path}/{name}");
        if source.below(&path).is_ok_and(|below| below.is_none()) {
            copy_file(source, target, &path, &path)?;
        }
    }
    Ok(())
}

/// The last lines of a log.
fn copy_end(source: &Foreign, target: &Target<'_>, path: &str) -> Result<(), SetupError> {
    let Some(mut file) = source.file(path)? else { return Ok(()) };
    let read = |error: io::Error| SetupError::Unsupported(format!("`{path}` cannot be read: {error}"));
    let size = file.metadata().map_err(read)?.len();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_LOG_BYTES))).map_err(read)?;
    file.take(MAX_LOG_BYTES).read_to_end(&mut bytes).map_err(read)?;
    // Not starting in the middle of a line.
    let begin = match size > MAX_LOG_BYTES {
        true => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
        false => 0,
    };
    target.write(path, &bytes[begin..])
}

/// The directory that is being filled. Names come from a repository that an agent may have made: everything is opened below one
/// descriptor, following no link, so no name leads out of it.
pub(super) struct Target<'t> {
    directory: &'t Path,
    opened: OwnedFd,
    /// How many bytes may still be copied: files of the repository may be sparse, or one file under many names.
    left: Cell<u64>,
}

impl Target<'_> {
    fn open(directory: &Path) -> Result<Target<'_>, SetupError> {
        let opened = open(directory, OPEN_DIRECTORY, Mode::empty());
        let opened = opened.map_err(|errno| SetupError::make(directory)(errno.into()))?;
        Ok(Target { directory, opened, left: Cell::new(MAX_COPIED_BYTES) })
    }

    fn make_directory(&self, path: &str) -> Result<(), SetupError> {
        make_folder(&self.opened, path, |_| Ok(()))
            .map(drop)
            .map_err(SetupError::make(&self.directory.join(path)))
    }

    pub(super) fn write(&self, path: &str, content: &[u8]) -> Result<(), SetupError> {
        self.create(path)?.write_all(content).map_err(SetupError::make(&self.directory.join(path)))
    }

    /// Copies a file with its modification time.
    fn copy(&self, mut from: File, path: &str, most: u64) -> Result<(), SetupError> {
        let place = self.directory.join(path);
        let failed = || SetupError::make(&place);
        let found = from.metadata().map_err(failed())?;
        let left = self.left.get().checked_sub(found.len());
        let Some(left) = left.filter(|_| found.len() <= most) else {
            let message =
                format!("`{path}` of the repository has {} bytes, more than belljar copies", found.len());
            return Err(SetupError::Unsupported(message));
        };
        self.left.set(left);
        let mut to = self.create(path)?;
        // It may grow meanwhile.
        io::copy(&mut Read::take(&mut from, found.len()), &mut to).map_err(failed())?;
        let modified = found.modified().map_err(failed())?;
        to.set_modified(modified).map_err(failed())
    }

    fn create(&self, path: &str) -> Result<File, SetupError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let create = || openat2(&self.opened, path, flags, Mode::from_raw_mode(0o644), BENEATH_ONLY);
        let opened = match (create(), path.rsplit_once('/')) {
            (Err(Errno::NOENT), Some((folder, _))) => {
                make_folder(&self.opened, folder, |_| Ok(())).and_then(|_| create().map_err(io::Error::from))
            }
            (opened, _) => opened.map_err(io::Error::from),
        };
        opened.map(File::from).map_err(SetupError::make(&self.directory.join(path)))
    }
}

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Files of unfinished operations (gitrepository-layout(5)).
const STATE_FILES: [&str; 8] = [
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "SQUASH_MSG",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "COMMIT_EDITMSG",
];
const STATE_DIRECTORIES: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];
const SNAPSHOT_TRIES: u32 = 5;
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Five million files.
const MAX_INDEX_BYTES: u64 = 1 << 30;
/// Of all files together.
const MAX_COPIED_BYTES: u64 = MAX_INDEX_BYTES + (64 << 20);
const MAX_STATE_FILES: usize = 256;
const MAX_WORKTREES: usize = 256;

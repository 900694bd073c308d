//! Where sandboxes' git directories are stored, and which host repositories they stand for.

use super::setup::{SetupError, fill};
use super::{HostGit, Refs, Synced};
use crate::foreign::Foreign;
use crate::settings::HostFiles;
use belljar_spec::SandboxId;
use belljar_spec::workspace::{BorrowedObjects, CoveredFile, DotGit, PrivateGitView};
use belljar_state::{Lock, Survives, create_private, write_atomic};
use belljar_sys::remove_tree::remove;
use serde::{Deserialize, Serialize};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The git directories of one sandbox, locked until dropped.
#[derive(Debug)]
pub struct PrivateGit {
    pub(super) root: PathBuf,
    pub(super) label: Label,
    _hold: Lock,
}

/// Their label, stored beside them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) life: Life,
    pub(super) repositories: Vec<Repository>,
}

/// Their lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// As long as one sandbox lives.
    OneShot,
    /// Until the persistent sandbox or the change set that they belong to is removed.
    Persistent,
    /// Until the user removes them: something in them was refused, and exists nowhere else.
    Refused,
}

/// One repository of the host, and the directory that stands for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    pub host: HostGit,
    /// The repository's `.git`, relative to the workspace.
    pub dot_git: String,
    /// The directory that stands for it, below the root of the sandbox's git directories.
    pub(super) directory: String,
    /// The file with the state that both sides last agreed on.
    pub(super) synced: String,
    /// The host's git directory: another repository at the same path is another one.
    pub(super) identity: Identity,
    /// The same for the folder's `.git`, over which the sandbox's is mounted: when the host replaces it, the mount is gone.
    pub(super) dot_git_identity: Identity,
}

/// Device, inode, and creation time in nanoseconds, if the file system records it: an inode number is reused as soon as it is free.
type Identity = (u64, u64, u64);

/// A repository that a sandbox is to have, found by the protected paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRequest {
    pub host: HostGit,
    /// The directories with its objects, its own first.
    pub objects: Vec<PathBuf>,
    /// The repository's `.git`, relative to the workspace.
    pub dot_git: String,
    /// `core.worktree`, and the part of the superproject's git directory, for a submodule.
    pub module: Option<Module>,
}

/// A submodule's git directory, which lies in that of the repository around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `modules/NAME`
    pub path: String,
    /// `core.worktree`. `None` in a linked worktree: the `.git` file in the submodule's folder names its git directory by another
    /// path inside, and git takes that folder.
    pub work_tree: Option<String>,
}

impl PrivateGit {
    /// Makes the private git directories, or continues with those of an earlier life of the same sandbox. The first one is the
    /// workspace's own, in which `placeholders` exist only as mount points: git inside must not touch them.
    pub fn create(
        state: &Path,
        id: SandboxId,
        life: Life,
        requests: &[RepositoryRequest],
        placeholders: &[String],
        files: &HostFiles,
    ) -> Result<(PrivateGit, Vec<PrivateGitView>), SetupError> {
        let place = place(state);
        make_directory(&place)?;
        let root = place.join(id.to_string());
        let hold = held(&place, &root)?;
        let mut label = Label { version: VERSION, id: id.to_string(), life, repositories: Vec::new() };
        let repositories_now = repositories(requests)?;
        let read = Label::read(&root);
        let is_damaged = read.is_err();
        let mut earlier = read.unwrap_or_default();
        let is_other = |label: &mut Label| label.version != VERSION || label.repositories != repositories_now;
        let (root, hold) = match earlier.take_if(is_other) {
            // A partly made directory that an agent could write to is never continued: a link in it would lead elsewhere.
            Some(label) => {
                put_aside(&place, &root, label)?;
                let new = held(&place, &root)?;
                drop(hold);
                (root, new)
            }
            None if is_damaged => {
                set_damaged_aside(&root).map_err(SetupError::make(&root))?;
                let new = held(&place, &root)?;
                drop(hold);
                (root, new)
            }
            None => (root, hold),
        };
        let (mut views, mut number) = (Vec::new(), 0);
        for (index, one) in requests.iter().enumerate() {
            let borrowed = borrowed(&one.host, &one.objects, &mut number);
            let repository = repositories_now[index].clone();
            let path = root.join(&repository.directory);
            if earlier.is_none() {
                // Left by a start that was killed before any sandbox saw it.
                if one.module.is_none() {
                    let _ = remove(&path);
                }
                make_directory(&path)?;
                let work_tree = one.module.as_ref().and_then(|module| module.work_tree.as_deref());
                let placeholders = if index == 0 { placeholders } else { &[] };
                let synced = fill(&one.host, &path, &borrowed, work_tree, placeholders, files);
                // The partial copy is of no use, and may be large.
                let synced = synced.inspect_err(|_| drop(remove(&root)))?;
                synced.write(&root.join(&repository.synced)).map_err(SetupError::make(&root))?;
            }
            if one.module.is_none() {
                let kind = match one.host.own == one.host.top.join(".git") {
                    true => DotGit::Directory,
                    false => DotGit::File {
                        inside: format!("{GIT_INSIDE}/{index}"),
                        own: one.host.own.clone(),
                        common: one.host.common.clone(),
                    },
                };
                let (dot_git, covered) = (one.dot_git.clone(), Vec::new());
                views.push(PrivateGitView { dot_git, kind, directory: path, borrowed, covered });
            } else if let Some(first) = views.first_mut() {
                first.borrowed.extend(borrowed);
                if let (DotGit::File { inside, .. }, Some(module)) = (&first.kind, &one.module) {
                    let source = root.join(format!("{index}.gitfile"));
                    let text = format!("gitdir: {inside}/{}\n", module.path);
                    fs::write(&source, text).map_err(SetupError::make(&source))?;
                    first.covered.push(CoveredFile { path: one.dot_git.clone(), source });
                }
            }
            label.repositories.push(repository);
        }
        label.write(&root)?;
        Ok((PrivateGit { root, label, _hold: hold }, views))
    }

    /// Their lifetime.
    pub fn life(&self) -> Life {
        self.label.life
    }

    /// The name of these directories in belljar's refs on the host.
    pub fn id(&self) -> &str {
        &self.label.id
    }

    /// A belljar file beside them.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The repositories that these directories stand for.
    pub fn repositories(&self) -> &[Repository] {
        &self.label.repositories
    }

    /// The directory that stands for a repository. The agent writes its content.
    pub fn open(&self, repository: &Repository) -> Result<Foreign, SetupError> {
        // The first part is belljar's own; an agent can replace all others by links.
        let (first, below) = repository.directory.split_once('/').unwrap_or((&repository.directory, "."));
        let directory = Foreign::open(&self.root.join(first))?;
        directory
            .below(below)?
            .ok_or_else(|| SetupError::Unsupported(format!("`{}` is gone", repository.dot_git)))
    }

    /// A repository whose `.git` on the host, or the git directory that it leads to, was replaced since the start.
    pub fn replaced(&self) -> Option<&Repository> {
        self.label.repositories.iter().find(|one| {
            identity_of_link(&one.host.top.join(".git")).ok() != Some(one.dot_git_identity)
                || identity(&one.host.common).ok() != Some(one.identity)
        })
    }

    /// The path of that directory, to be watched.
    pub fn directory(&self, repository: &Repository) -> PathBuf {
        self.root.join(&repository.directory)
    }

    /// The state that both sides last agreed on.
    pub fn synced(&self, repository: &Repository) -> Option<Synced> {
        Synced::read(&self.root.join(&repository.synced))
    }

    pub fn write_synced(&self, repository: &Repository, synced: &Synced) -> io::Result<()> {
        synced.write(&self.root.join(&repository.synced))
    }

    /// From now on they are kept only while their content is needed: their sandbox is removed.
    pub fn release(&mut self) -> Result<(), SetupError> {
        self.label.life = Life::OneShot;
        self.label.write(&self.root)
    }

    /// Keeps them for good, and returns where: something in them could not be imported.
    pub fn keep_refused(mut self) -> PathBuf {
        self.label.life = Life::Refused;
        // If that fails, the next start tries again.
        let _ = self.label.write(&self.root);
        self.root
    }

    /// Removes them. All work is in the host's repository.
    pub fn remove(self) -> io::Result<()> {
        remove(&self.root)
    }
}

/// The repositories for the label; their directories are identified by the host's files.
fn repositories(requests: &[RepositoryRequest]) -> Result<Vec<Repository>, SetupError> {
    let one = |(index, one): (usize, &RepositoryRequest)| {
        let read = |path: &Path| {
            let path = path.to_path_buf();
            move |error: io::Error| {
                SetupError::Unsupported(format!("`{}` cannot be read: {error}", path.display()))
            }
        };
        let dot_git = one.host.top.join(".git");
        Ok(Repository {
            host: one.host.clone(),
            dot_git: one.dot_git.clone(),
            synced: format!("{index}.json"),
            directory: match &one.module {
                Some(module) => format!("0/{}", module.path),
                None => index.to_string(),
            },
            identity: identity(&one.host.common).map_err(read(&one.host.common))?,
            dot_git_identity: identity_of_link(&dot_git).map_err(read(&dot_git))?,
        })
    };
    requests.iter().enumerate().map(one).collect()
}

/// Leaves the directories of an earlier life to the next search for abandoned ones, which imports their commits.
fn put_aside(place: &Path, root: &Path, mut label: Label) -> Result<(), SetupError> {
    label.life = Life::OneShot;
    label.write(root)?;
    let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = (0..).map(|number| place.join(format!("{name}-{number}"))).find(|path| !path.exists());
    let aside = aside.unwrap_or_else(|| place.join(name));
    fs::rename(root, &aside).map_err(SetupError::make(&aside))
}

/// Renames git directories whose label cannot be read, so that they are not taken for new ones.
fn set_damaged_aside(root: &Path) -> io::Result<PathBuf> {
    let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = (0..).map(|number| root.with_file_name(format!("{name}-{number}.{DAMAGED}")));
    let aside = aside.take(MAX_DAMAGED).find(|path| !path.exists()).unwrap_or_else(|| root.to_path_buf());
    fs::rename(root, &aside)?;
    Ok(aside)
}

/// Makes the root of a sandbox's git directories and locks it. Between these two steps no other process may take it for abandoned.
fn held(place: &Path, root: &Path) -> Result<Lock, SetupError> {
    loop {
        let turn = Lock::wait(&place.join(LOCK)).map_err(SetupError::make(place))?;
        make_directory(root)?;
        if let Some(hold) = Lock::try_now(&root.join(LOCK)).map_err(SetupError::make(root))? {
            return Ok(hold);
        }
        // An earlier life of the same sandbox is ending.
        drop(turn);
        std::thread::sleep(LOCK_INTERVAL);
    }
}

/// The directories of a sandbox that has ended and may be started again.
pub fn open(state: &Path, id: SandboxId) -> Result<Option<PrivateGit>, SetupError> {
    let place = place(state);
    let root = place.join(id.to_string());
    let Some(label) = Label::read(&root)? else { return Ok(None) };
    let hold = held(&place, &root)?;
    Ok(Some(PrivateGit { root, label, _hold: hold }))
}

/// Refs of a sandbox's git directories, by their names inside, whose commits the host has only in belljar's refs. Only reads.
pub fn waiting(state: &Path, id: SandboxId) -> Refs {
    let root = place(state).join(id.to_string());
    let repositories = Label::read(&root).ok().flatten().map(|label| label.repositories).unwrap_or_default();
    let synced = repositories.iter().filter_map(|one| Synced::read(&root.join(&one.synced)));
    synced.flat_map(|synced| synced.set_aside).collect()
}

/// The git directories that sandboxes left behind.
#[derive(Debug, Default)]
pub struct Abandoned {
    /// Those whose sandbox was killed with belljar, each locked from now on: their commits are not on the host yet.
    pub gits: Vec<PrivateGit>,
    /// Those whose label cannot be read. They have another name from now on, and are reported once.
    pub damaged: Vec<PathBuf>,
}

/// Directories that earlier runs in an overlay left beside the overlay's own, whose commits were not imported. Only reads.
pub fn put_aside_in(layer: &Path, id: SandboxId) -> Vec<PathBuf> {
    let own = id.to_string();
    let entries = fs::read_dir(place(layer)).into_iter().flatten().flatten();
    let beside = entries.filter(|entry| entry.file_name() != own.as_str() && entry.file_name() != LOCK);
    beside.map(|entry| entry.path()).collect()
}

/// Finds git directories that no sandbox uses any more.
pub fn abandoned(state: &Path) -> Abandoned {
    let place = place(state);
    let mut found = Abandoned::default();
    let entries = fs::read_dir(&place).into_iter().flatten().flatten();
    let Ok(_turn) = Lock::wait(&place.join(LOCK)) else { return found };
    for root in entries.map(|entry| entry.path()) {
        let Ok(Some(hold)) = Lock::try_now(&root.join(LOCK)) else { continue };
        match Label::read(&root) {
            Ok(Some(label)) if label.life == Life::OneShot => {
                found.gits.push(PrivateGit { root, label, _hold: hold })
            }
            Ok(Some(_)) => {}
            // Its process was killed before any work was done in it.
            Ok(None) => drop(remove(&root)),
            Err(_) if root.extension().is_some_and(|known| known == DAMAGED) => {}
            Err(_) => found.damaged.extend(set_damaged_aside(&root)),
        }
    }
    found
}

impl Label {
    /// A missing directory is no error.
    fn read(root: &Path) -> Result<Option<Label>, SetupError> {
        let path = root.join(LABEL);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(SetupError::make(&path))?,
        };
        let unreadable = |error: serde_json::Error| {
            SetupError::Unsupported(format!("`{}` cannot be read: {error}", path.display()))
        };
        serde_json::from_slice(&text).map(Some).map_err(unreadable)
    }

    fn write(&self, root: &Path) -> Result<(), SetupError> {
        let path = root.join(LABEL);
        let text = serde_json::to_vec(self).map_err(|error| SetupError::Unsupported(error.to_string()))?;
        write_atomic(&path, &text, Survives::Kill).map_err(SetupError::make(&path))
    }
}

impl Synced {
    fn read(path: &Path) -> Option<Synced> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        write_atomic(path, &serde_json::to_vec(self)?, Survives::Kill)
    }
}

/// The object directories that a repository uses, and git-lfs' objects beside the first.
fn borrowed(host: &HostGit, objects: &[PathBuf], number: &mut usize) -> Vec<BorrowedObjects> {
    let mut found = Vec::new();
    for objects in objects {
        let inside = format!("{OBJECTS_INSIDE}/{number}");
        *number += 1;
        // The backend opens these without following links.
        if !is_directory(objects) {
            continue;
        }
        let borrows = objects.join("info/alternates").exists();
        let source = objects.clone();
        found.push(BorrowedObjects { source, inside: format!("{inside}/objects"), borrows });
        let lfs = host.common.join("lfs");
        if objects.parent() == Some(&host.common) && is_directory(&lfs) {
            found.push(BorrowedObjects { source: lfs, inside: format!("{inside}/lfs"), borrows: false });
        }
    }
    found
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn identity(path: &Path) -> io::Result<Identity> {
    Ok(identity_of(&fs::metadata(path)?))
}

fn identity_of_link(path: &Path) -> io::Result<Identity> {
    Ok(identity_of(&fs::symlink_metadata(path)?))
}

fn identity_of(found: &Metadata) -> Identity {
    let made = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.and_then(|made| u64::try_from(made.as_nanos()).ok());
    (found.dev(), found.ino(), made.unwrap_or_default())
}

fn place(state: &Path) -> PathBuf {
    state.join("git")
}

/// Only belljar's own user may enter the parents of the directories that sandboxes see.
fn make_directory(path: &Path) -> Result<(), SetupError> {
    create_private(path).map_err(SetupError::make(path))
}

const VERSION: u32 = 1;
const LABEL: &str = "label.json";
const LOCK: &str = "lock";
/// The suffix of git directories whose label cannot be read.
const DAMAGED: &str = "damaged";
const MAX_DAMAGED: usize = 10_000;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Where object directories of the host are mounted inside.
const OBJECTS_INSIDE: &str = "/run/belljar/objects";
/// Where git directories are mounted inside if the repository's `.git` is a file.
const GIT_INSIDE: &str = "/run/belljar/git";

//! Where a managed clone lies, and its lock.
//!
//! ```text
//! STATE/shelf/NAME/shelf.json   the repository that it belongs to
//!                  lock         held while any part of it is made, moved or removed
//!                  new/*/       unfinished work, one directory per process; git may still write there after that process was killed
//!                  looks/*/     our own index for each worktree that is being compared, locked by the comparing process
//!                  seen         the host's branches and tags, as the managed clone has them
//!                  ours.git/    a repository that no sandbox sees, with the host's objects as alternates
//!                  repo/        the git directory that sandboxes see; it has no worktree itself
//!                  trees/TREE/  one worktree per branch
//!                  marks/TREE/  belljar's notes on that worktree, and a lock that its sandboxes hold
//! ```

use super::ManagedCloneError;
use belljar_overlay::Identity;
use belljar_spec::git::BranchName;
use belljar_state::damage::{self, Damaged};
use belljar_state::{Lock, Survives, create_private, remove_whole, sweep_removed, write_atomic};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The directory of one managed clone.
#[derive(Debug, Clone)]
pub(super) struct ManagedCloneDir {
    pub(super) root: PathBuf,
    /// For unfinished work of this value alone.
    fresh: PathBuf,
}

/// The repository that a managed clone belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Label {
    version: u32,
    /// The host's git directory.
    pub(super) host: PathBuf,
    /// Identifies that directory: another repository may later lie at the same path. Missing in labels of earlier versions.
    #[serde(default)]
    pub(super) identity: Option<Identity>,
}

impl ManagedCloneDir {
    /// The one for a repository of the host's, which its branches share.
    pub(super) fn of(state: &Path, common: &Path) -> ManagedCloneDir {
        ManagedCloneDir::at(all(state).join(name_of(common)))
    }

    /// The one for a branch of it alone.
    pub(super) fn of_branch(state: &Path, common: &Path, branch: &BranchName) -> ManagedCloneDir {
        // No plain name has the letter.
        ManagedCloneDir::at(all(state).join(format!("{}={}", name_of(common), tree_name(branch))))
    }

    /// The one with this name, if it is there.
    pub(super) fn named(state: &Path, name: &str) -> Option<ManagedCloneDir> {
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        let place = ManagedCloneDir::at(all(state).join(name));
        (plain && place.root.is_dir()).then_some(place)
    }

    /// All managed clones, by name.
    pub(super) fn every(state: &Path) -> Result<Vec<ManagedCloneDir>, ManagedCloneError> {
        let all = all(state);
        let entries = match fs::read_dir(&all) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(ManagedCloneError::io(&all))?,
        };
        let mut places = Vec::new();
        for entry in entries {
            places.push(ManagedCloneDir::at(entry.map_err(ManagedCloneError::io(&all))?.path()));
        }
        places.retain(|place| !place.name().starts_with('.') && place.root.is_dir());
        places.sort_by(|a, b| a.root.cmp(&b.root));
        Ok(places)
    }

    pub(super) fn name(&self) -> String {
        self.root.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn ours(&self) -> PathBuf {
        self.root.join("ours.git")
    }

    pub(super) fn repo(&self) -> PathBuf {
        self.root.join("repo")
    }

    pub(super) fn seen(&self) -> PathBuf {
        self.root.join("seen")
    }

    /// Where something of this name is made.
    pub(super) fn fresh(&self, name: &str) -> PathBuf {
        self.fresh.join(name)
    }

    pub(super) fn tree(&self, tree: &str) -> PathBuf {
        self.root.join("trees").join(tree)
    }

    pub(super) fn mark(&self, tree: &str) -> PathBuf {
        self.root.join("marks").join(tree)
    }

    /// Makes its directories, which only our user can enter, and waits until no other process works on it.
    pub(super) fn lock(&self) -> Result<Lock, ManagedCloneError> {
        let path = self.root.join("lock");
        loop {
            for directory in [&self.root, &self.root.join("trees"), &self.root.join("marks")] {
                create_private(directory).map_err(ManagedCloneError::io(directory))?;
            }
            let hold = Lock::wait(&path).map_err(ManagedCloneError::io(&path))?;
            // Another process may have removed the whole directory while we waited: then we locked a deleted file.
            if hold.is_at(&path) {
                self.clear();
                self.sweep_looks();
                if let Some(all) = self.root.parent() {
                    sweep_removed(all);
                }
                fs::create_dir_all(&self.fresh).map_err(ManagedCloneError::io(&self.fresh))?;
                return Ok(hold);
            }
        }
    }

    /// Removes all of it.
    pub(super) fn remove(&self) -> Result<(), ManagedCloneError> {
        remove_whole(&self.root).map_err(ManagedCloneError::io(&self.root))
    }

    /// Removes unfinished work. Files that cannot be removed do no harm.
    pub(super) fn clear(&self) {
        let _ = fs::remove_dir_all(self.root.join("new"));
    }

    fn at(root: PathBuf) -> ManagedCloneDir {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let fresh = root.join("new").join(format!("{}-{number}", std::process::id()));
        ManagedCloneDir { root, fresh }
    }

    /// A name that no other [`ManagedCloneDir`] has.
    pub(super) fn unique(&self) -> &OsStr {
        self.fresh.file_name().unwrap_or_default()
    }

    /// Its label; `None` if none was written, since the label is the first file made.
    pub(super) fn label(&self) -> Result<Option<Label>, ManagedCloneError> {
        let path = self.root.join("shelf.json");
        let is_begun = self.repo().symlink_metadata().is_err() && self.ours().symlink_metadata().is_err();
        match damage::read_label(&path, &[VERSION]) {
            Err(_) if is_begun && path.symlink_metadata().is_err() => Ok(None),
            label => label
                .map_err(|reason| ManagedCloneError::Damaged(Damaged::new(self.name(), &self.root, reason))),
        }
    }

    /// When its label was last written.
    pub(super) fn labelled(&self) -> Option<SystemTime> {
        fs::metadata(self.root.join("shelf.json")).and_then(|found| found.modified()).ok()
    }

    pub(super) fn write_label(&self, host: &Path, identity: Identity) -> Result<(), ManagedCloneError> {
        let label = Label { version: VERSION, host: host.to_path_buf(), identity: Some(identity) };
        let text =
            serde_json::to_vec(&label).map_err(|error| ManagedCloneError::io(&self.root)(error.into()))?;
        let path = self.root.join("shelf.json");
        write_atomic(&path, &text, Survives::PowerCut).map_err(ManagedCloneError::io(&path))
    }
}

/// A folder's name for a branch: readable, and another one for every branch. A name that had to be changed ends in `@` and a part
/// of its hash; unchanged names never contain `@`. git makes refs of it (`worktrees/NAME/HEAD`), so that it must be fit for one.
pub(super) fn tree_name(branch: &BranchName) -> String {
    let plain = readable(branch.as_str());
    if plain == branch.as_str() {
        plain
    } else {
        format!("{plain}@{}", digest(branch.as_str().as_bytes(), 12))
    }
}

/// A managed clone's name: the repository's folder, and a part of the hash of its git directory's path.
fn name_of(common: &Path) -> String {
    let folder = match common.file_name() {
        Some(name) if name == ".git" => common.parent().and_then(Path::file_name),
        name => name,
    };
    let readable = readable(&folder.unwrap_or_default().to_string_lossy());
    format!("{}-{}", readable.trim_start_matches('.'), digest(common.as_os_str().as_encoded_bytes(), 12))
}

fn readable(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.+".contains(c) { c } else { '-' };
    text.chars().take(MAX_NAME_BYTES).map(plain).collect()
}

fn digest(bytes: &[u8], digits: usize) -> String {
    let digest = Sha256::digest(bytes);
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    text[..digits].to_string()
}

fn all(state: &Path) -> PathBuf {
    state.join("shelf")
}

const VERSION: u32 = 1;
/// Leaves room in a file name for the suffix.
const MAX_NAME_BYTES: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_branch_has_a_folder_of_its_own() {
        let long = "x".repeat(200);
        let names = ["a/b", "a-b", "a.b", "é", "e", "a/b-c", "a-b/c", "a@b", &long, &format!("{long}y")];
        let folders: BTreeSet<String> = names.iter().map(|name| tree_name(&name.parse().unwrap())).collect();
        assert_eq!(folders.len(), names.len(), "{folders:?}");
        assert!(folders.iter().all(|name| name.len() < 200 && !name.contains('/')));
        assert!(folders.contains("a-b"));
    }

    #[test]
    fn a_clone_for_one_branch_is_another_one() {
        let (state, common) = (Path::new("/state"), Path::new("/home/ada/engine/.git"));
        let of = |branch: &str| ManagedCloneDir::of_branch(state, common, &branch.parse().unwrap()).name();
        let names = [ManagedCloneDir::of(state, common).name(), of("work"), of("a/b"), of("a-b")];
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| !name.contains('/')));
    }

    #[test]
    fn a_managed_clone_is_called_as_its_repository() {
        assert!(name_of(Path::new("/home/ada/engine/.git")).starts_with("engine-"));
        assert!(name_of(Path::new("/srv/x.git")).starts_with("x.git-"));
        assert!(!name_of(Path::new("/home/ada/.dots/.git")).starts_with('.'));
    }
}

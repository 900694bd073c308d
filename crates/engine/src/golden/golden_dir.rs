//! Where golden roots are:
//!
//! ```text
//! golden/lock                 alone while one is built or removed
//! golden/current              the name of the one that new sandboxes get
//! golden/downloads/           what is being fetched
//! golden/builds/<name>/       base/ (the archive), changes/upper/ (packages), build.json, lock (shared while a sandbox uses it)
//! golden/builds/.new-<name>/  one that is being made
//! ```

use crate::Engine;
use belljar_spec::{CommandLine, ErrorCode, GoldenTier, SandboxError, SandboxId, hint};
use belljar_state::{Lock, Survives, create_private, write_atomic};
use belljar_sys::rustix::fs::syncfs;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// All of it.
pub(super) struct GoldenDir {
    directory: PathBuf,
    /// Where everything is kept.
    state: PathBuf,
    /// Where stopped sandboxes keep what they changed of a root.
    sandboxes: PathBuf,
    /// Where snapshots say which root lies below them.
    snapshots: PathBuf,
}

/// One root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Build {
    directory: PathBuf,
}

/// What is written down of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct About {
    pub(super) release: String,
    pub(super) tier: GoldenTier,
}

impl GoldenDir {
    pub(super) fn new(state: &Path) -> Result<GoldenDir, SandboxError> {
        let directory = state.join("golden");
        for place in ["", "builds", "downloads"] {
            let path = directory.join(place);
            create_private(&path).map_err(failed(&path))?;
        }
        let [sandboxes, snapshots] =
            ["fleet/sandboxes", "fleet/snapshots/taken"].map(|owners| state.join(owners));
        Ok(GoldenDir { directory, state: state.to_path_buf(), sandboxes, snapshots })
    }

    /// Waits until no other process builds; calls `told` if one does.
    pub(super) fn lock(&self, progress: &dyn Fn()) -> Result<Lock, SandboxError> {
        let path = self.directory.join("lock");
        if let Some(lock) = Lock::try_now(&path).map_err(failed(&path))? {
            return Ok(lock);
        }
        progress();
        Lock::wait(&path).map_err(failed(&path))
    }

    /// What makes sandboxes to build in.
    pub(super) fn engine(&self) -> Engine {
        Engine::new().with_state(&self.state).with_records(self.state.join("audit"))
    }

    /// The one that new sandboxes get.
    pub(super) fn current(&self) -> Option<Build> {
        let name = fs::read_to_string(self.directory.join("current")).ok()?;
        self.named(name.trim())
    }

    pub(super) fn named(&self, name: &str) -> Option<Build> {
        let build = is_name(name).then(|| Build { directory: self.builds().join(name) })?;
        build.about().map(|_| build)
    }

    pub(super) fn unfinished(&self, name: SandboxId) -> Result<Build, SandboxError> {
        let directory = self.builds().join(format!("{NEW}{name}"));
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed(&directory))?;
        Ok(Build { directory })
    }

    pub(super) fn download(&self, file: &str) -> Result<PathBuf, SandboxError> {
        Ok(self.directory.join("downloads").join(file))
    }

    /// From now on new sandboxes get this one.
    pub(super) fn switch(&self, build: &Build) -> Result<(), SandboxError> {
        let current = self.directory.join("current");
        write_atomic(&current, build.name().as_bytes(), Survives::PowerCut).map_err(failed(&current))
    }

    /// New sandboxes get none.
    pub(super) fn forget(&self) -> Result<(), SandboxError> {
        let current = self.directory.join("current");
        match fs::remove_file(&current) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&current)(error)),
            _ => Ok(()),
        }
    }

    /// Removes what is unused: builds that were cut short, and those that are neither current, nor in use, nor below the changes of
    /// a sandbox that is stopped. Returns how many are left beside the current one.
    pub(super) fn sweep(&self) -> usize {
        // By the name in the file, whether that build can be used or not: a damaged build is not an unused one.
        let current = match fs::read_to_string(self.directory.join("current")) {
            Ok(name) => Some(name.trim().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Any of them may be the current one.
            Err(_) => return fs::read_dir(self.builds()).into_iter().flatten().flatten().count(),
        };
        let mut left = 0;
        for entry in fs::read_dir(self.builds()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if Some(&name) == current.as_ref() {
                continue;
            }
            let gone = match name.starts_with(NEW) {
                true => Some(entry.path()),
                false => self.set_aside(&entry.path(), &name),
            };
            match gone {
                Some(gone) => drop(belljar_sys::remove_tree::remove(&gone)),
                None => left += 1,
            }
        }
        left
    }

    /// Moves a build to another name, if it is unused, and returns its new path. A sandbox that wants a lease meanwhile waits, and
    /// then finds that it is gone.
    fn set_aside(&self, build: &Path, name: &str) -> Option<PathBuf> {
        let _alone = Lock::try_now(&build.join("lock")).ok()??;
        if self.is_pinned(name) {
            return None;
        }
        let aside = build.with_file_name(format!("{NEW}gone-{name}"));
        fs::rename(build, &aside).ok()?;
        Some(aside)
    }

    /// Keeps a build for as long as a sandbox's changes are there. A pin that says so already is left as it is.
    pub(super) fn pin(&self, build: &Build, owner: &Path) -> Result<(), SandboxError> {
        let file = owner.join(PIN);
        if fs::read_to_string(&file).is_ok_and(|name| name.trim() == build.name()) {
            return Ok(());
        }
        write_atomic(&file, build.name().as_bytes(), Survives::PowerCut).map_err(failed(&file))
    }

    /// What lies below a sandbox's changes.
    pub(super) fn pinned(&self, owner: &Path) -> Result<Option<Build>, SandboxError> {
        let file = owner.join(PIN);
        let name = match fs::read_to_string(&file) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // Changes of one root over another are no system.
            Err(error) => return Err(failed(&file)(error)),
        };
        match self.named(name.trim()) {
            Some(build) => Ok(Some(build)),
            None => {
                let message = "the golden root that this sandbox was made on is gone";
                Err(ErrorCode::ChangedMeanwhile.error(message).hint("delete the sandbox and make it anew"))
            }
        }
    }

    /// What cannot be read, or is no name, may name any of them.
    fn is_pinned(&self, name: &str) -> bool {
        let is_missing = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        [&self.sandboxes, &self.snapshots]
            .into_iter()
            .any(|owners| self.is_pinned_in(owners, name, is_missing))
    }

    fn is_pinned_in(&self, owners: &Path, name: &str, is_missing: impl Fn(&io::Error) -> bool) -> bool {
        let owners = match fs::read_dir(owners) {
            Ok(owners) => owners,
            Err(error) => return !is_missing(&error),
        };
        owners.into_iter().any(|entry| {
            let pin = entry.and_then(|entry| fs::read_to_string(entry.path().join("root").join(PIN)));
            match pin {
                Ok(pin) => pin.trim() == name || !is_name(pin.trim()),
                Err(error) => !is_missing(&error),
            }
        })
    }

    fn builds(&self) -> PathBuf {
        self.directory.join("builds")
    }
}

impl Build {
    pub(super) fn name(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().trim_start_matches(NEW).to_string()
    }

    /// The archive.
    pub(super) fn base(&self) -> PathBuf {
        self.directory.join("base")
    }

    /// What packages changed.
    pub(super) fn changes(&self) -> PathBuf {
        self.directory.join("changes")
    }

    /// What an overlay is made of, topmost first.
    pub(super) fn lowers(&self) -> Vec<PathBuf> {
        vec![self.changes().join("upper"), self.base()]
    }

    pub(super) fn about(&self) -> Option<About> {
        serde_json::from_slice(&fs::read(self.directory.join("build.json")).ok()?).ok()
    }

    /// Held, it is not removed.
    pub(super) fn lease(&self) -> Result<Lock, SandboxError> {
        let path = self.directory.join("lock");
        let lock = Lock::share(&path).map_err(failed(&path))?;
        // Another process may have removed it while we waited.
        match lock.is_at(&path) {
            true => Ok(lock),
            false => Err(ErrorCode::ChangedMeanwhile
                .error("this golden root was just removed")
                .hint(hint!("try again; {} shows the current one", CommandLine::GoldenStatus))),
        }
    }

    /// Gives it its name: it is whole.
    pub(super) fn finish(self, release: &str, tier: GoldenTier) -> Result<Build, SandboxError> {
        let work = self.changes().join("work");
        belljar_sys::remove_tree::remove(&work).map_err(failed(&work))?;
        let about = self.directory.join("build.json");
        let content = serde_json::to_vec(&About { release: release.into(), tier }).expect("words are JSON");
        let mut file = File::create(&about).map_err(failed(&about))?;
        // All that is in it, and not only what says that it is there.
        let sync = |file: &File| syncfs(file).map_err(io::Error::from);
        file.write_all(&content).and_then(|()| sync(&file)).map_err(failed(&about))?;
        let directory = self.directory.with_file_name(self.name());
        fs::rename(&self.directory, &directory).map_err(failed(&directory))?;
        Ok(Build { directory })
    }
}

fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> SandboxError {
    move |error| {
        ErrorCode::ImageFailed.error(format!("`{}` cannot be used: {error}", path.display())).caused_by(error)
    }
}

/// Of one that is being made.
const NEW: &str = ".new-";
/// The file that says which build lies below a sandbox's changes.
const PIN: &str = "golden";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::io::Read;
    use std::time::SystemTime;

    /// A place with two builds, and a sandbox that keeps its changes.
    fn place() -> (tempfile::TempDir, GoldenDir, [Build; 2], PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let place = GoldenDir::new(folder.path()).unwrap();
        let builds = [1, 2].map(|number| {
            let name = SandboxId::from_random([number; 8]);
            place.unfinished(name).unwrap().finish("3.24.1", GoldenTier::Base).unwrap()
        });
        let owner = folder.path().join("fleet/sandboxes/one/root");
        fs::create_dir_all(&owner).unwrap();
        (folder, place, builds, owner)
    }

    #[test]
    fn a_pin_is_written_once_and_never_in_place() {
        let (_folder, place, [one, two], owner) = place();
        place.pin(&one, &owner).unwrap();
        let file = File::options().read(true).write(true).open(owner.join(PIN)).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH;
        file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
        place.pin(&one, &owner).unwrap();
        assert_eq!(
            fs::metadata(owner.join(PIN)).unwrap().modified().unwrap(),
            long_ago,
            "it is right already"
        );
        assert_eq!(place.pinned(&owner).unwrap(), Some(one.clone()));
        place.pin(&two, &owner).unwrap();
        assert_eq!(place.pinned(&owner).unwrap(), Some(two));
        let mut before = String::new();
        (&file).read_to_string(&mut before).unwrap();
        assert_eq!(before, one.name(), "a process that reads meanwhile sees the one or the other");
        assert_eq!(fs::read_dir(&owner).unwrap().count(), 1);
    }

    #[test]
    fn a_current_build_that_is_not_understood_is_not_swept() {
        let (_folder, place, [one, two], _owner) = place();
        place.switch(&two).unwrap();
        fs::write(two.base().with_file_name("build.json"), "{").unwrap();
        place.sweep();
        assert!(two.base().with_file_name("build.json").exists(), "damaged, and still the current one");
        fs::write(place.directory.join("current"), b"\xff\xfe").unwrap();
        place.sweep();
        assert!(two.base().with_file_name("build.json").exists(), "any may be the current one");
        assert!(one.about().is_none());
    }

    #[test]
    fn a_pin_that_is_no_name_may_name_any_build() {
        for damaged in [&b""[..], b"010101010101", b"\xff\xfe"] {
            let (_folder, place, [one, two], owner) = place();
            place.switch(&two).unwrap();
            fs::write(owner.join(PIN), damaged).unwrap();
            assert_eq!(place.sweep(), 1, "{damaged:?}");
            assert!(one.about().is_some(), "{damaged:?}");
            assert!(place.pinned(&owner).is_err(), "it is on another root than the current one");
            fs::remove_file(owner.join(PIN)).unwrap();
            assert_eq!(place.sweep(), 0);
            assert!(one.about().is_none() && two.about().is_some());
        }
    }
}

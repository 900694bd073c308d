//! Moves objects out of the quarantine into the host's repository.

use super::host::Owner;
use super::journal::{GitLock, IndexFiles, Journal, MOVED, Moving, keep_content};
use super::{HostRepository, Landing, Quarantine, QuarantineError, Taken, sweep};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, fsync, mkdirat, openat2,
    utimensat,
};
use belljar_sys::rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

/// Objects that the host has now. Until this is dropped they are safe from `git gc`, though no ref has them yet.
#[derive(Debug, Default)]
pub struct Admitted {
    /// The `.keep` file that protects them, and the folder that it is reached by.
    keep: Option<PathBuf>,
    folder: Option<ObjectFolder>,
}

/// A folder of the host's objects. Opened once and following no link, since an agent may have put one there: writes go to this
/// folder, even if its name leads elsewhere by then.
#[derive(Debug)]
struct ObjectFolder {
    opened: OwnedFd,
    /// A path that leads to it while it is open.
    path: PathBuf,
}

impl ObjectFolder {
    /// The folder of this name, made if it is missing; `.` for the object directory itself.
    fn open(host: &HostRepository, name: &OsStr) -> Result<ObjectFolder, QuarantineError> {
        let place = host.objects.join(name);
        let open = || -> io::Result<OwnedFd> {
            let objects = openat2(CWD, &host.objects, OPEN_FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
            let is_new = mkdirat(&objects, name, Mode::from_raw_mode(0o777)).is_ok();
            let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let opened = openat2(&objects, name, OPEN_FOLDER, Mode::empty(), below)?;
            if is_new {
                host.owner.take_open(&opened)?;
            }
            Ok(opened)
        };
        let opened = open().map_err(QuarantineError::file("open", &place))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        Ok(ObjectFolder { opened, path })
    }

    /// Syncs its entries to disk.
    fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.opened)?)
    }
}

impl Quarantine {
    /// Gives the pack to the host: by a hard link or a copy, its index last. No ref has it yet; the journal names the refs that
    /// will.
    pub fn admit(
        &self,
        taken: Option<&Taken>,
        host: &HostRepository,
        landings: &[Landing],
    ) -> Result<Admitted, QuarantineError> {
        let directory = host.objects.join("pack");
        let pack = taken.and_then(|taken| taken.name.clone()).map(|name| Moving { directory, name });
        Journal { pack: pack.clone(), locks: locks(host, landings), index: None, loose: None }.write(self)?;
        self.move_pack(pack, host)
    }

    /// The same for the small imports of a running sandbox: a few objects become loose ones, as git itself writes them, so that not
    /// every commit is a pack. The journal also names the files that are about to be made beside a worktree's index.
    pub(crate) fn admit_import(
        &self,
        taken: Option<&Taken>,
        host: &HostRepository,
        landings: &[Landing],
        index: &IndexFiles,
    ) -> Result<Admitted, QuarantineError> {
        let name = taken.and_then(|taken| taken.name.clone());
        let is_few = taken.is_some_and(|taken| taken.objects.len() <= MAX_LOOSE);
        let pack = name.clone().filter(|_| !is_few);
        let pack = pack.map(|name| Moving { directory: host.objects.join("pack"), name });
        // `git gc` removes files with such names too.
        let passing = host.objects.join(format!("tmp_belljar_{}_object", self.id));
        Journal {
            pack: pack.clone(),
            locks: locks(host, landings),
            index: Some(index.clone()),
            loose: is_few.then(|| passing.clone()),
        }
        .write(self)?;
        match name.filter(|_| is_few) {
            Some(name) => self.move_objects(&name, host, &passing)?,
            None => return self.move_pack(pack, host),
        }
        Ok(Admitted::default())
    }

    /// Unpacks here, and gives the objects to the host one by one: none is ever incomplete there, and nothing else is left if we
    /// are killed.
    fn move_objects(&self, name: &str, host: &HostRepository, passing: &Path) -> Result<(), QuarantineError> {
        let path = self.packs().join(format!("{name}.pack"));
        let pack = File::open(&path).map_err(QuarantineError::file("open", &path))?;
        let loose = self.directory.join("loose");
        fs::create_dir_all(&loose).map_err(QuarantineError::file("make", &loose))?;
        // The pack was checked when it was taken. With a separate object directory, git finds none of its objects there already.
        let call = self.call().args(["unpack-objects", "-q"]).env("GIT_OBJECT_DIRECTORY", &loose).input(pack);
        call.config("core.fsync", "all").config("core.fsyncMethod", "batch").output()?;
        let list = |path: &Path| {
            let entries = fs::read_dir(path).map_err(QuarantineError::file("list", path))?;
            Ok::<_, QuarantineError>(entries.flatten().map(|entry| (entry.path(), entry.file_name())))
        };
        let all = ObjectFolder::open(host, OsStr::new("."))?;
        let passing = all.path.join(passing.file_name().unwrap_or_default());
        for (folder, prefix) in list(&loose)? {
            if prefix.len() != 2 {
                continue;
            }
            let to = ObjectFolder::open(host, &prefix)?;
            let place = host.objects.join(&prefix);
            for (from, rest) in list(&folder)? {
                host.owner.take(&from)?;
                let moved = move_in(&from, &to.path.join(&rest), &passing, host.owner);
                moved.map_err(QuarantineError::file("add", &place.join(rest)))?;
            }
            to.sync().map_err(QuarantineError::file("write", &place))?;
        }
        Ok(())
    }

    /// The files that an import makes beside the index in this git directory.
    pub(crate) fn index_files(&self, own: &Path) -> IndexFiles {
        IndexFiles {
            copy: own.join(format!("belljar-index-{}", self.id)),
            lock: own.join("index.lock"),
            content: keep_content(&self.id),
        }
    }

    /// Removes the ref locks of a git that was killed while we were not.
    pub(crate) fn clear_locks(&self) {
        if let Some(journal) = Journal::read(&self.directory) {
            sweep::clear_locks(&self.directory, &journal);
        }
    }

    fn move_pack(&self, pack: Option<Moving>, host: &HostRepository) -> Result<Admitted, QuarantineError> {
        let Some(pack) = pack else { return Ok(Admitted::default()) };
        let folder = ObjectFolder::open(host, OsStr::new("pack"))?;
        let there = Moving { directory: folder.path.clone(), name: pack.name.clone() };
        let admitted = Admitted { keep: self.keep(&there, host.owner)?, folder: Some(folder) };
        for extension in MOVED {
            let from = self.packs().join(format!("{}.{extension}", pack.name));
            if from.exists() {
                host.owner.take(&from)?;
                let moved =
                    move_in(&from, &there.file(extension), &there.passing(&self.id, extension), host.owner);
                moved.map_err(QuarantineError::file("add", &pack.file(extension)))?;
            }
        }
        let synced = admitted.folder.iter().try_for_each(ObjectFolder::sync);
        synced.map_err(QuarantineError::file("write", &pack.directory))?;
        Ok(admitted)
    }

    /// The disk space that this takes on the host.
    pub fn cost(&self, taken: Option<&Taken>, landings: &[Landing]) -> u64 {
        let name = taken.and_then(|taken| taken.name.as_ref());
        let files = MOVED.iter().filter_map(|extension| {
            let path = self.packs().join(format!("{}.{extension}", name?));
            Some(path.metadata().ok()?.len())
        });
        files.sum::<u64>().saturating_add(REF.saturating_mul(landings.len() as u64))
    }

    /// As git's own receive-pack does: a concurrent repack does not touch a pack with a `.keep`.
    fn keep(&self, pack: &Moving, owner: Owner) -> Result<Option<PathBuf>, QuarantineError> {
        let path = pack.file("keep");
        match File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                let written = file.write_all(keep_content(&self.id).as_bytes());
                written.map_err(QuarantineError::file("write", &path))?;
                owner.take(&path)?;
                Ok(Some(path))
            }
            // The host has this very pack, and keeps it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(QuarantineError::file("write", &path)(error)),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(keep) = &self.keep {
            let _ = fs::remove_file(keep);
        }
    }
}

impl Owner {
    /// Gives a file to this owner, if we run as another user (root).
    pub(crate) fn take(self, path: &Path) -> Result<(), QuarantineError> {
        match self.is_another() {
            true => lchown(path, Some(self.user), Some(self.group))
                .map_err(QuarantineError::file("give away", path)),
            false => Ok(()),
        }
    }

    /// The same for an open file.
    pub(crate) fn take_open(self, open: impl AsFd) -> io::Result<()> {
        match self.is_another() {
            true => fchown(open, Some(self.user), Some(self.group)),
            false => Ok(()),
        }
    }

    /// Do we run as root, and the owner is another user?
    pub(crate) fn is_another(self) -> bool {
        geteuid().is_root() && self.user != 0
    }
}

/// As many as git's own receive-pack unpacks (receive.unpackLimit).
const MAX_LOOSE: usize = 100;
/// A ref is a file and has a log, even if both are short.
const REF: u64 = 8 << 10;

const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A file with its final name is always complete.
fn move_in(from: &Path, to: &Path, passing: &Path, owner: Owner) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => return Ok(()),
        // The name is a hash of the content. The existing file may be old and unreferenced, and the user's `git gc` about to remove
        // it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && freshen(to).is_ok() => return Ok(()),
        // Another filesystem, or one without links.
        Err(_) => {}
    }
    // Left by a killed belljar process.
    let _ = fs::remove_file(passing);
    let mut source = File::open(from)?;
    let mut copy = File::options().write(true).create_new(true).open(passing)?;
    let copied = io::copy(&mut source, &mut copy)
        .and_then(|_| copy.set_permissions(source.metadata()?.permissions()))
        .and_then(|()| copy.sync_all())
        .and_then(|()| owner.take_open(&copy));
    match copied.and_then(|()| fs::rename(passing, to)) {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = fs::remove_file(passing);
            Err(error)
        }
    }
}

/// Updates a file's times, since `git gc` does not remove young files.
fn freshen(file: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, file, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The files that git locks while these land (for refs as files; other ref storages clean up themselves).
fn locks(host: &HostRepository, landings: &[Landing]) -> Vec<GitLock> {
    let lock =
        |name: &str, content: String| GitLock { path: host.directory.join(format!("{name}.lock")), content };
    let refs = landings.iter().map(|landing| lock(landing.name.as_str(), format!("{}\n", landing.new)));
    // The HEAD of a bare repository is locked together with its branch, and never written.
    refs.chain([lock("HEAD", String::new()), lock("packed-refs", String::new())]).collect()
}

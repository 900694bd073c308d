//! Out of the quarantine, into the host's objects.

use super::host::Owner;
use super::journal::{GitLock, IndexFiles, Journal, MOVED, Moving, keep_content};
use super::{HostRepository, Landing, Quarantine, QuarantineError, Taken, sweep};
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

/// Objects that the host has now. Until this is dropped they are safe from its housekeeping, though no ref has them yet.
#[derive(Debug)]
pub struct Admitted {
    keep: Option<PathBuf>,
}

impl Quarantine {
    /// Gives the pack to the host: by a link or a copy, its index last. Nothing refers to it yet; the refs that will are
    /// written down with it.
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

    /// The same for what comes bit by bit while somebody works: few objects become loose ones, as git itself writes them, so
    /// that not every commit is a pack. The files that are about to be made beside a worktree's index are written down too.
    pub(crate) fn admit_import(
        &self,
        taken: Option<&Taken>,
        host: &HostRepository,
        landings: &[Landing],
        index: &IndexFiles,
    ) -> Result<Admitted, QuarantineError> {
        let name = taken.and_then(|taken| taken.name.clone());
        let is_few = taken.is_some_and(|taken| taken.objects.len() <= MOST_LOOSE);
        let pack = name.clone().filter(|_| !is_few);
        let pack = pack.map(|name| Moving { directory: host.objects.join("pack"), name });
        // git's own cleaning takes names like this too.
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
        Ok(Admitted { keep: None })
    }

    /// Unpacks here, and gives the objects to the host one by one: none is ever half there, and nothing else is left if we
    /// are killed.
    fn move_objects(&self, name: &str, host: &HostRepository, passing: &Path) -> Result<(), QuarantineError> {
        let path = self.packs().join(format!("{name}.pack"));
        let pack = File::open(&path).map_err(QuarantineError::file("open", &path))?;
        let loose = self.directory.join("loose");
        fs::create_dir_all(&loose).map_err(QuarantineError::file("make", &loose))?;
        // Checked when it was taken. With directories of its own git finds none of them there already.
        let call = self.call().args(["unpack-objects", "-q"]).env("GIT_OBJECT_DIRECTORY", &loose).input(pack);
        call.config("core.fsync", "all").config("core.fsyncMethod", "batch").output()?;
        let list = |path: &Path| {
            let entries = fs::read_dir(path).map_err(QuarantineError::file("list", path))?;
            Ok::<_, QuarantineError>(entries.flatten().map(|entry| (entry.path(), entry.file_name())))
        };
        for (folder, prefix) in list(&loose)? {
            let to = host.objects.join(&prefix);
            if prefix.len() != 2 {
                continue;
            }
            make_folder(&to, host.owner)?;
            for (from, rest) in list(&folder)? {
                host.owner.take(&from)?;
                let to = to.join(rest);
                move_in(&from, &to, passing, host.owner).map_err(QuarantineError::file("add", &to))?;
            }
            let synced = File::open(&to).and_then(|directory| directory.sync_all());
            synced.map_err(QuarantineError::file("write", &to))?;
        }
        Ok(())
    }

    /// What an import makes beside the index in this git directory.
    pub(crate) fn index_files(&self, own: &Path) -> IndexFiles {
        IndexFiles {
            copy: own.join(format!("belljar-index-{}", self.id)),
            lock: own.join("index.lock"),
            content: keep_content(&self.id),
        }
    }

    /// Takes the locks of refs away that git left when it was killed, and not we with it.
    pub(crate) fn clear_locks(&self) {
        if let Some(journal) = Journal::read(&self.directory) {
            sweep::clear_locks(&self.directory, &journal);
        }
    }

    fn move_pack(&self, pack: Option<Moving>, host: &HostRepository) -> Result<Admitted, QuarantineError> {
        let Some(pack) = pack else { return Ok(Admitted { keep: None }) };
        make_folder(&pack.directory, host.owner)?;
        let admitted = Admitted { keep: self.keep(&pack, host.owner)? };
        for extension in MOVED {
            let from = self.packs().join(format!("{}.{extension}", pack.name));
            if from.exists() {
                host.owner.take(&from)?;
                let to = pack.file(extension);
                let passing = pack.passing(&self.id, extension);
                move_in(&from, &to, &passing, host.owner).map_err(QuarantineError::file("add", &to))?;
            }
        }
        let synced = File::open(&pack.directory).and_then(|directory| directory.sync_all());
        synced.map_err(QuarantineError::file("write", &pack.directory))?;
        Ok(admitted)
    }

    /// What the host's disk has to bear of all this.
    pub fn cost(&self, taken: Option<&Taken>, landings: &[Landing]) -> u64 {
        let name = taken.and_then(|taken| taken.name.as_ref());
        let files = MOVED.iter().filter_map(|extension| {
            let path = self.packs().join(format!("{}.{extension}", name?));
            Some(path.metadata().ok()?.len())
        });
        files.sum::<u64>().saturating_add(REF.saturating_mul(landings.len() as u64))
    }

    /// As git's own receive-pack: a repack that runs meanwhile leaves a pack with a `.keep` alone.
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
    /// Gives a file to them, if we are somebody else who can.
    pub(crate) fn take(self, path: &Path) -> Result<(), QuarantineError> {
        match self.is_another() {
            true => lchown(path, Some(self.user), Some(self.group))
                .map_err(QuarantineError::file("give away", path)),
            false => Ok(()),
        }
    }

    /// The same for what is open.
    pub(crate) fn take_open(self, open: impl AsFd) -> io::Result<()> {
        match self.is_another() {
            true => fchown(open, Some(self.user), Some(self.group)),
            false => Ok(()),
        }
    }

    /// Are we root, and they are not?
    pub(crate) fn is_another(self) -> bool {
        geteuid().is_root() && self.user != 0
    }
}

/// As many as git's own receive-pack unpacks (receive.unpackLimit).
const MOST_LOOSE: usize = 100;
/// A ref is a file and has a log, however short they are.
const REF: u64 = 8 << 10;

fn make_folder(path: &Path, owner: Owner) -> Result<(), QuarantineError> {
    match fs::create_dir(path) {
        Ok(()) => owner.take(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(QuarantineError::file("make", path)(error)),
    }
}

/// Under its last name a file is always whole.
fn move_in(from: &Path, to: &Path, passing: &Path, owner: Owner) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => return Ok(()),
        // A pack's name is a hash of what is in it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        // Another filesystem, or one without links.
        Err(_) => {}
    }
    fs::copy(from, passing)?;
    let copied =
        File::open(passing).and_then(|file| file.sync_all()).and_then(|()| match owner.is_another() {
            true => lchown(passing, Some(owner.user), Some(owner.group)),
            false => Ok(()),
        });
    match copied.and_then(|()| fs::rename(passing, to)) {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = fs::remove_file(passing);
            Err(error)
        }
    }
}

/// What git locks while these land (refs as files; other kinds of storage clear up themselves).
fn locks(host: &HostRepository, landings: &[Landing]) -> Vec<GitLock> {
    let lock =
        |name: &str, content: String| GitLock { path: host.directory.join(format!("{name}.lock")), content };
    let refs = landings.iter().map(|landing| lock(landing.name.as_str(), format!("{}\n", landing.new)));
    // The HEAD of a bare repository is locked together with its branch, and never written.
    refs.chain([lock("HEAD", String::new()), lock("packed-refs", String::new())]).collect()
}

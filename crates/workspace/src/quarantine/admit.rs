//! Out of the quarantine, into the host's objects.

use super::host::Owner;
use super::journal::{Journal, Lock, MOVED, Moving, keep_content};
use super::{HostRepository, Landing, Quarantine, QuarantineError, Taken};
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, chown};
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
        Journal { pack: pack.clone(), locks: locks(host, landings) }.write(self)?;
        let Some(pack) = pack else { return Ok(Admitted { keep: None }) };
        match fs::create_dir(&pack.directory) {
            Ok(()) => host.owner.take(&pack.directory)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(QuarantineError::file("make", &pack.directory)(error)),
        }
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
    pub(super) fn take(self, path: &Path) -> Result<(), QuarantineError> {
        match self.is_another() {
            true => chown(path, Some(self.user), Some(self.group))
                .map_err(QuarantineError::file("give away", path)),
            false => Ok(()),
        }
    }

    /// Are we root, and they are not?
    pub(super) fn is_another(self) -> bool {
        geteuid().is_root() && self.user != 0
    }
}

/// A ref is a file and has a log, however short they are.
const REF: u64 = 8 << 10;

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
            true => chown(passing, Some(owner.user), Some(owner.group)),
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
fn locks(host: &HostRepository, landings: &[Landing]) -> Vec<Lock> {
    let lock =
        |name: &str, content: String| Lock { path: host.directory.join(format!("{name}.lock")), content };
    let refs = landings.iter().map(|landing| lock(landing.name.as_str(), format!("{}\n", landing.new)));
    // The HEAD of a bare repository is locked together with its branch, and never written.
    refs.chain([lock("HEAD", String::new()), lock("packed-refs", String::new())]).collect()
}

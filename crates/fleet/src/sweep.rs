//! Removes what the dead left, and nothing of the living. A shim is dead when its lock is free, and for no other reason: process
//! ids are used again, files lie. Volumes are never looked at.

use crate::machine::Nature;
use crate::name::is_name;
use crate::record::{Intent, Record};
use crate::sandbox_dir::{SANDBOXES, SandboxDir};
use crate::shim::Stop;
use crate::snapshots::{pin_root, seed};
use belljar_api::{Sweep, SweptSandbox};
use belljar_engine::Engine;
use belljar_overlay::snapshot::{Forking, SnapshotStore};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_state::new_id;
use belljar_state::{Lock, create_private, remove_set_aside, set_aside, sweep_removed};
use belljar_sys::remove_tree::remove as remove_tree;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;

/// The directory of a fleet, held by one daemon.
#[derive(Debug)]
pub(crate) struct Ground {
    directory: PathBuf,
    _lock: Lock,
}

/// A sandbox that was found on disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) record: Record,
    /// A shim lives, or is about to.
    pub(crate) is_running: bool,
}

/// What a look at the disk came to.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) there: Vec<Found>,
    /// What is not understood, and is left alone: its name, and why.
    pub(crate) unknown: Vec<(String, SandboxError)>,
    pub(crate) sweep: Sweep,
}

impl Ground {
    /// Takes a fleet's directory for this process alone.
    pub(crate) fn take(directory: &Path) -> Result<Ground, SandboxError> {
        let failed = |path: &Path, error: io::Error| {
            ErrorCode::StateFailed
                .error(format!("cannot use `{}`: {error}", path.display()))
                .hint("it must be a directory that belongs to you")
                .caused_by(error)
        };
        let sandboxes = directory.join(SANDBOXES);
        create_private(&sandboxes).map_err(|error| failed(&sandboxes, error))?;
        let path = directory.join("daemon.lock");
        match Lock::try_now(&path) {
            Ok(Some(lock)) => Ok(Ground { directory: directory.into(), _lock: lock }),
            Ok(None) => {
                let message = format!("another daemon keeps the sandboxes in `{}`", directory.display());
                Err(ErrorCode::InUse
                    .error(message)
                    .hint("use that one, or set another XDG_STATE_HOME for this one"))
            }
            Err(error) => Err(failed(&path, error)),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.directory.join(SANDBOXES)
    }

    pub(crate) fn place(&self, name: &str) -> SandboxDir {
        SandboxDir::of_fleet(&self.directory, name)
    }

    /// Looks at everything, and sweeps what is dead unless this is only for show.
    pub(crate) fn sweep(&self, dry_run: bool) -> Result<Findings, SandboxError> {
        let mut findings = Findings { sweep: Sweep { dry_run, swept: Vec::new() }, ..Findings::default() };
        if !dry_run {
            sweep_removed(&self.sandboxes());
            sweep_unfinished(&self.sandboxes());
        }
        for name in names(&self.sandboxes())?.into_iter().filter(|name| is_name(name)) {
            let place = self.place(&name);
            match Record::read(&place).and_then(|record| examine(place, record, dry_run)) {
                Ok((found, swept)) => {
                    findings.sweep.swept.extend(swept);
                    findings.there.extend(found);
                }
                Err(error) => findings.unknown.push((name, error)),
            }
        }
        if !dry_run {
            // What cannot be read keeps all layers.
            let _ = SnapshotStore::at(&self.directory).collect(Forking::None);
            // Leftovers that dying shims could not remove: they leave that to their daemon. Those of living processes are locked by them.
            belljar_engine::sweep_leftovers(self.directory.parent());
        }
        Ok(findings)
    }
}

/// What was found, unless it was removed, and what was done.
fn examine(
    place: SandboxDir,
    mut record: Record,
    dry_run: bool,
) -> Result<(Option<Found>, Option<SweptSandbox>), SandboxError> {
    let held = place.hold().map_err(|error| {
        let message = format!("cannot tell whether `{}` is in use: {error}", place.directory().display());
        ErrorCode::StateFailed
            .error(message)
            .hint(hint!(
                "look at `keeper.lock` in it; {} ends what runs in it and removes it with its files",
                Term::ForceDeleteSandbox
            ))
            .caused_by(error)
    })?;
    let Some(held) = held else { return Ok((Some(Found { record, is_running: true }), None)) };
    let Some((files, reason)) = verdict(&record) else {
        return Ok((Some(Found { record, is_running: false }), None));
    };
    let swept = report(&record, files, reason);
    if dry_run {
        return Ok((Some(Found { record, is_running: false }), Some(swept)));
    }
    match files {
        Stop::Wipe => {
            remove_place(&place, held)?;
            Ok((None, Some(swept)))
        }
        Stop::Keep => {
            record.fault = Some(reason.into());
            record.intent = Intent::Stopped;
            record.leases.clear();
            record.write(&place)?;
            Ok((Some(Found { record, is_running: false }), Some(swept)))
        }
    }
}

/// What is to be done with a sandbox that no shim holds, and why.
fn verdict(record: &Record) -> Option<(Stop, &'static str)> {
    let nature = Nature { persistent: record.persistent, was_ready: record.was_ready() };
    match (record.intent, nature.files()) {
        (Intent::Deleting, _) => Some((Stop::Wipe, "its deletion was cut short")),
        (_, Stop::Wipe) if !record.was_ready() => Some((Stop::Wipe, "its making was cut short")),
        (_, Stop::Wipe) => Some((Stop::Wipe, "its shim is dead")),
        (Intent::Live, Stop::Keep) => Some((Stop::Keep, "its shim is dead")),
        (Intent::Stopped, Stop::Keep) => None,
    }
}

pub(crate) fn report(record: &Record, files: Stop, reason: &str) -> SweptSandbox {
    let action = match files {
        Stop::Keep => "stopped",
        Stop::Wipe => "removed",
    };
    SweptSandbox {
        name: record.name.clone(),
        key: record.key.clone(),
        action: action.into(),
        reason: reason.into(),
    }
}

/// Makes a place with a record in it, atomically for other processes.
pub(crate) fn make_place(place: &SandboxDir, record: &Record) -> Result<(), SandboxError> {
    let failed = |error: io::Error| {
        let message = format!("cannot make `{}`: {error}", place.directory().display());
        ErrorCode::StateFailed.error(message).hint("is the disk full?").caused_by(error)
    };
    let unfinished = unfinished_name(place)?;
    let made = DirBuilder::new()
        .mode(0o700)
        .create(&unfinished)
        .map_err(failed)
        .and_then(|()| write_both(&SandboxDir::new(&unfinished), record))
        .and_then(|()| fs::rename(&unfinished, place.directory()).map_err(failed));
    made.inspect_err(|_| drop(remove_tree(&unfinished)))?;
    match &record.sandbox.snapshot {
        // A kill before this is done leaves a sandbox that was never ready, which the next daemon removes.
        Some(snapshot) => pin_root(place, snapshot).inspect_err(|_| drop(remove_tree(place.directory()))),
        None => Ok(()),
    }
}

/// The record, and the layers of the snapshot that it begins with. Both wait for the disk, at the same time.
fn write_both(place: &SandboxDir, record: &Record) -> Result<(), SandboxError> {
    let Some(snapshot) = &record.sandbox.snapshot else { return record.write(place) };
    thread::scope(|scope| {
        let seeding = scope.spawn(|| seed(place, snapshot));
        let written = record.write(place);
        let seeded =
            seeding.join().unwrap_or_else(|_| Err(ErrorCode::Internal.error("a thread ended early")));
        seeded.and(written)
    })
}

/// Removes a place that no shim holds, atomically for other processes. A kill in the middle leaves a directory that is no place
/// any more, for the next sweep.
pub(crate) fn remove_place(place: &SandboxDir, held: Lock) -> Result<(), SandboxError> {
    forget_work(place)?;
    let gone = set_aside(place.directory()).map_err(|error| remove_failed(place, error))?;
    drop(held);
    // It is no place any more, whatever is left of it, and the next sweep removes the rest.
    let _ = remove_set_aside(&gone);
    if let Some(fleet) = place.directory().ancestors().nth(2) {
        // Layers that it was the last to need; what is not removed now is removed by the next sweep.
        let store = SnapshotStore::at(fleet);
        let name = place.directory().file_name().unwrap_or_default().to_string_lossy();
        let _ = store.forget(&name).and_then(|()| store.collect(Forking::Perhaps));
    }
    Ok(())
}

/// What it changed beside a folder goes with it: its layer, its clone. First, since its place says that there may be one.
fn forget_work(place: &SandboxDir) -> Result<(), SandboxError> {
    let directory = place.directory();
    match (directory.ancestors().nth(3), directory.file_name().and_then(|name| name.to_str())) {
        (Some(state), Some(name)) => Engine::new().with_state(state).forget(name),
        _ => Ok(()),
    }
}

/// Removes places whose making was cut short. No task makes one meanwhile.
fn sweep_unfinished(sandboxes: &Path) {
    for name in names(sandboxes).into_iter().flatten().filter(|name| name.starts_with(NEW)) {
        // It stays for the next sweep then, and is in no process's way.
        let _ = remove_tree(&sandboxes.join(name));
    }
}

fn unfinished_name(place: &SandboxDir) -> Result<PathBuf, SandboxError> {
    let name = place.directory().file_name().unwrap_or_default().to_string_lossy();
    Ok(place.directory().with_file_name(format!("{NEW}{name}-{}", new_id()?)))
}

fn names(directory: &Path) -> Result<Vec<String>, SandboxError> {
    let failed = |error: io::Error| {
        ErrorCode::StateFailed
            .error(format!("cannot read `{}`: {error}", directory.display()))
            .caused_by(error)
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

fn remove_failed(place: &SandboxDir, error: io::Error) -> SandboxError {
    let message = format!("cannot remove `{}`: {error}", place.directory().display());
    ErrorCode::StateFailed.error(message).hint(hint!("{} tries again", Term::Sweep)).caused_by(error)
}

/// What is being made.
const NEW: &str = ".new-";

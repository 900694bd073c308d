//! A sandbox's route to the host's repository: who serves it, and what is recorded of it.

use belljar_audit::Event;
use belljar_gateway::Recorder;
use belljar_spec::git::{BranchName, RefPolicy};
use belljar_spec::{ErrorCode, Printable, SandboxError};
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_workspace::inert::{Git, Leash};
use belljar_workspace::quarantine::HostRepository;
use belljar_workspace::relay::{LANDING, Relay, RelayEvent, RelayTerms};
use std::io::{PipeReader, PipeWriter, pipe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// git's own port, on the sandbox's loopback.
pub(crate) const PORT: u16 = 9418;

/// A repository of the host's that a sandbox may fetch from and push to.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    /// Its git directory.
    pub(crate) directory: PathBuf,
    /// The branch that is worked on.
    pub(crate) branch: BranchName,
}

impl Repository {
    /// The branch, unless its config says already where it is pushed to: said twice, git would not know.
    pub(crate) fn without_upstream(&self) -> Option<BranchName> {
        let config = std::fs::read_to_string(self.directory.join("config")).unwrap_or_default();
        let is_named = config.contains(&format!("[branch \"{}\"]", self.branch));
        (!is_named).then(|| self.branch.clone())
    }
}

/// A thread that serves a repository. Dropped, it ends, and a push that was landing has landed or was given up.
pub(crate) struct Serving {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Serves a repository at these sockets. Nothing of it is read before a process inside connects: most sandboxes never do, and git
/// takes longer to start than a sandbox.
pub(crate) fn serve(
    listeners: Vec<OwnedFd>,
    repository: &Repository,
    policy: RefPolicy,
    state: PathBuf,
    leash: Leash,
    recorder: &Arc<Recorder>,
) -> Result<Serving, SandboxError> {
    let failed = |error: std::io::Error| {
        let message = format!("the repository cannot be served to the sandbox: {error}");
        ErrorCode::StartFailed.error(message).caused_by(error)
    };
    let (stopping, stop) = pipe().map_err(failed)?;
    let (directory, recorder) = (repository.directory.clone(), Arc::clone(recorder));
    let work = move || {
        if !connected(&listeners, &stopping) {
            return;
        }
        let note = {
            let recorder = Arc::clone(&recorder);
            Box::new(move |event: RelayEvent| record(&recorder, event))
        };
        match open(&directory).and_then(|repository| {
            let terms = RelayTerms { repository, policy, state, landing: LANDING, leash, note };
            Relay::serve(listeners, terms).map_err(|error| error.to_string())
        }) {
            Ok(relay) => {
                let _ = wait(&[stopping.as_fd()]);
                drop(relay);
            }
            Err(why) => record(&recorder, RelayEvent::Unserved { why }),
        }
    };
    let thread = std::thread::Builder::new().name("git-route".to_string()).spawn(work).map_err(failed)?;
    Ok(Serving { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(directory: &Path) -> Result<HostRepository, String> {
    let git = Git::find().map_err(|error| error.to_string())?;
    if directory.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        return Err(format!("`{}` is a link now", directory.display()));
    }
    HostRepository::open_exactly(&git, directory).map_err(|error| error.to_string())
}

/// Waits until a process inside connects; `false` if serving is to stop.
fn connected(listeners: &[OwnedFd], stopping: &PipeReader) -> bool {
    let mut all: Vec<BorrowedFd<'_>> = vec![stopping.as_fd()];
    all.extend(listeners.iter().map(AsFd::as_fd));
    wait(&all).first().is_some_and(|stopped| !stopped)
}

/// Which of these have something to say; waits until one does.
fn wait(all: &[BorrowedFd<'_>]) -> Vec<bool> {
    loop {
        let mut polled: Vec<PollFd<'_>> =
            all.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
        match poll(&mut polled, None) {
            Ok(_) => return polled.iter().map(|one| !one.revents().is_empty()).collect(),
            Err(Errno::INTR) => {}
            Err(_) => return Vec::new(),
        }
    }
}

fn record(recorder: &Recorder, event: RelayEvent) {
    let printable = |text: &dyn ToString| Printable::from(text.to_string().as_str());
    match event {
        RelayEvent::Moved { requested, landed, old, new } => {
            // It has happened: a record that takes no more lines changes nothing about it.
            let _ = recorder.write(&Event::HostPushed {
                reference: printable(&requested),
                landed: printable(&landed),
                old: printable(&old),
                new: printable(&new),
            });
        }
        RelayEvent::Refused { requested, refusal } => recorder.write_relayed(&Event::HostPushRefused {
            reference: printable(&requested),
            reason: printable(&refusal.code()),
            detail: printable(&refusal),
        }),
        RelayEvent::Fetched { bytes } => recorder.write_relayed(&Event::HostFetched { sent: bytes }),
        RelayEvent::Unserved { why } | RelayEvent::Broken { why } => {
            recorder.write_relayed(&Event::HostRelayBroken { detail: printable(&why) });
        }
    }
}

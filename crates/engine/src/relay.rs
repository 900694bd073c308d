//! A sandbox's route to the host's repository: who serves it, and what is recorded of it.

use belljar_audit::Event;
use belljar_gateway::Recorder;
use belljar_spec::git::{BranchName, RefPolicy};
use belljar_spec::{Printable, SandboxError};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_workspace::inert::Git;
use belljar_workspace::quarantine::HostRepository;
use belljar_workspace::relay::{Relay, RelayEvent, RelayTerms};
use std::path::PathBuf;
use std::sync::Arc;

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

/// Serves a repository at these sockets.
pub(crate) fn serve(
    listeners: Vec<OwnedFd>,
    repository: &Repository,
    policy: RefPolicy,
    state: PathBuf,
    recorder: &Arc<Recorder>,
) -> Result<Relay, SandboxError> {
    let failed = |error: &dyn std::fmt::Display| {
        SandboxError::runtime(
            "relay_failed",
            format!("the repository cannot be served to the sandbox: {error}"),
        )
    };
    let git = Git::find().map_err(|error| failed(&error))?;
    let repository = HostRepository::open(&git, &repository.directory).map_err(|error| failed(&error))?;
    let recorder = Arc::clone(recorder);
    let note = Box::new(move |event: RelayEvent| record(&recorder, event));
    Relay::serve(listeners, RelayTerms { repository, policy, state, note }).map_err(|error| failed(&error))
}

fn record(recorder: &Recorder, event: RelayEvent) {
    let printable = |text: &dyn ToString| Printable::from(text.to_string().as_str());
    match event {
        RelayEvent::Moved { asked, landed, old, new } => {
            // It has happened: a record that takes no more lines changes nothing about it.
            let _ = recorder.write(&Event::HostPushed {
                reference: printable(&asked),
                landed: printable(&landed),
                old: printable(&old),
                new: printable(&new),
            });
        }
        RelayEvent::Refused { asked, refusal } => recorder.write_relayed(&Event::HostPushRefused {
            reference: printable(&asked),
            reason: printable(&refusal.code()),
            detail: printable(&refusal),
        }),
        RelayEvent::Fetched { bytes } => recorder.write_relayed(&Event::HostFetched { sent: bytes }),
        RelayEvent::Unserved { why } | RelayEvent::Broken { why } => {
            recorder.write_relayed(&Event::HostRelayBroken { detail: printable(&why) });
        }
    }
}

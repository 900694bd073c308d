//! What is told of sandboxes to those who count: starts, commands and what left. Numbers and words of closed lists; never a value.

use crate::Sandbox;
use belljar_audit::Event;
use belljar_gateway::{Counted, Counter, Recorder};
use belljar_spec::egress::Reason;
use belljar_spec::{BackendName, Ended, ErrorCode, SandboxError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Span, debug};

/// Something that happened.
#[derive(Debug)]
pub enum Observed<'o> {
    /// A sandbox was made, by this backend, or was not.
    Start { outcome: Result<BackendName, ErrorCode>, took: Duration },
    /// A command ended, or was lost.
    Command { outcome: Result<&'o Ended, &'o SandboxError>, took: Duration },
    /// The gateway wrote this to the audit log.
    Recorded(&'o Event),
    /// The gateway refused something, written to the audit log or not.
    Refused(Reason),
}

/// Is told, on the thread where it happens.
pub type Observer = Arc<dyn Fn(&Observed<'_>) + Send + Sync>;

/// The part of it that the gateway tells.
pub(crate) fn counter(observer: Option<&Observer>) -> Option<Counter> {
    let observer = Arc::clone(observer?);
    Some(Arc::new(move |counted| match counted {
        Counted::Recorded(event) => observer(&Observed::Recorded(event)),
        Counted::Refused(reason) => observer(&Observed::Refused(reason)),
    }))
}

/// Says what came of a start.
pub(crate) fn started(observer: Option<&Observer>, outcome: &Result<Sandbox, SandboxError>, took: Duration) {
    let duration_us = took.as_micros() as u64;
    match outcome {
        Ok(made) => debug!(backend = made.backend().as_str(), duration_us, "started"),
        Err(error) => debug!(error.code = error.code.as_str(), duration_us, "not started"),
    }
    if let Some(observer) = observer {
        let outcome = outcome.as_ref().map(Sandbox::backend).map_err(|error| error.code);
        observer(&Observed::Start { outcome, took });
    }
}

/// How a command is reported: to which observer, and below which span.
pub(crate) struct CommandObservation {
    pub(crate) sandbox: Span,
    pub(crate) id: String,
    pub(crate) observer: Option<Observer>,
    pub(crate) began: Instant,
    /// Its number in the audit log, where that has it.
    pub(crate) recorded: Option<(u64, Arc<Recorder>)>,
}

impl CommandObservation {
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(parent: &self.sandbox, "exec", exec.id = self.id)
    }

    pub(crate) fn ended(&self, outcome: &Result<Ended, SandboxError>) {
        let took = self.began.elapsed();
        let duration_us = took.as_micros() as u64;
        match outcome {
            Ok(ended) => debug!(exec.exit_code = ended.exit_code(), duration_us, "ended"),
            Err(error) => debug!(error.code = error.code.as_str(), duration_us, "lost"),
        }
        if let Some((command, recorder)) = &self.recorded {
            let ended = outcome.as_ref().ok();
            recorder.write_command(&Event::CommandEnded {
                command: *command,
                exit_code: ended.map(|ended| i32::from(ended.exit_code())),
                limit: ended.and_then(|ended| ended.limit).map(|limit| limit.as_str().to_string()),
                millis: took.as_millis() as u64,
            });
        }
        if let Some(observer) = &self.observer {
            observer(&Observed::Command { outcome: outcome.as_ref(), took });
        }
    }
}

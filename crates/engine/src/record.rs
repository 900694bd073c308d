//! The record of a sandbox: begun before anything runs in it, and one for all backends that are tried.
//!
//! A backend may fail after the record has begun. The next one continues it, since a sandbox has one name, and a name has
//! one record: that then says twice that it was started, and the last time counts.

use crate::credentials::forwarded;
use belljar_audit::{AuditError, Event, Log};
use belljar_gateway::{Counter, LiveRule, PolicyDigest, Recorder};
use belljar_spec::egress::{EgressPolicy, Mode, ProxyResolve};
use belljar_spec::workspace::GitAccess;
use belljar_spec::{Admin, BackendName, ErrorCode, Nesting, SandboxError, SandboxId, SandboxSpec};
use belljar_state::new_id;
use belljar_sys::rustix::process::geteuid;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A record that may have begun.
pub(crate) struct Record {
    pub(crate) id: SandboxId,
    /// Where it is kept, with all others.
    pub(crate) directory: PathBuf,
    counter: Option<Counter>,
    begun: OnceLock<Arc<Recorder>>,
    /// What was changed of its policy before.
    pub(crate) rules: Vec<LiveRule>,
}

impl Record {
    /// Of a sandbox with this name, or a new one. A name that a sandbox had before is refused.
    pub(crate) fn new(
        directory: PathBuf,
        id: Option<SandboxId>,
        counter: Option<Counter>,
    ) -> Result<Record, SandboxError> {
        let id = match id {
            Some(id) if Log::exists(&directory, id) => return Err(AuditError::Taken(id).into()),
            Some(id) => id,
            None => new_id()?,
        };
        Ok(Record { id, directory, counter, begun: OnceLock::new(), rules: Vec::new() })
    }

    /// Of a sandbox that was suspended: its log goes on.
    pub(crate) fn continued(
        directory: PathBuf,
        id: SandboxId,
        recorder: &Arc<Recorder>,
        rules: Vec<LiveRule>,
        counter: Option<Counter>,
    ) -> Record {
        Record { id, directory, counter, begun: OnceLock::from(Arc::clone(recorder)), rules }
    }

    /// Records that the sandbox starts with this backend.
    pub(crate) fn begin(
        &self,
        backend: BackendName,
        spec: &SandboxSpec,
        policy: Option<&EgressPolicy>,
    ) -> Result<(), SandboxError> {
        let rules = policy.map_or(&[][..], |policy| &policy.allow);
        let started = Event::SandboxStarted {
            backend,
            mode: policy.map_or(Mode::None, |policy| policy.mode),
            rules: rules.iter().map(|rule| rule.label.to_string()).collect(),
            inspect: policy.is_some_and(|policy| policy.inspect),
            loosened: loosened(backend, spec),
            policy: policy.map(|policy| PolicyDigest::of(policy).to_string()),
            folder: spec.workspace.as_ref().map(|folder| folder.to_string_lossy().into_owned()),
            name: spec.persistent.as_ref().map(|identity| identity.name.clone()),
            uid: Some(geteuid().as_raw()),
            belljar: env!("CARGO_PKG_VERSION").into(),
        };
        if let Some(begun) = self.begun.get() {
            return begun.write(&started).map_err(|_| full());
        }
        let log = Log::create(&self.directory, self.id).map_err(failed)?;
        log.append(&started).map_err(failed)?;
        for event in forwarded(spec) {
            log.append(&event).map_err(failed)?;
        }
        let _ = self.begun.set(Arc::new(Recorder::new(Some(log)).counted(self.counter.clone())));
        Ok(())
    }

    /// Who writes it from now on; `None` before it has begun.
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.begun.get()
    }

    /// Nothing came of the sandbox.
    pub(crate) fn end(&self) {
        if let Some(begun) = self.begun.get() {
            begun.end();
        }
    }
}

/// Why there is no record.
pub(crate) fn failed(error: AuditError) -> SandboxError {
    match error {
        AuditError::Taken(_) => error.into(),
        error => ErrorCode::StateFailed
            .error(format!("what happens cannot be recorded: {error}"))
            .hint(error.hint())
            .caused_by(error),
    }
}

/// Why the sandbox cannot continue.
pub(crate) fn full() -> SandboxError {
    ErrorCode::StateFailed.error("what happens cannot be recorded: the log takes no more lines")
}

/// What was asked for that makes the sandbox weaker.
pub(crate) fn loosened(backend: BackendName, spec: &SandboxSpec) -> Vec<String> {
    let mut loosened = Vec::new();
    if matches!(backend, BackendName::Host | BackendName::Container) {
        loosened.push(format!("backend {backend}: no isolation"));
    }
    if spec.nesting == Nesting::Allowed {
        loosened.push("user namespaces inside".to_string());
    }
    match spec.admin {
        Admin::No => {}
        Admin::User => loosened.push("an administrator: no marker, no protected paths".to_string()),
        Admin::Root => {
            loosened.push("an administrator, root inside: no marker, no protected paths".to_string())
        }
    }
    if spec.git == GitAccess::Share {
        loosened.push("the folder's own .git can be written".to_string());
    }
    loosened.extend(spec.unprotected.iter().map(|path| format!("`{path}` is not protected")));
    if let Some(policy) = &spec.egress {
        if policy.mode == Mode::Ask {
            loosened.push("a person may allow more names".to_string());
        }
        if policy.mode == Mode::Open {
            loosened.push("every public name can be reached".to_string());
        }
        let host_ports = policy.host_ports.iter();
        loosened.extend(host_ports.map(|port| format!("port {port} of this machine can be reached")));
        if let Some(proxy) = policy.proxy.as_ref().filter(|proxy| proxy.resolve == ProxyResolve::Proxy) {
            loosened.push(format!("the proxy {} looks names up", proxy.at));
        }
        loosened
            .extend(policy.private.iter().map(|range| format!("the private range {range} can be reached")));
    }
    let open = spec.forward_ports.iter().filter(|port| !port.address.is_loopback());
    loosened.extend(open.map(|port| format!("{} leads to port {} inside", port.listens_at(), port.inside)));
    loosened.extend(spec.forwarded.iter().map(|one| format!("the real value of {} is inside", one.source)));
    if spec.github.as_ref().is_some_and(|grant| grant.danger_forward_key) {
        loosened.push("the private key of the GitHub App is inside".to_string());
    }
    loosened
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(record: &Record) -> Vec<String> {
        let path = record.directory.join(format!("{}.jsonl", record.id));
        let text = std::fs::read_to_string(path).unwrap();
        let kind = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let event = &line["event"];
            [&event["kind"], &event["backend"]].map(|value| value.as_str().unwrap_or("-")).join(" ")
        };
        text.lines().map(kind).collect()
    }

    #[test]
    fn a_second_backend_continues_with_the_record_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let id = SandboxId::from_random([7; 8]);
        let record = Record::new(folder.path().into(), Some(id), None).unwrap();
        assert!(record.recorder().is_none());
        let spec = SandboxSpec::default();
        record.begin(BackendName::Native, &spec, None).unwrap();
        record.begin(BackendName::Bwrap, &spec, None).unwrap();
        record.end();
        let expected = ["sandbox_started native", "sandbox_started bwrap", "sandbox_ended -"];
        assert_eq!(kinds(&record), expected);
        let checked = belljar_audit::verify(folder.path(), None, None, |_| {}).unwrap();
        assert!(checked.findings.is_empty(), "{:?}", checked.findings);
    }

    #[test]
    fn a_name_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let id = SandboxId::from_random([7; 8]);
        let (first, second) = (
            Record::new(folder.path().into(), Some(id), None).unwrap(),
            Record::new(folder.path().into(), Some(id), None).unwrap(),
        );
        let spec = SandboxSpec::default();
        first.begin(BackendName::Native, &spec, None).unwrap();
        let late = second.begin(BackendName::Native, &spec, None).unwrap_err();
        let early = Record::new(folder.path().into(), Some(id), None).err().unwrap();
        assert_eq!((late.code, early.code), (ErrorCode::NameTaken, ErrorCode::NameTaken));
        assert!(early.message.contains(&id.to_string()), "{early}");
    }
}

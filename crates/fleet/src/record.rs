//! What the daemon keeps of a sandbox: `record.json` of its place. Written whole or not at all, and before an answer tells of it, so
//! that a daemon that is killed finds everything that it promised.

use crate::SandboxDir;
use crate::lease::Leases;
use crate::shim::Alive;
use belljar_api::{GrantRules, SandboxRequest};
use belljar_spec::{ErrorCode, Hint, SandboxError, Term, hint};
use belljar_state::{Survives, write_atomic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// A sandbox, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub version: u32,
    pub name: String,
    pub key: String,
    /// The grant that made it.
    pub owner: String,
    pub persistent: bool,
    pub profile: String,
    /// With what the profile and the grant say of it.
    pub sandbox: SandboxRequest,
    /// What the grant that made it asked for, before the profile and the grant added to it: a profile that changed is applied to this when
    /// the sandbox is woken. Nothing in records of older versions.
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub requested: Option<SandboxRequest>,
    /// The rules of the grant that made it; nothing for the owner of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<GrantRules>,
    /// The environment of the owner who started its present or last life.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    pub idle_s: u64,
    pub intent: Intent,
    pub leases: Leases,
    /// Requests that were made under an idempotency key.
    pub once: Vec<Once>,
    pub created_ms: i64,
    pub used_ms: i64,
    /// Its present or last life; nothing before the first one was ready.
    pub alive: Option<Alive>,
    /// Why it is not alive, if it should be.
    pub fault: Option<String>,
    /// It was started before a request asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// It was started ahead, and no request has got it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting: bool,
}

/// What is to become of a sandbox, for this daemon or the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Intent {
    Live,
    Stopped,
    Deleting,
}

/// A request that has one answer however often it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Once {
    pub grant: String,
    pub key: String,
    /// Of the request's body.
    pub body: String,
    pub lease: String,
    pub created: bool,
    /// When it was made.
    #[serde(default)]
    pub at_ms: i64,
}

impl Record {
    /// Whether it was ever ready. One that was not belongs to no caller, and leaves nothing.
    pub(crate) fn was_ready(&self) -> bool {
        self.alive.is_some()
    }

    /// Of a place.
    pub(crate) fn read(place: &SandboxDir) -> Result<Record, SandboxError> {
        let path = place.record();
        let unreadable = |why: String| {
            let hint = hint!("look at `{}`; {}", path.display().to_string(), remove_hint());
            ErrorCode::StateFailed.error(format!("cannot read `{}`: {why}", path.display())).hint(hint)
        };
        let bytes = fs::read(&path).map_err(|error| unreadable(error.to_string()))?;
        let version: Version =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if version.version != VERSION {
            let message = format!(
                "`{}` has version {}, and this belljar knows {VERSION}",
                path.display(),
                version.version
            );
            return Err(ErrorCode::NotSupported
                .error(message)
                .hint(hint!("use the belljar that made it; {}", remove_hint())));
        }
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))
    }

    /// Into a place, instead of what was there. What must survive a loss of power is on the disk then.
    pub(crate) fn write(&self, place: &SandboxDir) -> Result<(), SandboxError> {
        let survives = if self.persistent { Survives::PowerCut } else { Survives::Kill };
        write_record(&place.record(), self, survives)
    }
}

/// Writes a file that is there whole or not at all, readable by our user alone.
pub(crate) fn write_record(
    path: &Path,
    content: &impl Serialize,
    survives: Survives,
) -> Result<(), SandboxError> {
    let text = serde_json::to_vec_pretty(content).map_err(io::Error::from);
    text.and_then(|text| write_atomic(path, &text, survives)).map_err(|error| {
        ErrorCode::StateFailed
            .error(format!("cannot write `{}`: {error}", path.display()))
            .hint("is the disk full?")
            .caused_by(error)
    })
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

pub(crate) const VERSION: u32 = 1;
fn remove_hint() -> Hint {
    hint!("{} ends what runs in it and removes it with its files", Term::ForceDeleteSandbox)
}

#[cfg(test)]
pub(crate) fn sample(key: &str, persistent: bool) -> Record {
    Record {
        version: VERSION,
        name: crate::name_of(key),
        key: key.into(),
        owner: "owner".into(),
        persistent,
        profile: "default".into(),
        sandbox: SandboxRequest::default(),
        requested: None,
        rules: None,
        environment: BTreeMap::new(),
        idle_s: 120,
        intent: Intent::Live,
        leases: Leases::default(),
        once: Vec::new(),
        created_ms: 1,
        used_ms: 1,
        alive: None,
        fault: None,
        warm: false,
        waiting: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::request::EnvValue;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_is_read_as_it_was_written_and_is_ours_alone() {
        let folder = tempfile::tempdir().unwrap();
        let place = SandboxDir::new(folder.path());
        for persistent in [false, true] {
            let record = sample("k", persistent);
            record.write(&place).unwrap();
            assert_eq!(Record::read(&place).unwrap(), record);
        }
        assert_eq!(fs::metadata(place.record()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_is_not_understood_is_refused_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let place = SandboxDir::new(folder.path());
        assert_eq!(Record::read(&place).unwrap_err().code, ErrorCode::StateFailed);
        for (text, code) in [
            ("", ErrorCode::StateFailed),
            ("{\"version\":1", ErrorCode::StateFailed),
            ("{\"version\":1}", ErrorCode::StateFailed),
            ("{\"version\":2,\"what\":\"ever\"}", ErrorCode::NotSupported),
        ] {
            fs::write(place.record(), text).unwrap();
            let error = Record::read(&place).unwrap_err();
            assert_eq!(error.code, code, "{text}");
            assert!(error.hint.is_some());
            assert_eq!(fs::read_to_string(place.record()).unwrap(), text);
        }
    }

    #[test]
    fn a_draft_of_a_killed_process_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let place = SandboxDir::new(folder.path());
        let record = sample("k", true);
        record.write(&place).unwrap();
        fs::write(folder.path().join("record.json.new"), "{\"ver").unwrap();
        assert_eq!(Record::read(&place).unwrap(), record);
        record.write(&place).unwrap();
        assert_eq!(Record::read(&place).unwrap(), record);
    }

    /// Written by belljar before requests had types: `tests/records`.
    const OLD: [(&str, &str); 3] = [
        ("plain", include_str!("../tests/records/plain-record.json")),
        ("profile", include_str!("../tests/records/profile-record.json")),
        ("full", include_str!("../tests/records/full-record.json")),
    ];

    #[test]
    fn a_record_of_the_previous_version_means_the_same() {
        let old = OLD.map(|(_, text)| serde_json::from_str::<Record>(text).expect("a record"));
        assert_eq!(old[0].requested, Some(SandboxRequest::default()));
        assert_eq!(old[0].sandbox.backend, Some(belljar_spec::BackendChoice::Auto));
        assert_eq!(old[1].sandbox.limits.disk, Some(belljar_spec::ByteSize::mebibytes(1)));
        let plan: crate::ShimPlan =
            serde_json::from_str(include_str!("../tests/records/full-plan.json")).expect("a plan");
        assert_eq!(plan.sandbox, old[2].sandbox);
        let limits = &plan.sandbox.limits;
        assert_eq!(limits.memory, Some(belljar_spec::ByteSize::mebibytes(1536)));
        assert_eq!(limits.ready, Some(std::time::Duration::from_millis(1500)));
        assert_eq!(
            plan.sandbox.env["KEY".parse::<belljar_spec::EnvName>().as_ref().unwrap()],
            EnvValue::Secret("npm".parse().unwrap())
        );
        for record in old {
            let again = serde_json::to_string(&record).expect("a record can be written");
            assert_eq!(serde_json::from_str::<Record>(&again).expect("a record"), record);
        }
    }

    /// It refuses fields that it does not know, and takes one that is missing for one that was not said.
    #[test]
    fn the_previous_version_reads_what_is_written_now() {
        for (name, text) in OLD {
            let was: serde_json::Value = serde_json::from_str(text).expect("JSON");
            let record: Record = serde_json::from_str(text).expect("a record");
            compare(name, &serde_json::to_value(&record).expect("JSON"), &was);
        }
    }

    fn compare(at: &str, now: &serde_json::Value, was: &serde_json::Value) {
        use serde_json::Value::{Array, Object};
        match (now, was) {
            (Object(now), Object(was)) => {
                for (name, now) in now {
                    compare(
                        &format!("{at}.{name}"),
                        now,
                        was.get(name).unwrap_or_else(|| panic!("{at}.{name} is new")),
                    );
                }
            }
            (Array(now), Array(was)) => assert_eq!(now, was, "{at}"),
            (now, was) => assert!(
                now.is_string() == was.is_string() && now.is_number() == was.is_number(),
                "{at}: {now} {was}"
            ),
        }
    }
}

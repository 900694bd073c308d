//! `/.belljar`: how a program can tell that it is in a sandbox, and in which. A file of a root that no process inside can write to.

use super::USER_ID;
use crate::native::user_of_container;
use belljar_spec::{Admin, BackendName, PersistentIdentity, SandboxId, SandboxSpec, UserName};
use serde::Serialize;

/// What is known of a sandbox before its layout is.
pub(crate) struct Marker {
    pub(crate) id: SandboxId,
    pub(crate) backend: Option<BackendName>,
    /// Who works in it.
    pub(crate) user: UserName,
}

/// What the file says. Grows, and changes nothing that is there.
#[derive(Serialize)]
struct Content<'s> {
    belljar: &'static str,
    sandbox: SandboxId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'s str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'s str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
}

impl Marker {
    /// The number of the sandbox's user, as the sandbox knows it.
    pub(super) fn user_id(&self) -> u32 {
        match self.backend {
            Some(BackendName::Docker(_)) => user_of_container(self.id),
            _ => USER_ID,
        }
    }

    /// The file, which an administrator works without.
    pub(super) fn file(&self, spec: &SandboxSpec) -> Option<(String, Vec<u8>)> {
        if spec.admin != Admin::No {
            return None;
        }
        let persistent: Option<&PersistentIdentity> = spec.persistent.as_ref();
        let content = Content {
            belljar: env!("CARGO_PKG_VERSION"),
            sandbox: self.id,
            name: persistent.map(|persistent| persistent.name.as_str()),
            key: persistent.map(|persistent| persistent.key.as_str()),
            backend: self.backend.map(|backend| backend.to_string()),
        };
        let mut text = serde_json::to_vec(&content).expect("text and numbers are JSON");
        text.push(b'\n');
        Some((MARKER.into(), text))
    }
}

/// Without the leading slash.
const MARKER: &str = ".belljar";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_sandbox_this_is_and_is_not_there_for_an_administrator() {
        let marker = Marker {
            id: SandboxId::from_random([7; 8]),
            backend: Some(BackendName::Native),
            user: UserName::default(),
        };
        let persistent = PersistentIdentity { name: "bj-a-1".into(), key: "a".into() };
        let spec = SandboxSpec { persistent: Some(persistent), ..SandboxSpec::default() };
        let (place, text) = marker.file(&spec).unwrap();
        assert_eq!(place, ".belljar");
        let content: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(content["belljar"], env!("CARGO_PKG_VERSION"));
        assert_eq!((&content["name"], &content["key"]), (&"bj-a-1".into(), &"a".into()));
        assert_eq!(
            (&content["sandbox"], &content["backend"]),
            (&"0707070707070707".into(), &"native".into())
        );
        for admin in [Admin::User, Admin::Root] {
            assert_eq!(marker.file(&SandboxSpec { admin, ..SandboxSpec::default() }), None);
        }
    }
}

//! The state that a sandbox's git directory and the host's repository last agreed on, and the report of an import.

use crate::foreign::Head;
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Refs, by their whole names.
pub type Refs = BTreeMap<String, ObjectId>;

/// The refs and the HEAD that both sides had when they were last compared. A ref that differs from this inside was moved by the
/// agent; one that differs from this on the host was moved by the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// The text of HEAD, as its file has it: `ref: refs/heads/NAME`, or a commit.
    pub head: String,
    /// Branches and tags, by their whole names.
    #[serde(with = "as_text")]
    pub refs: Refs,
    /// The commit of a host branch before this sandbox first moved it after the user's last move: later history is the sandbox's
    /// own, and it may rewrite it. Zeros: the branch did not exist.
    #[serde(default, with = "as_text")]
    pub before: Refs,
    /// Where this sandbox last put a branch of the host. If it has moved, the user moved it.
    #[serde(default, with = "as_text")]
    pub put: Refs,
    /// Refs inside whose commits were kept beside the host's branches: not imported again while they stay at that commit.
    #[serde(default, with = "as_text")]
    pub set_aside: Refs,
}

impl Synced {
    /// The commit of HEAD, if it has one.
    pub fn commit(&self) -> Option<ObjectId> {
        match self.head.strip_prefix("ref: ") {
            Some(name) => self.refs.get(name).cloned(),
            None => self.head.parse().ok(),
        }
    }
}

/// The report of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Refs of the host that moved with the sandbox's.
    pub followed: Vec<Followed>,
    /// Commits that the host has under belljar's refs.
    pub set_aside: Vec<SetAside>,
    /// Belljar refs that were removed: a branch of the host has their commits by now.
    pub released: Vec<String>,
    /// Refs that exist inside at the end: one that was reported as deleted no longer is.
    pub present: BTreeSet<String>,
    /// The branch or commit that the host's HEAD moved to, if it followed.
    pub head: Option<Head>,
    /// The unfinished operation of git inside; determined at the sandbox's end.
    pub unfinished: Option<&'static str>,
    /// Other notes for the user.
    pub notes: Vec<String>,
    /// Not everything could be read: commits that the host does not have yet exist only in the sandbox's git directory.
    pub is_partial: bool,
}

impl ImportReport {
    /// Whether some commits exist only in the sandbox's git directory.
    pub fn leaves_some_inside(&self) -> bool {
        self.is_partial || self.set_aside.iter().any(|one| one.kept_as.is_none() && !one.is_on_host)
    }
}

/// A ref of the host that moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Its whole name; `HEAD` for a detached one.
    pub reference: String,
    /// `None`: it is new.
    pub old: Option<ObjectId>,
    /// `None`: it is gone.
    pub new: Option<ObjectId>,
}

/// Commits that no branch of the host took over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The ref inside.
    pub reference: Printable,
    /// The ref of the host that has them, `refs/belljar/ID/...`; `None` if they were refused and stay inside.
    pub kept_as: Option<String>,
    pub commit: ObjectId,
    /// The host has the commit anyway: the branch was deleted inside.
    pub is_on_host: bool,
    /// Why the branch did not follow, for the user.
    pub reason: String,
    /// They turn a path into a submodule that is none on the host: git there would run the programs that the config in that folder
    /// names.
    pub makes_submodule: bool,
}

/// Object names as text: the crate of git's formats knows nothing of serde.
mod as_text {
    use super::{BTreeMap, Refs};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(refs: &Refs, serializer: S) -> Result<S::Ok, S::Error> {
        let text: BTreeMap<&str, &str> = refs.iter().map(|(name, id)| (name.as_str(), id.as_str())).collect();
        text.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Refs, D::Error> {
        let text = BTreeMap::<String, String>::deserialize(deserializer)?;
        let ids = text.into_iter().map(|(name, id)| Ok((name, id.parse()?)));
        ids.collect::<Result<_, belljar_git::NotAnObjectId>>().map_err(D::Error::custom)
    }
}

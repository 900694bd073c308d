//! What a sandbox tried to reach and may not.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that a sandbox tried to reach and may not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedInfo {
    /// A name, an address, or text that is neither.
    pub destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Stable, for programs: `name_not_allowed`.
    pub reason: String,
    /// The same for people, with the destination.
    pub sentence: String,
    /// The flag, or the line of a configuration file, that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// How often it was tried.
    pub times: u64,
}

impl RefusedInfo {
    /// What was refused between two lists: what is new, and what was tried again.
    pub fn since<'a>(
        before: &'a [RefusedInfo],
        now: &'a [RefusedInfo],
    ) -> impl Iterator<Item = &'a RefusedInfo> {
        let same = |one: &RefusedInfo, other: &RefusedInfo| {
            (&one.destination, one.port, &one.reason) == (&other.destination, other.port, &other.reason)
        };
        now.iter().filter(move |one| !before.iter().any(|old| same(old, one) && old.times >= one.times))
    }

    /// The rule that would allow it, if a rule can.
    pub fn rule(&self) -> Option<&str> {
        self.remedy.as_deref()?.strip_prefix("--allow ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(destination: &str, times: u64) -> RefusedInfo {
        RefusedInfo {
            destination: destination.into(),
            port: None,
            reason: "name_not_allowed".into(),
            sentence: format!("{destination}: no rule allows this name"),
            remedy: Some(format!("--allow {destination}")),
            times,
        }
    }

    #[test]
    fn what_was_refused_meanwhile_is_new_or_was_tried_again() {
        let before = [refused("a.example", 1), refused("b.example", 3)];
        let now = [refused("a.example", 1), refused("b.example", 4), refused("c.example", 1)];
        let new: Vec<&str> = RefusedInfo::since(&before, &now).map(|one| one.destination.as_str()).collect();
        assert_eq!(new, ["b.example", "c.example"]);
        assert_eq!(now[0].rule(), Some("a.example"));
    }
}

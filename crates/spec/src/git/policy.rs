//! What a push may do.

use super::{BranchName, RefPattern};
use crate::ByteSize;

/// What a push may do, to a repository on this machine or to one behind the network. Nothing of it can be dodged inside: it
/// is held where the push arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefPolicy {
    /// Which branches may be moved or made. The last pattern that means a branch decides; none means no.
    pub branches: Vec<RefPattern>,
    /// May tags be made?
    pub tags: bool,
    /// May a branch be moved to what does not follow from where it was?
    pub force: bool,
    /// May branches go away?
    pub delete: bool,
    /// May files below `.github/workflows` change?
    pub workflows: bool,
    pub limits: PushLimits,
}

/// How much a push may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushLimits {
    pub bytes: ByteSize,
    pub objects: u64,
}

impl RefPolicy {
    /// These branches and nothing else.
    pub fn only(branches: Vec<RefPattern>) -> RefPolicy {
        RefPolicy {
            branches,
            tags: false,
            force: false,
            delete: false,
            workflows: true,
            limits: PushLimits::default(),
        }
    }

    /// What holds on the way to a git host when nobody says anything: every branch but the two that most others are made
    /// from, and each only forward.
    pub fn for_hosts() -> RefPolicy {
        let patterns = ["*", "!main", "!master"].map(|text| text.parse().expect("each is a pattern"));
        RefPolicy::only(patterns.to_vec())
    }

    /// May this branch be pushed to at all?
    pub fn allows_branch(&self, branch: &BranchName) -> bool {
        let last = self.branches.iter().rev().find(|pattern| pattern.matches(branch));
        last.is_some_and(|pattern| !pattern.excludes())
    }
}

impl Default for PushLimits {
    fn default() -> PushLimits {
        PushLimits { bytes: ByteSize::mebibytes(512), objects: 200_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_decides() {
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let policy = RefPolicy::only(patterns(&["*", "!main", "!release/*", "release/agent"]));
        for (branch, allowed) in [("x", true), ("main", false), ("release/1", false), ("release/agent", true)]
        {
            assert_eq!(policy.allows_branch(&branch.parse().unwrap()), allowed, "{branch}");
        }
        for (branch, allowed) in [("x", true), ("main", false), ("master", false), ("main/x", true)] {
            assert_eq!(RefPolicy::for_hosts().allows_branch(&branch.parse().unwrap()), allowed, "{branch}");
        }
        assert!(!RefPolicy::only(Vec::new()).allows_branch(&"x".parse().unwrap()));
    }
}

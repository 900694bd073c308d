//! What a push may do.

use super::{BranchName, RefPattern};
use crate::ByteSize;

/// What a push may do, to a repository on this machine or to one behind the network. Nothing of it can be dodged inside: it
/// is held where the push arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefPolicy {
    /// Which branches may be moved or made. The last pattern that means a branch decides; none means no.
    pub branches: Vec<RefPattern>,
    /// The operator's own list, which has to allow a branch as well; none if empty.
    pub within: Vec<RefPattern>,
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

impl PushLimits {
    /// How much all pushes of one sandbox may bring together to the repository on this machine, whose disk it is.
    pub fn together(self) -> ByteSize {
        ByteSize::bytes(self.bytes.as_u64().saturating_mul(TOGETHER))
    }
}

impl RefPolicy {
    /// These branches and nothing else.
    pub fn only(branches: Vec<RefPattern>) -> RefPolicy {
        RefPolicy {
            branches,
            within: Vec::new(),
            tags: false,
            force: false,
            delete: false,
            workflows: true,
            limits: PushLimits::default(),
        }
    }

    /// May this branch be pushed to at all?
    pub fn allows_branch(&self, branch: &BranchName) -> bool {
        let allows = |patterns: &[RefPattern]| {
            let last = patterns.iter().rev().find(|pattern| pattern.matches(branch));
            last.is_some_and(|pattern| !pattern.excludes())
        };
        allows(&self.branches) && (self.within.is_empty() || allows(&self.within))
    }
}

/// What was said of pushes, for a run and in files. What was not said has a default of its own where a push arrives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushRules {
    /// Branches; none if nothing was said.
    pub branches: Vec<RefPattern>,
    /// The operator's own list; none if empty.
    pub within: Vec<RefPattern>,
    pub tags: bool,
    pub force: bool,
    pub delete: bool,
    /// Nothing said: workflow files may change in the host's repository, where nothing runs them, and nowhere else.
    pub workflows: Option<bool>,
    pub bytes: Option<ByteSize>,
    pub objects: Option<u64>,
}

impl PushRules {
    /// What may be pushed to the repository on this machine: the sandbox's own branch, and what was said.
    pub fn to_host(&self, own: &BranchName) -> RefPolicy {
        let mut branches = vec![RefPattern::exactly(own)];
        branches.extend(self.branches.iter().cloned());
        self.policy(branches, self.workflows.unwrap_or(true))
    }

    /// What may come out of a sandbox that works in the folder itself: what was said, or every branch.
    pub fn to_folder(&self) -> RefPolicy {
        let branches = match self.branches.is_empty() {
            false => self.branches.clone(),
            true => EVERY_BRANCH.iter().filter_map(|pattern| pattern.parse().ok()).collect(),
        };
        self.policy(branches, self.workflows.unwrap_or(true))
    }

    /// What may be pushed over the network: what was said, or every branch but the usual names of the main one.
    pub fn to_network(&self) -> RefPolicy {
        let branches = match self.branches.is_empty() {
            false => self.branches.clone(),
            true => DEFAULT_OVER_NETWORK.iter().filter_map(|pattern| pattern.parse().ok()).collect(),
        };
        self.policy(branches, self.workflows.unwrap_or(false))
    }

    fn policy(&self, branches: Vec<RefPattern>, workflows: bool) -> RefPolicy {
        let PushRules { tags, force, delete, .. } = *self;
        let most = PushLimits::default();
        let limits = PushLimits {
            bytes: self.bytes.unwrap_or(most.bytes),
            objects: self.objects.unwrap_or(most.objects),
        };
        RefPolicy { branches, within: self.within.clone(), tags, force, delete, workflows, limits }
    }
}

/// A sandbox that works for days pushes often, and seldom much.
const TOGETHER: u64 = 10;
const EVERY_BRANCH: [&str; 1] = ["*"];
/// Where others build on what arrives, and machines act on it.
const DEFAULT_OVER_NETWORK: [&str; 3] = ["*", "!main", "!master"];

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
        let network = PushRules::default().to_network();
        for (branch, allowed) in [("x", true), ("main", false), ("master", false), ("main/x", true)] {
            assert_eq!(network.allows_branch(&branch.parse().unwrap()), allowed, "{branch}");
        }
        assert!(!RefPolicy::only(Vec::new()).allows_branch(&"x".parse().unwrap()));
        let within = RefPolicy { within: patterns(&["agent/*"]), ..RefPolicy::only(patterns(&["*"])) };
        assert!(within.allows_branch(&"agent/x".parse().unwrap()));
        assert!(!within.allows_branch(&"x".parse().unwrap()));
    }

    #[test]
    fn what_was_not_said_depends_on_where_a_push_arrives() {
        let branch = |name: &str| name.parse::<BranchName>().unwrap();
        let nothing = PushRules::default();
        let (host, network) = (nothing.to_host(&branch("main")), nothing.to_network());
        assert!(host.allows_branch(&branch("main")) && !host.allows_branch(&branch("x")));
        assert!(network.allows_branch(&branch("x")) && !network.allows_branch(&branch("main")));
        assert!(host.workflows && !network.workflows);
        let rules = PushRules { branches: vec!["agent/*".parse().unwrap()], ..PushRules::default() };
        let (host, network) = (rules.to_host(&branch("main")), rules.to_network());
        assert!(host.allows_branch(&branch("main")) && host.allows_branch(&branch("agent/x")));
        assert!(!network.allows_branch(&branch("x")) && network.allows_branch(&branch("agent/x")));
    }
}

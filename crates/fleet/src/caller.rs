//! Who the caller is, and what it may do. The owner of the machine may do everything; every other caller has a grant, and what the
//! grant does not allow is refused. Nothing here touches a sandbox: the [`Caller`] is checked before a sandbox is made, found or
//! reported.

use crate::permission::OWNER;
use belljar_spec::request::{GrantRules, LlmRequest, LlmUrl, SandboxRequest, pattern_matches};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    id: String,
    /// None: everything.
    rules: Option<GrantRules>,
}

impl Caller {
    /// The person whose machine it is.
    pub fn owner() -> Caller {
        Caller { id: OWNER.into(), rules: None }
    }

    /// The holder of a grant's token.
    pub fn granted(id: impl Into<String>, rules: GrantRules) -> Caller {
        Caller { id: id.into(), rules: Some(rules) }
    }

    /// The grant's id, as leases and records name it; `owner` for the owner.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn is_owner(&self) -> bool {
        self.rules.is_none()
    }

    /// What was granted; nothing for the owner, who needs no grant.
    pub fn rules(&self) -> Option<&GrantRules> {
        self.rules.as_ref()
    }

    /// Only the owner may.
    pub fn must_be_owner(&self, what: &str) -> Result<(), SandboxError> {
        if self.is_owner() {
            return Ok(());
        }
        Err(ErrorCode::NotGranted
            .error(format!("only the owner of this machine may {what}"))
            .hint("ask over the daemon's unix socket, as the user that runs it"))
    }

    /// Sandboxes at all.
    pub fn may_have_sandboxes(&self) -> Result<(), SandboxError> {
        self.may(|rules| rules.allow_sandbox, "sandboxes", "allow_sandbox")
    }

    /// Runs of agents.
    pub fn may_run_agents(&self) -> Result<(), SandboxError> {
        self.may_have_sandboxes()?;
        self.may(|rules| rules.allow_agents, "runs of agents", "allow_agents")
    }

    /// The metrics of all sandboxes.
    pub fn may_see_metrics(&self) -> Result<(), SandboxError> {
        self.may(|rules| rules.allow_metrics, "metrics", "allow_metrics")
    }

    /// A key that the caller named, to make a sandbox or to join one. A key is a name and no secret: knowing it is not enough.
    pub fn may_use_key(&self, key: &str) -> Result<(), SandboxError> {
        if self.holds_key(key) {
            return Ok(());
        }
        Err(ErrorCode::NotGranted
            .error(format!("this grant does not allow the key `{key}`"))
            .hint("leave the key out for a sandbox of your own, or ask the owner for a grant with this key"))
    }

    /// Whether a sandbox with this key is the caller's own, whichever grant made it.
    pub fn owns_key(&self, key: &str) -> bool {
        self.rules
            .as_ref()
            .is_none_or(|rules| rules.own_keys.iter().any(|pattern| pattern_matches(pattern, key)))
    }

    /// Whether it may see and use a sandbox that this grant made and that has this key.
    pub fn may_see(&self, made_by: &str, key: &str) -> bool {
        let granted = self.rules.as_ref().is_none_or(|rules| rules.allow_sandbox);
        granted && (self.is_owner() || made_by == self.id || self.holds_key(key))
    }

    /// Maximum number of sandboxes at the same time.
    pub fn most_sandboxes(&self) -> Option<u32> {
        self.rules.as_ref()?.sandboxes
    }

    /// Maximum number of snapshots. Each grant has a limit: one that none was said for cannot fill the disk with them.
    pub fn most_snapshots(&self) -> Option<u32> {
        self.rules.as_ref().map(|rules| rules.snapshots.unwrap_or(USUAL_SNAPSHOTS))
    }

    /// Maximum requests per second.
    pub fn rate(&self) -> Option<u32> {
        self.rules.as_ref()?.rate
    }

    /// A profile by its name. One that does not isolate has to be granted by name.
    pub fn may_use_profile(
        &self,
        name: &str,
        is_default: bool,
        is_isolated: bool,
    ) -> Result<(), SandboxError> {
        let Some(rules) = &self.rules else { return Ok(()) };
        let named = rules.profiles.iter().any(|profile| profile == name);
        let every = is_isolated && rules.profiles.iter().any(|profile| profile == "*");
        let unsaid = is_default && is_isolated && rules.profiles.is_empty();
        if named || every || unsaid {
            return Ok(());
        }
        let offer = match rules.profiles.is_empty() {
            true => "it allows the default profile alone".to_string(),
            false => format!("it allows {}", rules.profiles.join(", ")),
        };
        Err(ErrorCode::NotGranted
            .error(format!("this grant does not allow the profile `{name}`"))
            .hint(offer))
    }

    /// What the caller asks for, before a profile adds to it: refused where the grant does not say it. Folders come back as the
    /// real paths that were judged, so that what is used later is what was judged now.
    pub fn admit(&self, request: SandboxRequest) -> Result<SandboxRequest, SandboxError> {
        match &self.rules {
            None => Ok(crate::admit::as_they_are(request)),
            Some(rules) => crate::admit::admit(rules, request),
        }
    }

    /// What will be made, with all that a profile added: within the grant's modes of egress and ceilings. Without isolation nothing
    /// limits what a sandbox reaches.
    pub fn confine(
        &self,
        sandbox: SandboxRequest,
        is_isolated: bool,
    ) -> Result<SandboxRequest, SandboxError> {
        match &self.rules {
            None => Ok(sandbox),
            Some(rules) => sandbox.within(rules, is_isolated),
        }
    }

    /// What one command asks for itself, in seconds and bytes, beside the same ceilings.
    pub fn may_take(&self, timeout_s: Option<u64>, max_output: Option<u64>) -> Result<(), SandboxError> {
        match &self.rules {
            None => Ok(()),
            Some(rules) => rules.limits.must_allow(timeout_s, max_output),
        }
    }

    /// What a sandbox for commands gets where the request names no model: the machine's own route, with its key, only if it was granted.
    pub fn withhold_model(&self, mut sandbox: SandboxRequest) -> SandboxRequest {
        if sandbox.llm.is_none() && self.rules.as_ref().is_some_and(|rules| !rules.allow_llm) {
            sandbox.llm = Some(LlmRequest { url: Some(LlmUrl::Off), ..LlmRequest::default() });
        }
        sandbox
    }

    fn holds_key(&self, key: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| {
            rules.keys.iter().chain(&rules.own_keys).any(|pattern| pattern_matches(pattern, key))
        })
    }

    fn may(&self, says: impl Fn(&GrantRules) -> bool, what: &str, rule: &str) -> Result<(), SandboxError> {
        if self.rules.as_ref().is_none_or(says) {
            return Ok(());
        }
        let hint = hint!(
            "the owner of this machine can make one with `{}`: {}",
            rule.to_string(),
            Term::CreateGrant
        );
        Err(ErrorCode::NotGranted.error(format!("this grant does not allow {what}")).hint(hint))
    }
}

/// Of a grant that does not say how many.
const USUAL_SNAPSHOTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(change: impl FnOnce(&mut GrantRules)) -> Caller {
        let mut rules = GrantRules { allow_sandbox: true, ..GrantRules::default() };
        change(&mut rules);
        Caller::granted("g1", rules)
    }

    #[test]
    fn no_grant_no_sandbox() {
        assert_eq!(Caller::owner().may_have_sandboxes(), Ok(()));
        assert_eq!(granted(|_| {}).may_have_sandboxes(), Ok(()));
        let error = granted(|rules| rules.allow_sandbox = false).may_have_sandboxes().unwrap_err();
        assert_eq!(error.code, ErrorCode::NotGranted);
        let error = granted(|_| {}).may_run_agents().unwrap_err();
        assert_eq!(error.code, ErrorCode::NotGranted);
    }

    #[test]
    fn a_key_is_not_a_capability() {
        let caller = granted(|rules| rules.keys = vec!["web".into(), "team/*".into()]);
        for (key, allowed) in [("web", true), ("webx", false), ("team/a", true), ("team", false), ("", false)]
        {
            assert_eq!(caller.may_use_key(key).is_ok(), allowed, "{key}");
            assert_eq!(caller.may_see("g2", key), allowed, "{key}");
            assert!(caller.may_see("g1", key), "its own: {key}");
            assert!(!caller.owns_key(key), "to join a key is not to own it: {key}");
        }
        let caller = granted(|rules| rules.own_keys = vec!["team/*".into()]);
        assert!(caller.owns_key("team/a") && caller.may_use_key("team/a").is_ok() && !caller.owns_key("web"));
        assert!(Caller::owner().may_see("g1", "anything"));
        assert!(
            !granted(|rules| rules.allow_sandbox = false).may_see("g1", "x"),
            "not even its own any more"
        );
    }

    #[test]
    fn a_model_that_is_not_named_has_to_be_granted_too() {
        let url = |caller: &Caller, request: SandboxRequest| {
            caller.withhold_model(request).llm.and_then(|llm| llm.url)
        };
        let nothing = SandboxRequest::default;
        assert_eq!(url(&granted(|_| {}), nothing()), Some(LlmUrl::Off));
        assert_eq!(url(&granted(|rules| rules.allow_llm = true), nothing()), None);
        assert_eq!(url(&Caller::owner(), nothing()), None);
    }

    #[test]
    fn every_profile_does_not_mean_no_backend() {
        let every = granted(|rules| rules.profiles = vec!["*".into()]);
        assert!(every.may_use_profile("native", false, true).is_ok());
        assert!(every.may_use_profile("host", false, false).is_err());
        let named = granted(|rules| rules.profiles = vec!["host".into()]);
        assert!(named.may_use_profile("host", false, false).is_ok());
        assert!(named.may_use_profile("default", true, true).is_err());
        assert!(granted(|_| {}).may_use_profile("default", true, true).is_ok());
        assert!(granted(|_| {}).may_use_profile("native", false, true).is_err());
    }
}

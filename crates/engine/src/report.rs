//! What became of a sandbox, in the words that programs read: one shape for all callers.

use crate::{Changes, Sandbox};
use belljar_overlay::quote;
use belljar_spec::egress::{EgressPolicy, Reason, Refusal, Refused, RuleEffect, RuleReport};
use belljar_workspace::private_git::ImportReport;
use belljar_workspace::protect::Findings;
use serde::Serialize;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Something that was tried to reach and may not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedReport {
    pub destination: String,
    pub port: Option<u16>,
    pub reason: &'static str,
    pub detail: Option<String>,
    /// The rule that says so, with its file and line: one that forbids it, or one for the host that does not cover it. None where no rule is
    /// about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleReport>,
    /// What would allow it.
    pub remedy: Option<String>,
    pub times: u64,
    /// The same, for people.
    #[serde(skip)]
    pub sentence: String,
}

impl From<Refused> for RefusedReport {
    fn from(Refused { refusal, times }: Refused) -> RefusedReport {
        RefusedReport {
            destination: refusal.destination.to_string(),
            port: refusal.port,
            reason: refusal.reason.code(),
            detail: refusal.detail.as_ref().map(|detail| detail.as_str().to_string()),
            rule: None,
            remedy: refusal.remedy(),
            times,
            sentence: refusal.to_string(),
        }
    }
}

impl RefusedReport {
    /// The same, with the rule of the policy that it was refused by.
    pub fn under(refused: Refused, policy: &EgressPolicy) -> RefusedReport {
        let rule = responsible(&refused.refusal, policy);
        RefusedReport { rule, ..RefusedReport::from(refused) }
    }
}

impl Sandbox {
    /// What was refused to it until now, each with its rule.
    pub fn refused_report(&self) -> Vec<RefusedReport> {
        let policy = self.egress_policy();
        let report = |refused| match &policy {
            Some(policy) => RefusedReport::under(refused, policy),
            None => RefusedReport::from(refused),
        };
        self.refused().into_iter().map(report).collect()
    }
}

fn responsible(refusal: &Refusal, policy: &EgressPolicy) -> Option<RuleReport> {
    let name = refusal.destination.name()?;
    let effect = match refusal.reason {
        Reason::NameDenied => RuleEffect::Deny,
        Reason::PortNotAllowed | Reason::ProtocolNotAllowed | Reason::RequestNotAllowed => RuleEffect::Allow,
        // No rule has a part in the others.
        _ => return None,
    };
    let (rules, port) = match effect {
        RuleEffect::Deny => (&policy.deny, refusal.port),
        RuleEffect::Allow => (&policy.allow, None),
    };
    rules.iter().find(|rule| rule.matches(name, port)).map(|rule| RuleReport::of(effect, rule))
}

impl Changes {
    /// For programs; nothing where there is nothing to tell.
    pub fn report(&self) -> Option<Value> {
        Some(match self {
            Changes::None => return None,
            Changes::Folder { findings: Findings { left, executed, is_whole }, git } => json!({
                "left": left.iter().map(|one| json!({
                    "path": shown(&one.path),
                    "kind": one.what.code(),
                    "what": one.what.sentence(),
                })).collect::<Vec<_>>(),
                "runs_on_host": executed.iter().map(|one| json!({
                    "path": shown(&one.path),
                    "reason": one.reason,
                })).collect::<Vec<_>>(),
                "looked_at_all": is_whole,
                "git": git_report(git),
            }),
            Changes::Layer { id, summary, git, .. } => {
                json!({ "layer": id.to_string(), "changes": summary, "git": git_report(git) })
            }
            Changes::ManagedClone { clone_name, branch, folder, left } => json!({
                "managed_clone": clone_name,
                "branch": branch,
                "folder": shown(folder),
                "pushed": left.is_on_host(),
                "uncommitted": left.unknown.is_none().then_some(&left.uncommitted),
            }),
            Changes::Clone { id, url, collected } => json!({
                "clone": id,
                "url": url,
                "branch": collected.branch,
                "commits": collected.commits.iter().map(|commit| json!({
                    "hash": commit.hash.as_str(),
                    "author": commit.author,
                    "subject": commit.subject,
                    "files": commit.files,
                })).collect::<Vec<_>>(),
                "count": collected.count,
                "uncommitted": collected.uncommitted,
            }),
        })
    }
}

/// What became of commits.
pub fn git_report(git: &ImportReport) -> Value {
    json!({
        "followed": git.followed.iter().map(|one| json!({
            "ref": one.reference,
            "old": one.old.as_ref().map(|id| id.as_str()),
            "new": one.new.as_ref().map(|id| id.as_str()),
        })).collect::<Vec<_>>(),
        "set_aside": git.set_aside.iter().map(|one| json!({
            "ref": one.reference,
            "kept_as": one.kept_as,
            "commit": one.commit.as_str(),
            "reason": one.reason,
            "makes_submodule": one.makes_submodule,
        })).collect::<Vec<_>>(),
    })
}

/// An agent may have chosen the name.
fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::{HostName, Rule, RuleSource};

    #[test]
    fn a_refusal_names_the_rule_that_it_is_by() {
        let source = |line| RuleSource::File { path: "/x/belljar.toml".into(), line };
        let policy = EgressPolicy::strict()
            .allow(Rule::allow("a.test", source(3)).expect("a rule"))
            .deny(Rule::deny("evil.test:443", source(7)).expect("a rule"));
        for (name, port, reason, expected) in [
            ("x.evil.test", Some(443), Reason::NameDenied, Some(7)),
            ("a.test", Some(22), Reason::PortNotAllowed, Some(3)),
            ("a.test", Some(443), Reason::PrivateAddress, None),
            ("b.test", Some(443), Reason::NameNotAllowed, None),
        ] {
            let name: HostName = name.parse().expect("a name");
            let refused = Refused { refusal: Refusal::new(name, port, reason), times: 1 };
            let rule = RefusedReport::under(refused, &policy).rule;
            assert_eq!(rule.as_ref().and_then(|rule| rule.line), expected, "{reason:?}");
            assert!(rule.is_none_or(|rule| rule.file.as_deref() == Some("/x/belljar.toml")));
        }
    }
}

//! Decides whether an update is allowed: first by its name, before any of its objects is read; then by its objects.

use crate::push::{Change, Update};
use crate::{PushRefusal, RefName};
use belljar_spec::egress::is_control;
use belljar_spec::git::RefPolicy;

/// The findings on the objects of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Is the old commit an ancestor of the new one?
    pub follows: Seen,
    /// Are the files below `.github/workflows` unchanged?
    pub keeps_workflows: Seen,
}

/// A finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Yes,
    No,
    /// The present objects do not show it.
    Unknown,
}

impl Facts {
    /// For an update without objects, or whose objects no rule asks about.
    pub const UNKNOWN: Facts = Facts { follows: Seen::Unknown, keeps_workflows: Seen::Unknown };
}

/// The questions about an update's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    pub follows: bool,
    pub keeps_workflows: bool,
}

impl Questions {
    /// Is there any question?
    pub fn any(self) -> bool {
        self.follows || self.keeps_workflows
    }
}

/// Judges an update by its name and kind; returns the questions about its objects.
pub fn by_name(policy: &RefPolicy, update: &Update) -> Result<Questions, PushRefusal> {
    let change = update.change();
    let kind = kind(&update.name);
    match &kind {
        Kind::Branch(branch) if !policy.allows_branch(branch) => {
            let (branch, allowed) = (branch.clone(), policy.branches.clone());
            return Err(PushRefusal::Branch { branch, allowed });
        }
        Kind::Tag if !policy.tags => return Err(PushRefusal::Tag),
        Kind::Other => return Err(PushRefusal::NotABranch),
        Kind::Branch(_) | Kind::Tag => {}
    }
    // A prompt that shows the branch, or a script or a build that puts its name into a command, would run it.
    let is_option = || update.name.tag().is_some_and(|tag| tag.starts_with('-'));
    if change == Change::Create && (update.name.as_str().chars().any(is_obeyed) || is_option()) {
        return Err(PushRefusal::Name);
    }
    if change == Change::Delete {
        let nothing = Questions { follows: false, keeps_workflows: false };
        return if policy.delete { Ok(nothing) } else { Err(PushRefusal::Delete) };
    }
    // A tag stands for one object: moving it loses the old one, even if that is an ancestor.
    if matches!(kind, Kind::Tag) && change == Change::Move && !policy.force {
        return Err(PushRefusal::Force);
    }
    let follows = change == Change::Move && !policy.force;
    Ok(Questions { follows, keeps_workflows: !policy.workflows })
}

/// Judges by name and objects.
pub fn by_facts(policy: &RefPolicy, update: &Update, facts: Facts) -> Result<(), PushRefusal> {
    let questions = by_name(policy, update)?;
    match facts.follows {
        Seen::No if questions.follows => return Err(PushRefusal::Force),
        Seen::Unknown if questions.follows => return Err(PushRefusal::ForceUnknown),
        Seen::Yes | Seen::No | Seen::Unknown => {}
    }
    match facts.keeps_workflows {
        Seen::No if questions.keeps_workflows => Err(PushRefusal::Workflows),
        Seen::Unknown if questions.keeps_workflows => Err(PushRefusal::WorkflowsUnknown),
        Seen::Yes | Seen::No | Seen::Unknown => Ok(()),
    }
}

/// Whether a character of a name is special to a shell or a terminal.
fn is_obeyed(letter: char) -> bool {
    "$`;|&<>'\"".contains(letter) || is_control(letter)
}

enum Kind {
    Branch(belljar_spec::git::BranchName),
    Tag,
    Other,
}

fn kind(name: &RefName) -> Kind {
    match (name.branch(), name.tag()) {
        (Some(branch), _) => Kind::Branch(branch),
        (None, Some(_)) => Kind::Tag,
        (None, None) => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000";
    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn update(old: &str, new: &str, name: &str) -> Update {
        let name = RefName::parse(name.as_bytes()).unwrap();
        Update { old: old.parse().unwrap(), new: new.parse().unwrap(), name }
    }

    fn hosts() -> RefPolicy {
        let branches = ["*", "!main", "!master"].map(|text| text.parse().unwrap()).to_vec();
        RefPolicy { workflows: false, ..RefPolicy::only(branches) }
    }

    #[test]
    fn names_are_held_to_the_policy() {
        let everything = RefPolicy { tags: true, force: true, delete: true, workflows: true, ..hosts() };
        for (policy, update, expected) in [
            (hosts(), update(ZERO, A, "refs/heads/x"), Ok(false)),
            (hosts(), update(A, B, "refs/heads/x"), Ok(true)),
            (hosts(), update(A, B, "refs/heads/main"), Err("push_branch")),
            (hosts(), update(A, ZERO, "refs/heads/main"), Err("push_branch")),
            (hosts(), update(A, ZERO, "refs/heads/x"), Err("push_delete")),
            (hosts(), update(ZERO, ZERO, "refs/heads/x"), Err("push_delete")),
            (hosts(), update(ZERO, A, "refs/tags/v1"), Err("push_tag")),
            (hosts(), update(ZERO, A, "refs/notes/x"), Err("push_not_a_branch")),
            (hosts(), update(ZERO, A, "refs/pull/1/head"), Err("push_not_a_branch")),
            (hosts(), update(ZERO, A, "refs/heads/refs/heads/main"), Ok(false)),
            (hosts(), update(ZERO, A, "refs/heads/größe(ui)"), Ok(false)),
            (hosts(), update(ZERO, A, "refs/heads/$(touch${IFS}x)"), Err("push_name")),
            (hosts(), update(ZERO, A, "refs/heads/x\u{202e}niam"), Err("push_name")),
            (everything.clone(), update(ZERO, A, "refs/tags/`x`"), Err("push_name")),
            // git itself makes no such tag, and a branch of such a name is invalid anyway.
            (everything.clone(), update(ZERO, A, "refs/tags/--exec=x"), Err("push_name")),
            // An existing one is the user's.
            (hosts(), update(A, B, "refs/heads/r&d"), Ok(true)),
            (everything.clone(), update(A, B, "refs/heads/x"), Ok(false)),
            (everything.clone(), update(A, ZERO, "refs/heads/x"), Ok(false)),
            (everything.clone(), update(A, B, "refs/heads/main"), Err("push_branch")),
            (everything.clone(), update(A, B, "refs/tags/v1"), Ok(false)),
            (everything.clone(), update(A, B, "refs/replace/x"), Err("push_not_a_branch")),
            (RefPolicy { tags: true, ..hosts() }, update(ZERO, A, "refs/tags/v1"), Ok(false)),
            (RefPolicy { tags: true, ..hosts() }, update(A, B, "refs/tags/v1"), Err("push_force")),
        ] {
            let verdict = by_name(&policy, &update);
            let verdict = verdict.map(|questions| questions.follows).map_err(|refusal| refusal.code());
            assert_eq!(verdict, expected, "{update:?}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_refused() {
        use Seen::{No, Unknown, Yes};
        let moves = update(A, B, "refs/heads/x");
        for (follows, keeps_workflows, expected) in [
            (Yes, Yes, Ok(())),
            (No, Yes, Err("push_force")),
            (Unknown, Yes, Err("push_force_unknown")),
            (Yes, No, Err("push_workflows")),
            (Yes, Unknown, Err("push_workflows_unknown")),
        ] {
            let facts = Facts { follows, keeps_workflows };
            let verdict = by_facts(&hosts(), &moves, facts).map_err(|refusal| refusal.code());
            assert_eq!(verdict, expected);
        }
        let created = update(ZERO, A, "refs/heads/x");
        let facts = Facts { follows: Unknown, keeps_workflows: Yes };
        assert_eq!(by_facts(&hosts(), &created, facts), Ok(()));
    }

    #[test]
    fn the_reason_is_one_line_that_helps() {
        let refusal = by_name(&hosts(), &update(A, B, "refs/heads/main")).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "branch main may not be pushed from a sandbox; allowed: *, !main, !master ([git] push in belljar.toml)"
        );
        let refusal = PushRefusal::Pack { detail: format!("a\nb\u{1b}[2J{}", "x".repeat(1000)) };
        assert!(refusal.to_string().starts_with("bad pack: a b [2Jxx"));
        assert!(refusal.to_string().len() <= 400);
    }
}

//! What only the sandbox has when it ends, and pins.

use super::super::{pin, unpin};
use super::pair::{ID, Pair, aside, commit, git};
use crate::inert::Git;
use crate::quarantine::HostRepository;

#[test]
fn stashes_and_dropped_commits_are_kept_at_the_end() {
    let mut pair = Pair::new();
    pair.write("README", "older\n");
    pair.agent(&["stash", "-q"]);
    pair.write("README", "newer\n");
    pair.agent(&["stash", "-q"]);
    let (newer, older) = (pair.agent(&["rev-parse", "stash@{0}"]), pair.agent(&["rev-parse", "stash@{1}"]));
    pair.agent_commits("a", "1\n");
    let dropped = pair.agent_commits("b", "1\n");
    pair.agent(&["reset", "-q", "--hard", "HEAD~2"]);
    pair.agent_commits("c", "1\n");
    let report = pair.finish();
    let names = aside(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let expected = [
        "stash@{0}: refs/belljar/ID/stash/0",
        "stash@{1}: refs/belljar/ID/stash/1",
        "reflog: refs/belljar/ID/dropped/0",
    ];
    assert_eq!(names, expected);
    for (name, commit) in [("stash/0", newer), ("stash/1", older), ("dropped/0", dropped)] {
        assert_eq!(pair.at_host(&format!("refs/belljar/{ID}/{name}")), commit);
    }
    pair.user(&["stash", "apply", "-q", &format!("refs/belljar/{ID}/stash/0")]);
    assert_eq!(pair.user(&["diff", "--name-only"]), "README");
    // Once more there is nothing more.
    assert_eq!(pair.finish().set_aside, []);
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]).lines().count(), 3);
}

#[test]
fn an_unfinished_rebase_is_told_of() {
    let mut pair = Pair::new();
    pair.agent_commits("a", "1\n");
    assert!(!pair.agent_may_fail(&["rebase", "-q", "--exec", "false", "HEAD~1"]).status.success());
    assert_eq!(pair.finish().unfinished, Some("a rebase"));
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/main");
}

#[test]
fn pins_hold_what_a_sandbox_borrows() {
    for init in [&["-b", "main"][..], &["-b", "main", "--ref-format=reftable"]] {
        let pair = Pair::of(init, |folder| {
            commit(folder, "README", "first\n");
            git(folder, &[], &["checkout", "-q", "-b", "gone"]);
            commit(folder, "README", "second\n");
        });
        // git before 2.45 does not know this kind.
        if HostRepository::open(&Git::find().unwrap(), &pair.host.own).is_err() {
            assert_ne!(init.len(), 2);
            continue;
        }
        let pinned = pair.at_host("HEAD");
        pin(&pair.repository(), ID, &pinned.parse().unwrap()).unwrap();
        pin(&pair.repository(), ID, &pinned.parse().unwrap()).unwrap();
        pair.user(&["checkout", "-q", "main"]);
        pair.user(&["branch", "-D", "gone"]);
        pair.user(&["reflog", "expire", "--expire=now", "--all"]);
        pair.user(&["gc", "-q", "--prune=now"]);
        assert_eq!(pair.agent(&["cat-file", "-t", &pinned]), "commit");
        unpin(&pair.repository(), ID).unwrap();
        assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
        pair.user(&["gc", "-q", "--prune=now"]);
        assert!(!pair.agent_may_fail(&["cat-file", "-t", &pinned]).status.success());
    }
}

//! When the host follows, row by row.

use super::super::ImportMode;
use super::meanwhile;
use super::pair::{ID, Pair, aside, commit, git};
use crate::foreign::Head;
use belljar_spec::git::RefPolicy;
use std::fs;

#[test]
fn commits_and_merges_on_the_branch_that_is_checked_out_follow() {
    let mut pair = Pair::new();
    assert_eq!(pair.import(), Default::default());
    for round in 0..2 {
        let commit = pair.agent_commits("work", &format!("{round}\n"));
        let report = pair.import();
        assert_eq!(report.followed.len(), 1, "{report:?}");
        assert_eq!(pair.at_host("refs/heads/main"), commit);
        pair.assert_same_status();
    }
    pair.agent(&["switch", "-q", "-c", "side", "HEAD~1"]);
    pair.agent_commits("side", "x\n");
    pair.agent(&["switch", "-q", "main"]);
    pair.agent(&["merge", "-q", "--no-edit", "side"]);
    pair.agent(&["branch", "-D", "side"]);
    assert!(pair.import().set_aside.is_empty());
    pair.assert_same_status();
    assert_eq!(pair.user(&["log", "--format=%P", "-1"]).split(' ').count(), 2);
    assert!(pair.user(&["reflog", "-1"]).contains(&format!("belljar: from sandbox {ID}")));
    // No ref of ours is left beside it.
    let names = fs::read_dir(&pair.host.own).unwrap().flatten().map(|entry| entry.file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().contains("belljar-")));
}

#[test]
fn a_first_commit_follows() {
    let mut pair = Pair::of(&["-b", "main"], |_| {});
    pair.write("staged", "by the user\n");
    pair.user(&["add", "staged"]);
    let commit = pair.agent_commits("work", "x\n");
    pair.import();
    assert_eq!(pair.at_host("HEAD"), commit);
    assert_eq!(pair.user(&["status", "--porcelain"]), "A  staged");
}

#[test]
fn amended_commits_follow_as_long_as_they_are_the_sandboxs_own() {
    let mut pair = Pair::new();
    let first = pair.at_host("HEAD");
    pair.agent_commits("work", "1\n");
    pair.import();
    let old = pair.at_host("main");
    pair.write("work", "2\n");
    pair.agent(&["commit", "-q", "-a", "--amend", "-m", "amended"]);
    assert!(pair.import().set_aside.is_empty());
    assert_eq!(pair.at_host("main"), pair.agent(&["rev-parse", "main"]));
    assert_eq!(pair.at_host("main@{1}"), old);
    pair.assert_same_status();
    // The user has built on it: a branch of the user's has the commit.
    pair.user(&["branch", "keep"]);
    pair.agent(&["commit", "-q", "--amend", "-m", "again"]);
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/main: refs/belljar/ID/heads/main");
    pair.user(&["branch", "-D", "keep"]);
    // Back to before the sandbox's first commit: that one is the user's.
    pair.agent(&["checkout", "-q", "--orphan", "other"]);
    pair.agent(&["commit", "-q", "-m", "without the first"]);
    pair.agent(&["branch", "-f", "main", "other"]);
    pair.agent(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    pair.agent(&["branch", "-D", "other"]);
    let report = pair.import();
    assert_eq!(report.followed, []);
    assert!(pair.user(&["merge-base", "--is-ancestor", &first, "main"]).is_empty());
    // The commits that were set aside before are still there.
    let kept = pair.user(&["for-each-ref", "--format=%(refname)", "refs/belljar"]);
    assert!(kept.contains("/kept/0") && kept.contains("/heads/main"), "{kept}");
}

#[test]
fn commits_of_the_user_meanwhile_are_never_lost() {
    let mut pair = Pair::new();
    let agents = pair.agent_commits("README", "by the agent\n");
    let users = pair.user_commits("README", "by the user\n");
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/main: refs/belljar/ID/heads/main");
    assert_eq!(
        (pair.at_host("main"), pair.at_host(&format!("refs/belljar/{ID}/heads/main"))),
        (users, agents)
    );
    // A second import reports nothing, and starts no git.
    assert_eq!(pair.import(), Default::default());
    // Inside it is merged, and then follows; it contains the waiting commits.
    let users = pair.at_host("main");
    pair.agent(&["reset", "-q", "--mixed"]);
    pair.agent(&["merge", "-q", "--no-edit", "-s", "ours", &users]);
    assert_eq!(pair.import().followed.len(), 1);
    assert_eq!(pair.at_host("main"), pair.agent(&["rev-parse", "HEAD"]));
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
}

#[test]
fn head_follows_a_switch_as_far_as_it_may() {
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        commit(folder, "README", "1\n");
        git(folder, &[], &["branch", "old"]);
        commit(folder, "README", "2\n");
    });
    pair.agent(&["switch", "-q", "-c", "agent/x"]);
    pair.agent_commits("work", "x\n");
    let report = pair.import();
    assert_eq!(report.head, Some(Head::Branch("agent/x".parse().unwrap())), "{report:?}");
    assert!(report.set_aside.is_empty());
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/agent/x");
    pair.assert_same_status();
    // The branch that HEAD leaves, and HEAD, at the same time.
    pair.agent_commits("work", "y\n");
    pair.agent(&["switch", "-q", "old"]);
    assert!(pair.import().set_aside.is_empty());
    pair.assert_same_status();
    // Detached, and back.
    pair.agent(&["checkout", "-q", "--detach", "main"]);
    let detached = pair.agent_commits("more", "x\n");
    assert_eq!(pair.import().head, Some(Head::Detached(detached.parse().unwrap())));
    pair.assert_same_status();
    pair.agent(&["switch", "-q", "main"]);
    pair.import();
    pair.assert_same_status();
    assert!(pair.user(&["for-each-ref", "refs/belljar"]).contains("/bases/"));
}

#[test]
fn a_host_that_switched_does_not_follow() {
    let mut pair = Pair::new();
    pair.user(&["switch", "-q", "-c", "users"]);
    let commit = pair.agent_commits("work", "x\n");
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/main: refs/belljar/ID/heads/main");
    assert_eq!(pair.at_host(&format!("refs/belljar/{ID}/heads/main")), commit);
    assert_ne!(pair.at_host("main"), commit);
    // Back again, it does.
    pair.user(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    assert_eq!(pair.import().followed.len(), 1);
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
    pair.assert_same_status();
}

#[test]
fn a_host_that_switches_while_an_import_runs_keeps_its_index() {
    for (name, words) in
        [("index", &["switch", "-q", "-c", "mine"][..]), ("lock", &["switch", "-q", "--detach"])]
    {
        let mut pair = Pair::new();
        let before = pair.at_host("main");
        pair.agent_commits("work", "x\n");
        let top = pair.host.top.clone();
        meanwhile(name, move || drop(super::pair::git(&top, &[], words)));
        let report = pair.import();
        assert!(aside(&report)[0].1.contains("has switched to another branch"), "{report:?}");
        assert_eq!(pair.at_host("main"), before, "{name}");
        assert_eq!(pair.user(&["status", "--porcelain"]), "?? work", "{name}");
        // No lock is left.
        pair.user(&["switch", "-q", "main"]);
    }
}

#[test]
fn a_host_in_the_middle_of_something_does_not_follow() {
    for file in
        ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge/x", "rebase-apply/x"]
    {
        let mut pair = Pair::new();
        super::pair::write(&pair.host.own, file, &pair.at_host("HEAD"));
        let before = pair.at_host("main");
        pair.agent_commits("work", "x\n");
        let report = pair.import();
        assert!(aside(&report)[0].1.contains("in the middle of"), "{report:?}");
        assert_eq!(pair.at_host("main"), before, "{file}");
    }
}

#[test]
fn a_rebase_inside_is_followed_when_it_is_done() {
    let mut pair = Pair::new();
    pair.agent_commits("a", "1\n");
    pair.agent_commits("b", "1\n");
    let stopped = pair.agent_may_fail(&["rebase", "-q", "--exec", "false", "HEAD~1"]);
    assert!(!stopped.status.success());
    pair.import();
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    pair.agent(&["rebase", "--abort"]);
    pair.import();
    pair.assert_same_status();
}

#[test]
fn branches_that_are_checked_out_nowhere_follow_the_policy() {
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        commit(folder, "README", "first\n");
        git(folder, &[], &["branch", "free"]);
        git(folder, &[], &["branch", "taken"]);
        git(folder, &[], &["worktree", "add", "-q", "../tree", "taken"]);
        git(folder, &[], &["tag", "v1"]);
        git(folder, &[], &["update-ref", "refs/remotes/origin/main", "HEAD"]);
    });
    pair.agent_commits("work", "x\n");
    for name in ["free", "taken", "new", "v1", "origin/main", "abcdef0", "heads/x"] {
        pair.agent(&["branch", "-q", "-f", name]);
    }
    pair.agent(&["update-ref", "refs/heads/HEAD", "HEAD"]);
    pair.agent(&["update-ref", "refs/notes/x", "HEAD"]);
    pair.agent(&["update-ref", "refs/replace/1111111111111111111111111111111111111111", "HEAD"]);
    pair.agent(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    pair.agent(&["tag", "-m", "annotated", "v2"]);
    let report = pair.import();
    let followed = report.followed.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>();
    assert_eq!(followed, ["refs/heads/main", "refs/heads/free", "refs/heads/new"]);
    let names = aside(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let expected = [
        "heads/HEAD",
        "heads/abcdef0",
        "heads/heads/x",
        "heads/origin/main",
        "heads/taken",
        "heads/v1",
        "tags/v2",
    ];
    assert_eq!(names, expected.map(|name| format!("refs/{name}: refs/belljar/ID/{name}")));
    for name in ["refs/notes/x", "refs/replace/1111111111111111111111111111111111111111", "refs/tags/v2"] {
        assert_eq!(pair.at_host(name), "");
    }
    pair.user(&["fsck", "--strict"]);
}

#[test]
fn a_policy_is_held_and_tags_are_made_by_it() {
    let mut pair = Pair::new();
    let policy = RefPolicy::only(vec!["agent/*".parse().unwrap()]);
    pair.policy = RefPolicy { tags: true, workflows: false, ..policy };
    pair.agent_commits("work", "x\n");
    for words in [&["branch", "agent/x"][..], &["branch", "other"], &["tag", "v1"], &["tag", "main"]] {
        pair.agent(words);
    }
    let report = pair.import();
    let followed = report.followed.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>();
    assert_eq!(followed, ["refs/heads/main", "refs/heads/agent/x", "refs/tags/v1"]);
    let names = aside(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(
        names,
        ["refs/heads/other: refs/belljar/ID/heads/other", "refs/tags/main: refs/belljar/ID/tags/main"]
    );
    pair.agent_commits(".github/workflows/x.yml", "x\n");
    let report = pair.import();
    assert!(aside(&report)[0].1.contains("workflows"), "{report:?}");
}

#[test]
fn a_branch_that_the_policy_excludes_does_not_move_by_being_checked_out_inside() {
    let on = |branch: &'static str| {
        let mut pair = Pair::of(&["-b", "main"], move |folder| {
            commit(folder, "README", "first\n");
            git(folder, &[], &["branch", "release"]);
            git(folder, &[], &["switch", "-q", branch]);
        });
        pair.policy = RefPolicy::only(["*", "!release"].map(|pattern| pattern.parse().unwrap()).to_vec());
        pair
    };
    let mut pair = on("main");
    let before = pair.at_host("release");
    pair.agent(&["switch", "-q", "release"]);
    let report = pair.import();
    assert_eq!(aside(&report).len(), 1, "{report:?}");
    pair.agent_commits("work", "x\n");
    let report = pair.import();
    assert!(report.followed.is_empty(), "{report:?}");
    assert_eq!(pair.at_host("release"), before);
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    // The user's checked-out branch is the work that the sandbox was given, regardless of its name.
    let mut pair = on("release");
    let commit = pair.agent_commits("work", "x\n");
    pair.import();
    assert_eq!(pair.at_host("release"), commit);
}

#[test]
fn deleted_branches_stay_unless_the_sandbox_made_them() {
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        commit(folder, "README", "first\n");
        git(folder, &[], &["branch", "users"]);
    });
    pair.agent(&["switch", "-q", "-c", "agent"]);
    let lost = pair.agent_commits("work", "x\n");
    pair.agent(&["switch", "-q", "main"]);
    pair.import();
    assert_eq!(pair.at_host("agent"), lost);
    pair.agent(&["branch", "-q", "-D", "users", "agent"]);
    let report = pair.import();
    assert_ne!(pair.at_host("refs/heads/users"), "");
    assert_eq!(pair.at_host("refs/heads/agent"), "");
    let names = aside(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names, ["refs/heads/agent: refs/belljar/ID/heads/agent", "refs/heads/users: -"]);
    assert_eq!(pair.import(), Default::default());
    // A branch that the user deleted does not come back.
    pair.agent(&["switch", "-q", "-c", "twice"]);
    pair.agent(&["switch", "-q", "main"]);
    assert_eq!(pair.import().followed.len(), 1);
    pair.user(&["branch", "-q", "-D", "twice"]);
    pair.agent(&["branch", "-q", "-f", "twice", &lost]);
    assert_eq!(aside(&pair.import())[0].0, "refs/heads/twice: refs/belljar/ID/heads/twice");
    assert_eq!(pair.at_host("refs/heads/twice"), "");
}

#[test]
fn nothing_follows_in_overlay_mode() {
    let mut pair = Pair::new();
    pair.mode = ImportMode::Overlay;
    let before = pair.user(&["for-each-ref", "refs/heads", "refs/tags"]);
    pair.agent_commits("work", "x\n");
    pair.agent(&["switch", "-q", "-c", "other"]);
    pair.agent(&["tag", "v1"]);
    let report = pair.import();
    assert_eq!(report.set_aside.len(), 3, "{report:?}");
    assert_eq!(pair.user(&["for-each-ref", "refs/heads", "refs/tags"]), before);
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(pair.user(&["diff", "--cached", "--name-only"]), "");
    assert_eq!(pair.import(), Default::default());
}

#[test]
fn submodules_are_never_new_on_the_host() {
    let mut pair = Pair::new();
    let before = pair.at_host("HEAD");
    let link = |pair: &Pair, path: &str, commit: &str| {
        pair.agent(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{path}")]);
        pair.agent(&["commit", "-q", "-m", "link"]);
    };
    link(&pair, "sub", &before);
    // Undone at the end, it is still in the history.
    pair.agent(&["rm", "-q", "--cached", "sub"]);
    pair.agent(&["commit", "-q", "-m", "undone"]);
    let report = pair.import();
    assert!(aside(&report)[0].1.starts_with("it makes `sub` a submodule"), "{report:?}");
    assert_eq!(pair.at_host("HEAD"), before);
    assert_eq!(pair.user(&["ls-files", "-s", "sub"]), "");
    // A submodule that the host has moves to commits that the host's repository of it has.
    let mut there = String::new();
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        let module = folder.join(".git/modules/sub");
        fs::create_dir_all(&module).unwrap();
        git(&module, &[], &["init", "-q", "--bare"]);
        let tree = git(&module, &[], &["hash-object", "-t", "tree", "-w", "/dev/null"]);
        there = git(&module, &[], &["commit-tree", "-m", "x", &tree]);
        git(&module, &[], &["config", "core.bare", "false"]);
        git(&module, &[], &["config", "core.worktree", "../../../sub"]);
        commit(folder, "README", "first\n");
        git(folder, &[], &["update-index", "--add", "--cacheinfo", &format!("160000,{before},sub")]);
        git(folder, &[], &["commit", "-q", "-m", "link"]);
    });
    link(&pair, "sub", &there);
    assert_eq!(pair.import().followed.len(), 1);
    link(&pair, "sub", &"1".repeat(40));
    assert!(aside(&pair.import())[0].1.contains("has no commit 111111111111"));
}

#[test]
fn other_kinds_of_repositories_follow_too() {
    // Names by SHA-256.
    let mut pair = Pair::of(&["-b", "main", "--object-format=sha256"], |folder| {
        commit(folder, "README", "first\n");
    });
    pair.agent_commits("work", "x\n");
    assert_eq!(pair.import().followed.len(), 1);
    pair.assert_same_status();
    // A history that ends early.
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        commit(folder, "README", "first\n");
        let second = commit(folder, "README", "second\n");
        fs::write(folder.join(".git/shallow"), format!("{second}\n")).unwrap();
        fs::remove_dir_all(folder.join(".git/logs")).unwrap();
        git(folder, &[], &["gc", "-q", "--prune=now"]);
    });
    assert_eq!(pair.user(&["rev-list", "--count", "HEAD"]), "1");
    pair.agent_commits("work", "x\n");
    assert_eq!(pair.import().followed.len(), 1);
    pair.assert_same_status();
    // A linked worktree.
    let main = Pair::new();
    main.user(&["worktree", "add", "-q", "-b", "linked", "../linked"]);
    let place = main.place.join("second");
    fs::create_dir(&place).unwrap();
    let own = main.host.own.join("worktrees/linked");
    let host = super::super::HostGit { top: main.place.join("linked"), own, common: main.host.own.clone() };
    let mut pair = Pair::at(&place, host);
    pair.agent_commits("work", "x\n");
    pair.agent(&["branch", "-f", "main"]);
    let report = pair.import();
    assert_eq!(report.followed[0].reference, "refs/heads/linked");
    assert_eq!(aside(&report)[0].1, "another worktree of the host uses the branch");
    pair.assert_same_status();
    assert_eq!(main.user(&["status", "--porcelain"]), "");
}

//! The host's index: the user's staged changes stay.

use super::pair::{Pair, aside};
use std::fs;

#[test]
fn what_the_user_staged_elsewhere_stays() {
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        super::pair::commit(folder, "README", "first\n");
        super::pair::commit(folder, "flags", "x\n");
    });
    pair.write("staged", "1\n");
    pair.write("announced", "1\n");
    pair.user(&["add", "staged"]);
    pair.user(&["add", "-N", "announced"]);
    pair.user(&["update-index", "--skip-worktree", "README"]);
    pair.user(&["update-index", "--assume-unchanged", "flags"]);
    pair.agent_commits("work", "x\n");
    assert_eq!(pair.import().followed.len(), 1);
    assert_eq!(pair.user(&["status", "--porcelain"]), " A announced\nA  staged");
    assert_eq!(pair.user(&["ls-files", "-v"]), "S README\nH announced\nh flags\nH staged\nH work");
}

#[test]
fn a_path_that_both_changed_keeps_what_the_user_staged() {
    let mut pair = Pair::new();
    // The agent commits, and the user stages something else at the same paths before that is imported.
    pair.agent_commits("README", "agent\n");
    pair.agent_commits("new", "agent\n");
    pair.agent_commits("announced", "agent\n");
    pair.agent_commits("same", "same\n");
    pair.write("README", "user\n");
    pair.write("new", "user\n");
    pair.user(&["add", "README", "new", "same"]);
    pair.user(&["add", "-N", "announced"]);
    let report = pair.import();
    assert_eq!(report.followed.len(), 1, "{report:?}");
    assert_eq!(pair.user(&["status", "--porcelain"]), "M  README\nM  new");
    assert_eq!(pair.user(&["show", ":README", ":new"]), "user\nuser");
    assert_eq!(pair.user(&["show", "HEAD:README", "HEAD:announced"]), "agent\nagent");
    // Deleted by the user, changed inside.
    pair.agent(&["reset", "-q"]);
    pair.agent_commits("same", "other\n");
    pair.user(&["rm", "-q", "--cached", "same"]);
    assert_eq!(pair.import().followed.len(), 1);
    assert!(pair.user(&["status", "--porcelain"]).contains("D  same\n"));
}

#[test]
fn an_index_with_conflicts_does_not_follow() {
    let mut pair = Pair::new();
    let before = pair.at_host("HEAD");
    let blob = pair.user(&["rev-parse", "HEAD:README"]);
    let lines = format!("0 {}\tREADME\n100644 {blob} 1\tREADME\n100644 {blob} 2\tREADME\n", "0".repeat(40));
    fs::write(pair.place.join("lines"), lines).unwrap();
    let input = fs::File::open(pair.place.join("lines")).unwrap();
    let mut command = std::process::Command::new("git");
    command.args(["update-index", "--index-info"]).current_dir(&pair.host.top).stdin(input);
    assert!(command.status().unwrap().success());
    let index = fs::read(pair.host.own.join("index")).unwrap();
    pair.agent_commits("work", "x\n");
    let report = pair.import();
    assert_eq!(aside(&report)[0].1, "the host's index has conflicts", "{report:?}");
    assert_eq!(pair.at_host("HEAD"), before);
    assert_eq!(fs::read(pair.host.own.join("index")).unwrap(), index);
}

#[test]
fn a_lock_of_the_users_is_respected() {
    let mut pair = Pair::new();
    let before = pair.at_host("HEAD");
    let lock = pair.host.own.join("index.lock");
    fs::write(&lock, "").unwrap();
    let commit = pair.agent_commits("work", "x\n");
    let report = pair.import();
    assert!(aside(&report)[0].1.contains("index.lock"), "{report:?}");
    assert_eq!(pair.at_host("HEAD"), before);
    assert!(lock.exists());
    // As soon as it is gone, the host follows.
    fs::remove_file(&lock).unwrap();
    assert_eq!(pair.import().followed.len(), 1);
    assert_eq!(pair.at_host("HEAD"), commit);
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
    pair.assert_same_status();
}

#[test]
fn the_indexs_time_and_its_untracked_cache_stay() {
    let mut pair = Pair::new();
    pair.user(&["update-index", "--force-untracked-cache"]);
    pair.user(&["status"]);
    pair.agent_commits("work", "x\n");
    let before = fs::metadata(pair.host.own.join("index")).unwrap().modified().unwrap();
    pair.import();
    assert_eq!(fs::metadata(pair.host.own.join("index")).unwrap().modified().unwrap(), before);
    let index = fs::read(pair.host.own.join("index")).unwrap();
    assert!(index.windows(4).any(|word| word == b"UNTR"));
}

#[test]
fn nothing_of_the_hosts_config_runs() {
    let mut pair = Pair::new();
    let canary = pair.place.join("canary");
    let script = pair.place.join("script");
    fs::write(&script, format!("#!/bin/sh\ntouch {}\n", canary.display())).unwrap();
    assert!(
        std::process::Command::new("chmod")
            .args(["+x", script.to_str().unwrap()])
            .status()
            .unwrap()
            .success()
    );
    for hook in ["reference-transaction", "post-index-change", "post-commit", "post-checkout", "pre-commit"] {
        super::pair::write(&pair.host.own, &format!("hooks/{hook}"), "");
        fs::copy(&script, pair.host.own.join("hooks").join(hook)).unwrap();
    }
    let command = script.to_str().unwrap();
    for key in
        ["core.fsmonitor", "filter.x.clean", "filter.x.smudge", "diff.external", "core.alternateRefsCommand"]
    {
        pair.user(&["config", key, command]);
    }
    super::pair::write(&pair.host.own, "info/attributes", "* filter=x\n");
    pair.agent_commits("work", "x\n");
    pair.agent(&["switch", "-q", "-c", "other"]);
    assert!(pair.import().head.is_some());
    assert!(!canary.exists());
}

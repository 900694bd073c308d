//! The user and the agent commit on one branch at the same time.

use super::pair::{ID, Pair, aside};

#[test]
fn commits_of_both_sides_to_different_files_are_merged() {
    let mut pair = Pair::new();
    let agents = pair.agent_commits("work", "x\n");
    let users = pair.user_commits("users", "x\n");
    pair.write("staged", "by the agent\n");
    pair.agent(&["add", "staged"]);
    assert_eq!(pair.carry_in(), Vec::<String>::new());
    let report = pair.import();
    assert_eq!((report.followed.len(), report.set_aside.len()), (1, 0), "{report:?}");
    assert!(report.notes[0].contains("belljar merged them"), "{report:?}");
    assert_eq!(pair.user(&["log", "-1", "--format=%P %an"]), format!("{agents} {users} belljar"));
    assert_eq!(pair.user(&["status", "--porcelain"]), "?? staged");
    // The sandbox has it after the next sync, with its index, and continues from there.
    assert_eq!(pair.carry_in(), Vec::<String>::new());
    assert_eq!(pair.agent(&["status", "--porcelain"]), "A  staged");
    assert_eq!(pair.agent(&["rev-parse", "HEAD"]), pair.at_host("HEAD"));
    assert_eq!(pair.import(), Default::default());
    pair.agent(&["commit", "-q", "-m", "staged"]);
    assert_eq!(pair.import().followed.len(), 1);
    pair.assert_same_status();
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
}

#[test]
fn many_commits_of_both_sides_are_all_on_the_branch() {
    let mut pair = Pair::new();
    for number in 0..25 {
        if number < 20 {
            pair.agent_commits(&format!("agent/{number}"), "x\n");
        }
        pair.user_commits(&format!("user/{number}"), "x\n");
        if number % 3 == 0 {
            pair.carry_in();
            pair.import();
        }
    }
    assert!(pair.finish().set_aside.is_empty());
    let subjects = pair.user(&["log", "--format=%s", "main"]);
    let of = |who: &str| subjects.lines().filter(|line| line.starts_with(who)).count();
    assert_eq!((of("agent/"), of("user/")), (20, 25), "{subjects}");
    assert_eq!(pair.user(&["status", "--porcelain"]), "");
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
    pair.user(&["fsck", "--strict"]);
}

#[test]
fn changes_to_the_same_lines_are_set_aside_until_the_user_merges_them() {
    let mut pair = Pair::new();
    let agents = pair.agent_commits("README", "by the agent\n");
    let users = pair.user_commits("README", "by the user\n");
    pair.carry_in();
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/main: refs/belljar/ID/heads/main");
    assert_eq!((pair.at_host("main"), pair.agent(&["rev-parse", "host/main"])), (users.clone(), users));
    // The user merges them as the message says; the sandbox follows again.
    pair.user(&["merge", "-q", "-X", "theirs", "-m", "merged", &format!("refs/belljar/{ID}/heads/main")]);
    assert_eq!(pair.carry_in(), Vec::<String>::new());
    assert_eq!(pair.agent(&["rev-parse", "HEAD"]), pair.at_host("main"));
    pair.agent(&["merge-base", "--is-ancestor", &agents, "HEAD"]);
    pair.agent_commits("more", "x\n");
    assert_eq!(pair.import().followed.len(), 1);
    pair.assert_same_status();
}

#[test]
fn history_that_was_rewritten_is_not_merged_back() {
    // By the user.
    let mut pair = Pair::new();
    pair.user_commits("users", "secret\n");
    pair.carry_in();
    pair.write("users", "without\n");
    pair.user(&["commit", "-q", "-a", "--amend", "-m", "amended"]);
    let amended = pair.at_host("main");
    pair.agent_commits("work", "x\n");
    pair.carry_in();
    assert_eq!(aside(&pair.import()).len(), 1);
    assert_eq!(pair.at_host("main"), amended);
    // By the agent.
    let mut pair = Pair::new();
    pair.agent_commits("work", "1\n");
    pair.import();
    pair.agent(&["commit", "-q", "--amend", "-m", "amended"]);
    let users = pair.user_commits("users", "x\n");
    pair.carry_in();
    assert_eq!(aside(&pair.import()).len(), 1);
    assert_eq!(pair.at_host("main"), users);
}

#[test]
fn what_was_set_aside_and_followed_later_is_not_told_as_left() {
    let mut pair = Pair::new();
    // The user has an operation in progress, and then finishes it.
    super::pair::write(&pair.host.own, "MERGE_HEAD", &pair.at_host("HEAD"));
    pair.agent_commits("work", "x\n");
    let mut report = pair.import();
    assert_eq!(report.set_aside.len(), 1);
    std::fs::remove_file(pair.host.own.join("MERGE_HEAD")).unwrap();
    pair.user_commits("users", "x\n");
    pair.carry_in();
    report.join(pair.import());
    assert_eq!((report.followed.len(), report.set_aside.len()), (1, 0), "{report:?}");
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
}

#[test]
fn a_merge_that_the_host_may_not_follow_to_is_not_kept() {
    let mut pair = Pair::new();
    let agents = pair.agent_commits("work", "x\n");
    let commit = pair.at_host("HEAD");
    // For the sandbox's side the user's submodule is new.
    pair.user(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},sub")]);
    pair.user(&["commit", "-q", "-m", "link"]);
    pair.carry_in();
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/main: refs/belljar/ID/heads/main");
    assert_eq!(pair.at_host(&format!("refs/belljar/{ID}/heads/main")), agents);
    assert_eq!(pair.import(), Default::default());
}

//! A host that gets new commits.

use crate::managed::machine::{Machine, inside, name, read};
use crate::repository::Repository;
use belljar_workspace::managed::{self, ManagedCloneError, Outcome};
use std::fs;

#[test]
fn unchanged_work_follows_the_host() {
    let machine = Machine::new();
    machine.host.git(&["branch", "work"]);
    drop(machine.provision("work"));
    machine.host.git(&["checkout", "-q", "work"]);
    machine.host.git(&["mv", "README", "READ.me"]);
    let last = machine.host.commit("deep/er/file", "3\n", "third");
    let forwarded = machine.provision("work");
    assert_eq!(forwarded.outcome, Outcome::Forwarded);
    assert_eq!(inside(&forwarded).git(&["rev-parse", "HEAD"]), last);
    assert_eq!(inside(&forwarded).git(&["status", "--porcelain"]), "");
    assert_eq!(read(&forwarded, "deep/er/file"), "3\n");
    assert!(!forwarded.folder.join("README").exists());
}

#[test]
fn work_is_never_lost_when_the_host_moves_on() {
    type Work = fn(&Repository);
    let kinds: [(&str, Work); 8] = [
        ("a commit", |inside| drop(inside.commit("mine", "m\n", "mine"))),
        ("a change", |inside| inside.write("README", "mine\n")),
        ("a removed file", |inside| fs::remove_file(inside.folder.join("README")).unwrap()),
        ("what is added", |inside| {
            inside.write("mine", "m\n");
            inside.git(&["add", "mine"]);
        }),
        ("what is added and changed back", |inside| {
            inside.write("README", "mine\n");
            inside.git(&["add", "README"]);
            inside.write("README", "first\n");
        }),
        ("an untracked file in the way", |inside| inside.write("second", "mine\n")),
        ("another branch", |inside| drop(inside.git(&["checkout", "-q", "-b", "elsewhere"]))),
        ("a merge under way", |inside| {
            inside.git(&["checkout", "-q", "-b", "side"]);
            inside.git(&["commit", "-q", "--allow-empty", "-m", "side"]);
            inside.git(&["checkout", "-q", "work"]);
            inside.git(&["merge", "-q", "--no-ff", "--no-commit", "side"]);
        }),
    ];
    for (what, work) in kinds {
        let machine = Machine::new();
        machine.host.git(&["branch", "work"]);
        let made = machine.provision("work");
        let inside = inside(&made);
        work(&inside);
        let look = || (inside.git(&["rev-parse", "HEAD"]), inside.git(&["status", "--porcelain"]));
        let before = look();
        drop(made);
        machine.host.git(&["checkout", "-q", "work"]);
        let last = machine.host.commit("second", "2\n", "second");
        let kept = machine.provision("work");
        assert_eq!((kept.outcome, look()), (Outcome::Unchanged, before), "{what}");
        // The host's commits are there to be merged.
        assert_eq!(inside.git(&["rev-parse", "refs/remotes/host/work"]), last, "{what}");
        assert_eq!(inside.git(&["show", "host/work:second"]), "2", "{what}");
    }
}

#[test]
fn a_worktree_in_use_is_not_touched() {
    let machine = Machine::new();
    machine.host.git(&["branch", "work"]);
    let first = machine.provision("work");
    machine.host.git(&["checkout", "-q", "work"]);
    machine.host.commit("second", "2\n", "second");
    let second = machine.provision("work");
    assert_eq!((second.outcome, &second.folder), (Outcome::Unchanged, &first.folder));
    assert!(!second.folder.join("second").exists());
    let removed = managed::remove(&machine.state(), &first.clone_name, Some(&name("work")));
    assert!(matches!(removed, Err(ManagedCloneError::InUse { .. })));
    drop(second);
    assert!(matches!(
        managed::remove(&machine.state(), &first.clone_name, None),
        Err(ManagedCloneError::InUse { .. })
    ));
}

#[test]
fn a_deleted_folder_is_made_again() {
    let machine = Machine::new();
    let made = machine.provision("work");
    let commit = inside(&made).commit("mine", "m\n", "mine");
    inside(&made).git(&["gc", "-q"]);
    inside(&made).commit("mine", "n\n", "loose");
    inside(&made).git(&["reset", "-q", "--hard", &commit]);
    fs::remove_dir_all(&made.folder).unwrap();
    drop(made);
    let mended = machine.provision("work");
    assert_eq!(mended.outcome, Outcome::Mended);
    assert_eq!(read(&mended, "mine"), "m\n");
    assert_eq!(inside(&mended).git(&["rev-parse", "HEAD"]), commit);
    assert_eq!(inside(&mended).git(&["status", "--porcelain"]), "");

    let own = mended.git.common.join(&mended.git.own);
    inside(&mended).write("mine", "changed\n");
    fs::remove_dir_all(own).unwrap();
    drop(mended);
    let mended = machine.provision("work");
    assert_eq!((mended.outcome, read(&mended, "mine")), (Outcome::Mended, "changed\n".into()));
    assert_eq!(inside(&mended).git(&["status", "--porcelain"]), " M mine");
}

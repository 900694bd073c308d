//! Kept worktrees.

use crate::managed::machine::{Machine, inside, name};
use crate::repository::Repository;
use belljar_workspace::managed::{self, ManagedCloneError, OnHost, Outcome};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn what_is_kept_is_listed_and_removed() {
    let machine = Machine::new();
    let made = machine.provision("work");
    let other = machine.provision("other/one");
    inside(&made).commit("mine", "", "mine");
    inside(&made).git(&["pack-refs", "--all"]);
    drop(other);
    let mut list: Vec<_> = managed::list(&machine.state()).unwrap().into_iter().map(Result::unwrap).collect();
    list.sort_by(|a, b| a.branch.cmp(&b.branch));
    let shown: Vec<_> = list.iter().map(|kept| (kept.branch.as_str(), kept.on_host, kept.in_use)).collect();
    assert_eq!(shown, [("other/one", true, false), ("work", false, true)]);
    let clone_name = made.clone_name.clone();
    drop(made);
    managed::remove(&machine.state(), &clone_name, Some(&name("work"))).unwrap();
    assert!(matches!(
        managed::remove(&machine.state(), &clone_name, Some(&name("work"))),
        Err(ManagedCloneError::Unknown(_))
    ));
    let made = machine.provision("work");
    assert_eq!((made.outcome, inside(&made).git(&["log", "--format=%s"])), (Outcome::Made, "first".into()));
    drop(made);
    managed::remove(&machine.state(), &clone_name, None).unwrap();
    assert!(managed::list(&machine.state()).unwrap().is_empty());
    assert!(matches!(managed::remove(&machine.state(), "../host", None), Err(ManagedCloneError::Unknown(_))));
}

#[test]
fn only_we_can_enter() {
    let machine = Machine::new();
    drop(machine.provision("work"));
    let mode = fs::metadata(machine.clone_dir()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn another_repository_at_the_same_path_does_not_get_the_managed_clone() {
    let machine = Machine::new();
    let made = machine.provision("work");
    inside(&made).commit("secret", "TOPSECRET\n", "unpushed");
    drop(made);
    let again = || managed::provision(&machine.state(), &machine.host.folder, Some(&name("other")));
    again().unwrap();
    fs::remove_dir_all(&machine.host.folder).unwrap();
    Repository::with_commit(&machine.host.folder);
    let refused = again().unwrap_err();
    assert!(matches!(refused, ManagedCloneError::OfAnother { .. }), "{refused:?}");
    let list = managed::list(&machine.state()).unwrap();
    let kept: Vec<_> = list.iter().flatten().map(|kept| (kept.branch.as_str(), kept.on_host)).collect();
    assert!(kept.contains(&("work", false)), "nothing is lost: {kept:?}");
    // On an explicit request the managed clone is removed, and the next start makes a new one.
    managed::remove(&machine.state(), machine.clone_dir().file_name().unwrap().to_str().unwrap(), None)
        .unwrap();
    again().unwrap();
}

#[test]
fn a_label_of_an_earlier_version_is_adopted_by_a_related_repository_alone() {
    let machine = Machine::new();
    drop(machine.provision("work"));
    let label = machine.clone_dir().join("shelf.json");
    let earlier = serde_json::json!({ "version": 1, "host": machine.host.folder.join(".git") }).to_string();
    fs::write(&label, &earlier).unwrap();
    drop(machine.provision("work"));
    assert_ne!(fs::read_to_string(&label).unwrap(), earlier, "which directory it is, is written down");
    fs::write(&label, &earlier).unwrap();
    fs::remove_dir_all(&machine.host.folder).unwrap();
    let other = Repository::with_commit(&machine.host.folder);
    other.git(&["commit", "-q", "--amend", "-m", "another history"]);
    other.git(&["reflog", "expire", "--expire=all", "--all"]);
    other.git(&["gc", "-q", "--prune=now"]);
    let refused =
        managed::provision(&machine.state(), &machine.host.folder, Some(&name("work"))).unwrap_err();
    assert!(matches!(refused, ManagedCloneError::OfAnother { .. }), "{refused:?}");
}

#[test]
fn a_label_of_an_earlier_version_is_adopted_where_there_was_no_commit_yet_to_know_it_by() {
    let machine = Machine::new();
    let folder = machine.base.join("empty");
    let provision = || managed::provision(&machine.state(), &folder, Some(&name("work")));
    Repository::empty(&folder);
    drop(provision().unwrap());
    let label = machine.clone_dir().join("shelf.json");
    let earlier = serde_json::json!({ "version": 1, "host": folder.join(".git") }).to_string();
    fs::write(&label, &earlier).unwrap();
    drop(provision().unwrap());
    assert_ne!(fs::read_to_string(&label).unwrap(), earlier, "which directory it is, is written down");
    fs::write(&label, &earlier).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    Repository::empty(&folder);
    assert!(
        matches!(provision(), Err(ManagedCloneError::OfAnother { .. })),
        "it was made after the managed clone"
    );
}

#[test]
fn a_managed_clone_or_worktree_that_is_not_understood_is_listed_and_stays() {
    let damages: [(&str, &str); 3] =
        [("empty", ""), ("rubbish", "{]"), ("of a later version", r#"{"version":9}"#)];
    for (name_of, text) in damages {
        let machine = Machine::new();
        let made = machine.provision("work");
        inside(&made).commit("mine", "", "mine");
        drop(made);
        let (clone_name, mark) = (machine.clone_dir(), machine.clone_dir().join("marks/work/mark.json"));
        let good = fs::read(&mark).unwrap();
        fs::write(&mark, text).unwrap();
        let listed = |id: &str| match managed::list(&machine.state()).unwrap().as_slice() {
            [Err(damaged)] => assert_eq!(damaged.id, id, "{name_of}"),
            other => panic!("{name_of}: {other:?}"),
        };
        let managed_clone_name = clone_name.file_name().unwrap().to_str().unwrap().to_string();
        listed(&format!("{managed_clone_name}:work"));
        fs::write(&mark, good).unwrap();
        fs::write(clone_name.join("shelf.json"), text).unwrap();
        listed(&managed_clone_name);
        let refused = managed::provision(&machine.state(), &machine.host.folder, Some(&name("work")));
        assert!(matches!(refused, Err(ManagedCloneError::Damaged(_))), "{name_of}");
        fs::remove_file(clone_name.join("shelf.json")).unwrap();
        listed(&managed_clone_name);
        assert!(clone_name.join("trees/work/mine").exists(), "{name_of}");
        managed::remove_damaged(&machine.state(), &managed_clone_name).unwrap();
        assert!(!clone_name.exists(), "{name_of}");
    }
}

#[test]
fn a_commit_that_cannot_be_read_is_told_and_does_not_fail_the_run() {
    let machine = Machine::new();
    let made = machine.provision("work");
    inside(&made).commit("mine", "mine\n", "mine");
    let blob = inside(&made).git(&["rev-parse", "HEAD:mine"]);
    fs::remove_file(made.git.common.join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    let left = made.left().unwrap();
    assert_eq!((left.branch, left.is_on_host()), (OnHost::No, false));
    assert!(left.unknown.as_ref().is_some_and(|why| why.contains(&blob)), "{left:?}");
    assert_eq!(managed::list(&machine.state()).unwrap().remove(0).unwrap().uncommitted, None);
}

#[test]
fn what_is_not_committed_is_not_pushed() {
    let machine = Machine::new();
    let made = machine.provision("work");
    let clean = made.left().unwrap();
    assert!(clean.is_on_host() && clean.uncommitted.is_empty(), "{clean:?}");
    fs::write(made.folder.join("one.txt"), "1").unwrap();
    fs::write(made.folder.join("two.txt"), "2").unwrap();
    let left = made.left().unwrap();
    assert_eq!((left.branch, left.uncommitted.len(), left.is_on_host()), (OnHost::Nothing, 2, false));
    let kept = managed::list(&machine.state()).unwrap().remove(0).unwrap();
    assert_eq!((kept.on_host, kept.uncommitted), (true, Some(2)));
    inside(&made).git(&["add", "-A"]);
    inside(&made).git(&["commit", "-q", "-m", "mine"]);
    let left = made.left().unwrap();
    assert_eq!((left.branch, left.uncommitted.len()), (OnHost::No, 0));
    inside(&made).git(&["update-ref", "-d", "refs/heads/work"]);
    let left = made.left().unwrap();
    assert_eq!((left.branch, left.is_on_host()), (OnHost::Gone, false), "{left:?}");
}

#[test]
fn a_pipe_in_the_hosts_git_directory_is_refused_by_name_and_git_is_not_started() {
    for name_of in ["HEAD", "packed-refs", "refs/heads/trap", "index"] {
        let machine = Machine::new();
        drop(machine.provision("work"));
        let path = machine.host.folder.join(".git").join(name_of);
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = managed::provision(&machine.state(), &machine.host.folder, Some(&name("work")));
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, ManagedCloneError::NotAFile { path: found, .. } if found.ends_with(name_of)),
            "{refused:?}"
        );
        // A list does not wait for it either.
        assert_eq!(managed::list(&machine.state()).unwrap().len(), 1);
    }
}

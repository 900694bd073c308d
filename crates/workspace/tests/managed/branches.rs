//! A worktree for each branch.

use crate::managed::machine::{Machine, inside, read};
use crate::repository::{Repository, directory, git};
use belljar_workspace::managed::{self, ManagedCloneError, Outcome};
use std::fs;

#[test]
fn a_branch_of_the_host_has_a_worktree() {
    let machine = Machine::new();
    machine.host.git(&["branch", "work"]);
    let made = machine.provision("work");
    assert_eq!((made.outcome, made.branch.as_str()), (Outcome::Made, "work"));
    assert_eq!(made.host, machine.host.git_directory());
    assert_eq!(read(&made, "README"), "first\n");
    let inside = inside(&made);
    assert_eq!(inside.git(&["status", "--porcelain"]), "");
    assert_eq!(inside.git(&["symbolic-ref", "HEAD"]), "refs/heads/work");
    assert_eq!(inside.git(&["rev-parse", "HEAD"]), machine.host.git(&["rev-parse", "work"]));
    assert_eq!(inside.git(&["config", "branch.work.remote"]), "host");
    assert_eq!(inside.git(&["config", "branch.work.merge"]), "refs/heads/work");
    assert_eq!(inside.git(&["config", "remote.host.url"]), "git://127.0.0.1:9418/repo");
    assert_eq!(
        inside.git(&["rev-parse", "refs/remotes/host/main"]),
        machine.host.git(&["rev-parse", "main"])
    );
    inside.commit("new", "x\n", "work");
    inside.git(&["fsck", "--strict"]);
    inside.git(&["gc", "-q"]);
    assert_eq!(
        machine.host.git(&["log", "--format=%s", "work"]),
        "first",
        "nothing came to the host by itself"
    );
}

#[test]
fn without_a_name_it_is_the_branch_that_is_checked_out() {
    let machine = Machine::new();
    let made = managed::provision(&machine.state(), &machine.host.folder, None).unwrap();
    assert_eq!(made.branch.as_str(), "main");
    inside(&made).commit("new", "x\n", "on main");
    drop(made);
    machine.host.git(&["checkout", "-q", "--detach"]);
    let made = managed::provision(&machine.state(), &machine.host.folder, None).unwrap();
    assert!(made.branch.as_str().starts_with("detached-"), "{}", made.branch);
    assert_eq!(read(&made, "README"), "first\n");
}

#[test]
fn a_new_branch_starts_at_the_hosts_commit() {
    let machine = Machine::new();
    let last = machine.host.commit("second", "2\n", "second");
    let made = machine.provision("new/thing");
    assert_eq!(made.commit.as_ref().map(|hash| hash.as_str()), Some(last.as_str()));
    assert_eq!(inside(&made).git(&["rev-parse", "HEAD"]), last);
    assert_eq!(read(&made, "second"), "2\n");
}

#[test]
fn a_second_time_everything_is_as_it_was() {
    let machine = Machine::new();
    let made = machine.provision("work");
    let commit = inside(&made).commit("new", "x\n", "work");
    inside(&made).write("README", "changed\n");
    inside(&made).write("untracked", "u\n");
    drop(made);
    let kept = machine.provision("work");
    assert_eq!(kept.outcome, Outcome::Unchanged);
    assert_eq!(kept.commit.as_ref().map(|hash| hash.as_str()), Some(commit.as_str()));
    assert_eq!((read(&kept, "README"), read(&kept, "untracked")), ("changed\n".into(), "u\n".into()));
    assert_eq!(inside(&kept).git(&["log", "--format=%s"]), "work\nfirst");
}

#[test]
fn names_that_look_alike_have_folders_of_their_own() {
    let machine = Machine::new();
    let (slash, dash) = (machine.provision("a/b"), machine.provision("a-b"));
    assert_ne!(slash.folder, dash.folder);
    inside(&slash).commit("slash", "", "slash");
    inside(&dash).commit("dash", "", "dash");
    assert_eq!(inside(&slash).git(&["log", "--format=%s"]), "slash\nfirst");
    assert_eq!(inside(&dash).git(&["log", "--format=%s"]), "dash\nfirst");
    // The folders' names are ref names, too.
    inside(&dash).git(&["fsck", "--strict"]);
    inside(&dash).git(&["gc", "-q", "--prune=now"]);
    inside(&slash).git(&["fsck", "--strict"]);
}

#[test]
fn every_branch_can_be_left_and_come_back_to() {
    let machine = Machine::new();
    machine.host.git(&["branch", "-m", "master"]);
    let made = machine.provision("master");
    inside(&made).git(&["checkout", "-q", "-b", "elsewhere"]);
    inside(&made).git(&["checkout", "-q", "master"]);
    inside(&made).git(&["branch", "-q", "-D", "elsewhere"]);
    inside(&made).git(&["worktree", "prune"]);
    assert_eq!(inside(&made).git(&["status", "--porcelain"]), "");
}

#[test]
fn every_kind_of_folder_has_its_repository() {
    let machine = Machine::new();
    machine.host.commit("sub/folder/file", "f\n", "second");
    let made = managed::provision(&machine.state(), &machine.host.folder.join("sub/folder"), None).unwrap();
    assert_eq!((made.below.to_str(), read(&made, "sub/folder/file").as_str()), (Some("sub/folder"), "f\n"));

    let linked = machine.base.join("linked");
    machine.host.git(&["worktree", "add", "-q", "-b", "linked", linked.to_str().unwrap()]);
    let other = managed::provision(&machine.state(), &linked, None).unwrap();
    assert_eq!((other.branch.as_str(), &other.clone_name), ("linked", &made.clone_name));

    let source = Repository::with_commit(&machine.base.join("source"));
    let allow = ["-c", "protocol.file.allow=always"];
    let add = ["submodule", "add", "-q", source.folder.to_str().unwrap(), "module"];
    machine.host.git(&[&allow[..], &add].concat());
    let module = managed::provision(&machine.state(), &machine.host.folder.join("module"), None).unwrap();
    assert_eq!(module.host, machine.host.git_directory().join("modules/module"));
    assert_eq!(read(&module, "README"), "first\n");
}

#[test]
fn a_repository_without_a_commit_starts_empty() {
    let (_guard, base) = directory();
    let host = Repository::empty(&base.join("host"));
    let made = managed::provision(&base.join("state"), &host.folder, None).unwrap();
    assert_eq!((made.branch.as_str(), made.commit.clone()), ("main", None));
    let inside = inside(&made);
    assert_eq!(inside.git(&["status", "--porcelain"]), "");
    inside.commit("first", "1\n", "first");
    drop(made);
    let kept = managed::provision(&base.join("state"), &host.folder, None).unwrap();
    assert_eq!(kept.outcome, Outcome::Unchanged);
    assert_eq!(inside.git(&["log", "--format=%s"]), "first");
}

#[test]
fn a_thousand_branches_are_all_there() {
    let machine = Machine::new();
    let head = machine.host.git(&["rev-parse", "HEAD"]);
    let packed: String = (0..1000).map(|number| format!("{head} refs/heads/b/{number:04}\n")).collect();
    fs::write(machine.host.git_directory().join("packed-refs"), packed).unwrap();
    let made = machine.provision("b/0500");
    let list = inside(&made).git(&["for-each-ref", "--format=%(refname)", "refs/remotes/host/"]);
    assert_eq!(list.lines().count(), 1001);
    assert_eq!(inside(&made).git(&["rev-parse", "host/b/0999"]), head);
    inside(&made).git(&["pack-refs", "--all"]);
}

#[test]
fn shallow_and_sha256_repositories_can_be_managed() {
    let machine = Machine::new();
    machine.host.commit("second", "2\n", "second");
    let url = format!("file://{}", machine.host.folder.display());
    let shallow = machine.base.join("shallow");
    assert!(
        git(&machine.base, &["clone", "-q", "--depth=1", &url, shallow.to_str().unwrap()]).status.success()
    );
    let made = managed::provision(&machine.state(), &shallow, None).unwrap();
    assert_eq!(inside(&made).git(&["log", "--format=%s"]), "second");
    inside(&made).commit("mine", "", "mine");

    let folder = machine.base.join("long");
    fs::create_dir(&folder).unwrap();
    let long = Repository { folder };
    long.git(&["init", "-q", "--object-format=sha256", "-b", "main"]);
    long.commit("file", "x\n", "long");
    let made = managed::provision(&machine.state(), &long.folder, None).unwrap();
    assert_eq!(inside(&made).git(&["rev-parse", "HEAD"]).len(), 64);
    inside(&made).commit("mine", "", "mine");
}

#[test]
fn what_is_no_repository_is_said() {
    let (_guard, base) = directory();
    let state = base.join("state");
    let plain = base.join("plain");
    fs::create_dir(&plain).unwrap();
    let none = managed::provision(&state, &plain, None);
    assert!(matches!(none, Err(ManagedCloneError::NoRepository(_))), "{none:?}");
    // A folder cannot make a directory its repository by naming it.
    let victim = Repository::with_commit(&base.join("victim"));
    fs::write(plain.join(".git"), format!("gitdir: {}\n", victim.git_directory().display())).unwrap();
    let other = managed::provision(&state, &plain, None);
    assert!(matches!(other, Err(ManagedCloneError::NotItsOwn { .. })), "{other:?}");
    victim.git(&["worktree", "add", "-q", base.join("linked").to_str().unwrap()]);
    let admin = victim.git_directory().join("worktrees/linked");
    fs::write(plain.join(".git"), format!("gitdir: {}\n", admin.display())).unwrap();
    let other = managed::provision(&state, &plain, None);
    assert!(matches!(other, Err(ManagedCloneError::NotItsOwn { .. })), "{other:?}");
    assert!(!state.exists());
}

#[test]
fn a_name_that_git_cannot_have_beside_another_is_refused() {
    let machine = Machine::new();
    machine.host.git(&["branch", "on-host/a"]);
    let fix = machine.provision("fix");
    inside(&fix).commit("new", "x\n", "work");
    let deep = machine.provision("deep/er/fix");
    inside(&deep).git(&["pack-refs", "--all"]);
    for (name, other) in [
        ("fix/two", "fix"),
        ("fix/two/three", "fix"),
        ("deep", "deep/er/fix"),
        ("deep/er", "deep/er/fix"),
        ("on-host", "on-host/a"),
        ("on-host/a/b", "on-host/a"),
    ] {
        let branch = name.parse().unwrap();
        match managed::provision(&machine.state(), &machine.host.folder, Some(&branch)) {
            Err(ManagedCloneError::NameTaken { branch, other: found }) => {
                assert_eq!((branch.as_str(), found.as_str()), (name, other));
            }
            other => panic!("{name}: {:?}", other.map(|made| made.folder)),
        }
    }
    // The existing one is unchanged, and a name with the same beginning is another.
    assert_eq!(inside(&fix).git(&["log", "-1", "--format=%s"]), "work");
    machine.provision("fix-two");
    machine.provision("on-host/ab");
    // A folder without a branch in it does no harm.
    let git_directory = inside(&fix).git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    fs::create_dir_all(std::path::Path::new(&git_directory).join("refs/heads/empty/too")).unwrap();
    assert_eq!(machine.provision("empty").outcome, Outcome::Made);
}

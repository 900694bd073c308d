//! Kills, and many at once.

use crate::managed::machine::{Machine, inside, name};
use crate::repository::Repository;
use belljar_workspace::managed::{self, Outcome};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn what_kills_leave_is_finished() {
    let machine = Machine::new();
    machine.host.git(&["branch", "work"]);
    let made = machine.provision("work");
    let clone_name = machine.clone_dir();
    let own = made.git.common.join(&made.git.own);
    drop(made);
    // Before the folder was moved into place.
    fs::create_dir_all(clone_name.join("new/1-1/import/objects")).unwrap();
    fs::rename(clone_name.join("trees/work"), clone_name.join("new/1-1/tree")).unwrap();
    fs::remove_file(clone_name.join("marks/work/mark.json")).unwrap();
    fs::write(clone_name.join("new/1-1/index.lock"), "half").unwrap();
    fs::write(own.join(".HEAD.belljar"), "half").unwrap();
    assert_eq!(inside(&machine.provision("work")).git(&["status", "--porcelain"]), "");
    // In the middle of following the host.
    let from = machine.host.git(&["rev-parse", "work"]);
    machine.host.git(&["checkout", "-q", "work"]);
    machine.host.commit("README", "second\n", "second");
    let to = machine.host.commit("third", "3\n", "third");
    let mark = format!("{{\"branch\":\"work\",\"forwarding\":[\"{from}\",\"{to}\"]}}");
    fs::write(clone_name.join("marks/work/mark.json"), mark).unwrap();
    fs::write(clone_name.join("trees/work/README"), "sec").unwrap();
    let forwarded = machine.provision("work");
    assert_eq!(forwarded.outcome, Outcome::Forwarded);
    assert_eq!(inside(&forwarded).git(&["rev-parse", "HEAD"]), to);
    assert_eq!(inside(&forwarded).git(&["status", "--porcelain"]), "");
    // Before anything was complete.
    let machine = Machine::new();
    drop(machine.provision("work"));
    let clone_name = machine.clone_dir();
    fs::create_dir_all(clone_name.join("new/1-1")).unwrap();
    for name in ["ours.git", "repo"] {
        fs::rename(clone_name.join(name), clone_name.join("new/1-1").join(name)).unwrap();
    }
    fs::remove_dir_all(clone_name.join("trees/work")).unwrap();
    fs::remove_dir_all(clone_name.join("marks/work")).unwrap();
    fs::remove_file(clone_name.join("seen")).unwrap();
    assert_eq!(inside(&machine.provision("work")).git(&["status", "--porcelain"]), "");
}

/// Not a test itself: the process that the next test kills.
#[test]
#[ignore = "started by `a_kill_at_any_moment_is_made_good`"]
fn provisions_until_it_is_killed() {
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    managed::provision(&variable("KILLED_STATE"), &variable("KILLED_HOST"), Some(&name("work"))).unwrap();
}

#[test]
fn a_kill_at_any_moment_is_made_good() {
    let machine = Machine::new();
    for number in 0..200 {
        machine.host.write(&format!("many/{number}"), "x\n");
    }
    machine.host.git(&["add", "."]);
    machine.host.git(&["commit", "-q", "-m", "many"]);
    machine.host.git(&["branch", "work"]);
    for round in 0..30_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "managed::killed::provisions_until_it_is_killed", "--ignored"])
            .env("KILLED_STATE", machine.state())
            .env("KILLED_HOST", &machine.host.folder)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let made = machine.provision("work");
        assert_eq!(inside(&made).git(&["status", "--porcelain"]), "", "round {round}");
        assert_eq!(inside(&made).git(&["rev-parse", "HEAD"]), machine.host.git(&["rev-parse", "work"]));
        drop(made);
        match round % 3 {
            // There is something to make, to forward, or to repair.
            0 => managed::remove(
                &machine.state(),
                machine.clone_dir().file_name().unwrap().to_str().unwrap(),
                None,
            )
            .unwrap(),
            1 => {
                let tree = machine.host.git(&["rev-parse", "work^{tree}"]);
                let next = machine.host.git(&["commit-tree", "-p", "work", "-m", "next", &tree]);
                machine.host.git(&["update-ref", "refs/heads/work", &next]);
            }
            _ => fs::remove_dir_all(machine.clone_dir().join("trees/work")).unwrap(),
        }
    }
    let left: Vec<_> =
        fs::read_dir(machine.clone_dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "new"), "{left:?}");
}

#[test]
fn many_at_once_get_one_worktree_each() {
    let machine = Machine::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|number| {
                let machine = &machine;
                scope.spawn(move || machine.provision(&format!("work-{}", number % 4)).folder)
            })
            .collect();
        for thread in threads {
            let folder = thread.join().unwrap();
            assert_eq!(Repository { folder }.git(&["status", "--porcelain"]), "");
        }
    });
    let mut branches: Vec<String> = managed::list(&machine.state())
        .unwrap()
        .into_iter()
        .map(|clone_name| clone_name.unwrap().branch)
        .collect();
    branches.sort();
    assert_eq!(branches, ["work-0", "work-1", "work-2", "work-3"]);
}

//! Shelves, on real repositories with real git. "The agent" is git started plainly in the worktree.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

mod repository;

use belljar_spec::git::BranchName;
use belljar_workspace::shelf::{self, Outcome, Provisioned, ShelfError};
use repository::{Repository, directory, git};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A host with a repository, and a state directory.
struct Machine {
    base: PathBuf,
    host: Repository,
    _directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let (guard, base) = directory();
        let host = Repository::with_commit(&base.join("host"));
        Machine { base, host, _directory: guard }
    }

    fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    fn provision(&self, branch: &str) -> Provisioned {
        shelf::provision(&self.state(), &self.host.folder, Some(&name(branch))).unwrap()
    }

    fn shelf(&self) -> PathBuf {
        let mut entries = fs::read_dir(self.state().join("shelf")).unwrap();
        entries.next().unwrap().unwrap().path()
    }
}

fn name(branch: &str) -> BranchName {
    branch.parse().unwrap()
}

/// The worktree as its agent has it.
fn inside(provisioned: &Provisioned) -> Repository {
    Repository { folder: provisioned.folder.clone() }
}

fn read(provisioned: &Provisioned, file: &str) -> String {
    fs::read_to_string(provisioned.folder.join(file)).unwrap()
}

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
    let made = shelf::provision(&machine.state(), &machine.host.folder, None).unwrap();
    assert_eq!(made.branch.as_str(), "main");
    inside(&made).commit("new", "x\n", "on main");
    drop(made);
    machine.host.git(&["checkout", "-q", "--detach"]);
    let made = shelf::provision(&machine.state(), &machine.host.folder, None).unwrap();
    assert!(made.branch.as_str().starts_with("detached-"), "{}", made.branch);
    assert_eq!(read(&made, "README"), "first\n");
}

#[test]
fn a_branch_that_nobody_has_starts_where_the_host_is() {
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
    assert_eq!(kept.outcome, Outcome::Kept);
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
    // The folders' names are names of refs, too.
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
        assert_eq!((kept.outcome, look()), (Outcome::Kept, before), "{what}");
        // What the host has is there to be merged.
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
    assert_eq!((second.outcome, &second.folder), (Outcome::Kept, &first.folder));
    assert!(!second.folder.join("second").exists());
    let removed = shelf::remove(&machine.state(), &first.shelf, Some(&name("work")));
    assert!(matches!(removed, Err(ShelfError::InUse { .. })));
    drop(second);
    assert!(matches!(shelf::remove(&machine.state(), &first.shelf, None), Err(ShelfError::InUse { .. })));
}

#[test]
fn a_folder_that_somebody_deleted_is_there_again() {
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

#[test]
fn what_kills_leave_is_finished() {
    let machine = Machine::new();
    machine.host.git(&["branch", "work"]);
    let made = machine.provision("work");
    let shelf = machine.shelf();
    let own = made.git.common.join(&made.git.own);
    drop(made);
    // Before the folder was moved into place.
    fs::create_dir_all(shelf.join("new/1-1/import/objects")).unwrap();
    fs::rename(shelf.join("trees/work"), shelf.join("new/1-1/tree")).unwrap();
    fs::remove_file(shelf.join("marks/work/mark.json")).unwrap();
    fs::write(shelf.join("new/1-1/index.lock"), "half").unwrap();
    fs::write(own.join(".HEAD.belljar"), "half").unwrap();
    assert_eq!(inside(&machine.provision("work")).git(&["status", "--porcelain"]), "");
    // In the middle of following the host.
    let from = machine.host.git(&["rev-parse", "work"]);
    machine.host.git(&["checkout", "-q", "work"]);
    machine.host.commit("README", "second\n", "second");
    let to = machine.host.commit("third", "3\n", "third");
    let mark = format!("{{\"branch\":\"work\",\"forwarding\":[\"{from}\",\"{to}\"]}}");
    fs::write(shelf.join("marks/work/mark.json"), mark).unwrap();
    fs::write(shelf.join("trees/work/README"), "sec").unwrap();
    let forwarded = machine.provision("work");
    assert_eq!(forwarded.outcome, Outcome::Forwarded);
    assert_eq!(inside(&forwarded).git(&["rev-parse", "HEAD"]), to);
    assert_eq!(inside(&forwarded).git(&["status", "--porcelain"]), "");
    // Before anything was whole.
    let machine = Machine::new();
    drop(machine.provision("work"));
    let shelf = machine.shelf();
    fs::create_dir_all(shelf.join("new/1-1")).unwrap();
    for name in ["ours.git", "repo"] {
        fs::rename(shelf.join(name), shelf.join("new/1-1").join(name)).unwrap();
    }
    fs::remove_dir_all(shelf.join("trees/work")).unwrap();
    fs::remove_dir_all(shelf.join("marks/work")).unwrap();
    fs::remove_file(shelf.join("seen")).unwrap();
    assert_eq!(inside(&machine.provision("work")).git(&["status", "--porcelain"]), "");
}

/// Not a test of its own: what the next one kills.
#[test]
#[ignore = "started by `a_kill_at_any_moment_is_made_good`"]
fn provisions_until_it_is_killed() {
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    shelf::provision(&variable("KILLED_STATE"), &variable("KILLED_HOST"), Some(&name("work"))).unwrap();
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
            .args(["--exact", "provisions_until_it_is_killed", "--ignored"])
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
            // There is something to make, to forward, or to mend.
            0 => {
                shelf::remove(&machine.state(), machine.shelf().file_name().unwrap().to_str().unwrap(), None)
                    .unwrap()
            }
            1 => {
                let tree = machine.host.git(&["rev-parse", "work^{tree}"]);
                let next = machine.host.git(&["commit-tree", "-p", "work", "-m", "next", &tree]);
                machine.host.git(&["update-ref", "refs/heads/work", &next]);
            }
            _ => fs::remove_dir_all(machine.shelf().join("trees/work")).unwrap(),
        }
    }
    let left: Vec<_> =
        fs::read_dir(machine.shelf()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
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
    let mut branches: Vec<String> =
        shelf::list(&machine.state()).unwrap().into_iter().map(|shelved| shelved.branch).collect();
    branches.sort();
    assert_eq!(branches, ["work-0", "work-1", "work-2", "work-3"]);
}

#[test]
fn every_kind_of_folder_has_its_repository() {
    let machine = Machine::new();
    machine.host.commit("sub/folder/file", "f\n", "second");
    let made = shelf::provision(&machine.state(), &machine.host.folder.join("sub/folder"), None).unwrap();
    assert_eq!((made.below.to_str(), read(&made, "sub/folder/file").as_str()), (Some("sub/folder"), "f\n"));

    let linked = machine.base.join("linked");
    machine.host.git(&["worktree", "add", "-q", "-b", "linked", linked.to_str().unwrap()]);
    let other = shelf::provision(&machine.state(), &linked, None).unwrap();
    assert_eq!((other.branch.as_str(), &other.shelf), ("linked", &made.shelf));

    let source = Repository::with_commit(&machine.base.join("source"));
    let allow = ["-c", "protocol.file.allow=always"];
    let add = ["submodule", "add", "-q", source.folder.to_str().unwrap(), "module"];
    machine.host.git(&[&allow[..], &add].concat());
    let module = shelf::provision(&machine.state(), &machine.host.folder.join("module"), None).unwrap();
    assert_eq!(module.host, machine.host.git_directory().join("modules/module"));
    assert_eq!(read(&module, "README"), "first\n");
}

#[test]
fn a_repository_without_a_commit_starts_empty() {
    let (_guard, base) = directory();
    let host = Repository::empty(&base.join("host"));
    let made = shelf::provision(&base.join("state"), &host.folder, None).unwrap();
    assert_eq!((made.branch.as_str(), made.commit.clone()), ("main", None));
    let inside = inside(&made);
    assert_eq!(inside.git(&["status", "--porcelain"]), "");
    inside.commit("first", "1\n", "first");
    drop(made);
    let kept = shelf::provision(&base.join("state"), &host.folder, None).unwrap();
    assert_eq!(kept.outcome, Outcome::Kept);
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
fn shallow_and_sha256_repositories_can_be_shelved() {
    let machine = Machine::new();
    machine.host.commit("second", "2\n", "second");
    let url = format!("file://{}", machine.host.folder.display());
    let shallow = machine.base.join("shallow");
    assert!(
        git(&machine.base, &["clone", "-q", "--depth=1", &url, shallow.to_str().unwrap()]).status.success()
    );
    let made = shelf::provision(&machine.state(), &shallow, None).unwrap();
    assert_eq!(inside(&made).git(&["log", "--format=%s"]), "second");
    inside(&made).commit("mine", "", "mine");

    let folder = machine.base.join("long");
    fs::create_dir(&folder).unwrap();
    let long = Repository { folder };
    long.git(&["init", "-q", "--object-format=sha256", "-b", "main"]);
    long.commit("file", "x\n", "long");
    let made = shelf::provision(&machine.state(), &long.folder, None).unwrap();
    assert_eq!(inside(&made).git(&["rev-parse", "HEAD"]).len(), 64);
    inside(&made).commit("mine", "", "mine");
}

#[test]
fn what_is_no_repository_is_said() {
    let (_guard, base) = directory();
    let state = base.join("state");
    let plain = base.join("plain");
    fs::create_dir(&plain).unwrap();
    let none = shelf::provision(&state, &plain, None);
    assert!(matches!(none, Err(ShelfError::NoRepository(_))), "{none:?}");
    // A folder cannot make a directory its repository by naming it.
    let victim = Repository::with_commit(&base.join("victim"));
    fs::write(plain.join(".git"), format!("gitdir: {}\n", victim.git_directory().display())).unwrap();
    let other = shelf::provision(&state, &plain, None);
    assert!(matches!(other, Err(ShelfError::NotItsOwn { .. })), "{other:?}");
    victim.git(&["worktree", "add", "-q", base.join("linked").to_str().unwrap()]);
    let admin = victim.git_directory().join("worktrees/linked");
    fs::write(plain.join(".git"), format!("gitdir: {}\n", admin.display())).unwrap();
    let other = shelf::provision(&state, &plain, None);
    assert!(matches!(other, Err(ShelfError::NotItsOwn { .. })), "{other:?}");
    assert!(!state.exists());
}

#[test]
fn no_file_is_shared_with_the_host() {
    let machine = Machine::new();
    machine.host.git(&["gc", "-q"]);
    machine.host.commit("loose", "l\n", "loose");
    let made = machine.provision("work");
    let inodes = |root: &Path| {
        let mut found = Vec::new();
        walk(root, &mut |path| found.push(fs::symlink_metadata(path).unwrap().ino()));
        found
    };
    let host = inodes(&machine.host.folder);
    assert!(inodes(&made.git.common).iter().all(|inode| !host.contains(inode)));
    assert_eq!(fs::read_to_string(made.git.common.join("objects/info/alternates")).unwrap(), "");
    // What only a stash or a deleted branch refers to does not come along.
    machine.host.write("README", "secret\n");
    machine.host.git(&["stash", "-q"]);
    let stash = machine.host.git(&["rev-parse", "stash"]);
    machine.host.commit("more", "", "more");
    let made = machine.provision("work");
    assert!(!git(&made.folder, &["cat-file", "-e", &stash]).status.success());
}

#[test]
fn nothing_that_an_agent_leaves_leads_the_host_elsewhere() {
    // Links where the host writes: each would be written through, if git or we followed it.
    for spoiled in [
        "refs/remotes/host",
        "refs/remotes/host/work",
        "refs/heads",
        "packed-refs",
        "objects/pack",
        "logs",
        "logs/refs/remotes/host/work",
        "FETCH_HEAD",
        "shallow",
        "worktrees/work/index",
        "worktrees/work/HEAD",
        "worktrees/work/logs/HEAD",
    ] {
        let machine = Machine::new();
        machine.host.git(&["branch", "work"]);
        let made = machine.provision("work");
        let victim = machine.base.join("victim");
        let path = made.git.common.join(spoiled);
        let is_directory = path.is_dir() || spoiled == "logs" || spoiled == "refs/remotes/host";
        if is_directory {
            fs::create_dir(&victim).unwrap();
        } else {
            fs::write(&victim, "mine\n").unwrap();
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            let _ = fs::remove_file(&path);
        }
        symlink(&victim, &path).unwrap();
        drop(made);
        machine.host.git(&["checkout", "-q", "work"]);
        machine.host.commit("second", "2\n", "second");
        let _ = shelf::provision(&machine.state(), &machine.host.folder, Some(&name("work")));
        let _ = shelf::provision(&machine.state(), &machine.host.folder, Some(&name("fresh")));
        let _ = shelf::list(&machine.state()).unwrap();
        if is_directory {
            assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{spoiled}");
        } else {
            assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n", "{spoiled}");
        }
        let shelf = machine.shelf().file_name().unwrap().to_str().unwrap().to_string();
        shelf::remove(&machine.state(), &shelf, None).unwrap();
        assert!(victim.exists(), "{spoiled}");
    }
}

#[test]
fn a_pipe_in_the_way_stops_nobody() {
    for path in [
        "refs/heads/work",
        "packed-refs",
        "worktrees/work/index",
        "worktrees/work/HEAD",
        "objects/pack/pack-0.pack",
    ] {
        let machine = Machine::new();
        machine.host.git(&["branch", "work"]);
        let made = machine.provision("work");
        let pipe = made.git.common.join(path);
        let _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::remove_dir_all(&made.folder).unwrap();
        drop(made);
        machine.host.git(&["checkout", "-q", "work"]);
        machine.host.commit("second", "2\n", "second");
        // It may say no; it may not wait.
        let _ = shelf::provision(&machine.state(), &machine.host.folder, Some(&name("work")));
    }
}

/// Each of them held git up until a deadline of minutes: at a pipe it waits, of a sparse file it reads every byte.
#[test]
fn nothing_that_an_agent_left_holds_up_the_next_start() {
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let repository = |folder: &Path| {
        for name in ["objects", "refs"] {
            fs::create_dir_all(folder.join(".git").join(name)).unwrap();
        }
        pipe(&folder.join(".git/HEAD"));
    };
    let endless = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 42).unwrap();
    type Leave<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Leave<'_>, Option<&str>); 9] = [
        ("nothing", &|_| {}, None),
        (
            "a pipe for rules",
            &|tree| pipe(&tree.join("d/.gitattributes")),
            Some("`d/.gitattributes` is a pipe"),
        ),
        ("a pipe for a file", &|tree| pipe(&tree.join("d/file")), Some("`d/file` is a pipe")),
        ("a file without end", &|tree| endless(&tree.join("d/file")), Some("`d/file` is far too large")),
        (
            "rules without end",
            &|tree| endless(&tree.join(".gitignore")),
            Some("`.gitignore` is far too large"),
        ),
        ("a repository for a file", &|tree| repository(&tree.join("d/file")), None),
        ("a repository for a submodule", &|tree| repository(&tree.join("module")), None),
        (
            "rules where a file comes to",
            &|tree| pipe(&tree.join("new/.gitignore")),
            Some("`new/.gitignore` is a pipe"),
        ),
        (
            "a repository where a file comes to",
            &|tree| repository(&tree.join("new/file")),
            Some("`new/file/.git/HEAD` is a pipe"),
        ),
    ];
    for (what, leave, held_up) in cases {
        let machine = Machine::new();
        machine.host.commit("d/file", "file\n", "file");
        let first = machine.host.git(&["rev-parse", "HEAD"]);
        machine.host.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{first},module")]);
        machine.host.git(&["commit", "-q", "-m", "module"]);
        machine.host.git(&["branch", "work"]);
        let tree = machine.provision("work").folder;
        fs::create_dir(tree.join("new")).unwrap();
        let _ = fs::remove_file(tree.join("d/file"));
        leave(&tree);
        if !tree.join("d/file").exists() {
            fs::write(tree.join("d/file"), "file\n").unwrap();
        }
        machine.host.git(&["checkout", "-q", "work"]);
        machine.host.commit("new/file", "2\n", "second");
        let (sender, receiver) = std::sync::mpsc::channel();
        let (state, folder) = (machine.state(), machine.host.folder.clone());
        std::thread::spawn(move || {
            let made = shelf::provision(&state, &folder, Some(&name("work"))).unwrap();
            let _ = sender.send(made);
        });
        let made = receiver.recv_timeout(Duration::from_secs(100)).unwrap_or_else(|_| panic!("{what}"));
        let forwarded = matches!(what, "nothing" | "a repository for a submodule");
        let expected = if forwarded { Outcome::Forwarded } else { Outcome::Kept };
        assert_eq!(made.outcome, expected, "{what}");
        assert_eq!(made.held_up.map(|trap| trap.to_string()).as_deref(), held_up, "{what}");
    }
}

#[test]
fn filters_and_hooks_of_a_shelf_do_not_run_on_the_host() {
    let machine = Machine::new();
    let canary = machine.base.join("canary");
    let command = format!("touch {}", canary.display());
    machine.host.commit(".gitattributes", "* filter=evil\n", "attributes");
    machine.host.git(&["config", "filter.evil.smudge", &command]);
    machine.host.git(&["branch", "work"]);
    let made = machine.provision("work");
    assert!(!canary.exists());
    // As if an agent had found a way to write what is held.
    let config = made.git.common.join("config");
    let text = fs::read_to_string(&config).unwrap();
    let more = format!(
        "[core]\n\tfsmonitor = {command}\n[filter \"evil\"]\n\tsmudge = {command}\n\tclean = {command}\n"
    );
    fs::write(&config, text + &more).unwrap();
    for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-commit"] {
        let path = made.git.common.join("hooks").join(hook);
        fs::write(&path, format!("#!/bin/sh\n{command}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    drop(made);
    machine.host.git(&["symbolic-ref", "HEAD", "refs/heads/work"]);
    machine.host.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    drop(machine.provision("work"));
    drop(machine.provision("other"));
    fs::remove_dir_all(machine.shelf().join("trees/work")).unwrap();
    drop(machine.provision("work"));
    shelf::list(&machine.state()).unwrap();
    assert!(!canary.exists());
}

#[test]
fn what_is_kept_is_listed_and_removed() {
    let machine = Machine::new();
    let made = machine.provision("work");
    let other = machine.provision("other/one");
    inside(&made).commit("mine", "", "mine");
    inside(&made).git(&["pack-refs", "--all"]);
    drop(other);
    let mut list = shelf::list(&machine.state()).unwrap();
    list.sort_by(|a, b| a.branch.cmp(&b.branch));
    let shown: Vec<_> = list.iter().map(|kept| (kept.branch.as_str(), kept.on_host, kept.in_use)).collect();
    assert_eq!(shown, [("other/one", true, false), ("work", false, true)]);
    let shelf = made.shelf.clone();
    drop(made);
    shelf::remove(&machine.state(), &shelf, Some(&name("work"))).unwrap();
    assert!(matches!(
        shelf::remove(&machine.state(), &shelf, Some(&name("work"))),
        Err(ShelfError::Unknown(_))
    ));
    let made = machine.provision("work");
    assert_eq!((made.outcome, inside(&made).git(&["log", "--format=%s"])), (Outcome::Made, "first".into()));
    drop(made);
    shelf::remove(&machine.state(), &shelf, None).unwrap();
    assert!(shelf::list(&machine.state()).unwrap().is_empty());
    assert!(matches!(shelf::remove(&machine.state(), "../host", None), Err(ShelfError::Unknown(_))));
}

#[test]
fn only_we_can_enter() {
    let machine = Machine::new();
    drop(machine.provision("work"));
    let mode = fs::metadata(machine.shelf()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

fn walk(root: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, visit);
        } else {
            visit(&path);
        }
    }
}

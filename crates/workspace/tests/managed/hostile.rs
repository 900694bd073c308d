//! Malicious files that an agent leaves for the host.

use crate::managed::machine::{Machine, name, walk};
use crate::repository::git;
use belljar_workspace::managed::{self, Outcome};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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
    // Commits in only a stash or a deleted branch do not come along.
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
        let _ = managed::provision(&machine.state(), &machine.host.folder, Some(&name("work")));
        let _ = managed::provision(&machine.state(), &machine.host.folder, Some(&name("fresh")));
        let _ = managed::list(&machine.state()).unwrap();
        if is_directory {
            assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{spoiled}");
        } else {
            assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n", "{spoiled}");
        }
        let clone_name = machine.clone_dir().file_name().unwrap().to_str().unwrap().to_string();
        managed::remove(&machine.state(), &clone_name, None).unwrap();
        assert!(victim.exists(), "{spoiled}");
    }
}

#[test]
fn a_pipe_in_the_way_does_not_block() {
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
        // It may fail, but it must not hang.
        let _ = managed::provision(&machine.state(), &machine.host.folder, Some(&name("work")));
    }
}

/// Each of them made git hang until a deadline of minutes: it waits for a pipe, and reads every byte of a sparse file.
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
            let made = managed::provision(&state, &folder, Some(&name("work"))).unwrap();
            let _ = sender.send(made);
        });
        let made = receiver.recv_timeout(Duration::from_secs(100)).unwrap_or_else(|_| panic!("{what}"));
        let forwarded = matches!(what, "nothing" | "a repository for a submodule");
        let expected = if forwarded { Outcome::Forwarded } else { Outcome::Unchanged };
        assert_eq!(made.outcome, expected, "{what}");
        assert_eq!(made.held_up.map(|trap| trap.to_string()).as_deref(), held_up, "{what}");
    }
}

#[test]
fn filters_and_hooks_of_a_managed_clone_do_not_run_on_the_host() {
    let machine = Machine::new();
    let canary = machine.base.join("canary");
    let command = format!("touch {}", canary.display());
    machine.host.commit(".gitattributes", "* filter=evil\n", "attributes");
    machine.host.git(&["config", "filter.evil.smudge", &command]);
    machine.host.git(&["branch", "work"]);
    let made = machine.provision("work");
    assert!(!canary.exists());
    // As if an agent had found a way to write to protected files.
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
    fs::remove_dir_all(machine.clone_dir().join("trees/work")).unwrap();
    drop(machine.provision("work"));
    managed::list(&machine.state()).unwrap();
    assert!(!canary.exists());
}

//! Worktrees and submodules.

use super::super::*;
use super::{Fixture, what};
use belljar_spec::workspace::Shielded::{Anchored, Existing, MissingFile};
use std::fs;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_linked_worktree_holds_what_is_not_its_own() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    fixture.git(&["-C", "main", "worktree", "add", "-q", "../two"]);
    let view = fixture.view("one").unwrap();
    let git = view.git.unwrap();
    assert_eq!((git.common, git.own.as_str()), (fixture.path("main/.git"), "worktrees/one"));
    for (path, expected) in [
        ("hooks", Some(Existing)),
        ("config", Some(Existing)),
        ("commondir", Some(MissingFile("."))),
        ("worktrees", Some(Anchored)),
        ("worktrees/one", Some(Anchored)),
        ("worktrees/one/gitdir", Some(Existing)),
        ("worktrees/one/commondir", Some(Existing)),
        ("worktrees/one/config.worktree", Some(MissingFile(""))),
        ("worktrees/two", Some(Existing)),
        ("HEAD", Some(Existing)),
        ("index", Some(Existing)),
        ("objects", Some(Anchored)),
        ("objects/info/alternates", Some(MissingFile(""))),
        ("objects/pack", None),
    ] {
        assert_eq!(what(&git.shields, path), expected, "{path}");
    }
    assert_eq!(what(&view.shields, ".git"), None, "shown as another file");

    let known = view_of_worktree(
        &fixture.path("one"),
        &fixture.path("main/.git"),
        "worktrees/one",
        Policy::default(),
    )
    .unwrap();
    assert_eq!(known.git.unwrap().shields, git.shields);
    // For the main worktree, both belong to another worktree.
    let main = fixture.view("main").unwrap().shields;
    assert_eq!(what(&main, ".git/worktrees/one"), Some(Existing));
}

#[test]
fn worktrees_below_the_folder_keep_their_git_files() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["-C", "main", "worktree", "add", "-q", ".trees/one"]);
    fixture.git(&["-C", "main", "worktree", "add", "-q", ".trees/one/deep/two"]);
    fixture.git(&["-C", "main", "worktree", "add", "-q", "../gone"]);
    fs::remove_dir_all(fixture.path("gone")).unwrap();
    let relative = fixture.path("main/.git/worktrees/two/gitdir");
    fs::write(&relative, "../../../.trees/one/deep/two/.git\n").unwrap();

    let main = fixture.view("main").unwrap().shields;
    assert_eq!(what(&main, ".trees"), Some(Anchored));
    assert_eq!(what(&main, ".trees/one"), Some(Anchored));
    assert_eq!(what(&main, ".trees/one/.git"), Some(Existing));
    assert_eq!(what(&main, ".trees/one/deep/two/.git"), Some(Existing));
    // Seen from a folder without a repository of its own, and from another worktree.
    let trees = fixture.view("main/.trees").unwrap().shields;
    assert_eq!(what(&trees, "one/.git"), Some(Existing));
    let one = fixture.view("main/.trees/one").unwrap().shields;
    assert_eq!(what(&one, "deep/two/.git"), Some(Existing));
    assert_eq!(what(&one, ".git"), None, "shown as another file");

    fixture.git(&["-C", "main", "clone", "-q", "--bare", ".", "../b.git"]);
    fixture.git(&["-C", "b.git", "worktree", "add", "-q", "tree", "main"]);
    assert_eq!(what(&fixture.view("b.git").unwrap().shields, "tree/.git"), Some(Existing));
}

#[test]
fn submodules_are_held_and_can_be_worked_in() {
    let fixture = Fixture::new();
    fixture.repository("lib");
    fixture.repository("main");
    let add = ["-C", "main", "-c", "protocol.file.allow=always", "submodule", "add", "-q"];
    fixture.git(&[&add[..], &["--name", "deep/name", "../lib", "sub"]].concat());
    let shields = fixture.view("main").unwrap().shields;
    for (path, expected) in [
        (".git/modules", Some(Anchored)),
        (".git/modules/deep", Some(Anchored)),
        (".git/modules/deep/name/hooks", Some(Existing)),
        (".git/modules/deep/name/config", Some(Existing)),
        (".git/modules/deep/name/commondir", Some(MissingFile("."))),
        ("sub", Some(Anchored)),
        ("sub/.git", Some(Existing)),
    ] {
        assert_eq!(what(&shields, path), expected, "{path}");
    }

    let view = fixture.view("main/sub").unwrap();
    let git = view.git.unwrap();
    assert_eq!((git.common, git.own.as_str()), (fixture.path("main/.git/modules/deep/name"), ""));
    assert_eq!(what(&git.shields, "hooks"), Some(Existing));
    assert_eq!(what(&git.shields, "HEAD"), None, "it is ours");
}

/// An agent can make a git directory below `modules`; opening a pipe waits for its other end.
#[test]
fn a_pipe_for_a_submodules_config_does_not_block() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["init", "-q", "--bare", "main/.git/modules/planted"]);
    let config = fixture.path("main/.git/modules/planted/config");
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let (sender, receiver) = std::sync::mpsc::channel();
    let folder = fixture.path("main");
    std::thread::spawn(move || sender.send(view(&folder, Policy::default()).map(|view| view.shields)));
    let shields = receiver.recv_timeout(Duration::from_secs(100)).expect("it waits").unwrap();
    assert_eq!(what(&shields, ".git/modules/planted/config"), Some(Existing));
}

#[test]
fn gitlinks_of_other_branches_are_held_and_known_at_the_next_start() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.git(&["-C", "w", "branch", "first"]);
    fixture.git(&["-C", "w", "checkout", "-q", "-b", "other"]);
    let commit = fs::read_to_string(fixture.path("w/.git/refs/heads/first")).unwrap();
    for path in ["a/deep/sub", "file"] {
        let link = format!("160000,{},{path}", commit.trim());
        fixture.git(&["-C", "w", "rm", "-q", "--cached", "--ignore-unmatch", path]);
        fixture.git(&["-C", "w", "update-index", "--add", "--cacheinfo", &link]);
    }
    fixture.git(&["-C", "w", "commit", "-q", "-m", "links"]);
    fixture.git(&["-C", "w", "checkout", "-q", "-f", "first"]);
    let state = fixture.path("state");
    let hold = || {
        let (mut view, requests) = without_git(fixture.view("w").unwrap(), &[]).unwrap();
        let notes = hold_gitlinks_of_branches(&mut view, &requests, &state).unwrap();
        (view.shields, notes)
    };
    let (shields, notes) = hold();
    assert_eq!(what(&shields, "a"), Some(Anchored));
    assert_eq!(what(&shields, "a/deep/sub"), Some(belljar_spec::workspace::Shielded::MissingDirectory));
    // A file in the place of a submodule cannot be protected, and is reported.
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("`file` is a submodule on another branch"), "{notes:?}");
    // The second start runs no git: missing objects are not noticed.
    fs::rename(fixture.path("w/.git/objects"), fixture.path("objects")).unwrap();
    fs::create_dir(fixture.path("w/.git/objects")).unwrap();
    assert_eq!(hold(), (shields, notes));
    // Without the cache they are not known, and that is reported.
    fs::remove_dir_all(&state).unwrap();
    assert!(hold().1[0].contains("are not protected"));
}

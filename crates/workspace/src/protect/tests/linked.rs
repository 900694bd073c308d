//! Worktrees and submodules.

use super::super::*;
use super::{Place, what};
use belljar_spec::workspace::Shielded::{Anchored, Existing, MissingFile};
use std::fs;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_linked_worktree_holds_what_is_not_its_own() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    place.git(&["-C", "main", "worktree", "add", "-q", "../two"]);
    let view = place.view("one").unwrap();
    let git = view.git.unwrap();
    assert_eq!((git.common, git.own.as_str()), (place.path("main/.git"), "worktrees/one"));
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

    let known =
        view_of_worktree(&place.path("one"), &place.path("main/.git"), "worktrees/one", Policy::default())
            .unwrap();
    assert_eq!(known.git.unwrap().shields, git.shields);
    // For the main worktree, both belong to another worktree.
    let main = place.view("main").unwrap().shields;
    assert_eq!(what(&main, ".git/worktrees/one"), Some(Existing));
}

#[test]
fn worktrees_below_the_folder_keep_their_git_files() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", ".trees/one"]);
    place.git(&["-C", "main", "worktree", "add", "-q", ".trees/one/deep/two"]);
    place.git(&["-C", "main", "worktree", "add", "-q", "../gone"]);
    fs::remove_dir_all(place.path("gone")).unwrap();
    let relative = place.path("main/.git/worktrees/two/gitdir");
    fs::write(&relative, "../../../.trees/one/deep/two/.git\n").unwrap();

    let main = place.view("main").unwrap().shields;
    assert_eq!(what(&main, ".trees"), Some(Anchored));
    assert_eq!(what(&main, ".trees/one"), Some(Anchored));
    assert_eq!(what(&main, ".trees/one/.git"), Some(Existing));
    assert_eq!(what(&main, ".trees/one/deep/two/.git"), Some(Existing));
    // Seen from a folder without a repository of its own, and from another worktree.
    let trees = place.view("main/.trees").unwrap().shields;
    assert_eq!(what(&trees, "one/.git"), Some(Existing));
    let one = place.view("main/.trees/one").unwrap().shields;
    assert_eq!(what(&one, "deep/two/.git"), Some(Existing));
    assert_eq!(what(&one, ".git"), None, "shown as another file");

    place.git(&["-C", "main", "clone", "-q", "--bare", ".", "../b.git"]);
    place.git(&["-C", "b.git", "worktree", "add", "-q", "tree", "main"]);
    assert_eq!(what(&place.view("b.git").unwrap().shields, "tree/.git"), Some(Existing));
}

#[test]
fn submodules_are_held_and_can_be_worked_in() {
    let place = Place::new();
    place.repository("lib");
    place.repository("main");
    let add = ["-C", "main", "-c", "protocol.file.allow=always", "submodule", "add", "-q"];
    place.git(&[&add[..], &["--name", "deep/name", "../lib", "sub"]].concat());
    let shields = place.view("main").unwrap().shields;
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

    let view = place.view("main/sub").unwrap();
    let git = view.git.unwrap();
    assert_eq!((git.common, git.own.as_str()), (place.path("main/.git/modules/deep/name"), ""));
    assert_eq!(what(&git.shields, "hooks"), Some(Existing));
    assert_eq!(what(&git.shields, "HEAD"), None, "it is ours");
}

/// An agent can make a git directory below `modules`; opening a pipe waits for its other end.
#[test]
fn a_pipe_for_a_submodules_config_does_not_block() {
    let place = Place::new();
    place.repository("main");
    place.git(&["init", "-q", "--bare", "main/.git/modules/planted"]);
    let config = place.path("main/.git/modules/planted/config");
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let (sender, receiver) = std::sync::mpsc::channel();
    let folder = place.path("main");
    std::thread::spawn(move || sender.send(view(&folder, Policy::default()).map(|view| view.shields)));
    let shields = receiver.recv_timeout(Duration::from_secs(100)).expect("it waits").unwrap();
    assert_eq!(what(&shields, ".git/modules/planted/config"), Some(Existing));
}

#[test]
fn gitlinks_of_other_branches_are_held_and_known_at_the_next_start() {
    let place = Place::new();
    place.repository("w");
    place.git(&["-C", "w", "branch", "first"]);
    place.git(&["-C", "w", "checkout", "-q", "-b", "other"]);
    let commit = fs::read_to_string(place.path("w/.git/refs/heads/first")).unwrap();
    for path in ["a/deep/sub", "file"] {
        let link = format!("160000,{},{path}", commit.trim());
        place.git(&["-C", "w", "rm", "-q", "--cached", "--ignore-unmatch", path]);
        place.git(&["-C", "w", "update-index", "--add", "--cacheinfo", &link]);
    }
    place.git(&["-C", "w", "commit", "-q", "-m", "links"]);
    place.git(&["-C", "w", "checkout", "-q", "-f", "first"]);
    let state = place.path("state");
    let hold = || {
        let (mut view, wanted) = without_git(place.view("w").unwrap(), &[]).unwrap();
        let notes = hold_gitlinks_of_branches(&mut view, &wanted, &state).unwrap();
        (view.shields, notes)
    };
    let (shields, notes) = hold();
    assert_eq!(what(&shields, "a"), Some(Anchored));
    assert_eq!(what(&shields, "a/deep/sub"), Some(belljar_spec::workspace::Shielded::MissingDirectory));
    // A file in the place of a submodule cannot be protected, and is reported.
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("`file` is a submodule on another branch"), "{notes:?}");
    // The second start runs no git: missing objects are not noticed.
    fs::rename(place.path("w/.git/objects"), place.path("objects")).unwrap();
    fs::create_dir(place.path("w/.git/objects")).unwrap();
    assert_eq!(hold(), (shields, notes));
    // Without the cache they are not known, and that is reported.
    fs::remove_dir_all(&state).unwrap();
    assert!(hold().1[0].contains("are not protected"));
}

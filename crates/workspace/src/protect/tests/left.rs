//! Findings after a run.

use super::super::*;
use super::{Fixture, what};
use belljar_spec::ErrorCode;
use belljar_spec::workspace::Shielded::Existing;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[test]
fn what_no_mount_can_prevent_is_found_afterwards() {
    for (version, format) in [("2", "sha1"), ("4", "sha1"), ("3", "sha256")] {
        let fixture = Fixture::new();
        fixture.git(&["init", "-q", "--object-format", format, "w"]);
        fixture.repository("w");
        let found = || -> Vec<(String, LeftKind)> {
            let all = left(&fixture.view("w").unwrap()).into_iter();
            all.map(|one| (one.path.strip_prefix(fixture.path("w")).unwrap().display().to_string(), one.what))
                .collect()
        };
        assert_eq!(found(), []);
        // A repository that the index does not list is not searched; one in the index is.
        fixture.git(&["init", "-q", "--object-format", format, "w/deep/nested"]);
        fixture.repository("w/deep/nested");
        fs::write(fixture.path("w/deep/zzz"), "").unwrap();
        assert_eq!(found(), []);
        fixture.git(&["-C", "w", "update-index", "--index-version", version]);
        fixture.git(&["-C", "w", "-c", "advice.addEmbeddedRepo=false", "add", "deep"]);
        assert_eq!(found(), [("deep/nested".to_string(), LeftKind::Repository)]);
        fixture.git(&["-C", "w", "update-index", "--split-index"]);
        assert_eq!(found(), [("deep/nested".to_string(), LeftKind::Repository)]);
        let view = fixture.view("w").unwrap();
        let before = Baseline::take(&view);
        assert_eq!(before.compare().left, []);
        fixture.git(&["-C", "w/deep/nested", "config", "core.fsmonitor", "/canary"]);
        fixture.git(&["-C", "w", "config", "a.b", "c"]);
        let kinds: Vec<LeftKind> = before.compare().left.iter().map(|one| one.what).collect();
        assert_eq!(kinds, [LeftKind::Repository, LeftKind::Held]);
        fixture.git(&["-C", "w", "update-index", "--no-split-index"]);
        for entry in fs::read_dir(fixture.path("w/.git")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        fixture.git(&["-C", "w", "rm", "-q", "-f", "--cached", "deep/nested"]);

        std::os::unix::fs::symlink("/tmp/x", fixture.path("w/.git/COMMIT_MSG")).unwrap();
        fs::remove_file(fixture.path("w/.git/logs/refs/heads/main")).unwrap();
        std::os::unix::fs::symlink("/tmp/x", fixture.path("w/.git/logs/refs/heads/main")).unwrap();
        fs::create_dir(fixture.path("w/.git/rebase-merge")).unwrap();
        fs::write(fixture.path("w/.git/rebase-merge/git-rebase-todo"), "pick 1 a\n  x touch /canary\n")
            .unwrap();
        let expected = [
            (".git/COMMIT_MSG", LeftKind::Link),
            (".git/logs/refs/heads/main", LeftKind::Link),
            (".git/rebase-merge/git-rebase-todo", LeftKind::Commands),
        ];
        assert_eq!(found(), expected.map(|(path, what)| (path.to_string(), what)));
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("plain")).unwrap();
    let view = fixture.view("plain").unwrap();
    assert_eq!(left(&view), []);
    fixture.git(&["init", "-q", "--bare", "plain"]);
    assert_eq!(left(&view)[0].what, LeftKind::GitDirectory);
}

#[test]
fn a_folder_made_a_git_directory_is_found_whatever_its_own_one_is() {
    let fixture = Fixture::new();
    fixture.repository("w");
    let view = fixture.view("w").unwrap();
    let before = Baseline::take(&view);
    fixture.git(&["init", "-q", "--bare", "planted"]);
    for name in ["HEAD", "config", "objects", "refs"] {
        fs::rename(fixture.path("planted").join(name), fixture.path("w").join(name)).unwrap();
    }
    fs::write(fixture.path("w/.git/HEAD"), "nonsense").unwrap();
    let kinds: Vec<LeftKind> = before.compare().left.iter().map(|one| one.what).collect();
    assert_eq!(kinds, [LeftKind::GitDirectory]);

    // A folder that was a git directory from the start, and unchanged, is no harm.
    fixture.git(&["init", "-q", "--bare", "b.git"]);
    let view = fixture.view("b.git").unwrap();
    assert_eq!(Baseline::take(&view).compare().left, []);
}

#[test]
fn what_was_held_and_is_changed_all_the_same_is_found() {
    let fixture = Fixture::new();
    fixture.repository("w");
    let hook = fixture.path("w/.git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "").unwrap();
    let view = fixture.view("w").unwrap();
    let before = Baseline::take(&view);
    let found = || -> Vec<PathBuf> {
        let held = before.compare().left.into_iter().filter(|one| one.what == LeftKind::Held);
        held.map(|one| one.path.strip_prefix(fixture.path("w")).unwrap().to_path_buf()).collect()
    };
    // Placeholders for missing paths are no harm.
    fs::create_dir(fixture.path("w/.husky")).unwrap();
    fs::write(fixture.path("w/.git/commondir"), ".").unwrap();
    fs::write(fixture.path("w/.git/config.worktree"), "").unwrap();
    assert!(found().is_empty(), "{:?}", found());

    fs::write(&hook, "touch /canary").unwrap();
    assert_eq!(found(), [PathBuf::from(".git/hooks")]);
    fs::write(fixture.path("w/.husky/pre-commit"), "touch /canary").unwrap();
    fs::write(fixture.path("w/.git/commondir"), "..").unwrap();
    fs::write(fixture.path("w/.git/config.worktree"), "[core]\nfsmonitor = touch /canary\n").unwrap();
    std::os::unix::fs::symlink("/canary", fixture.path("w/.belljar")).unwrap();
    let expected = [".belljar", ".git/commondir", ".git/config.worktree", ".git/hooks", ".husky"];
    assert_eq!(found(), expected.map(PathBuf::from));
}

#[test]
fn what_a_worktree_leaves_for_the_main_one_is_held_or_found() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    let common = fixture.path("main/.git");
    fs::write(common.join("ORIG_HEAD"), "").unwrap();
    fs::create_dir(common.join("sequencer")).unwrap();
    let view = fixture.view("one").unwrap();
    let before = Baseline::take(&view);
    let shields = &view.git.as_ref().unwrap().shields;
    for (path, expected) in [
        ("COMMIT_EDITMSG", Some(Existing)),
        ("ORIG_HEAD", Some(Existing)),
        ("sequencer", Some(Existing)),
        ("MERGE_MSG", None),
        ("rebase-merge", None),
    ] {
        assert_eq!(what(shields, path), expected, "{path}");
    }
    // A missing file cannot be protected by a mount: git would take an empty one for a merge in progress.
    std::os::unix::fs::symlink("/tmp/x", common.join("MERGE_MSG")).unwrap();
    fs::remove_file(common.join("logs/HEAD")).unwrap();
    std::os::unix::fs::symlink("/tmp/x", common.join("logs/HEAD")).unwrap();
    fs::create_dir(common.join("rebase-merge")).unwrap();
    fs::write(common.join("rebase-merge/git-rebase-todo"), "exec touch /canary\n").unwrap();
    std::os::unix::fs::symlink("/tmp/x", common.join("worktrees/one/MERGE_MSG")).unwrap();
    let expected = [
        ("MERGE_MSG", LeftKind::Link),
        ("logs/HEAD", LeftKind::Link),
        ("rebase-merge/git-rebase-todo", LeftKind::Commands),
        ("worktrees/one/MERGE_MSG", LeftKind::Link),
    ];
    let expected = expected.map(|(path, what)| Left { path: common.join(path), what });
    assert_eq!(left(&view), expected);
    // The main worktree's own work is not ours to report.
    fs::write(common.join("COMMIT_EDITMSG"), "its own").unwrap();
    let paths: Vec<PathBuf> = before.compare().left.into_iter().map(|one| one.path).collect();
    assert!(!paths.contains(&common.join("COMMIT_EDITMSG")), "{paths:?}");
}

#[test]
fn files_that_are_too_large_are_reported_and_not_read() {
    let fixture = Fixture::new();
    fixture.repository("w");
    let view = fixture.view("w").unwrap();
    let before = Baseline::take(&view);
    let git_dir = fixture.path("w/.git");
    let grow = |name: &str, size: u64| {
        let file = fs::OpenOptions::new().create(true).append(true).open(git_dir.join(name)).unwrap();
        file.set_len(size).unwrap();
    };
    let found = || -> Vec<PathBuf> {
        let too_much = before.compare().left.into_iter().filter(|one| one.what == LeftKind::TooMuch);
        too_much.map(|one| one.path.strip_prefix(&git_dir).unwrap().to_path_buf()).collect()
    };
    // Git does not take it for an index.
    grow("sharedindex.1", 1 << 40);
    assert!(found().is_empty(), "{:?}", found());
    grow("index", 1 << 40);
    fs::create_dir(git_dir.join("rebase-merge")).unwrap();
    grow("rebase-merge/git-rebase-todo", 1 << 40);
    assert_eq!(found(), ["index", "rebase-merge/git-rebase-todo"].map(PathBuf::from));
    // Many that are not too large by themselves.
    fs::remove_dir_all(git_dir.join("rebase-merge")).unwrap();
    grow("index", 200 << 20);
    fs::write(git_dir.join("sharedindex.2"), "DIRC").unwrap();
    grow("sharedindex.2", 200 << 20);
    assert_eq!(found().len(), 1);
}

#[test]
fn links_hidden_by_number_or_depth_are_not_passed_over() {
    let fixture = Fixture::new();
    fixture.repository("w");
    let view = fixture.view("w").unwrap();
    let git_dir = fixture.path("w/.git");
    let too_much = [Left { path: git_dir.clone(), what: LeftKind::TooMuch }];
    let before = Baseline::take(&view);
    let deep = "d/".repeat(40);
    fs::create_dir_all(git_dir.join("refs/heads").join(&deep)).unwrap();
    let link = git_dir.join("refs/heads").join(&deep).join("link");
    std::os::unix::fs::symlink("/tmp/x", link).unwrap();
    assert_eq!(before.compare().left, too_much);
    fs::remove_dir_all(git_dir.join("refs/heads/d")).unwrap();
    assert_eq!(left(&view), []);

    fs::create_dir(git_dir.join("refs/many")).unwrap();
    for number in 0..=50_000 {
        fs::write(git_dir.join(format!("refs/many/{number}")), "").unwrap();
    }
    assert_eq!(before.compare().left, too_much);
}

#[test]
fn a_damaged_index_is_told() {
    let fixture = Fixture::new();
    fixture.repository("w");
    let index = fixture.path("w/.git/index");
    let whole = fs::read(&index).unwrap();
    let view = fixture.view("w").unwrap();
    // Git does not read a file that does not begin like an index; the checksum at its end is not checked.
    for length in 0..whole.len() {
        fs::write(&index, &whole[..length]).unwrap();
        let found: Vec<LeftKind> = left(&view).iter().map(|one| one.what).collect();
        let is_reported = length >= 4 && length < 12 + 62 + "file\0".len();
        assert_eq!(found, if is_reported { vec![LeftKind::Unreadable] } else { Vec::new() }, "{length}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        fs::write(&index, changed).unwrap();
        left(&fixture.view("w").unwrap());
    }
}

#[test]
fn git_directories_beside_it_are_found_if_they_were_made_meanwhile() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.git(&["-C", "w", "worktree", "add", "-q", "../before"]);
    let view = fixture.view("w").unwrap();
    let before = Baseline::take(&view);
    let found = || -> Vec<(String, LeftKind)> {
        let all = before.compare().left.into_iter();
        let mut all: Vec<(String, LeftKind)> = all
            .map(|one| (one.path.strip_prefix(fixture.path("w")).unwrap().display().to_string(), one.what))
            .collect();
        all.sort();
        all
    };
    assert_eq!(found(), []);
    fixture.git(&["init", "-q", "--bare", "w/.git/modules/deep/sub"]);
    fixture.git(&["-C", "w", "worktree", "add", "-q", "../new"]);
    let git_dir = fixture.path("w/.git");
    for folder in ["rebase-merge", "sequencer"] {
        fs::create_dir(git_dir.join(folder)).unwrap();
    }
    fs::write(git_dir.join("rebase-merge/strategy"), "ort\n").unwrap();
    fs::write(git_dir.join("sequencer/opts"), "[options]\n\tstrategy = recursive\n").unwrap();
    let mut expected = vec![
        (".git/modules/deep/sub".to_string(), LeftKind::Elsewhere),
        (".git/worktrees/new".to_string(), LeftKind::Elsewhere),
    ];
    assert_eq!(found(), expected);
    // git runs `git-merge-/x`, which is a path.
    fs::write(git_dir.join("rebase-merge/strategy"), "/x\n").unwrap();
    fs::write(git_dir.join("sequencer/opts"), "[options]\n\tstrategy = /x\n").unwrap();
    expected.insert(1, (".git/rebase-merge/strategy".to_string(), LeftKind::Commands));
    expected.insert(2, (".git/sequencer/opts".to_string(), LeftKind::Commands));
    assert_eq!(found(), expected);
}

#[test]
fn what_cannot_be_named_to_a_guest_is_refused() {
    let odd = |folder: &Path| folder.join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    let fixture = Fixture::new();
    fixture.repository("w");
    fs::create_dir_all(odd(&fixture.path("w/.git/worktrees"))).unwrap();
    assert_eq!(fixture.view("w").unwrap_err().code, ErrorCode::PathRefused);

    let fixture = Fixture::new();
    fixture.repository("w");
    let config = fixture.path("w/.git/config");
    let mut text = fs::read(&config).unwrap();
    text.extend_from_slice(b"[core]\n\thooksPath = odd\xff\n");
    fs::write(&config, text).unwrap();
    let refusal = fixture.view("w").unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PathRefused, "{refusal}");
}

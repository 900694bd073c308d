//! A message about a folder is always true, and its cause is found even if it is hidden.

use super::super::*;
use super::Fixture;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

fn kinds(findings: &Findings, root: &Path) -> Vec<(String, LeftKind)> {
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    findings.left.iter().map(|one| (shown(&one.path), one.what)).collect()
}

#[test]
fn repositories_made_just_before_are_no_alarm() {
    for number in 0..20 {
        let fixture = Fixture::new();
        fixture.repository("w");
        fs::write(fixture.path("w/.git/hooks/pre-commit"), "true").unwrap();
        fs::write(fixture.path("w/Makefile"), "all:").unwrap();
        let before = Baseline::take(&fixture.whole_view("w"));
        let found = before.compare();
        assert!(found.is_empty() && found.is_whole, "{number}: {found:?}");
        fs::write(fixture.path("w/.git/config"), "[core]\nfsmonitor = evil\n").unwrap();
        assert_eq!(kinds(&before.compare(), &fixture.path("w")), [(".git/config".into(), LeftKind::Held)]);
    }
}

/// A concurrent sandbox's placeholders for missing paths appear and disappear.
#[test]
fn placeholders_of_others_are_no_alarm() {
    for is_repository in [true, false] {
        let fixture = Fixture::new();
        fs::create_dir(fixture.path("w")).unwrap();
        if is_repository {
            fixture.repository("w");
        }
        let view = fixture.whole_view("w");
        let make = || {
            for shield in &view.shields {
                let path = view.folder.join(&shield.path);
                match &shield.what {
                    Shielded::MissingDirectory => drop(fs::create_dir(path)),
                    Shielded::MissingFile(content) => fs::write(path, content).unwrap(),
                    Shielded::Existing | Shielded::Replaced | Shielded::Anchored | Shielded::Watched => {}
                }
            }
        };
        let clear = || {
            for shield in view.shields.iter().rev() {
                let path = view.folder.join(&shield.path);
                match &shield.what {
                    Shielded::MissingDirectory => fs::remove_dir(path).unwrap(),
                    Shielded::MissingFile(_) => fs::remove_file(path).unwrap(),
                    Shielded::Existing | Shielded::Replaced | Shielded::Anchored | Shielded::Watched => {}
                }
            }
        };
        let alone = Baseline::take(&view);
        make();
        let beside = Baseline::take(&fixture.whole_view("w"));
        assert!(alone.compare().is_empty(), "{:?}", alone.compare());
        assert!(beside.compare().is_empty(), "{:?}", beside.compare());
        clear();
        assert!(alone.compare().is_empty(), "{:?}", alone.compare());
        assert!(beside.compare().is_empty(), "{:?}", beside.compare());
        fs::create_dir(fixture.path("w/.husky")).unwrap();
        fs::write(fixture.path("w/.husky/pre-commit"), "evil").unwrap();
        for baseline in [alone, beside] {
            assert_eq!(kinds(&baseline.compare(), &fixture.path("w")), [(".husky".into(), LeftKind::Held)]);
        }
    }
}

/// As git reads it: with the length in the entry, regardless of the bytes after its name.
#[test]
fn an_index_without_an_end_of_a_name_hides_nothing() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.repository("w/sub");
    fs::write(fixture.path("w/aaa"), "").unwrap();
    fixture.git(&["-C", "w", "-c", "advice.addEmbeddedRepo=false", "add", "aaa", "sub"]);
    let file = fixture.path("w/.git/index");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(5).position(|window| window == b"\x00\x03aaa").unwrap();
    bytes[at + 5] = b'X';
    fs::write(&file, &bytes).unwrap();
    let listed =
        Command::new("git").args(["ls-files", "-s"]).current_dir(fixture.path("w")).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("160000"), "git itself reads it");
    assert_eq!(gitlinks(&bytes).unwrap().names, BTreeSet::from([b"sub".to_vec()]));
    let found: Vec<LeftKind> = left(&fixture.view("w").unwrap()).iter().map(|one| one.what).collect();
    assert_eq!(found, [LeftKind::Repository]);
}

/// An entry without a name in one half of a split index has the name of one in the other half.
#[test]
fn a_split_index_hides_nothing() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.repository("w/sub");
    fixture.git(&["-C", "w", "-c", "advice.addEmbeddedRepo=false", "add", "sub"]);
    fixture.git(&["-C", "w", "update-index", "--split-index"]);
    fixture.git(&["-C", "w/sub", "commit", "-q", "--allow-empty", "-m", "y"]);
    fixture.git(&["-C", "w", "add", "sub"]);
    let found: Vec<LeftKind> = left(&fixture.view("w").unwrap()).iter().map(|one| one.what).collect();
    assert_eq!(found, [LeftKind::Repository]);
}

#[test]
fn a_repository_that_no_index_names_is_told_if_it_is_new() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.git(&["init", "-q", "w/a/b/c/d/old"]);
    let before = Baseline::take(&fixture.view("w").unwrap());
    assert!(before.compare().is_empty());
    fixture.git(&["init", "-q", "w/a/b/c/d/new"]);
    fixture.git(&["-C", "w/a/b/c/d/old", "config", "core.fsmonitor", "evil"]);
    let mut found = kinds(&before.compare(), &fixture.path("w"));
    found.sort();
    let expected = ["a/b/c/d/new", "a/b/c/d/old"];
    assert_eq!(found, expected.map(|path| (path.to_string(), LeftKind::RepositoryBelow)));
}

#[test]
fn links_and_pipes_are_found_in_every_git_directory() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.repository("lib");
    let add = ["-C", "w", "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../lib", "sub"];
    fixture.git(&add);
    fixture.repository("w/vendor/x");
    let mut view = fixture.view("w").unwrap();
    below::hold(&mut view, &fixture.host(), None, Nested::Shared).unwrap();
    let before = Baseline::take(&view);
    assert_eq!(before.compare().left, []);
    for path in [
        ".git/objects/info/commit-graph",
        ".git/objects/pack/multi-pack-index",
        ".git/objects/zz",
        ".git/modules/sub/COMMIT_EDITMSG",
        "vendor/x/.git/ORIG_HEAD",
    ] {
        symlink("/tmp/x", fixture.path("w").join(path)).unwrap();
    }
    for path in [".git/packed-refs", ".git/refs/heads/pipe"] {
        assert!(Command::new("mkfifo").arg(fixture.path("w").join(path)).status().unwrap().success());
    }
    std::os::unix::net::UnixListener::bind(fixture.path("w/.git/fsmonitor--daemon.ipc")).unwrap();
    let found = kinds(&before.compare(), &fixture.path("w"));
    let expected = [
        (".git/modules/sub/COMMIT_EDITMSG", LeftKind::Link),
        (".git/objects/info/commit-graph", LeftKind::Link),
        (".git/objects/pack/multi-pack-index", LeftKind::Link),
        (".git/objects/zz", LeftKind::Link),
        (".git/packed-refs", LeftKind::NotAFile),
        (".git/refs/heads/pipe", LeftKind::NotAFile),
        ("vendor/x/.git/ORIG_HEAD", LeftKind::Link),
    ];
    assert_eq!(found, expected.map(|(path, what)| (path.to_string(), what)));
}

#[test]
fn what_was_held_once_is_not_pushed_out_of_the_search() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fixture.git(&["init", "-q", "w/libs/deep/x"]);
    let memory = Memory::at(&fixture.path("state"));
    let held = || {
        let mut view = fixture.view("w").unwrap();
        below::hold(&mut view, &fixture.host(), Some(&memory), Nested::Shared).unwrap();
        super::what(&view.shields, "libs/deep/x/.git/hooks")
    };
    assert_eq!(held(), Some(Shielded::Existing));
    for number in 0..1000 {
        fs::create_dir(fixture.path("w").join(number.to_string())).unwrap();
        fs::create_dir(fixture.path("w/libs").join(number.to_string())).unwrap();
    }
    assert_eq!(held(), Some(Shielded::Existing));
}

#[test]
fn files_with_names_elsewhere_are_told_if_they_changed() {
    let fixture = Fixture::new();
    for folder in ["w/.venv", "store"] {
        fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    for name in ["changed", "untouched"] {
        fs::write(fixture.path("store").join(name), "x").unwrap();
        fs::hard_link(fixture.path("store").join(name), fixture.path("w/.venv").join(name)).unwrap();
    }
    fs::write(fixture.path("w/one"), "x").unwrap();
    fs::hard_link(fixture.path("w/one"), fixture.path("w/two")).unwrap();
    let before = Baseline::take(&fixture.view("w").unwrap());
    assert!(before.compare().is_empty());
    // The kernel's clock for files ticks every few milliseconds; a sandbox takes longer than that to start.
    std::thread::sleep(std::time::Duration::from_millis(30));
    for path in ["w/.venv/changed", "w/one"] {
        fs::write(fixture.path(path), "evil").unwrap();
    }
    assert_eq!(kinds(&before.compare(), &fixture.path("w")), [(".venv/changed".into(), LeftKind::HardLink)]);
}

#[test]
fn what_commonly_runs_is_listed_if_its_content_changed() {
    let fixture = Fixture::new();
    fixture.repository("w");
    fs::create_dir_all(fixture.path("w/a/node_modules/x")).unwrap();
    for name in ["Makefile", "a/build.rs", "touched.mk"] {
        fs::write(fixture.path("w").join(name), "x").unwrap();
    }
    let before = Baseline::take(&fixture.view("w").unwrap());
    fs::write(fixture.path("w/touched.mk"), "x").unwrap();
    fs::write(fixture.path("w/a/main.rs"), "x").unwrap();
    fs::write(fixture.path("w/a/node_modules/x/package.json"), "{}").unwrap();
    assert!(before.compare().is_empty());
    fs::write(fixture.path("w/Makefile"), "evil").unwrap();
    fs::write(fixture.path("w/a/build.rs"), "evil").unwrap();
    fs::create_dir_all(fixture.path("w/.github/workflows")).unwrap();
    fs::write(fixture.path("w/.github/workflows/ci.yml"), "evil").unwrap();
    let found = before.compare();
    let paths: Vec<String> = found.executed.iter().map(|one| one.path.display().to_string()).collect();
    assert_eq!(paths, [".github/workflows/ci.yml", "Makefile", "a/build.rs"]);
    assert_eq!(found.left, []);
}

/// Earlier files are compared even behind many new ones, and an incomplete check is reported.
#[test]
fn no_number_of_files_hides_a_change() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("w/sub")).unwrap();
    fs::write(fixture.path("w/sub/Makefile"), "all:").unwrap();
    let before = Baseline::take(&fixture.whole_view("w"));
    for number in 0..20_001 {
        fs::File::create(fixture.path(&format!("w/{number}"))).unwrap();
    }
    fs::write(fixture.path("w/sub/Makefile"), "all: evil").unwrap();
    let found = before.compare();
    let reported: Vec<&Path> = found.executed.iter().map(|one| one.path.as_path()).collect();
    assert_eq!(reported, [Path::new("sub/Makefile")]);
    assert_eq!(kinds(&found, &fixture.path("w")), [("".into(), LeftKind::TooMuch)]);
}

/// They hold more files than the limit, and the work beside them matters.
#[test]
fn folders_that_tools_fill_come_last() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("w/node_modules")).unwrap();
    fs::create_dir_all(fixture.path("w/packages/a/b")).unwrap();
    for number in 0..9_000 {
        fs::File::create(fixture.path(&format!("w/node_modules/{number}"))).unwrap();
    }
    fs::write(fixture.path("w/packages/a/b/Makefile"), "all:").unwrap();
    let before = Baseline::take(&fixture.whole_view("w"));
    // The same content, at another time.
    fs::write(fixture.path("w/packages/a/b/Makefile"), "all:").unwrap();
    assert!(before.compare().is_empty());
    fs::write(fixture.path("w/packages/a/b/Makefile"), "all: evil").unwrap();
    assert_eq!(before.compare().executed.len(), 1);
}

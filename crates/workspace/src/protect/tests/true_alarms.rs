//! A message about a folder is always true, and its cause is found even if it is hidden.

use super::super::*;
use super::Place;
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
        let place = Place::new();
        place.repository("w");
        fs::write(place.path("w/.git/hooks/pre-commit"), "true").unwrap();
        fs::write(place.path("w/Makefile"), "all:").unwrap();
        let before = Baseline::take(&place.whole_view("w"));
        let found = before.compare();
        assert!(found.is_empty() && found.is_whole, "{number}: {found:?}");
        fs::write(place.path("w/.git/config"), "[core]\nfsmonitor = evil\n").unwrap();
        assert_eq!(kinds(&before.compare(), &place.path("w")), [(".git/config".into(), LeftKind::Held)]);
    }
}

/// A concurrent sandbox's placeholders for missing paths appear and disappear.
#[test]
fn placeholders_of_others_are_no_alarm() {
    for is_repository in [true, false] {
        let place = Place::new();
        fs::create_dir(place.path("w")).unwrap();
        if is_repository {
            place.repository("w");
        }
        let view = place.whole_view("w");
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
        let beside = Baseline::take(&place.whole_view("w"));
        assert!(alone.compare().is_empty(), "{:?}", alone.compare());
        assert!(beside.compare().is_empty(), "{:?}", beside.compare());
        clear();
        assert!(alone.compare().is_empty(), "{:?}", alone.compare());
        assert!(beside.compare().is_empty(), "{:?}", beside.compare());
        fs::create_dir(place.path("w/.husky")).unwrap();
        fs::write(place.path("w/.husky/pre-commit"), "evil").unwrap();
        for baseline in [alone, beside] {
            assert_eq!(kinds(&baseline.compare(), &place.path("w")), [(".husky".into(), LeftKind::Held)]);
        }
    }
}

/// As git reads it: with the length in the entry, regardless of the bytes after its name.
#[test]
fn an_index_without_an_end_of_a_name_hides_nothing() {
    let place = Place::new();
    place.repository("w");
    place.repository("w/sub");
    fs::write(place.path("w/aaa"), "").unwrap();
    place.git(&["-C", "w", "-c", "advice.addEmbeddedRepo=false", "add", "aaa", "sub"]);
    let file = place.path("w/.git/index");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(5).position(|window| window == b"\x00\x03aaa").unwrap();
    bytes[at + 5] = b'X';
    fs::write(&file, &bytes).unwrap();
    let listed = Command::new("git").args(["ls-files", "-s"]).current_dir(place.path("w")).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("160000"), "git itself reads it");
    assert_eq!(gitlinks(&bytes).unwrap().names, BTreeSet::from([b"sub".to_vec()]));
    let found: Vec<LeftKind> = left(&place.view("w").unwrap()).iter().map(|one| one.what).collect();
    assert_eq!(found, [LeftKind::Repository]);
}

/// An entry without a name in one half of a split index has the name of one in the other half.
#[test]
fn a_split_index_hides_nothing() {
    let place = Place::new();
    place.repository("w");
    place.repository("w/sub");
    place.git(&["-C", "w", "-c", "advice.addEmbeddedRepo=false", "add", "sub"]);
    place.git(&["-C", "w", "update-index", "--split-index"]);
    place.git(&["-C", "w/sub", "commit", "-q", "--allow-empty", "-m", "y"]);
    place.git(&["-C", "w", "add", "sub"]);
    let found: Vec<LeftKind> = left(&place.view("w").unwrap()).iter().map(|one| one.what).collect();
    assert_eq!(found, [LeftKind::Repository]);
}

#[test]
fn a_repository_that_no_index_names_is_told_if_it_is_new() {
    let place = Place::new();
    place.repository("w");
    place.git(&["init", "-q", "w/a/b/c/d/old"]);
    let before = Baseline::take(&place.view("w").unwrap());
    assert!(before.compare().is_empty());
    place.git(&["init", "-q", "w/a/b/c/d/new"]);
    place.git(&["-C", "w/a/b/c/d/old", "config", "core.fsmonitor", "evil"]);
    let mut found = kinds(&before.compare(), &place.path("w"));
    found.sort();
    let expected = ["a/b/c/d/new", "a/b/c/d/old"];
    assert_eq!(found, expected.map(|path| (path.to_string(), LeftKind::RepositoryBelow)));
}

#[test]
fn links_and_pipes_are_found_in_every_git_directory() {
    let place = Place::new();
    place.repository("w");
    place.repository("lib");
    let add = ["-C", "w", "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../lib", "sub"];
    place.git(&add);
    place.repository("w/vendor/x");
    let mut view = place.view("w").unwrap();
    below::hold(&mut view, &place.host(), None, Nested::Shared).unwrap();
    let before = Baseline::take(&view);
    assert_eq!(before.compare().left, []);
    for path in [
        ".git/objects/info/commit-graph",
        ".git/objects/pack/multi-pack-index",
        ".git/objects/zz",
        ".git/modules/sub/COMMIT_EDITMSG",
        "vendor/x/.git/ORIG_HEAD",
    ] {
        symlink("/tmp/x", place.path("w").join(path)).unwrap();
    }
    for path in [".git/packed-refs", ".git/refs/heads/pipe"] {
        assert!(Command::new("mkfifo").arg(place.path("w").join(path)).status().unwrap().success());
    }
    std::os::unix::net::UnixListener::bind(place.path("w/.git/fsmonitor--daemon.ipc")).unwrap();
    let found = kinds(&before.compare(), &place.path("w"));
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
    let place = Place::new();
    place.repository("w");
    place.git(&["init", "-q", "w/libs/deep/x"]);
    let memory = Memory::at(&place.path("state"));
    let held = || {
        let mut view = place.view("w").unwrap();
        below::hold(&mut view, &place.host(), Some(&memory), Nested::Shared).unwrap();
        super::what(&view.shields, "libs/deep/x/.git/hooks")
    };
    assert_eq!(held(), Some(Shielded::Existing));
    for number in 0..1000 {
        fs::create_dir(place.path("w").join(number.to_string())).unwrap();
        fs::create_dir(place.path("w/libs").join(number.to_string())).unwrap();
    }
    assert_eq!(held(), Some(Shielded::Existing));
}

#[test]
fn files_with_names_elsewhere_are_told_if_they_changed() {
    let place = Place::new();
    for folder in ["w/.venv", "store"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    for name in ["changed", "untouched"] {
        fs::write(place.path("store").join(name), "x").unwrap();
        fs::hard_link(place.path("store").join(name), place.path("w/.venv").join(name)).unwrap();
    }
    fs::write(place.path("w/one"), "x").unwrap();
    fs::hard_link(place.path("w/one"), place.path("w/two")).unwrap();
    let before = Baseline::take(&place.view("w").unwrap());
    assert!(before.compare().is_empty());
    // The kernel's clock for files ticks every few milliseconds; a sandbox takes longer than that to start.
    std::thread::sleep(std::time::Duration::from_millis(30));
    for path in ["w/.venv/changed", "w/one"] {
        fs::write(place.path(path), "evil").unwrap();
    }
    assert_eq!(kinds(&before.compare(), &place.path("w")), [(".venv/changed".into(), LeftKind::HardLink)]);
}

#[test]
fn what_commonly_runs_is_listed_if_its_content_changed() {
    let place = Place::new();
    place.repository("w");
    fs::create_dir_all(place.path("w/a/node_modules/x")).unwrap();
    for name in ["Makefile", "a/build.rs", "touched.mk"] {
        fs::write(place.path("w").join(name), "x").unwrap();
    }
    let before = Baseline::take(&place.view("w").unwrap());
    fs::write(place.path("w/touched.mk"), "x").unwrap();
    fs::write(place.path("w/a/main.rs"), "x").unwrap();
    fs::write(place.path("w/a/node_modules/x/package.json"), "{}").unwrap();
    assert!(before.compare().is_empty());
    fs::write(place.path("w/Makefile"), "evil").unwrap();
    fs::write(place.path("w/a/build.rs"), "evil").unwrap();
    fs::create_dir_all(place.path("w/.github/workflows")).unwrap();
    fs::write(place.path("w/.github/workflows/ci.yml"), "evil").unwrap();
    let found = before.compare();
    let paths: Vec<String> = found.executed.iter().map(|one| one.path.display().to_string()).collect();
    assert_eq!(paths, [".github/workflows/ci.yml", "Makefile", "a/build.rs"]);
    assert_eq!(found.left, []);
}

/// Earlier files are compared even behind many new ones, and an incomplete check is reported.
#[test]
fn no_number_of_files_hides_a_change() {
    let place = Place::new();
    fs::create_dir_all(place.path("w/sub")).unwrap();
    fs::write(place.path("w/sub/Makefile"), "all:").unwrap();
    let before = Baseline::take(&place.whole_view("w"));
    for number in 0..20_001 {
        fs::File::create(place.path(&format!("w/{number}"))).unwrap();
    }
    fs::write(place.path("w/sub/Makefile"), "all: evil").unwrap();
    let found = before.compare();
    let told: Vec<&Path> = found.executed.iter().map(|one| one.path.as_path()).collect();
    assert_eq!(told, [Path::new("sub/Makefile")]);
    assert_eq!(kinds(&found, &place.path("w")), [("".into(), LeftKind::TooMuch)]);
}

/// They hold more files than the limit, and the work beside them matters.
#[test]
fn folders_that_tools_fill_come_last() {
    let place = Place::new();
    fs::create_dir_all(place.path("w/node_modules")).unwrap();
    fs::create_dir_all(place.path("w/packages/a/b")).unwrap();
    for number in 0..9_000 {
        fs::File::create(place.path(&format!("w/node_modules/{number}"))).unwrap();
    }
    fs::write(place.path("w/packages/a/b/Makefile"), "all:").unwrap();
    let before = Baseline::take(&place.whole_view("w"));
    // The same content, at another time.
    fs::write(place.path("w/packages/a/b/Makefile"), "all:").unwrap();
    assert!(before.compare().is_empty());
    fs::write(place.path("w/packages/a/b/Makefile"), "all: evil").unwrap();
    assert_eq!(before.compare().executed.len(), 1);
}

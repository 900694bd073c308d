//! Patches are accepted by the programs they are for.

use super::*;
use crate::Patch;
use std::io::Write;
use std::process::{Command, Stdio};

fn patch(bench: &Bench) -> Vec<u8> {
    let patch = Patch::of(bench.layer()).unwrap();
    let mut text = Vec::new();
    for change in &bench.layer().changes_with_renames().unwrap().list {
        patch.write(change, &mut text).unwrap();
    }
    text
}

/// Passes the patch to a program that runs in a copy of the folder.
fn taken_by(bench: &Bench, program: &str, args: &[&str]) -> Tree {
    let copy = bench.root.path().join(format!("copy-{program}"));
    let copied = Command::new("cp").arg("-a").arg(bench.folder()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut child = Command::new(program)
        .args(args)
        .current_dir(&copy)
        .env("GIT_CEILING_DIRECTORIES", bench.root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&patch(bench)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&patch(bench))
    );
    tree(&copy)
}

fn without_directories(mut tree: Tree) -> Tree {
    tree.retain(|_, (kind, ..)| *kind != Kind::Directory);
    tree
}

fn lines(from: u32, to: u32, changed: &[u32]) -> String {
    (from..=to)
        .map(|n| if changed.contains(&n) { format!("changed {n}\n") } else { format!("line {n}\n") })
        .collect()
}

#[test]
fn git_and_patch_take_what_we_write() {
    let mut bench = Bench::with(&[
        ("long", &lines(1, 60, &[])),
        ("no-newline", "a\nb"),
        ("to-newline", "a\nb"),
        ("emptied", "x\n"),
        ("filled", ""),
        ("deleted", "1\n2\n"),
        ("deleted-empty", ""),
        ("mode", "m\n"),
        ("mode-and-more", "m\n"),
        ("old-name", "to be moved\n"),
        ("sub/na me", "spaces\n"),
        ("marked", "as it was\n"),
    ]);
    bench.copied("marked", "as it was\n");
    let marked = fs::File::open(bench.upper().join("marked")).unwrap();
    sys::fsetxattr(marked, "user.mine", b"1", sys::XattrFlags::empty()).unwrap();
    bench.copied("long", &lines(0, 61, &[3, 9, 10, 30, 60]));
    bench.copied("no-newline", "a\nc");
    bench.copied("to-newline", "a\nb\n");
    bench.copied("emptied", "");
    bench.copied("filled", "now\n");
    bench.whiteout("deleted");
    bench.whiteout("deleted-empty");
    bench.copied("mode", "m\n");
    mode(&bench.upper().join("mode"), 0o755);
    bench.copied("mode-and-more", "n\n");
    mode(&bench.upper().join("mode-and-more"), 0o755);
    bench.whiteout("old-name");
    bench.put("new/name", "to be moved\n");
    bench.copied("sub/na me", "other\n");
    bench.put("new/empty", "");
    bench.put("new/latin", "");
    fs::write(bench.upper().join("new/latin"), b"caf\xe9\n").unwrap();
    bench.put("new/tab\there \"q\"", "x\n");
    link("../somewhere", &bench.upper().join("new/link"));
    let by_git = without_directories(taken_by(&bench, "git", &["apply", "-p1"]));
    let text = String::from_utf8_lossy(&patch(&bench)).into_owned();
    assert!(
        text.contains("diff --git \"a/new/tab\\there \\\"q\\\"\" \"b/new/tab\\there \\\"q\\\"\"\n"),
        "{text}"
    );
    let by_patch = Command::new("patch")
        .arg("--version")
        .output()
        .is_ok()
        .then(|| without_directories(taken_by(&bench, "patch", &["-p1", "--no-backup-if-mismatch"])));
    bench.apply(&[]).unwrap();
    let ours = without_directories(bench.tree());
    assert_eq!(by_git, ours);
    if let Some(by_patch) = by_patch {
        assert_eq!(by_patch, ours);
    }
}

#[test]
fn links_and_what_became_one() {
    let mut bench = Bench::with(&[("file", "f\n"), ("dir/x", "x\n")]);
    link("old", &bench.folder().join("link"));
    let old = bench.layer.take().unwrap();
    old.discard().unwrap();
    bench = bench.layered();
    link("new", &bench.upper().join("link"));
    link("dir", &bench.upper().join("file"));
    bench.put("dir", "now a file\n");
    let by_git = without_directories(taken_by(&bench, "git", &["apply", "-p1"]));
    bench.apply(&[]).unwrap();
    assert_eq!(by_git, without_directories(bench.tree()));
}

#[test]
fn what_becomes_a_directory_goes_with_its_content() {
    let mut bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    bench.host("file", "1\n2\n");
    link("old", &bench.folder().join("link"));
    bench = bench.layered();
    bench.opaque("file");
    bench.put("file/inside", "i\n");
    bench.opaque("link");
    bench.put("link/inside", "i\n");
    let changes = bench.layer().changes().unwrap();
    let lines = Patch::of(bench.layer()).unwrap().lines(&changes.list[0]).unwrap().unwrap();
    assert_eq!((lines.added, lines.removed), (0, 2));
    let by_git = without_directories(taken_by(&bench, "git", &["apply", "-p1"]));
    bench.apply(&[]).unwrap();
    assert_eq!(by_git, without_directories(bench.tree()));
}

#[test]
fn what_is_no_text_does_not_spoil_the_rest() {
    let bench = Bench::with(&[("b", "zero\0"), ("gone", "zero\0"), ("text", "t\n")]);
    bench.copied("b", "other\0");
    bench.whiteout("gone");
    bench.put("new", "new\0");
    bench.copied("text", "u\n");
    let only_text = ["apply", "-p1", "--exclude=b", "--exclude=gone", "--exclude=new"];
    let by_git = taken_by(&bench, "git", &only_text);
    assert_eq!((content(&by_git, "text"), content(&by_git, "b")), (Some("u\n"), Some("zero\0")));
}

#[test]
fn what_is_no_text_is_named_only() {
    let bench = Bench::with(&[("b", "text\n")]);
    bench.copied("b", "zero\0byte");
    bench.put("private", "p\n");
    let text = String::from_utf8(patch(&bench)).unwrap();
    assert!(
        text.contains("diff --git a/b b/b\nindex 0000000..0000000\nBinary files a/b and b/b differ\n"),
        "{text}"
    );
    let patch = Patch::of(bench.layer()).unwrap();
    let changes = bench.layer().changes().unwrap();
    let lines: Vec<_> = changes.list.iter().map(|change| patch.lines(change).unwrap()).collect();
    assert_eq!(lines[0], None);
    assert_eq!(lines[1].map(|lines| (lines.added, lines.removed)), Some((1, 0)));
}

//! Applying: everything, a part, and conflicts.

use super::*;
use crate::{Conflict, ConflictWhy, LeftOutWhy};
use std::os::unix::fs::MetadataExt;

fn conflicts(result: Result<Applied, LayerError>) -> Vec<(String, ConflictWhy)> {
    match result {
        Err(LayerError::Conflicts(list)) => {
            list.into_iter().map(|Conflict { path, why }| (path.to_string(), why)).collect()
        }
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn all_of_a_layer_becomes_the_folder() {
    let mut bench = Bench::with(&[
        ("modified", "old"),
        ("deleted", "d"),
        ("gone/x/y", "y"),
        ("file-to-dir", "f"),
        ("dir-to-file/x/y", "x"),
        ("opaque/hidden", "h"),
        ("opaque/sub/hidden", "h"),
        ("untouched", "u"),
        ("readonly/x", "x"),
    ]);
    bench.copied("modified", "new");
    mode(&bench.upper().join("modified"), 0o640);
    bench.whiteout("deleted");
    bench.whiteout("gone");
    bench.put("file-to-dir/inside/deep", "i");
    bench.put("dir-to-file", "f");
    bench.opaque("opaque");
    bench.put("opaque/sub/new", "n");
    bench.put("new/closed/file", "c");
    mode(&bench.upper().join("new/closed"), 0o555);
    link("nowhere", &bench.upper().join("new/link"));
    bench.put("readonly/x", "changed");
    mode(&bench.upper().join("readonly"), 0o555);
    let file = File::options().write(true).open(bench.upper().join("modified")).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    file.set_modified(time).unwrap();
    sys::fsetxattr(&file, "user.mine", b"1", sys::XattrFlags::empty()).unwrap();
    let applied = bench.apply(&[]).unwrap();
    assert!(!applied.kept);
    let tree = bench.tree();
    let names: Vec<&str> = tree.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(
        names,
        [
            "dir-to-file",
            "file-to-dir",
            "file-to-dir/inside",
            "file-to-dir/inside/deep",
            "modified",
            "new",
            "new/closed",
            "new/closed/file",
            "new/link",
            "opaque",
            "opaque/sub",
            "opaque/sub/new",
            "readonly",
            "readonly/x",
            "untouched",
        ]
    );
    assert_eq!((content(&tree, "modified"), tree[&b"modified"[..]].1), (Some("new"), 0o640));
    assert_eq!((tree[&b"new/closed"[..]].1, tree[&b"readonly"[..]].1), (0o555, 0o555));
    let modified = File::open(bench.folder().join("modified")).unwrap();
    assert_eq!(modified.metadata().unwrap().modified().unwrap(), time);
    assert_eq!(xattrs::own(&modified).unwrap(), [(b"user.mine".to_vec(), b"1".to_vec())].into());
    assert!(bench.layers().list().unwrap().is_empty(), "the layer is gone");
    for closed in ["new/closed", "readonly"] {
        mode(&bench.folder().join(closed), 0o755);
    }
}

#[test]
fn applied_files_belong_to_the_owner_of_the_folder() {
    if !belljar_sys::rustix::process::geteuid().is_root() {
        return;
    }
    let mut bench = Bench::with(&[("a", "a")]);
    std::os::unix::fs::chown(bench.folder(), Some(4321), Some(1234)).unwrap();
    bench.put("a", "changed");
    bench.put("new/b", "b");
    link("x", &bench.upper().join("l"));
    bench.apply(&[]).unwrap();
    for name in ["a", "new", "new/b", "l"] {
        let found = fs::symlink_metadata(bench.folder().join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (4321, 1234), "{name}");
    }
}

#[test]
fn a_part_leaves_the_rest() {
    let mut bench = Bench::with(&[("a", "a"), ("b", "b"), ("d/x", "x"), ("d/y", "y"), ("moved", "content")]);
    bench.copied("a", "A");
    bench.copied("b", "B");
    bench.whiteout("d");
    bench.put("n/1", "1");
    bench.put("n/2", "2");
    bench.whiteout("moved");
    bench.put("there", "content");
    let applied = bench.apply(&["a", "d/x", "n/1", "there"]).unwrap();
    assert!(applied.kept);
    let tree = bench.tree();
    let names: Vec<&str> = tree.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(names, ["a", "b", "d", "d/y", "n", "n/1", "there"]);
    assert_eq!((content(&tree, "a"), content(&tree, "b")), (Some("A"), Some("b")));
    let layer = bench.layers().of(&bench.folder()).unwrap().remove(0);
    let rest: Vec<String> =
        layer.changes().unwrap().list.iter().map(|change| change.path.to_string()).collect();
    assert_eq!(rest, ["b", "d", "d/y", "n/2"]);
    // An applied file may change again without a conflict.
    bench.host("a", "again");
    assert!(!bench.apply(&[]).unwrap().kept);
    assert_eq!(content(&bench.tree(), "a"), Some("again"));
    assert_eq!(content(&bench.tree(), "n/2"), Some("2"));
    assert!(!bench.folder().join("d").exists());
}

#[test]
fn a_part_of_an_opaque_directory_does_not_hide_itself() {
    let mut bench = Bench::with(&[("d/x", "x"), ("d/sub/y", "y"), ("d/sub/z", "z"), ("f", "f")]);
    bench.opaque("d");
    bench.put("d/new", "n");
    bench.put("d/sub/z", "Z");
    bench.opaque("f");
    bench.put("f/1", "1");
    bench.put("f/2", "2");
    assert!(bench.apply(&["d/new", "f/1", "d/sub/y"]).unwrap().kept);
    let tree = bench.tree();
    let names: Vec<&str> = tree.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(names, ["d", "d/new", "d/sub", "d/sub/z", "d/x", "f", "f/1"]);
    assert!(!bench.apply(&[]).unwrap().kept);
    let tree = bench.tree();
    let names: Vec<&str> = tree.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(names, ["d", "d/new", "d/sub", "d/sub/z", "f", "f/1", "f/2"]);
    assert_eq!(content(&tree, "d/sub/z"), Some("Z"));
}

#[test]
fn a_sandbox_may_continue_in_a_layer_that_was_applied_in_part() {
    let mut bench = Bench::with(&[("a", "1"), ("b", "1"), ("c", "1")]);
    bench.copied("a", "2");
    bench.copied("b", "2");
    bench.copied("c", "2");
    bench.put("new", "2");
    bench.apply(&["a", "b", "new"]).unwrap();
    let layer = bench.layers().of(&bench.folder()).unwrap().remove(0);
    bench.layer = Some(layer.hold().unwrap());
    bench.copied("a", "3");
    bench.copied("b", "3");
    bench.copied("new", "3");
    bench.host("b", "mine");
    assert_eq!(conflicts(bench.apply(&[])), [("b".to_string(), ConflictWhy::Changed)]);
    bench.apply(&["a", "new"]).unwrap();
    assert_eq!((content(&bench.tree(), "a"), content(&bench.tree(), "new")), (Some("3"), Some("3")));
}

#[test]
fn a_part_that_is_not_there_is_an_error() {
    let mut bench = Bench::with(&[("a", "a")]);
    bench.put("a", "b");
    assert!(matches!(bench.apply(&["nowhere"]), Err(LayerError::NoSuchChange { .. })));
    assert_eq!(content(&bench.tree(), "a"), Some("a"));
}

#[test]
fn every_conflict_is_said_and_nothing_is_changed() {
    let mut bench = Bench::with(&[
        ("changed", "1"),
        ("deleted-here", "1"),
        ("deleted-there", "1"),
        ("tree/old", "1"),
        ("fine", "1"),
        ("equal", "1"),
        ("gone-dir/x", "1"),
    ]);
    bench.copied("changed", "2");
    bench.whiteout("deleted-here");
    bench.copied("deleted-there", "2");
    bench.whiteout("tree");
    bench.copied("fine", "2");
    bench.copied("equal", "2");
    bench.put("both", "theirs");
    bench.copied("gone-dir/x", "2");
    bench.mark("gone-dir", Mark::Origin, b"");
    bench.host("changed", "3");
    bench.host("deleted-here", "3");
    fs::remove_file(bench.folder().join("deleted-there")).unwrap();
    bench.host("tree/new/file", "3");
    bench.host("equal", "2");
    bench.host("both", "ours");
    fs::remove_dir_all(bench.folder().join("gone-dir")).unwrap();
    let before = bench.tree();
    let found = conflicts(bench.apply(&[]));
    let expected: Vec<(String, ConflictWhy)> = [
        ("both", ConflictWhy::Changed),
        ("changed", ConflictWhy::Changed),
        ("deleted-here", ConflictWhy::Changed),
        ("deleted-there", ConflictWhy::Gone),
        ("gone-dir", ConflictWhy::Gone),
        ("tree/new", ConflictWhy::Changed),
        ("tree/new/file", ConflictWhy::Changed),
    ]
    .map(|(path, why)| (path.to_string(), why))
    .into();
    assert_eq!(found, expected);
    assert_eq!(bench.tree(), before);
    // The rest can be applied.
    bench.apply(&["fine"]).unwrap();
    assert_eq!(content(&bench.tree(), "fine"), Some("2"));
}

#[test]
fn a_copy_of_what_is_gone_is_a_conflict_and_a_moved_one_is_not() {
    let mut bench = Bench::with(&[("a", "a"), ("b", "b"), ("c", "c")]);
    // Moved and changed; moved away from under a new file; another name of the same file.
    bench.whiteout("a");
    bench.copied("a2", "a, changed");
    bench.copied("b2", "b");
    bench.put("b", "new b");
    bench.copied("c", "c");
    fs::hard_link(bench.upper().join("c"), bench.upper().join("c2")).unwrap();
    bench.apply(&[]).unwrap();

    let mut bench = Bench::with(&[("a", "a"), ("b", "b")]);
    bench.copied("a", "A");
    bench.copied("b", "B");
    fs::remove_file(bench.folder().join("a")).unwrap();
    assert_eq!(conflicts(bench.apply(&[])), [("a".to_string(), ConflictWhy::Gone)]);
    bench.apply(&["b"]).unwrap();
}

#[test]
fn a_deletion_in_the_sandbox_does_not_excuse_one_on_the_host() {
    let mut bench = Bench::with(&[("keep", "1"), ("other", "2"), ("d/keep", "3"), ("moved", "4")]);
    bench.copied("keep", "1, changed");
    bench.whiteout("other");
    bench.copied("d/keep", "3, changed");
    bench.whiteout("moved");
    bench.copied("elsewhere", "4");
    fs::remove_file(bench.folder().join("keep")).unwrap();
    assert_eq!(conflicts(bench.apply(&[])), [("keep".to_string(), ConflictWhy::Gone)]);
    fs::remove_file(bench.folder().join("d/keep")).unwrap();
    let both = ["d/keep", "keep"].map(|path| (path.to_string(), ConflictWhy::Gone));
    assert_eq!(conflicts(bench.apply(&[])), both);
    // A file that was moved unchanged is not one of them.
    bench.apply(&["other", "elsewhere"]).unwrap();
    let tree = bench.tree();
    assert_eq!((content(&tree, "keep"), content(&tree, "elsewhere")), (None, Some("4")));
}

#[test]
fn what_we_deleted_ourselves_is_not_held_against_a_moved_file() {
    let mut bench = Bench::with(&[("d/a", "a"), ("d/b", "b")]);
    bench.whiteout("d/a");
    bench.whiteout("d/b");
    bench.copied("d/c", "b, changed");
    assert!(bench.apply(&["d/a"]).unwrap().kept);
    assert!(!bench.apply(&[]).unwrap().kept);
    let tree = bench.tree();
    assert_eq!((tree.len(), content(&tree, "d/c")), (2, Some("b, changed")));
}

#[test]
fn what_has_the_name_of_the_staging_place_is_not_removed() {
    let mut bench = Bench::with(&[("a", "a")]);
    bench.copied("a", "b");
    let name = format!(".belljar-apply-{}", bench.layer().id);
    bench.host(Path::new(&name).join("precious"), "mine");
    assert!(matches!(bench.apply(&[]), Err(LayerError::Apply { .. })));
    assert!(bench.layers().sweep().unwrap().is_empty());
    assert_eq!(content(&bench.tree(), &format!("{name}/precious")), Some("mine"));
    assert_eq!(content(&bench.tree(), "a"), Some("a"));
    fs::rename(bench.folder().join(&name), bench.folder().join("aside")).unwrap();
    bench.apply(&[]).unwrap();
    assert_eq!(content(&bench.tree(), "a"), Some("b"));
}

#[test]
fn a_link_in_the_folder_is_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    write(&outside.path().join("passwd"), "root");
    let mut bench = Bench::with(&[("d/x", "x")]);
    bench.copied("d/passwd", "evil");
    // Meanwhile, on the host.
    fs::remove_dir_all(bench.folder().join("d")).unwrap();
    symlink(outside.path(), bench.folder().join("d")).unwrap();
    assert_eq!(conflicts(bench.apply(&[])), [("d".to_string(), ConflictWhy::Changed)]);
    assert_eq!(fs::read_to_string(outside.path().join("passwd")).unwrap(), "root");

    // It was a link before, and the sandbox replaced it by a directory: the link is removed, its target stays.
    let mut bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    fs::create_dir(bench.folder()).unwrap();
    symlink(outside.path(), bench.folder().join("d")).unwrap();
    bench = bench.layered();
    bench.opaque("d");
    bench.put("d/passwd", "evil");
    bench.apply(&[]).unwrap();
    assert!(bench.folder().join("d").symlink_metadata().unwrap().is_dir());
    assert_eq!(fs::read_to_string(outside.path().join("passwd")).unwrap(), "root");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn links_of_the_layer_are_copied_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    write(&outside.path().join("secret"), "secret");
    let mut bench = Bench::with(&[("a", "a"), ("d/x", "x")]);
    symlink(outside.path().join("secret"), bench.upper().join("a")).unwrap();
    symlink(outside.path(), bench.upper().join("d")).unwrap();
    bench.apply(&[]).unwrap();
    let tree = bench.tree();
    assert_eq!((tree[&b"a"[..]].0, tree[&b"d"[..]].0), (Kind::Link, Kind::Link));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn what_is_protected_is_never_applied() {
    let mut bench = Bench::with(&[(".git/config", "[core]"), (".git/HEAD", "ref")]);
    bench.put(".git/config", "evil");
    bench.put(".git/hooks/post-checkout", "evil");
    bench.put(".git/modules/x/config", "evil");
    bench.put(".belljar/config.toml", "evil");
    bench.put("ok", "fine");
    mode(&bench.upper().join("ok"), 0o6755);
    sys::mknodat(CWD, bench.upper().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let applied = bench.apply(&[]).unwrap();
    assert!(applied.left_out.iter().any(|out| out.why == LeftOutWhy::SetId));
    let tree = bench.tree();
    let names: Vec<&str> = tree.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(names, [".git", ".git/HEAD", ".git/config", "ok"]);
    assert_eq!(content(&tree, ".git/config"), Some("[core]"));
    assert_eq!(tree[&b"ok"[..]].1, 0o755, "without its set-id bits");
}

#[test]
fn policy_may_protect_more() {
    let bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    bench.host(".github/workflows/ci.yml", "on: push");
    let protected = [".github/workflows".parse().unwrap()];
    let held = bench.layers().create(&bench.folder(), &protected).unwrap();
    write(&held.upper.join(".github/workflows/ci.yml"), "evil");
    write(&held.upper.join(".github/other"), "fine");
    // Found again by another process.
    let layer = held.release();
    layer.hold().unwrap().apply(&Selection::All).unwrap();
    assert_eq!(content(&bench.tree(), ".github/workflows/ci.yml"), Some("on: push"));
    assert_eq!(content(&bench.tree(), ".github/other"), Some("fine"));
}

#[test]
fn any_name_that_a_file_can_have() {
    let names: [&[u8]; 7] =
        [b"new\nline", b"..x", b"...", b"\xff\xfe", b" ", b"-rf", b".belljar-apply-0000000000000000"];
    let longest = vec![b'x'; 255];
    let mut bench = Bench::with(&[]);
    for name in names.into_iter().chain([longest.as_slice()]) {
        bench.put(OsStr::from_bytes(name), "content");
    }
    bench.apply(&[]).unwrap();
    assert_eq!(bench.tree().len(), 8);
    assert!(bench.tree().values().all(|(_, _, content)| content == b"content"));
}

#[test]
fn a_tree_deeper_than_any_path() {
    let mut bench = Bench::with(&[]);
    // Longer than 4096 bytes.
    super::storing::deep(&bench.upper(), 700);
    let held = bench.layer.take().unwrap();
    let applied = held.apply(&Selection::All).unwrap();
    assert_eq!(applied.paths.len(), 701);
    let again = bench.layers().create(&bench.folder(), &[]).unwrap();
    sys::mknodat(CWD, again.upper.join("deeper"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    assert_eq!(again.apply(&Selection::All).unwrap().paths.len(), 701);
    assert!(bench.tree().is_empty());
}

#[test]
fn thousands_of_files_at_once() {
    let mut bench = Bench::with(&[]);
    for number in 0..5000 {
        bench.put(format!("d{}/f{number}", number % 50), "x");
    }
    assert_eq!(bench.apply(&[]).unwrap().paths.len(), 5050);
    assert_eq!(bench.tree().len(), 5050);
}

#[test]
fn a_file_of_holes_stays_one() {
    let mut bench = Bench::with(&[]);
    let file = File::create(bench.upper().join("sparse")).unwrap();
    file.set_len(1 << 32).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"middle", 1 << 31).unwrap();
    bench.apply(&[]).unwrap();
    let applied = fs::metadata(bench.folder().join("sparse")).unwrap();
    assert_eq!(applied.len(), 1 << 32);
    assert!(applied.blocks() * 512 < 1 << 20, "{} blocks", applied.blocks());
}

#[test]
fn a_layer_in_use_is_not_applied() {
    let bench = Bench::with(&[("a", "a")]);
    bench.put("a", "b");
    let other = bench.layers().of(&bench.folder()).unwrap().remove(0);
    assert!(matches!(other.hold(), Err(LayerError::InUse(_))));
}

/// Checks that a replaced folder is neither shown nor written to.
fn is_refused(bench: &mut Bench) {
    let changed = |error| matches!(error, LayerError::FolderChanged { .. });
    assert!(bench.layer().changes().is_err_and(changed));
    assert!(bench.layer().summary().is_err_and(changed));
    assert!(crate::Patch::of(bench.layer()).is_err_and(changed));
    assert!(bench.apply(&[]).is_err_and(changed));
    let held = bench.layers().of(&bench.folder()).unwrap()[0].hold().unwrap();
    assert!(held.finish(Commits::None).is_err_and(changed));
    assert_eq!(bench.layers().list().unwrap().len(), 1, "its files are not lost");
}

#[test]
fn a_link_in_the_place_of_the_folder_is_not_followed() {
    let mut bench = Bench::with(&[("config", "mine")]);
    bench.copied("config", "evil");
    let elsewhere = bench.root.path().join("elsewhere");
    write(&elsewhere.join("config"), "precious");
    fs::rename(bench.folder(), bench.root.path().join("aside")).unwrap();
    symlink(&elsewhere, bench.folder()).unwrap();
    is_refused(&mut bench);
    assert_eq!(fs::read_to_string(elsewhere.join("config")).unwrap(), "precious");
}

#[test]
fn a_link_around_the_folder_is_not_followed() {
    let mut bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    let (around, folder) = (bench.root.path().join("around"), bench.root.path().join("around/folder"));
    write(&folder.join("config"), "mine");
    bench.layer = Some(bench.layers().create(&folder, &[]).unwrap());
    bench.copied("config", "evil");
    fs::rename(&around, bench.root.path().join("aside")).unwrap();
    // Even with the right target: the link can be changed at any moment.
    symlink("aside", &around).unwrap();
    assert!(matches!(bench.apply(&[]), Err(LayerError::FolderChanged { .. })));
    assert_eq!(fs::read_to_string(folder.join("config")).unwrap(), "mine");
}

#[test]
fn another_directory_in_the_place_of_the_folder_is_not_written_to() {
    let mut bench = Bench::with(&[("config", "mine")]);
    let other = bench.root.path().join("other");
    write(&other.join("config"), "precious");
    bench.copied("config", "evil");
    fs::rename(bench.folder(), bench.root.path().join("aside")).unwrap();
    fs::rename(&other, bench.folder()).unwrap();
    is_refused(&mut bench);
    assert_eq!(content(&bench.tree(), "config"), Some("precious"));
    // With the right folder back, it continues.
    fs::rename(bench.folder(), &other).unwrap();
    fs::rename(bench.root.path().join("aside"), bench.folder()).unwrap();
    bench.apply(&[]).unwrap();
    assert_eq!(content(&bench.tree(), "config"), Some("evil"));
}

/// The layer's change, the host's change meanwhile, and the conflicts that then prevent applying it.
type Meanwhile = (fn(&Bench), fn(&Path), &'static [(&'static str, ConflictWhy)]);

/// Files that are older than the layer come to a place that it changes, in a directory that was moved. Their own times do not show
/// that.
#[test]
fn what_comes_with_a_moved_directory_is_not_lost() {
    let cases: [Meanwhile; 4] = [
        (
            |bench| bench.whiteout("lib"),
            |folder| {
                fs::remove_dir_all(folder.join("lib")).unwrap();
                fs::rename(folder.join("other"), folder.join("lib")).unwrap();
            },
            &[
                ("lib", ConflictWhy::Changed),
                ("lib/f", ConflictWhy::Changed),
                ("lib/more", ConflictWhy::Changed),
            ],
        ),
        (
            |bench| bench.copied("lib/f", "sandbox"),
            |folder| {
                fs::rename(folder.join("lib"), folder.join("lib.old")).unwrap();
                fs::rename(folder.join("other"), folder.join("lib")).unwrap();
            },
            &[("lib/f", ConflictWhy::Changed)],
        ),
        (
            |bench| bench.put("new/f", "sandbox"),
            |folder| fs::rename(folder.join("other"), folder.join("new")).unwrap(),
            &[("new/f", ConflictWhy::Changed)],
        ),
        (
            |bench| bench.put("new/sub/f", "sandbox"),
            |folder| fs::rename(folder.join("deep"), folder.join("new")).unwrap(),
            &[("new/sub/f", ConflictWhy::Changed)],
        ),
    ];
    for (index, (inside, outside, expected)) in cases.into_iter().enumerate() {
        for after_the_run in [false, true] {
            let files =
                [("lib/f", "host"), ("other/f", "precious"), ("other/more", "m"), ("deep/sub/f", "precious")];
            let mut bench = Bench::with(&files);
            inside(&bench);
            if after_the_run {
                bench.finish();
            }
            outside(&bench.folder());
            let before = bench.tree();
            let expected: Vec<(String, ConflictWhy)> =
                expected.iter().map(|(path, why)| (path.to_string(), *why)).collect();
            assert_eq!(conflicts(bench.apply(&[])), expected, "case {index}, {after_the_run}");
            assert_eq!(bench.tree(), before, "case {index}, {after_the_run}");
        }
    }
}

/// However the file was written inside: overlayfs marks only files that it copied itself.
#[test]
fn what_was_deleted_after_the_run_stays_so() {
    let ways: [fn(&Bench); 3] = [
        |bench| bench.put("f", "renamed over it"),
        |bench| {
            bench.copied("f", "with two names");
            fs::hard_link(bench.upper().join("f"), bench.upper().join("f2")).unwrap();
        },
        |bench| link("b", &bench.upper().join("f")),
    ];
    for (index, inside) in ways.into_iter().enumerate() {
        let mut bench = Bench::with(&[("f", "old"), ("h", "old")]);
        inside(&bench);
        bench.copied("h", "new");
        bench.finish();
        bench.apply(&["h"]).unwrap();
        fs::remove_file(bench.folder().join("f")).unwrap();
        assert_eq!(conflicts(bench.apply(&[])), [("f".to_string(), ConflictWhy::Gone)], "case {index}");
        assert!(!bench.folder().join("f").exists(), "case {index}");
    }
}

#[test]
fn a_directory_that_was_closed_meanwhile_stays_closed() {
    for after_the_run in [false, true] {
        let mut bench = Bench::with(&[("dir/f", "old")]);
        bench.copied("dir/f", "new");
        bench.mark("dir", Mark::Origin, b"");
        if after_the_run {
            bench.finish();
        }
        mode(&bench.folder().join("dir"), 0o700);
        let all = conflicts(bench.apply(&[]));
        assert!(all.contains(&("dir".to_string(), ConflictWhy::Changed)), "{all:?}");
        assert_eq!(bench.tree()[&b"dir"[..]].1, 0o700);
    }
}

#[test]
fn what_was_found_does_not_stand_against_our_own_applies() {
    let mut bench = Bench::with(&[("old/f", "old"), ("old/g", "old"), ("gone", "g")]);
    bench.put("new/deep/x", "x");
    bench.put("new/deep/y", "y");
    bench.copied("old/f", "new");
    bench.copied("old/g", "new");
    bench.whiteout("gone");
    bench.finish();
    for part in ["new/deep/x", "old/f", "gone"] {
        bench.apply(&[part]).unwrap();
    }
    // A run that continues in it sees the applied files, and changes them again.
    let held = bench.layers().of(&bench.folder()).unwrap()[0].hold().unwrap().resume().unwrap();
    bench.layer = Some(held);
    bench.put("new/deep/x", "x again");
    bench.copied("old/f", "newer");
    bench.finish();
    bench.apply(&[]).unwrap();
    let tree = bench.tree();
    assert_eq!(content(&tree, "new/deep/x"), Some("x again"));
    assert_eq!(content(&tree, "new/deep/y"), Some("y"));
    assert_eq!((content(&tree, "old/f"), content(&tree, "old/g")), (Some("newer"), Some("new")));
}

#[test]
fn who_may_use_a_file_is_kept() {
    use crate::xattrs::{AccessList, access_list, make_access_list};
    // acl(5): its owner may read and write, user 1234 may read, its group nothing, regardless of the mode's group bits.
    let mut list = vec![2, 0, 0, 0];
    for (tag, rights, id) in
        [(1u16, 6u16, u32::MAX), (2, 4, 1234), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    let files = [("private", "old"), ("shared/x", "x"), ("becomes", "file"), ("closed/key", "k")];
    files.iter().for_each(|(path, content)| bench.host(path, content));
    let open = |path: &str| File::open(bench.folder().join(path)).unwrap();
    make_access_list(open("private"), AccessList::Own, Some(&list)).unwrap();
    make_access_list(open("shared"), AccessList::Default, Some(&list)).unwrap();
    // A new file at the top gets a list; one further down does not.
    make_access_list(open("."), AccessList::Default, Some(&list)).unwrap();
    make_access_list(open("closed"), AccessList::Default, None).unwrap();
    make_access_list(open("closed/key"), AccessList::Own, None).unwrap();
    if access_list(open("private"), AccessList::Own).unwrap().is_none() {
        // This filesystem has no access lists.
        return;
    }
    let mut bench = bench.layered();
    bench.copied("private", "new");
    mode(&bench.upper().join("private"), 0o640);
    bench.put("shared/new/deep/file", "f");
    mode(&bench.upper().join("shared/new/deep/file"), 0o640);
    bench.put("becomes/a", "a");
    bench.copied("closed/key", "new");
    bench.put("closed/new/file", "f");
    bench.apply(&[]).unwrap();
    assert_eq!(fs::read_to_string(bench.folder().join("private")).unwrap(), "new");
    let open = |path: &str| File::open(bench.folder().join(path)).unwrap();
    let own = |path: &str| access_list(open(path), AccessList::Own).unwrap();
    assert_eq!(own("private").as_ref(), Some(&list));
    assert_eq!(own("shared/new/deep/file").as_ref(), Some(&list));
    assert_eq!(access_list(open("shared/new/deep"), AccessList::Default).unwrap().as_ref(), Some(&list));
    assert_eq!(own("becomes/a").as_ref().map(Vec::len), Some(list.len()), "as in its place");
    for path in ["closed/key", "closed/new", "closed/new/file"] {
        assert_eq!(own(path), None, "{path}");
    }
}

//! The changes that a layer would make to its folder.

use super::*;
use crate::{LeftOutWhy, walk};
use belljar_sys::rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::os::unix::net::UnixListener;
use std::process::Command;

#[test]
fn every_kind_of_change_is_seen() {
    let bench = Bench::with(&[
        ("same", "same"),
        ("modified", "old"),
        ("mode", "m"),
        ("deleted", "d"),
        ("marked", "m"),
        ("gone/x", "x"),
        ("gone/y/z", "z"),
        ("opaque/hidden", "h"),
        ("opaque/kept", "k"),
        ("file-to-dir", "f"),
        ("dir-to-file/x", "x"),
        ("moved-here", "moved content"),
        ("touched/inside", "i"),
    ]);
    bench.copied("same", "same");
    bench.copied("modified", "new");
    bench.copied("mode", "m");
    mode(&bench.upper().join("mode"), 0o755);
    bench.whiteout("deleted");
    bench.put("marked", "");
    bench.mark("marked", Mark::Whiteout, b"y");
    bench.whiteout("gone");
    bench.opaque("opaque");
    bench.put("opaque/kept", "k");
    bench.put("opaque/new", "n");
    bench.put("file-to-dir/inside", "i");
    bench.put("dir-to-file", "f");
    bench.whiteout("moved-here");
    bench.put("moved/there", "moved content");
    bench.copied("touched/inside", "i");
    bench.put("added", "a");
    link("a", &bench.upper().join("link"));
    assert_eq!(
        bench.summary(),
        [
            "Added added",
            "Deleted deleted",
            "TypeChanged dir-to-file",
            "Deleted dir-to-file/x",
            "TypeChanged file-to-dir",
            "Added file-to-dir/inside",
            "Deleted gone",
            "Deleted gone/x",
            "Deleted gone/y",
            "Deleted gone/y/z",
            "Added link",
            "Deleted marked",
            "ModeChanged mode",
            "Modified modified",
            "Added moved",
            "Renamed moved-here moved/there",
            "Deleted opaque/hidden",
            "Added opaque/new",
        ]
    );
}

#[test]
fn same_size_and_time_do_not_hide_a_change() {
    let bench = Bench::with(&[("a", "good")]);
    bench.copied("a", "evil");
    let time = fs::metadata(bench.folder().join("a")).unwrap().modified().unwrap();
    File::options().write(true).open(bench.upper().join("a")).unwrap().set_modified(time).unwrap();
    assert_eq!(bench.summary(), ["Modified a"]);
}

#[test]
fn attributes_count_and_overlayfs_own_do_not() {
    let bench = Bench::with(&[("a", "a"), ("b", "b"), ("d/x", "x")]);
    for path in ["a", "b"] {
        bench.copied(path, path);
    }
    bench.copied("d/x", "x");
    bench.mark("d", Mark::Origin, b"");
    let file = File::open(bench.upper().join("a")).unwrap();
    sys::fsetxattr(file, "user.mine", b"1", sys::XattrFlags::empty()).unwrap();
    assert_eq!(bench.summary(), ["ModeChanged a"]);
}

#[test]
fn what_no_one_applies_is_said() {
    let bench = Bench::with(&[
        (".git/config", "[core]"),
        (".git/hooks/pre-commit", "old"),
        (".git/HEAD", "ref: refs/heads/main"),
        ("s", "s"),
    ]);
    bench.put(".git/config", "[core]\n\tfsmonitor = evil");
    bench.put(".git/hooks/post-checkout", "evil");
    bench.whiteout(".git/hooks/pre-commit");
    bench.put(".git/HEAD", "ref: refs/heads/another");
    bench.put(".husky/pre-push", "evil");
    bench.put("vendor/x/.git/config", "evil");
    link("../elsewhere", &bench.upper().join(".git/info"));
    bench.put("s", "other");
    mode(&bench.upper().join("s"), 0o4755);
    let _socket = UnixListener::bind(bench.upper().join("sock")).unwrap();
    sys::mknodat(CWD, bench.upper().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(
        bench.summary(),
        [
            "Modified s",
            "Added vendor",
            "Added vendor/x",
            "- Repository .git",
            "- Protected .husky/pre-push",
            "- Fifo pipe",
            "- SetId s",
            "- Socket sock",
            "- Repository vendor/x/.git",
        ]
    );
}

#[test]
fn a_repository_is_neither_made_nor_removed() {
    let without = Bench::with(&[("a", "a")]);
    without.put(".git/HEAD", "ref: refs/heads/evil");
    assert_eq!(without.summary(), ["- Repository .git"]);

    let with =
        Bench::with(&[(".git/config", "c"), (".git/HEAD", "h"), ("sub/.git/config", "c"), ("sub/x", "x")]);
    with.whiteout(".git");
    with.whiteout("sub");
    assert_eq!(with.summary(), ["Deleted sub/x", "- Protected .git", "- Protected sub/.git"]);

    let link_to = Bench::with(&[(".git/config", "c")]);
    link("../evil", &link_to.upper().join(".git"));
    assert_eq!(link_to.summary(), ["- Protected .git"]);
}

#[test]
fn no_link_is_made_in_a_repository() {
    let bench = Bench::with(&[("sub/.git/HEAD", "h")]);
    link("../evil", &bench.upper().join("sub/.git/HEAD"));
    link("evil", &bench.upper().join("sub/link"));
    bench.put("file/.git", "gitdir: ../evil");
    link("evil", &bench.upper().join("link/.GIT"));
    assert_eq!(
        bench.summary(),
        [
            "Added file",
            "Added link",
            "Added sub/link",
            "- Protected file/.git",
            "- Protected link/.GIT",
            "- Repository sub/.git"
        ]
    );
}

#[test]
fn no_directory_becomes_a_repository() {
    // At the top, and below; with a part of it existing already.
    let bench = Bench::with(&[("d/objects/x", "x"), ("d/refs/x", "x")]);
    for path in ["HEAD", "config", "hooks/post-checkout", "objects/x", "refs/x", "free/config", "free/HEAD"] {
        bench.put(path, "evil");
    }
    bench.put("d/head", "evil");
    bench.put("d/Config", "evil");
    let summary = bench.summary();
    let expected = [
        "Added free",
        "Added free/HEAD",
        "Added free/config",
        "Added objects",
        "Added objects/x",
        "Added refs",
        "Added refs/x",
        "- Repository HEAD",
        "- Repository config",
        "- Repository d/Config",
        "- Repository d/head",
        "- Repository hooks",
    ];
    assert_eq!(summary, expected);
}

#[test]
fn a_repository_without_a_git_directory_is_not_given_orders() {
    let is_one = [("b/HEAD", "h"), ("b/config", "c"), ("b/objects/x", "x"), ("b/refs/x", "x")];
    let bench = Bench::with(&is_one);
    bench.copied("b/config", "evil");
    bench.put("b/hooks/deep/post-checkout", "evil");
    bench.put("b/refs/new", "fine");
    assert_eq!(bench.summary(), ["Added b/refs/new", "- Repository b/config", "- Repository b/hooks"]);

    // A hook alone; and the missing parts.
    let bench = Bench::with(&is_one);
    bench.put("b/hooks/post-checkout", "evil");
    assert_eq!(bench.summary(), ["- Repository b/hooks"]);
    let bench = Bench::with(&[("b/HEAD", "h"), ("b/config", "evil"), ("b/objects/x", "x")]);
    bench.put("b/refs/x", "x");
    assert_eq!(bench.summary(), ["- Repository b/refs"]);

    // A deleted file may stay when only a part is applied.
    let bench = Bench::with(&[("b/objects", "x"), ("b/refs", "x")]);
    bench.whiteout("b/objects");
    bench.put("b/HEAD", "h");
    assert_eq!(bench.summary(), ["Deleted b/objects", "- Repository b/HEAD"]);

    // Where another directory has the rest.
    let bench = Bench::with(&[("common/objects/x", "x"), ("common/refs/x", "x")]);
    bench.put("b/HEAD", "h");
    bench.put("b/commondir", "../common");
    assert_eq!(bench.summary(), ["Added b", "- Repository b/HEAD", "- Repository b/commondir"]);
}

#[test]
fn a_repository_that_is_left_out_is_not_applied_and_not_lost() {
    let mut bench = Bench::with(&[]);
    for path in ["b/HEAD", "b/config", "b/objects/x", "b/refs/x"] {
        bench.put(path, "evil");
    }
    assert!(bench.apply(&[]).unwrap().kept);
    let names: Vec<Vec<u8>> = bench.tree().into_keys().collect();
    assert_eq!(names, [&b"b"[..], b"b/objects", b"b/objects/x", b"b/refs", b"b/refs/x"]);
}

#[test]
fn what_its_owner_may_not_read_is_left_out() {
    let bench = Bench::with(&[("a", "a")]);
    bench.put("closed", "c");
    mode(&bench.upper().join("closed"), 0o000);
    bench.put("dark/x", "x");
    mode(&bench.upper().join("dark"), 0o000);
    if File::open(bench.upper().join("closed")).is_ok() {
        // Root reads everything.
        assert_eq!(bench.summary(), ["Added closed", "Added dark", "Added dark/x"]);
    } else {
        assert_eq!(bench.summary(), ["- Unreadable closed", "- Unreadable dark"]);
    }
    mode(&bench.upper().join("dark"), 0o700);
}

#[test]
fn a_directory_that_its_owner_may_not_read_does_not_keep_the_rest_back() {
    let mut bench = Bench::with(&[("d/a", "a")]);
    fs::create_dir_all(bench.upper().join("x/y")).unwrap();
    bench.copied("d/a", "changed");
    bench.put("new", "n");
    let closed = [bench.upper().join("x/y"), bench.upper().join("d")];
    closed.iter().for_each(|path| mode(path, 0o000));
    let all = without_root_powers();
    let summary = bench.summary();
    let applied = bench.apply(&[]);
    set_capabilities(None, all).unwrap();
    assert_eq!(summary, ["Added new", "Added x", "- Unreadable d", "- Unreadable x/y"]);
    assert!(applied.unwrap().kept);
    let names: Vec<Vec<u8>> = bench.tree().into_keys().collect();
    assert_eq!(names, [&b"d"[..], b"d/a", b"new", b"x"]);
    assert_eq!(content(&bench.tree(), "d/a"), Some("a"));
    closed.iter().for_each(|path| mode(path, 0o700));
}

/// From here on, permissions apply to this thread, even if root runs the tests. Returns its former capabilities.
fn without_root_powers() -> CapabilitySets {
    let all = capabilities(None).unwrap();
    let effective =
        all.effective.difference(CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH));
    set_capabilities(None, CapabilitySets { effective, ..all }).unwrap();
    all
}

/// The kernel's own behaviour, not our model of it.
#[test]
fn a_layer_that_overlayfs_wrote_is_understood() {
    let mut bench = Bench::with(&[
        ("a", "a\n"),
        ("moved", "moved\n"),
        ("d/b", "b\n"),
        ("d/e/x", "x\n"),
        ("again/x", "x\n"),
        ("again/y", "y\n"),
        ("rotated", "old\n"),
    ]);
    let script =
        "mount -t overlay overlay -o lowerdir=$0,upperdir=$1,workdir=$2,userxattr $3 || exit 77; cd $3
        echo more >> a; mv moved there; rm -r d/e; chmod 700 d
        rm -r again; mkdir again; echo z > again/y
        mv rotated rotated.1; echo new > rotated; touch d/b; mkdir empty; ln -s /etc l";
    let mount = bench.root.path().join("mount");
    fs::create_dir(&mount).unwrap();
    let status = Command::new("unshare")
        .args(["-Urm", "sh", "-ec", script])
        .args([&bench.folder(), &bench.layer().upper, &bench.layer().work, &mount])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        skipped("no overlayfs in a user namespace here");
        return;
    }
    assert_eq!(
        bench.summary(),
        [
            "Modified a",
            "Deleted again/x",
            "Modified again/y",
            "ModeChanged d",
            "Deleted d/e",
            "Deleted d/e/x",
            "Added empty",
            "Added l",
            "Modified rotated",
            "Added rotated.1",
            "Renamed moved there",
        ]
    );
    let applied = bench.apply(&[]).unwrap();
    assert!(!applied.kept);
    let tree = bench.tree();
    assert_eq!(content(&tree, "a"), Some("a\nmore\n"));
    assert_eq!(content(&tree, "rotated.1"), Some("old\n"));
    assert_eq!(content(&tree, "there"), Some("moved\n"));
    assert_eq!(tree.get(&b"d"[..]).unwrap().1, 0o700);
    assert!(!tree.contains_key(&b"d/e"[..]) && !tree.contains_key(&b"again/x"[..]));
    assert!(bench.layers().list().unwrap().is_empty());
}

#[test]
fn no_repository_below_a_git_directory_is_applied() {
    let bench = Bench::with(&[
        (".git/HEAD", "ref: refs/heads/main"),
        (".git/refs/heads/main", "x"),
        (".git/objects/x", ""),
    ]);
    for name in ["HEAD", "config", "hooks/pre-receive", "objects/info/packs", "refs/heads/main"] {
        for place in [".git/foo", ".git/x/.git", "sub/.git/y", ".git/refs/heads/z", ".git/modules/new"] {
            bench.put(format!("{place}/{name}"), "ref: refs/heads/main");
        }
    }
    bench.put(".git\u{200c}/config", "evil");
    bench.put("git~1/hooks/x", "evil");
    bench.put(".git/refs/heads/work", "0123456789012345678901234567890123456789\n");
    assert_eq!(
        bench.summary(),
        [
            "Added sub",
            "- Repository .git",
            "- Repository \".git\\342\\200\\214\"",
            "- Repository git~1",
            "- Repository sub/.git"
        ]
    );
}

#[test]
fn what_is_too_deep_is_left_out_and_kept() {
    let bench = Bench::with(&[]);
    super::storing::deep(&bench.upper(), 1100);
    bench.put("plain", "p");
    let changes = bench.layer().changes().unwrap();
    assert!(
        matches!(&changes.left_out[..], [out] if out.why == LeftOutWhy::TooDeep),
        "{:?}",
        changes.left_out
    );
    assert!(changes.list.iter().any(|change| change.path.as_bytes() == b"plain"));
}

#[test]
fn what_is_more_than_is_looked_at_is_left_out_and_deletes_nothing() {
    let bench = Bench::with(&[("kept/old", "o")]);
    bench.opaque("kept");
    for name in ["a", "b", "kept/1", "kept/2", "z/3"] {
        bench.put(name, "x");
    }
    let layer = bench.layer();
    let (upper, host) = layer.sides().unwrap();
    let of_first = |entries: usize| {
        let found = walk::changes_up_to(&upper, &host, &layer.guard(), entries).unwrap();
        (found.list.len(), found.left_out.iter().map(|out| out.why).collect::<Vec<_>>())
    };
    // The filesystem decides which ones come first.
    for entries in [0, 2, 4, 6] {
        assert_eq!(of_first(entries).1, [LeftOutWhy::TooMany], "{entries}");
    }
    assert_eq!((of_first(0).0, of_first(7).1), (0, Vec::new()));
    // A replaced file in a directory that is not read to its end does not count as deleted.
    let deleted = |entries: usize| {
        let found = walk::changes_up_to(&upper, &host, &layer.guard(), entries).unwrap();
        found.list.iter().filter(|change| change.new.is_none()).count()
    };
    assert_eq!((deleted(6), deleted(7)), (0, 1));
}

#[test]
fn a_sparse_file_of_terabytes_is_compared_without_reading_it() {
    let bench = Bench::with(&[("big", "")]);
    File::options().write(true).open(bench.folder().join("big")).unwrap().set_len(1 << 42).unwrap();
    bench.put("big", "");
    File::options().write(true).open(bench.upper().join("big")).unwrap().set_len(1 << 42).unwrap();
    mode(&bench.upper().join("big"), 0o600);
    assert_eq!(bench.summary(), ["ModeChanged big"]);
}

//! Layers that an attacker made to escape, to fill the disk or to confuse. Beside the directory that is unpacked into lies
//! a canary: whatever the unpacker says, it must not change, and nothing may appear beside it.

use crate::archive::{Header, Tar, everything, gzip};
use belljar_images::{Limits, UnpackError, Unpacked, unpack};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A place with a canary in it.
pub(crate) struct Cage {
    folder: tempfile::TempDir,
    before: Vec<String>,
}

impl Cage {
    pub(crate) fn new() -> Cage {
        let folder = tempfile::tempdir().unwrap();
        let canary = folder.path().join("canary");
        fs::create_dir(&canary).unwrap();
        fs::write(canary.join("secret"), "untouched").unwrap();
        symlink("secret", canary.join("link")).unwrap();
        let before = everything(&canary);
        fs::create_dir(folder.path().join("layer")).unwrap();
        Cage { folder, before }
    }

    pub(crate) fn layer(&self) -> PathBuf {
        self.folder.path().join("layer")
    }

    pub(crate) fn canary(&self) -> PathBuf {
        self.folder.path().join("canary")
    }

    pub(crate) fn unpack(&self, layer: &[u8]) -> Result<Unpacked, UnpackError> {
        self.unpack_with(layer, &Limits::default())
    }

    pub(crate) fn unpack_with(&self, layer: &[u8], limits: &Limits) -> Result<Unpacked, UnpackError> {
        let result = unpack(layer, layer.len() as u64, &self.layer(), limits);
        self.check();
        result
    }

    fn check(&self) {
        assert_eq!(everything(&self.canary()), self.before);
        let names = fs::read_dir(self.folder.path()).unwrap().count();
        assert_eq!(names, 2, "something appeared beside the layer");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.layer().join(path)).unwrap()
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[test]
fn absolute_names_stay_in_the_layer() {
    let cage = Cage::new();
    let absolute = cage.canary().join("secret");
    let layer = Tar::default().file(absolute.to_str().unwrap(), "evil").end();
    cage.unpack(&layer).unwrap();
    assert_eq!(fs::read_to_string(cage.layer().join(absolute.strip_prefix("/").unwrap())).unwrap(), "evil");
}

#[test]
fn names_that_lead_up_are_refused() {
    for name in
        ["../canary/secret", "..", "a/../../canary/secret", "./../canary/secret", "/../canary/secret", "a/.."]
    {
        let evil = |tar: Tar| tar.end();
        for layer in [
            evil(Tar::default().file(name, "evil")),
            evil(Tar::default().directory(name)),
            evil(Tar::default().symlink(name, "x")),
            evil(Tar::default().file("x", "y").hard_link(name, "x")),
            evil(Tar::default().pax(&[("path", name.as_bytes())]).file("innocent", "evil")),
            evil(Tar::default().long_name(name).file("innocent", "evil")),
            evil(Tar::default().directory("a").file(format!("a/{name}"), "evil")),
        ] {
            let cage = Cage::new();
            assert!(matches!(cage.unpack(&layer), Err(UnpackError::Outside(_))), "{name}");
        }
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    let cage = Cage::new();
    let canary = cage.canary();
    let canary = canary.to_str().unwrap();
    for to in [canary, "../canary", "/", "..", "../../../../../../../.."] {
        for below in ["out/secret", "out/new", "out/a/b", "out/canary/secret"] {
            for layer in [
                Tar::default().symlink("out", to).file(below, "evil").end(),
                Tar::default().symlink("out", to).directory(below).end(),
                Tar::default().symlink("out", to).symlink(below, "x").end(),
                Tar::default().symlink("out", to).file("x", "y").hard_link(below, "x").end(),
                Tar::default().symlink("out", to).file("out/.wh.secret", "").end(),
                Tar::default().symlink("out", to).file("out/.wh..wh..opq", "").end(),
                Tar::default().symlink("d", to).symlink("out", "d").file(below, "evil").end(),
            ] {
                let cage = Cage::new();
                assert!(cage.unpack(&layer).is_err(), "{to} {below}");
            }
        }
    }
    // A file in the place of the link replaces it, and a directory does.
    let cage = Cage::new();
    let to = format!("{canary}/secret");
    cage.unpack(
        &Tar::default()
            .symlink("out", &to)
            .file("out", "mine")
            .symlink("d", canary)
            .directory("d")
            .file("d/secret", "mine")
            .end(),
    )
    .unwrap();
    assert_eq!(cage.read("out"), "mine");
    assert_eq!(cage.read("d/secret"), "mine");
}

#[test]
fn hard_links_reach_only_what_the_layer_has() {
    let absolute = Cage::new().canary();
    for to in [
        "../canary/secret",
        "/etc/passwd",
        absolute.join("secret").to_str().unwrap(),
        "missing",
        ".",
        "",
        "d",
        "out/secret",
        "gone",
    ] {
        let cage = Cage::new();
        let layer = Tar::default()
            .directory("d")
            .symlink("out", cage.canary().to_str().unwrap())
            .file(".wh.gone", "")
            .hard_link("x", to)
            .end();
        assert!(cage.unpack(&layer).is_err(), "{to}");
        assert_eq!(fs::metadata(cage.canary().join("secret")).unwrap().nlink(), 1);
    }
    // To a link: the link itself, as docker writes it.
    let cage = Cage::new();
    cage.unpack(&Tar::default().symlink("l", "../canary/secret").hard_link("x", "l").file("x", "mine").end())
        .unwrap();
    assert_eq!(cage.read("x"), "mine");
    let cage = Cage::new();
    cage.unpack(&Tar::default().file("a", "1").hard_link("b", "/a").hard_link("a", "a").end()).unwrap();
    assert_eq!(cage.read("a"), "1");
    assert_eq!(fs::metadata(cage.layer().join("b")).unwrap().nlink(), 2);
}

#[test]
fn devices_and_pipes_are_left_out() {
    let cage = Cage::new();
    let layer = Tar::default()
        .raw(&Header::new(b'3', "dev/null"), &[])
        .raw(&Header::new(b'4', "dev/sda"), &[])
        .raw(&Header::new(b'6', "pipe"), &[])
        .file("after", "x")
        .end();
    let unpacked = cage.unpack(&layer).unwrap();
    assert_eq!(unpacked.skipped.nodes, 3);
    assert!(!exists(&cage.layer().join("dev/null")) && !exists(&cage.layer().join("pipe")));
    assert_eq!(cage.read("after"), "x");
}

#[test]
fn no_bit_and_no_attribute_gives_a_privilege() {
    let cage = Cage::new();
    let capability: &[u8] = b"\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\0\0\0\0";
    let layer = Tar::default()
        .pax(&[
            ("SCHILY.xattr.security.capability", capability),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.whiteout", b"y"),
            ("SCHILY.xattr.user.mine", b"kept"),
        ])
        .file_with(Header { mode: 0o6755, ..Header::new(b'0', "su") }, "")
        .raw(&Header { mode: 0o7777, ..Header::new(b'5', "d") }, &[])
        .end();
    let unpacked = cage.unpack(&layer).unwrap();
    assert_eq!((unpacked.skipped.set_id, unpacked.skipped.attributes), (1, 4));
    assert_eq!(fs::metadata(cage.layer().join("su")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(cage.layer().join("d")).unwrap().permissions().mode() & 0o7777, 0o3777);
    let names = std::process::Command::new("python3")
        .args(["-c", "import os,sys; print(sorted(os.listxattr(sys.argv[1])))"])
        .arg(cage.layer().join("su"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&names.stdout).trim(), "['user.mine']");
}

#[test]
fn sizes_are_bounded_before_a_byte_is_written() {
    let enormous = 10 << 40;
    let sparse = Header { size: 512, ..Header::new(b'S', "sparse") };
    for layer in [
        Tar::default().raw(&Header { size: enormous, ..Header::new(b'0', "big") }, b"x").0,
        Tar::default().pax(&[("size", b"10995116277760")]).file("big", "x").0,
        Tar::default().pax(&[("size", b"18446744073709551615")]).file("big", "x").0,
        Tar::default().raw(&sparse, &[0; 512]).end(),
        Tar::default().pax(&[("GNU.sparse.realsize", b"10995116277760")]).file("sparse", "").end(),
        Tar::default().raw(&Header { size: enormous, ..Header::new(b'x', "pax") }, b"x").0,
        Tar::default().raw(&Header { size: 2 << 20, ..Header::new(b'L', "l") }, &[b'a'; 2 << 20]).end(),
    ] {
        let cage = Cage::new();
        assert!(cage.unpack(&layer).is_err());
        let written: u64 =
            fs::read_dir(cage.layer()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(written <= 512);
    }
}

#[test]
fn bombs_end_at_a_bound() {
    let zeros = vec![0; 1 << 20];
    let bomb = gzip(&Tar::default().file("a", &zeros).file("b", &zeros).end());
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    let refused = |layer: &[u8], limits: &Limits| {
        let cage = Cage::new();
        cage.unpack_with(layer, limits).unwrap_err()
    };
    assert!(Cage::new().unpack(&bomb).is_ok());
    let dense = limits(|limits| (limits.ratio_from, limits.ratio) = (1 << 18, 100));
    assert!(matches!(refused(&bomb, &dense), UnpackError::TooDense(100)));
    let small = limits(|limits| limits.layer_bytes = 3 << 19);
    assert!(matches!(refused(&bomb, &small), UnpackError::TooLarge(_)));
    let full = limits(|limits| limits.reserve = u64::MAX);
    assert!(matches!(refused(&bomb, &full), UnpackError::NoSpace(_)));
    let many = (0..101).fold(Tar::default(), |tar, number| tar.file(number.to_string(), "")).end();
    let few = limits(|limits| limits.entries = 100);
    assert!(matches!(refused(&many, &few), UnpackError::TooMany(100)));
    // One name makes every directory on its way.
    let way = ["d"; 101].join("/");
    let deep = Tar::default().pax(&[("path", way.as_bytes())]).file("x", "").end();
    assert!(matches!(refused(&deep, &few), UnpackError::TooMany(100)));
    let wide = (0..60).fold(Tar::default(), |tar, number| tar.file(format!("{number}/a/b/c"), "")).end();
    assert!(matches!(refused(&wide, &few), UnpackError::TooMany(100)));
    // What has no content takes room too.
    let tight = limits(|limits| limits.layer_bytes = 256 << 10);
    assert!(many.len() < 256 << 10, "not by the bytes of its archive");
    assert!(matches!(refused(&many, &tight), UnpackError::TooLarge(_)));
    let directories = (0..101).fold(Tar::default(), |tar, number| tar.directory(number.to_string())).end();
    assert!(matches!(refused(&directories, &tight), UnpackError::TooLarge(_)));
    // What is behind the end costs as well.
    let mut behind = Tar::default().end();
    behind.resize(2 << 20, 1);
    assert!(matches!(refused(&gzip(&behind), &small), UnpackError::TooLarge(_)));
}

#[test]
fn archives_that_are_broken_off_are_refused() {
    let whole = Tar::default()
        .directory("d")
        .file("d/a", "x".repeat(2000))
        .pax(&[("path", b"b")])
        .file("x", "y")
        .end();
    let entries = 512 + 512 + 2048 + 512 + 512 + 1024;
    for length in 0..entries - 512 {
        let is_between = [0, 512, 512 + 512 + 2048].contains(&length)
            // The content is there, and only what fills its block is not.
            || (512 + 512 + 2000..512 + 512 + 2048).contains(&length);
        if length % 7 == 0 || length % 512 == 0 || is_between {
            let cage = Cage::new();
            assert_eq!(cage.unpack(&whole[..length]).is_ok(), is_between, "{length}");
        }
    }
    let packed = gzip(&whole);
    for length in (0..packed.len()).step_by(5).filter(|length| *length > 0) {
        assert!(Cage::new().unpack(&packed[..length]).is_err(), "{length}");
    }
}

#[test]
fn what_is_behind_the_end_is_no_entry() {
    let cage = Cage::new();
    let layer = [Tar::default().file("a", "1").end(), Tar::default().file("b", "2").end()].concat();
    let unpacked = cage.unpack(&layer).unwrap();
    assert_eq!(unpacked.entries, 1);
    assert_eq!(unpacked.diff_id, belljar_images::Digest::of(&layer));
    assert!(!exists(&cage.layer().join("b")));
}

#[test]
fn the_last_of_two_entries_counts_whatever_they_are() {
    type Put = fn(Tar) -> Tar;
    let kinds: [(&str, Put); 4] = [
        ("file", |tar| tar.file("x", "content")),
        ("directory", |tar| tar.directory("x").file("x/below", "content")),
        ("link", |tar| tar.symlink("x", "../canary")),
        ("hard link", |tar| tar.hard_link("x", "other")),
    ];
    for (first, one) in kinds {
        for (second, two) in kinds {
            let cage = Cage::new();
            let layer = two(one(Tar::default().file("other", "o"))).end();
            cage.unpack(&layer).unwrap_or_else(|error| panic!("{first} then {second}: {error}"));
            let found = fs::symlink_metadata(cage.layer().join("x")).unwrap();
            let is_right = match second {
                "directory" => found.is_dir() && cage.read("x/below") == "content",
                "link" => found.is_symlink(),
                "file" => found.is_file() && cage.read("x") == "content",
                _ => found.is_file() && cage.read("x") == "o",
            };
            assert!(is_right, "{first} then {second}");
        }
    }
}

#[test]
fn a_directory_that_was_replaced_does_not_change_what_replaced_it() {
    let cage = Cage::new();
    let layer = Tar::default()
        .raw(&Header { mode: 0o700, ..Header::new(b'5', "d/e") }, &[])
        .symlink("d", "../canary")
        .end();
    cage.unpack(&layer).unwrap();
    assert!(fs::symlink_metadata(cage.layer().join("d")).unwrap().is_symlink());
}

#[test]
fn whiteouts_cannot_lead_up() {
    for name in [".wh...", "a/.wh...", ".wh..", ".wh.", "a/.wh.b/c", "../.wh.canary", ".wh.../canary"] {
        assert!(Cage::new().unpack(&Tar::default().directory("a").file(name, "").end()).is_err(), "{name}");
    }
    let cage = Cage::new();
    cage.unpack(
        &Tar::default().file("a/.wh.x", "").file(".wh..wh.plnk/1", "").file(".wh..wh.aufs", "").end(),
    )
    .unwrap();
    let names: Vec<_> = fs::read_dir(cage.layer()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
    assert!(fs::symlink_metadata(cage.layer().join("a/x")).unwrap().file_type().is_char_device());
}

#[test]
fn names_may_be_strange_but_not_impossible() {
    let cage = Cage::new();
    let long = "n".repeat(255);
    let deep = "d/".repeat(1000) + "end";
    let layer = Tar::default()
        .file("a\nb", "1")
        .file(b"\xff\xfe", "2")
        .long_name(&long)
        .file("short", "3")
        .pax(&[("path", deep.as_bytes())])
        .file("short", "4")
        .file(" ", "5")
        .file("...", "6")
        .end();
    cage.unpack(&layer).unwrap();
    assert_eq!(cage.read("a\nb"), "1");
    assert_eq!(cage.read(&long), "3");
    assert_eq!(cage.read(&deep), "4");
    for name in [&b"a\0b"[..], "n".repeat(256).as_bytes(), "d/".repeat(3000).as_bytes()] {
        let layer = Tar::default().pax(&[("path", name)]).file("x", "").end();
        let error = Cage::new().unpack(&layer).unwrap_err();
        assert!(matches!(error, UnpackError::NoPath(_)));
        assert!(error.to_string().chars().all(|letter| !letter.is_control()));
    }
}

#[test]
fn headers_that_make_no_sense_are_refused() {
    let good = Tar::default().file("a", "x").end();
    let mut bad_sum = good.clone();
    bad_sum[0] = b'b';
    let mut alone = Tar::default().0;
    alone.extend([0; 512]);
    alone.extend(&good);
    let unknown = Tar::default().raw(&Header::new(b'Z', "z"), &[]).end();
    let about_nothing = Tar::default().pax(&[("path", b"x")]).end();
    let many = (0..20).fold(Tar::default(), |tar, _| tar.long_name("x")).file("a", "").end();
    let root_file = Tar::default().file("./", "x").end();
    for layer in [bad_sum, alone, unknown, about_nothing, many, root_file, vec![b'x'; 4096]] {
        assert!(Cage::new().unpack(&layer).is_err());
    }
    assert_eq!(Cage::new().unpack(&[]).unwrap().entries, 0);
}

//! Images from files.

use crate::archive::{Header, Tar, config, gzip, saved};
use belljar_images::{Digest, Image, ImageError, Limits, Platform, Silent, Store};
use std::fs;
use std::path::Path;

fn import(folder: &Path, archive: &[u8], name: &str) -> Result<Image, ImageError> {
    let store = Store::open(&folder.join("images")).unwrap();
    let file = folder.join("image.tar");
    fs::write(&file, archive).unwrap();
    let outcome = store.import(&file, &name.parse().unwrap(), &Limits::default(), &Silent);
    let left = fs::read_dir(folder.join("images/blobs")).unwrap().count();
    assert_eq!(left, 0, "something of the archive is left");
    outcome
}

/// An OCI layout of an image with this blob.
fn layout(layer: &[u8], blob: &[u8]) -> Tar {
    let (entry, members) = image_of(layer, blob);
    layout_of(&[format!("{{{entry}}}")], members)
}

/// An OCI layout with these entries.
fn layout_of(entries: &[String], members: Tar) -> Tar {
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
    members.file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#).file("index.json", index)
}

/// What describes the manifest of an image with this blob, and the members that the image is.
fn image_of(layer: &[u8], blob: &[u8]) -> (String, Tar) {
    image_lying(layer, blob, "")
}

/// The same, where the size of one of them is wrong.
fn image_lying(layer: &[u8], blob: &[u8], about: &str) -> (String, Tar) {
    let config = config(&[layer]);
    let described = |what: &str, bytes: &[u8]| {
        let size = bytes.len() + usize::from(what == about);
        format!(r#""digest":"{}","size":{size}"#, Digest::of(bytes))
    };
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{{}}},"layers":[{{{}}}]}}"#,
        described("configuration", config.as_bytes()),
        described("layer", blob)
    );
    let blob_of = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::of(bytes).hex());
    let members = Tar::default()
        .file(blob_of(config.as_bytes()), &config)
        .file(blob_of(manifest.as_bytes()), &manifest)
        .file(blob_of(blob), blob);
    (described("manifest", manifest.as_bytes()), members)
}

#[test]
fn what_docker_saves_is_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Tar::default().file("a", "1").end(), Tar::default().file("b", "2").end());
    let image = import(folder.path(), &gzip(&saved(&[&one, &two])), "local/name:7").unwrap();
    assert_eq!(image.lowers.len(), 2);
    assert_eq!(image.digest, Digest::of(config(&[&one, &two]).as_bytes()));
    assert_eq!(fs::read_to_string(image.lowers[0].join("b")).unwrap(), "2");
    let store = Store::open(&folder.path().join("images")).unwrap();
    assert_eq!(store.list().unwrap()[0].name, "docker.io/local/name:7");
}

#[test]
fn an_oci_layout_is_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Tar::default().file("a", "1").end();
    let image = import(folder.path(), &layout(&layer, &gzip(&layer)).end(), "x:1").unwrap();
    assert_eq!(fs::read_to_string(image.lowers[0].join("a")).unwrap(), "1");
    let digest = image.digest.clone();
    assert!(import(folder.path(), &layout(&layer, &gzip(&layer)).end(), &format!("y@{digest}")).is_ok());
    let other = Digest::of(b"other");
    let error =
        import(folder.path(), &layout(&layer, &gzip(&layer)).end(), &format!("y@{other}")).unwrap_err();
    assert!(matches!(error, ImageError::Mismatch { .. }), "{error}");
}

#[test]
fn of_several_images_in_a_layout_only_the_one_that_is_called_so_is_taken() {
    let layers = ["one", "two"].map(|content| Tar::default().file("a", content).end());
    let [one, two] = layers.each_ref().map(|layer| image_of(layer, layer));
    let members = || Tar([one.1.0.clone(), two.1.0.clone()].concat());
    let platform = format!(r#""os":"linux","architecture":"{}""#, Platform::here().architecture);
    let entry = |described: &str, (tag, name): (&str, &str)| {
        let written = [("org.opencontainers.image.ref.name", tag), ("io.containerd.image.name", name)];
        let annotations: Vec<String> = written
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!(r#""{key}":"{value}""#))
            .collect();
        format!(r#"{{{described},"platform":{{{platform}}},"annotations":{{{}}}}}"#, annotations.join(","))
    };
    for (names, refused) in [
        ([("2", ""), ("1", "")], "app:3"),
        ([("localhost/other/app:2", ""), ("app:1", "")], "other:1"),
        ([("", "docker.io/library/app:2"), ("", "docker.io/library/app:1")], "app:3"),
        // Where there is a full name, a tag alone is none.
        ([("1", "docker.io/library/other:1"), ("1", "docker.io/library/app:1")], "third:1"),
    ] {
        let entries = [entry(&two.0, names[0]), entry(&one.0, names[1])];
        let archive = layout_of(&entries, members()).end();
        let folder = tempfile::tempdir().unwrap();
        let image = import(folder.path(), &archive, "app:1").unwrap();
        assert_eq!(fs::read_to_string(image.lowers[0].join("a")).unwrap(), "one", "{names:?}");
        let error = import(folder.path(), &archive, refused).unwrap_err();
        assert!(
            matches!(&error, ImageError::Archive { why, .. } if why.contains("none is called")),
            "{names:?}: {error}"
        );
        let digest = one.0.split('"').nth(3).unwrap();
        assert!(import(folder.path(), &archive, &format!("app@{digest}")).is_ok(), "{names:?}");
    }
    // Without names they are variants of one image, and the one for this machine is taken.
    let ours = format!(r#"{{{},"platform":{{{platform}}}}}"#, two.0);
    let other = format!(r#"{{{},"platform":{{"os":"linux","architecture":"s390x"}}}}"#, one.0);
    let folder = tempfile::tempdir().unwrap();
    let image = import(folder.path(), &layout_of(&[other, ours], members()).end(), "app:3").unwrap();
    assert_eq!(fs::read_to_string(image.lowers[0].join("a")).unwrap(), "two");
    let silent = [&one.0, &two.0].map(|described| format!("{{{described}}}"));
    let error = import(folder.path(), &layout_of(&silent, members()).end(), "app:4").unwrap_err();
    assert!(error.to_string().ends_with("there is nothing that says which machine it is for"), "{error}");
}

#[test]
fn sizes_in_a_layout_count_as_digests_do() {
    let layer = Tar::default().file("a", "1").end();
    for (about, is_right) in [("", true), ("manifest", false), ("configuration", false), ("layer", false)] {
        let folder = tempfile::tempdir().unwrap();
        let (entry, members) = image_lying(&layer, &layer, about);
        match import(folder.path(), &layout_of(&[format!("{{{entry}}}")], members).end(), "x:1") {
            Ok(_) => assert!(is_right, "{about}"),
            Err(ImageError::Mismatch { what: "blob", .. }) => assert!(!is_right),
            Err(error) => panic!("{about}: {error}"),
        }
    }
}

#[test]
fn archives_that_lie_are_refused() {
    let layer = Tar::default().file("a", "1").end();
    let evil = Tar::default().file("a", "evil").end();
    let lying = {
        let text = config(&[&layer]);
        let manifest = r#"[{"Config":"c.json","Layers":["l.tar"]}]"#;
        Tar::default().file("c.json", text).file("manifest.json", manifest).file("l.tar", &evil).end()
    };
    let twice = layout(&layer, &gzip(&layer)).file("index.json", "{}").end();
    let elsewhere = Tar::default()
        .file("c.json", config(&[&layer]))
        .file("manifest.json", r#"[{"Config":"c.json","Layers":["../../../../etc/passwd"]}]"#)
        .symlink("l.tar", "/etc/passwd")
        .end();
    let out = Tar::default()
        .file("c.json", config(&[&layer]))
        .file("manifest.json", r#"[{"Config":"c.json","Layers":["l.tar"]}]"#)
        .symlink("l.tar", "../../../../../etc/passwd")
        .end();
    for (what, archive) in [
        ("another layer", lying),
        ("a blob with another digest", layout(&layer, &gzip(&evil)).end()),
        ("an index that comes twice", twice),
        ("a layer elsewhere", elsewhere),
        ("a link out", out),
        ("nothing", Tar::default().end()),
        ("no archive", b"hello".repeat(1000)),
        ("several, none of that name", {
            let manifest = r#"[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]},{"Config":"c","RepoTags":["b:1"],"Layers":["l"]}]"#;
            Tar::default().file("manifest.json", manifest).end()
        }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        assert!(import(folder.path(), &archive, "x:1").is_err(), "{what}");
        let layers = fs::read_dir(folder.path().join("images/layers")).unwrap();
        let left: Vec<_> = layers.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(left.iter().all(|name| name.ends_with(".lock")), "{what}: {left:?}");
    }
}

#[test]
fn what_was_made_of_an_archive_before_it_was_refused_is_gone() {
    let layers: Vec<Vec<u8>> =
        ["one", "two"].iter().map(|content| Tar::default().file("a", content).end()).collect();
    // Whichever is made last.
    for damaged in 0..2 {
        let mut archive = Tar::default()
            .file("c.json", config(&[&layers[0], &layers[1]]))
            .file("manifest.json", r#"[{"Config":"c.json","Layers":["0","1"]}]"#);
        for (number, layer) in layers.iter().enumerate() {
            let end = if number == damaged { 700 } else { layer.len() };
            archive = archive.file(number.to_string(), &layer[..end]);
        }
        let folder = tempfile::tempdir().unwrap();
        let error = import(folder.path(), &archive.end(), "x:1").unwrap_err();
        assert!(matches!(error, ImageError::Layer { .. } | ImageError::Mismatch { .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path().join("images/layers")).unwrap().count(), 0);
    }
}

#[test]
fn a_real_docker_saves_what_can_be_imported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saved.tar");
    let saved = std::process::Command::new("docker").args(["save", "-o"]).arg(&file).arg("bb:1").output();
    if !saved.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no docker with an image `bb:1`");
        return;
    }
    let image = import(folder.path(), &fs::read(&file).unwrap(), "bb:1").unwrap();
    assert!(
        image.lowers.iter().any(|lower| lower.join("bin/busybox").exists() || lower.join("bin").exists())
    );
}

#[test]
fn archives_are_bounded_before_their_layers_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let file = folder.path().join("image.tar");
    let layer = Tar::default().file("a", "1").end();
    // Beside the image lies something that it does not need.
    let zeros = vec![0; 4 << 20];
    let mut archive = saved(&[&layer]);
    archive.truncate(archive.len() - 1024);
    archive.extend(Tar::default().file("filler", &zeros).end());
    fs::write(&file, gzip(&archive)).unwrap();
    let import = |limits: Limits| store.import(&file, &"x:1".parse().unwrap(), &limits, &Silent);
    assert!(import(Limits::default()).is_ok());
    let dense = import(Limits { ratio_from: 1 << 20, ..Limits::default() }).unwrap_err();
    assert!(matches!(&dense, ImageError::Archive { why, .. } if why.contains("200 times")), "{dense}");
    let full = import(Limits { reserve: u64::MAX, ..Limits::default() }).unwrap_err();
    assert!(matches!(full, ImageError::NoSpace(_)), "{full}");
    assert_eq!(fs::read_dir(folder.path().join("images/blobs")).unwrap().count(), 0);
}

/// This, and then so many times 128 KiB of zeros, of which zstd writes four bytes each: RFC 8878, section 3.1.1.2.
fn zstd_before_zeros(bytes: &[u8], times: u32) -> Vec<u8> {
    let block = |is_last: u32, kind: u32, size: u32| {
        let header = is_last | kind << 1 | size << 3;
        header.to_le_bytes()[..3].to_vec()
    };
    let (raw, repeated) = (0, 1);
    // The magic number, no flags, and a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    frame.extend(block(0, raw, bytes.len() as u32));
    frame.extend(bytes);
    for number in 1..=times {
        frame.extend(block(u32::from(number == times), repeated, 128 << 10));
        frame.push(0);
    }
    frame
}

#[test]
fn what_is_passed_over_in_an_archive_is_bounded_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let file = folder.path().join("image.tar");
    let layer = Tar::default().file("a", "1").end();
    let mut image = saved(&[&layer]);
    image.truncate(image.len() - 1024);
    let import = |archive: &[u8], limits: &Limits| {
        fs::write(&file, archive).unwrap();
        store.import(&file, &"x:1".parse().unwrap(), limits, &Silent)
    };
    // A member whose name is not valid UTF-8, and the end of the archive.
    let zeros = Header { size: ((100 * 128) << 10) - 1024, ..Header::new(b'0', b"\xff") };
    let bomb = zstd_before_zeros(&Tar(image.clone()).raw(&zeros, &[]).0, 100);
    assert!(import(&bomb, &Limits::default()).is_ok());
    let dense = import(&bomb, &Limits { ratio_from: 1 << 20, ..Limits::default() }).unwrap_err();
    assert!(matches!(&dense, ImageError::Archive { why, .. } if why.contains("200 times")), "{dense}");
    let large = import(&bomb, &Limits { image_bytes: 5 << 20, ..Limits::default() }).unwrap_err();
    assert!(matches!(large, ImageError::TooLarge(_)), "{large}");
    // Directories are of no use here, and are counted all the same.
    let many = (0..10_000).fold(Tar(image), |tar, number| tar.directory(format!("{number}/"))).end();
    let many = import(&gzip(&many), &Limits::default()).unwrap_err();
    assert!(matches!(&many, ImageError::Archive { why, .. } if why.contains("members")), "{many}");
    assert_eq!(fs::read_dir(folder.path().join("images/blobs")).unwrap().count(), 0);
}

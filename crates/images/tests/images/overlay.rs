//! Layers as a sandbox sees them: a real overlay, mounted as sandboxes mount theirs, with `userxattr` in a user namespace.

use crate::archive::{Tar, saved};
use belljar_images::{Image, Limits, Silent, Store};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

pub(crate) fn import(store: &Store, folder: &std::path::Path, layers: &[&[u8]]) -> Image {
    let file = folder.join("image.tar");
    std::fs::write(&file, saved(layers)).unwrap();
    store.import(&file, &"x:1".parse().unwrap(), &Limits::default(), &Silent).unwrap()
}

/// What a script prints in a directory where the layers are one.
fn inside(image: &Image, script: &str) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let lowers: Vec<&str> = image.lowers.iter().map(|lower| lower.to_str().unwrap()).collect();
    // One layer alone is no overlay.
    let lower = format!("{}:{}", lowers.join(":"), scratch.path().display());
    let whole = format!(
        "set -e; mkdir -p $0/up; mount -t tmpfs t $0/up; mkdir $0/up/u $0/up/w $0/up/m; \
         mount -t overlay o -o userxattr,lowerdir={lower},upperdir=$0/up/u,workdir=$0/up/w $0/up/m; cd $0/up/m; {script}"
    );
    let place = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &whole])
        .arg(place.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let base = Tar::default()
        .directory("etc")
        .file("etc/a", "base")
        .file("etc/b", "base")
        .file("opaque/below", "base")
        .file("replaced/below", "base")
        .file("became-file/below", "base")
        .file("hidden-dir/below", "base")
        .file("new-inside/below", "base")
        .file("later/below", "base")
        .end();
    let top = Tar::default()
        .file("etc/.wh.a", "")
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/mine", "top")
        // A whiteout is about what is below, wherever it stands.
        .directory("replaced")
        .file("replaced/mine", "top")
        .file(".wh.replaced", "")
        .file(".wh.new-inside", "")
        .file("new-inside/mine", "top")
        .file(".wh.later", "")
        .directory("later")
        .file("became-file", "top")
        .file(".wh.hidden-dir", "")
        .file(".wh.never-was", "")
        .file("etc/c", "top")
        .file("etc/.wh.c", "")
        .end();
    let image = import(&store, folder.path(), &[&base, &top]);
    assert_eq!(
        inside(
            &image,
            "find . -type f | sort; cat became-file etc/c; test -d later; rm etc/b; test ! -e etc/b"
        ),
        "./became-file\n./etc/b\n./etc/c\n./new-inside/mine\n./opaque/mine\n./replaced/mine\ntoptop"
    );
}

#[test]
fn a_layer_that_comes_twice_is_mounted_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let one = Tar::default().file("a", "one").end();
    let two = Tar::default().file("a", "two").file("b", "two").end();
    let empty = Tar::default().end();
    let image = import(&store, folder.path(), &[&empty, &one, &two, &empty, &one]);
    assert_eq!(image.lowers.len(), 2, "an empty layer is no layer");
    assert_eq!(inside(&image, "cat a b"), "onetwo");
    let image = import(&store, folder.path(), &[&empty]);
    assert_eq!(image.lowers.len(), 1, "an overlay needs one");
}

#[test]
fn directories_that_a_layer_leaves_out_have_their_usual_modes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let layer = Tar::default().file("tmp/a", "").file("root/a", "").file("usr/lib/a", "").end();
    let image = import(&store, folder.path(), &[&layer]);
    let mode = |path: &str| std::fs::metadata(image.lowers[0].join(path)).unwrap().mode() & 0o7777;
    assert_eq!(
        [mode("tmp"), mode("root"), mode("usr"), mode("usr/lib"), mode("")],
        [0o1777, 0o700, 0o755, 0o755, 0o755]
    );
}

#[test]
fn layers_of_real_archivers_are_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("deep").join("x".repeat(90))).unwrap();
    std::fs::write(source.join("deep").join("x".repeat(90)).join("y".repeat(95)), "long").unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    std::fs::hard_link(source.join("file"), source.join("linked")).unwrap();
    std::os::unix::fs::symlink("a".repeat(150), source.join("far")).unwrap();
    for (number, format) in ["gnu", "pax", "ustar", "oldgnu"].iter().enumerate() {
        let file = folder.path().join(format!("{number}.tar"));
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&source).arg(format!("--format={format}")).arg("-cf").arg(&file);
        if *format == "ustar" {
            // It cannot have such a link.
            tar.arg("--exclude=far");
        }
        assert!(tar.arg(".").status().unwrap().success());
        let store = Store::open(&folder.path().join(format!("images-{format}"))).unwrap();
        let image = import(&store, folder.path(), &[&std::fs::read(&file).unwrap()]);
        let deep = image.lowers[0].join("deep").join("x".repeat(90)).join("y".repeat(95));
        assert_eq!(std::fs::read_to_string(deep).unwrap(), "long", "{format}");
        let meta = std::fs::metadata(image.lowers[0].join("linked")).unwrap();
        assert_eq!((meta.nlink(), meta.size()), (2, 7), "{format}");
        assert_eq!(meta.mtime(), std::fs::metadata(source.join("file")).unwrap().mtime());
    }
}

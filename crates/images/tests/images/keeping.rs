//! What stays, what goes, and who keeps it.

use crate::archive::Tar;
use crate::overlay::import as import_as_x;
use belljar_images::{Digest, GcOptions, Image, ImageError, Store};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn import(store: &Store, folder: &Path, name: &str, contents: &[&str]) -> Image {
    let layers: Vec<Vec<u8>> =
        contents.iter().map(|content| Tar::default().file("a", content).end()).collect();
    let slices: Vec<&[u8]> = layers.iter().map(Vec::as_slice).collect();
    let file = folder.join("image.tar");
    fs::write(&file, crate::archive::saved(&slices)).unwrap();
    store.import(&file, &name.parse().unwrap(), &Default::default(), &belljar_images::Silent).unwrap()
}

fn gc(store: &Store) -> usize {
    store.gc(&GcOptions::default()).unwrap().layers.len()
}

#[test]
fn gc_removes_what_no_image_names_and_nothing_uses() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let one = import(&store, folder.path(), "one:1", &["base", "one"]);
    let two = import(&store, folder.path(), "two:1", &["base", "two"]);
    let lowers = [one.lowers.clone(), two.lowers.clone()].concat();
    assert_eq!(gc(&store), 0);
    let listed = store.list().unwrap();
    assert_eq!(
        listed.iter().map(|image| (image.bytes, image.own_bytes, image.in_use)).collect::<Vec<_>>(),
        [(7, 3, true); 2]
    );
    assert!(store.remove(&"one:1".parse().unwrap()).unwrap());
    assert!(!store.remove(&"one:1".parse().unwrap()).unwrap());
    assert_eq!(gc(&store), 0, "it is still in use");
    drop(one);
    let would = store.gc(&GcOptions { dry_run: true, ..Default::default() }).unwrap();
    assert_eq!((would.layers.len(), would.bytes), (1, 3));
    assert_eq!(gc(&store), 1);
    assert!(lowers[1].exists() && !lowers[0].exists(), "what two images share stays for the other");
    drop(two);
    assert_eq!(gc(&store), 0);
    assert!(store.find(&"two:1".parse().unwrap()).unwrap().is_some());
    store.remove(&"two:1".parse().unwrap()).unwrap();
    assert_eq!(gc(&store), 2);
    let left = fs::read_dir(folder.path().join("images/layers")).unwrap().count();
    assert_eq!(left, 0, "not even a lock");
}

#[test]
fn a_lease_of_another_process_counts_until_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let image = import(&store, folder.path(), "x:1", &["a"]);
    let lock = image.lowers[0].parent().unwrap().join("lock");
    drop(image);
    store.remove(&"x:1".parse().unwrap()).unwrap();
    let mut other = std::process::Command::new("flock")
        .arg("--shared")
        .arg(&lock)
        .args(["sleep", "1000"])
        .spawn()
        .unwrap();
    while store.gc(&GcOptions { dry_run: true, ..Default::default() }).unwrap().layers.len() == 1 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(gc(&store), 0);
    // The lock is `sleep`'s too: both go.
    let child = std::process::Command::new("pgrep").arg("-P").arg(other.id().to_string()).output().unwrap();
    let child = String::from_utf8(child.stdout).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    std::process::Command::new("kill").args(["-9", child.trim()]).status().unwrap();
    while gc(&store) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_stopped_sandbox_keeps_its_layers_for_as_long_as_its_directory_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let sandbox = folder.path().join("sandbox");
    fs::create_dir(&sandbox).unwrap();
    let image = import(&store, folder.path(), "x:1", &["old"]);
    image.pin(&sandbox).unwrap();
    drop(image);
    // The name means something else by now.
    drop(import(&store, folder.path(), "x:1", &["new"]));
    assert_eq!(gc(&store), 0);
    let again = store.pinned(&sandbox).unwrap().unwrap();
    assert_eq!(fs::read_to_string(again.lowers[0].join("a")).unwrap(), "old");
    assert_eq!(again.environment.len(), 2);
    assert!(store.pinned(folder.path()).unwrap().is_none());
    drop(again);
    fs::remove_dir_all(&sandbox).unwrap();
    assert_eq!(gc(&store), 1);
    assert!(store.pinned(&sandbox).unwrap().is_none());
}

#[test]
fn a_pin_that_is_being_written_is_not_taken_for_an_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let image = import(&store, folder.path(), "x:1", &["a"]);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                match store.gc(&GcOptions::default()) {
                    Ok(_) | Err(ImageError::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let pinned: Vec<_> = (0..100)
            .map(|number| {
                let sandbox = folder.path().join(format!("sandbox-{number}"));
                fs::create_dir(&sandbox).unwrap();
                let outcome = image.pin(&sandbox);
                (sandbox, outcome)
            })
            .collect();
        is_done.store(true, Ordering::Relaxed);
        for (sandbox, outcome) in pinned {
            outcome.unwrap();
            assert!(store.pinned(&sandbox).unwrap().is_some(), "{}", sandbox.display());
        }
    });
}

#[test]
fn a_directory_that_was_made_again_keeps_nothing_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let sandbox = folder.path().join("sandbox");
    fs::create_dir(&sandbox).unwrap();
    import(&store, folder.path(), "x:1", &["old"]).pin(&sandbox).unwrap();
    fs::remove_dir_all(&sandbox).unwrap();
    fs::create_dir(&sandbox).unwrap();
    let new = import(&store, folder.path(), "x:1", &["new"]);
    assert!(store.pinned(&sandbox).unwrap().is_none(), "an old image under a new sandbox");
    assert_eq!(gc(&store), 1, "the old one is not in use");
    new.pin(&sandbox).unwrap();
    let pinned = store.pinned(&sandbox).unwrap().unwrap();
    assert_eq!(fs::read_to_string(pinned.lowers[0].join("a")).unwrap(), "new");
}

#[test]
fn what_cannot_be_read_may_name_anything_and_nothing_is_removed() {
    for damaged in ["names", "pins"] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("images")).unwrap();
        let sandbox = folder.path().join("sandbox");
        fs::create_dir(&sandbox).unwrap();
        let image = import(&store, folder.path(), "x:1", &["a"]);
        image.pin(&sandbox).unwrap();
        let layer = image.lowers[0].clone();
        drop(image);
        let place = folder.path().join("images").join(damaged);
        let file = fs::read_dir(&place).unwrap().next().unwrap().unwrap().path();
        let before = fs::read(&file).unwrap();
        // The one that is whole is gone: only the damaged one names the layer.
        if damaged == "pins" {
            store.remove(&"x:1".parse().unwrap()).unwrap();
        } else {
            fs::remove_dir_all(&sandbox).unwrap();
        }
        fs::write(&file, &before[..before.len() / 2]).unwrap();
        let error = store.gc(&GcOptions::default()).unwrap_err();
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
        assert!(layer.exists(), "{damaged}");
        fs::write(&file, before).unwrap();
        // What a kill left of one that was being written names nothing.
        fs::write(file.with_extension("new-1-2"), "{").unwrap();
        let collected = store.gc(&GcOptions::default()).unwrap();
        assert_eq!((collected.layers.len(), collected.remains), (0, 1));
        assert!(layer.exists(), "{damaged}");
    }
}

#[test]
fn a_damaged_pin_of_a_sandbox_that_is_gone_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let sandbox = folder.path().join("sandbox");
    fs::create_dir(&sandbox).unwrap();
    import(&store, folder.path(), "x:1", &["a"]).pin(&sandbox).unwrap();
    store.remove(&"x:1".parse().unwrap()).unwrap();
    let pins = folder.path().join("images/pins");
    let pin = fs::read_dir(&pins).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&pin).unwrap();
    fs::write(&pin, &whole[..whole.len() / 2]).unwrap();
    let converted = belljar_spec::SandboxError::from(store.gc(&GcOptions::default()).unwrap_err());
    let hint = converted.hint.unwrap().to_string();
    assert!(hint.contains(&format!("rm {}", pin.display())), "{hint}");
    fs::remove_dir_all(&sandbox).unwrap();
    // The owner's name cannot be read either: it may be any sandbox.
    fs::write(&pin, &whole[..20]).unwrap();
    assert!(store.gc(&GcOptions::default()).is_err());
    fs::write(&pin, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(gc(&store), 1);
    assert_eq!(fs::read_dir(&pins).unwrap().count(), 0);
}

#[test]
fn whatever_a_configuration_says_its_pin_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let layer = Tar::default().file("a", "1").end();
    // As many words as a configuration can have: in a record with blanks each takes four times as much.
    let around = |words: &str| {
        format!(r#"{{"config":{{"Cmd":[{words}]}},"rootfs":{{"diff_ids":["{}"]}}}}"#, Digest::of(&layer))
    };
    let words = ((4 << 20) - around("").len()) / 3;
    let archive = Tar::default()
        .file("c.json", around(&vec![r#""""#; words].join(",")))
        .file("manifest.json", r#"[{"Config":"c.json","Layers":["l.tar"]}]"#)
        .file("l.tar", &layer);
    let file = folder.path().join("image.tar");
    fs::write(&file, archive.end()).unwrap();
    let name = format!("{}:1", "n".repeat(200)).parse().unwrap();
    let image = store.import(&file, &name, &Default::default(), &belljar_images::Silent).unwrap();
    let sandbox = folder.path().join("s".repeat(200));
    fs::create_dir(&sandbox).unwrap();
    image.pin(&sandbox).unwrap();
    assert_eq!(store.pinned(&sandbox).unwrap().unwrap().command.len(), words);
    assert_eq!(gc(&store), 0);
}

#[test]
fn a_store_that_leads_elsewhere_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.path().join("images")).unwrap();
    assert!(matches!(Store::open(&folder.path().join("images")), Err(ImageError::NotOurs { .. })));
    for place in ["layers", "names", "blobs", "pins"] {
        let images = folder.path().join(format!("images-{place}"));
        fs::create_dir(&images).unwrap();
        std::os::unix::fs::symlink(&elsewhere, images.join(place)).unwrap();
        assert!(matches!(Store::open(&images), Err(ImageError::NotOurs { .. })), "{place}");
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn images_that_were_not_used_for_long_go_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let used = import(&store, folder.path(), "used:1", &["used"]);
    drop(import(&store, folder.path(), "idle:1", &["idle"]));
    let after = |seconds| GcOptions { unused_for: Some(Duration::from_secs(seconds)), ..Default::default() };
    assert_eq!(store.gc(&after(3600)).unwrap().images, [""; 0]);
    assert_eq!(store.gc(&after(0)).unwrap().images, ["docker.io/library/idle:1"]);
    assert!(store.find(&"idle:1".parse().unwrap()).unwrap().is_none());
    drop(used);
}

#[test]
fn what_a_kill_left_is_removed_and_never_taken_for_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    let image = import(&store, folder.path(), "x:1", &["a"]);
    let layer = image.lowers[0].parent().unwrap().to_path_buf();
    drop(image);
    let layers = layer.parent().unwrap();
    fs::create_dir_all(layers.join(".new-abc/tree/d")).unwrap();
    fs::create_dir_all(layers.join(".gone-1-2/tree")).unwrap();
    fs::write(folder.path().join("images/blobs/part"), "x").unwrap();
    // The record is written last: without it a layer is none.
    fs::remove_file(layer.join("layer.json")).unwrap();
    assert!(store.find(&"x:1".parse().unwrap()).unwrap().is_none());
    assert!(!store.list().unwrap()[0].whole);
    let image = import(&store, folder.path(), "x:1", &["a"]);
    assert_eq!(fs::read_to_string(image.lowers[0].join("a")).unwrap(), "a");
    assert_eq!(store.gc(&GcOptions::default()).unwrap().remains, 3);
    assert_eq!(fs::read_dir(layers).unwrap().count(), 1);
}

#[test]
fn nothing_is_removed_while_something_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    drop(import_as_x(&store, folder.path(), &[&Tar::default().end()]));
    let lock = fs::File::open(folder.path().join("images/lock")).unwrap();
    lock.lock_shared().unwrap();
    assert!(matches!(store.gc(&GcOptions::default()), Err(ImageError::Busy)));
    lock.unlock().unwrap();
    assert!(store.gc(&GcOptions::default()).is_ok());
}

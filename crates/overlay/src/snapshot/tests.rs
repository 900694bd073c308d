//! Tests of snapshots, without mounts: what an overlay of a sandbox's directories shows is computed here, as overlayfs defines it.

use super::collect::Forking;
use super::store::names;
use super::*;
use belljar_spec::SnapshotName;
use belljar_sys::rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

struct Fleet {
    _folder: tempfile::TempDir,
    store: SnapshotStore,
}

impl Fleet {
    fn new() -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let store = SnapshotStore::at(folder.path());
        fs::create_dir(folder.path().join("sandboxes")).unwrap();
        Fleet { _folder: folder, store }
    }

    fn files(&self, name: &str) -> SandboxFiles {
        let files = SandboxFiles::new(self.store.fleet().join("sandboxes").join(name));
        for part in Part::ALL {
            fs::create_dir_all(files.upper(part)).unwrap();
        }
        files
    }

    /// What the sandbox of a place sees of a part: paths and contents.
    fn seen(&self, files: &SandboxFiles, part: Part) -> BTreeMap<String, String> {
        let chain = Chain::of(files).unwrap();
        let below = chain.layers.iter().rev().filter_map(|layer| self.store.part(*layer, part));
        let mut seen = BTreeMap::new();
        for layer in below.chain([files.upper(part)]) {
            lay(&layer, Path::new(""), &mut seen);
        }
        seen
    }

    fn layers(&self) -> usize {
        names(&self.store.layers()).unwrap().len()
    }
}

/// Lays a directory over what is seen.
fn lay(directory: &Path, below: &Path, seen: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let name = path.to_str().unwrap().to_string();
        let found = entry.metadata().unwrap();
        let is_whiteout = found.file_type().is_char_device() && found.rdev() == 0;
        let is_opaque = found.is_dir() && is_opaque(&entry.path());
        if is_whiteout || !found.is_dir() || is_opaque {
            seen.retain(|known, _| !Path::new(known).starts_with(&path));
        }
        match () {
            () if is_whiteout => {}
            () if found.is_dir() => {
                seen.insert(name, "/".into());
                lay(&entry.path(), &path, seen);
            }
            () if found.is_symlink() => {
                seen.insert(name, fs::read_link(entry.path()).unwrap().display().to_string());
            }
            () => drop(seen.insert(name, fs::read_to_string(entry.path()).unwrap())),
        }
    }
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 1];
    belljar_sys::rustix::fs::getxattr(path, "user.overlay.opaque", &mut value).is_ok_and(|_| value == *b"y")
}

fn make_opaque(path: &Path) {
    use belljar_sys::rustix::fs::{XattrFlags, setxattr};
    fs::create_dir_all(path).unwrap();
    setxattr(path, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
}

fn delete(path: PathBuf) {
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)).unwrap();
}

fn new(name: Option<&str>) -> NewSnapshot {
    NewSnapshot {
        name: name.map(|name| name.parse().unwrap()),
        owner: "owner".into(),
        sandbox: "bj-a".into(),
        key: "a".into(),
        rootfs: "host".into(),
        backend: Some("native".into()),
        parts: Part::ALL.to_vec(),
        left_out: Vec::new(),
        automatic: None,
    }
}

fn take(fleet: &Fleet, files: &SandboxFiles, name: Option<&str>) -> Snapshot {
    fleet.store.take(files, new(name), &mut |_| {}).unwrap()
}

fn snapshot_name(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

#[test]
fn forks_and_their_source_are_independent_and_nothing_is_copied() {
    let fleet = Fleet::new();
    let parent = fleet.files("bj-parent");
    let home = parent.upper(Part::Home);
    fs::create_dir(home.join("d")).unwrap();
    fs::write(home.join("d/old"), "1").unwrap();
    fs::write(parent.upper(Part::Workspace).join("w"), "w").unwrap();
    fs::set_permissions(&home, PermissionsExt::from_mode(0o711)).unwrap();
    let inode = fs::metadata(home.join("d/old")).unwrap().ino();
    let snapshot = take(&fleet, &parent, Some("one"));
    let kept = fleet.store.part(snapshot.layers[0], Part::Home).unwrap();
    assert_eq!(fs::metadata(kept.join("d/old")).unwrap().ino(), inode, "it is the same file");
    assert_eq!(fs::metadata(&home).unwrap().mode() & 0o7777, 0o711, "the new top is like the old one");
    let child = fleet.files("bj-child");
    fleet.store.seed(&child, &snapshot).unwrap();
    let first = fleet.seen(&parent, Part::Home);
    assert_eq!(first.get("d/old").map(String::as_str), Some("1"));
    assert_eq!(fleet.seen(&child, Part::Home), first);
    assert_eq!(fleet.seen(&child, Part::Workspace)["w"], "w");
    fs::write(home.join("new"), "parent").unwrap();
    delete(child.upper(Part::Home).join("d"));
    assert_eq!(fleet.seen(&child, Part::Home), BTreeMap::new());
    assert!(fleet.seen(&parent, Part::Home).contains_key("d/old"));
    let second = take(&fleet, &parent, None);
    assert_eq!(second.layers.len(), 2);
    assert_eq!(second.layers[1], snapshot.layers[0]);
    let third = take(&fleet, &parent, None);
    assert_eq!(third.layers, second.layers, "nothing changed, and there is no layer for that");
}

/// A kill behind every step, of taking a snapshot and of going back to one: the sandbox shows the same files, or those of the snapshot;
/// earlier snapshots are whole; and the next sweep removes what nothing needs.
#[test]
fn a_kill_at_any_step_loses_nothing() {
    let steps = [
        SealStep::Made,
        SealStep::Chained,
        SealStep::Moved(Part::Root),
        SealStep::Replaced(Part::Root),
        SealStep::Moved(Part::Home),
        SealStep::Replaced(Part::Home),
        SealStep::Moved(Part::Workspace),
        SealStep::Replaced(Part::Workspace),
        SealStep::Noted,
        SealStep::Restored,
    ];
    for cut in steps {
        for restores in [false, true] {
            let fleet = Fleet::new();
            let files = fleet.files("bj-a");
            for part in Part::ALL {
                fs::write(files.upper(part).join("first"), part.as_str()).unwrap();
            }
            let earlier = take(&fleet, &files, Some("earlier"));
            let all = |files: &SandboxFiles| Part::ALL.map(|part| fleet.seen(files, part));
            let first = all(&files);
            for part in Part::ALL {
                delete(files.upper(part).join("first"));
                fs::write(files.upper(part).join("second"), "2").unwrap();
            }
            let second = all(&files);
            let mut was_cut = false;
            let mut kill = |step: SealStep| {
                if step == cut {
                    was_cut = true;
                    panic!("killed");
                }
            };
            let killed = catch_unwind(AssertUnwindSafe(|| match restores {
                false => fleet.store.take(&files, new(None), &mut kill).map(drop),
                true => {
                    fleet.store.restore(&files, &Part::ALL, &earlier, Some(new(None)), &mut kill).map(drop)
                }
            }));
            assert_eq!(killed.is_err(), was_cut);
            // The engine makes what is missing at each start.
            for part in Part::ALL {
                fs::create_dir_all(files.upper(part)).unwrap();
            }
            let is_restored = restores && (cut == SealStep::Restored || !was_cut);
            let expected = if is_restored { &first } else { &second };
            assert_eq!(all(&files), *expected, "{cut:?}, {restores}");
            fleet.store.collect(Forking::None).unwrap();
            assert_eq!(all(&files), *expected, "{cut:?}, {restores}: swept");
            let child = fleet.files("bj-child");
            fleet.store.seed(&child, &earlier).unwrap();
            assert_eq!(all(&child), first, "{cut:?}: the earlier snapshot is whole");
            // Every snapshot that is listed is whole, too.
            for taken in fleet.store.all().unwrap() {
                fleet.store.seed(&child, &taken).unwrap();
                assert!([&first, &second].contains(&&all(&child)), "{cut:?}: {taken:?}");
            }
            let more = take(&fleet, &files, None);
            assert_eq!(Chain::of(&files).unwrap().layers, more.layers);
            assert_eq!(all(&files), *expected);
        }
    }
}

#[test]
fn a_layer_goes_with_its_last_user() {
    let fleet = Fleet::new();
    let files = fleet.files("bj-a");
    fs::write(files.upper(Part::Home).join("f"), "1").unwrap();
    let snapshot = take(&fleet, &files, Some("one"));
    let child = fleet.files("bj-b");
    fleet.store.seed(&child, &snapshot).unwrap();
    let used_by = |store: &SnapshotStore| {
        store.with_users(store.all().unwrap()).unwrap().pop().map(|found| found.used_by)
    };
    assert_eq!(used_by(&fleet.store), Some(vec!["bj-a".into(), "bj-b".into()]));
    let collect = || fleet.store.collect(Forking::Perhaps).unwrap();
    fleet.store.remove(&snapshot).unwrap();
    assert_eq!((collect(), fleet.layers()), (0, 1));
    fs::remove_dir_all(files.directory()).unwrap();
    assert_eq!((collect(), fleet.layers()), (0, 1));
    assert_eq!(fleet.seen(&child, Part::Home)["f"], "1");
    fs::write(child.directory().join("chain.json"), "{").unwrap();
    assert!(fleet.store.collect(Forking::Perhaps).is_err(), "what cannot be read may need any of them");
    assert_eq!(fleet.layers(), 1);
    fs::remove_dir_all(child.directory()).unwrap();
    assert_eq!((collect(), fleet.layers()), (1, 0));
    assert_eq!(collect(), 0);
}

#[test]
fn what_forks_were_made_from_goes_when_none_are_made() {
    let fleet = Fleet::new();
    let files = fleet.files("bj-a");
    fs::write(files.upper(Part::Home).join("f"), "1").unwrap();
    let of_fork = NewSnapshot { automatic: Some(Automatic::Fork), ..new(None) };
    fleet.store.take(&files, of_fork, &mut |_| {}).unwrap();
    fleet.store.collect(Forking::Perhaps).unwrap();
    assert_eq!(fleet.store.all().unwrap().len(), 1);
    fleet.store.collect(Forking::None).unwrap();
    assert_eq!(fleet.store.all().unwrap().len(), 0);
    assert_eq!(fleet.seen(&files, Part::Home)["f"], "1");
}

#[test]
fn a_copy_is_what_was_copied_and_a_killed_copy_is_swept() {
    let fleet = Fleet::new();
    let files = fleet.files("bj-a");
    let home = files.upper(Part::Home);
    fs::write(home.join("f"), "content").unwrap();
    fs::hard_link(home.join("f"), home.join("same")).unwrap();
    fs::set_permissions(home.join("f"), PermissionsExt::from_mode(0o751)).unwrap();
    symlink("/etc/passwd", home.join("link")).unwrap();
    delete(home.join("deleted"));
    make_opaque(&home.join("opaque"));
    let hole = fs::File::create(home.join("hole")).unwrap();
    hole.set_len(1 << 30).unwrap();
    let snapshot = fleet.store.copy(&files, new(Some("copy")), CopyLimit::default()).unwrap();
    assert_eq!(snapshot.method, Method::Copied);
    let copy = fleet.store.part(snapshot.layers[0], Part::Home).unwrap();
    fs::write(home.join("f"), "changed since").unwrap();
    assert_eq!(fs::read_to_string(copy.join("same")).unwrap(), "content");
    let found = fs::metadata(copy.join("f")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.nlink()), (0o751, 2));
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("/etc/passwd"));
    let deleted = fs::symlink_metadata(copy.join("deleted")).unwrap();
    assert!(deleted.file_type().is_char_device() && deleted.rdev() == 0);
    assert!(is_opaque(&copy.join("opaque")));
    let found = fs::metadata(copy.join("hole")).unwrap();
    assert_eq!((found.len(), found.blocks()), (1 << 30, 0));
    assert_eq!(Chain::of(&files).unwrap(), Chain::default(), "the sandbox itself is as it was");

    let mut large = CopyLimit { bytes: 1 };
    let error = fleet.store.copy(&files, new(None), large).unwrap_err();
    assert!(matches!(error, SnapshotError::TooLarge(1)), "{error}");
    large.bytes = 1 << 20;
    assert!(fleet.store.copy(&files, new(None), large).is_ok(), "a hole is not copied");
    let before = fleet.layers();
    let killed = fleet.store.layers().join(".new-0123456789abcdef");
    fs::create_dir(&killed).unwrap();
    fs::write(killed.join("lock"), "").unwrap();
    fleet.store.collect(Forking::Perhaps).unwrap();
    assert_eq!(fleet.layers(), before);
}

#[test]
fn names_belong_to_their_owner() {
    let fleet = Fleet::new();
    let files = fleet.files("bj-a");
    fs::write(files.upper(Part::Home).join("f"), "1").unwrap();
    let one = take(&fleet, &files, Some("one"));
    let store = &fleet.store;
    assert!(matches!(store.must_be_free("owner", &snapshot_name("one")), Err(SnapshotError::NameTaken(_))));
    assert!(store.must_be_free("g1", &snapshot_name("one")).is_ok());
    assert!(matches!(store.must_be_free("g1", &one.id), Err(SnapshotError::NameIsId(_))));
    let of_grant = NewSnapshot { owner: "g1".into(), ..new(Some("one")) };
    let other = store.take(&files, of_grant, &mut |_| {}).unwrap();
    let find =
        |name: &SnapshotName, owner: &str, all: bool| store.find(name, owner, all).ok().map(|found| found.id);
    assert_eq!(find(&snapshot_name("one"), "g1", false), Some(other.id.clone()));
    assert_eq!(find(&snapshot_name("one"), "owner", true), Some(one.id.clone()));
    assert_eq!(find(&other.id, "owner", true), Some(other.id.clone()));
    assert_eq!(find(&one.id, "g1", false), None);
    assert_eq!(find(&snapshot_name("one"), "g2", false), None);
}

#[test]
fn layers_that_nothing_needs_one_by_one_are_merged() {
    let fleet = Fleet::new();
    let files = fleet.files("bj-a");
    let home = files.upper(Part::Home);
    let write = |name: &str, content: &str| {
        fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
        fs::write(home.join(name), content).unwrap();
    };
    let seal = || {
        let taken = take(&fleet, &files, None);
        fleet.store.remove(&taken).unwrap();
        taken
    };
    write("a/one", "1");
    write("a/two", "2");
    write("b", "b");
    write("c/deep/file", "c");
    let needed = take(&fleet, &files, Some("needed"));
    write("a/one", "changed");
    delete(home.join("b"));
    write("d/x", "x");
    seal();
    make_opaque(&home.join("a"));
    write("a/three", "3");
    write("b/now/a/folder", "b");
    delete(home.join("d"));
    seal();
    fs::create_dir_all(home.join("c")).unwrap();
    delete(home.join("c/deep"));
    write("d", "a file");
    seal();
    let before = fleet.seen(&files, Part::Home);
    let expected = ["a", "a/three", "b", "b/now", "b/now/a", "b/now/a/folder", "c", "d"];
    assert_eq!(before.keys().collect::<Vec<_>>(), expected);
    assert_eq!(Chain::of(&files).unwrap().layers.len(), 4);
    // A kill anywhere: the same is seen, and merging again goes on.
    assert_eq!(fleet.store.merge(&files, 2).unwrap(), 2);
    assert_eq!(fleet.seen(&files, Part::Home), before);
    let child = fleet.files("bj-child");
    fleet.store.seed(&child, &needed).unwrap();
    assert_eq!(fleet.seen(&child, Part::Home)["a/one"], "1", "what a snapshot needs is as it was");
    fleet.store.collect(Forking::Perhaps).unwrap();
    assert_eq!(fleet.layers(), 2);
    assert_eq!(fleet.seen(&files, Part::Home), before);
}

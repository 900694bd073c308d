//! Making, finding, holding and removing layers.

use super::*;
use crate::beneath::Beneath;
use crate::{Outcome, Summary};
use belljar_sys::remove_tree::remove_at;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_layer_is_made_held_and_found() {
    let bench = Bench::with(&[("a", "a")]);
    let layer = bench.layer().clone();
    assert!(layer.is_in_use());
    assert!(matches!(layer.hold(), Err(LayerError::InUse(id)) if id == layer.id));
    let only = std::slice::from_ref(&layer);
    assert_eq!(bench.layers().of(&bench.folder()).unwrap(), only);
    assert_eq!(bench.layers().beginning(&layer.id.to_string()[..5]).unwrap(), only);
    assert!(bench.layers().of(Path::new("/elsewhere")).unwrap().is_empty());
    assert!(bench.layers().beginning("x").unwrap().is_empty());
    for private in [&layer.directory, &layer.work, layer.directory.parent().unwrap()] {
        assert_eq!(fs::metadata(private).unwrap().mode() & 0o777, 0o700, "{private:?}");
    }
    let newer = bench.layers().create(&bench.folder(), &[]).unwrap();
    let all: Vec<_> = bench.layers().of(&bench.folder()).unwrap().iter().map(|layer| layer.id).collect();
    assert_eq!(all, [newer.id, layer.id], "the newest first");
    drop(newer);
    drop(bench.layer);
    assert!(!layer.is_in_use());
}

#[test]
fn the_top_of_a_layer_looks_like_its_folder() {
    let bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    fs::create_dir(bench.folder()).unwrap();
    mode(&bench.folder(), 0o751);
    let is_root = belljar_sys::rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(bench.folder(), Some(4321), Some(1234)).unwrap();
    }
    let bench = bench.layered();
    let upper = fs::metadata(bench.upper()).unwrap();
    assert_eq!(upper.mode() & 0o7777, 0o751);
    if is_root {
        assert_eq!((upper.uid(), upper.gid()), (4321, 1234));
    }
}

#[test]
fn what_happened_before_is_before_and_what_happens_after_is_after() {
    // The smallest distance there can be: no sleep, many times.
    for _ in 0..50 {
        let bench = Bench::with(&[("early", "1")]);
        bench.host("late", "2");
        let changed =
            |name: &str| beneath::stat_of(File::open(bench.folder().join(name)).unwrap()).unwrap().changed;
        assert!(changed("late").is_since(bench.layer().stamp));
        if multigrain() {
            assert!(!changed("early").is_since(bench.layer().stamp));
        }
    }
}

/// Whether this kernel's ctimes are fine-grained: Linux 6.13.
fn multigrain() -> bool {
    let release = belljar_sys::rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(13))
}

#[test]
fn a_run_that_changed_nothing_leaves_nothing() {
    let mut bench = Bench::with(&[("a", "a"), ("d/b", "b")]);
    // Copied up and not changed; and the files that overlayfs leaves in its work directory.
    bench.copied("d/b", "b");
    fs::create_dir(bench.layer().work.join("work")).unwrap();
    sys::mknodat(CWD, bench.layer().work.join("work/#1"), FileType::CharacterDevice, Mode::empty(), 0)
        .unwrap();
    mode(&bench.layer().work.join("work"), 0o000);
    let outcome = bench.layer.take().unwrap().finish(Commits::None).unwrap();
    assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
    assert!(bench.layers().list().unwrap().is_empty());
    assert_eq!(
        fs::read_dir(bench.root.path().join("state/layers")).unwrap().count(),
        1,
        "only the store's lock"
    );
}

/// A full disk, for example: the outcome of the run is the same, and its layer stays.
#[test]
fn a_layer_beside_which_nothing_can_be_written_is_kept() {
    let mut bench = Bench::with(&[("a", "a")]);
    bench.put("a", "other");
    fs::create_dir_all(bench.layer().directory.join("found.json/in the way")).unwrap();
    let outcome = bench.layer.take().unwrap().finish(Commits::None).unwrap();
    let summary = Summary { modified: 1, ..Summary::default() };
    assert!(
        matches!(&outcome, Outcome::Changed { summary: found, unnoted: Some(_) } if *found == summary),
        "{outcome:?}"
    );
    assert_eq!(bench.layers().list().unwrap().len(), 1);
}

#[test]
fn what_is_left_out_is_all_that_stays_of_a_layer_that_was_applied() {
    let mut bench = Bench::with(&[("a", "a")]);
    bench.copied("a", "A");
    bench.put("n/1", "1");
    for path in ["b/HEAD", "b/config", "b/objects/x", "b/refs/x"] {
        bench.put(path, "evil");
    }
    assert!(bench.apply(&[]).unwrap().kept);
    assert_eq!(content(&bench.tree(), "a"), Some("A"));
    let layer = bench.layers().of(&bench.folder()).unwrap().remove(0);
    // The owner's later edits are no change of the layer, and no conflict.
    bench.host("a", "mine");
    bench.host("n/1", "mine");
    let changes = layer.changes().unwrap();
    let rest: Vec<String> = changes.list.iter().map(|change| change.path.to_string()).collect();
    assert!(!rest.iter().any(|path| path == "a" || path.starts_with("n/")), "{rest:?}");
    assert!(changes.left_out.iter().any(|out| out.path.to_string() == "b/HEAD"));
    assert!(bench.apply(&[]).unwrap().kept);
    assert_eq!(content(&bench.tree(), "a"), Some("mine"));
}

#[test]
fn a_run_that_changed_something_is_summed_up() {
    let mut bench = Bench::with(&[("a", "a"), ("b", "b"), ("c", "c")]);
    bench.put("a", "other");
    bench.put("new", "n");
    bench.whiteout("b");
    let outcome = bench.layer.take().unwrap().finish(Commits::None).unwrap();
    let summary = Summary { added: 1, modified: 1, deleted: 1, ..Summary::default() };
    assert!(
        matches!(&outcome, Outcome::Changed { summary: found, unnoted: None } if *found == summary),
        "{outcome:?}"
    );
    assert_eq!(bench.layers().list().unwrap().len(), 1);
}

#[test]
fn what_was_left_half_made_is_swept() {
    let bench = Bench::with(&[]);
    let store = bench.root.path().join("state/layers");
    write(&store.join(".new-0123456789abcdef/upper/x"), "x");
    write(&store.join(".gone-0123456789abcdef/work/work/x"), "x");
    mode(&store.join(".gone-0123456789abcdef/work/work"), 0o000);
    assert!(bench.layers().sweep().unwrap().is_empty());
    let mut left: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [bench.layer().id.to_string().as_str(), "lock"], "a live neighbour is let alone");
}

#[test]
fn a_layer_that_cannot_be_read_is_an_error_of_its_own() {
    let bench = Bench::with(&[]);
    let second = bench.layers().create(&bench.folder(), &[]).unwrap();
    fs::write(second.directory.join("layer.json"), "{").unwrap();
    let list = bench.layers().list().unwrap();
    assert_eq!(list.iter().filter(|layer| layer.is_ok()).count(), 1);
    // By the beginning of its id it is found as damaged, and without a label as well.
    let by_beginning = bench.layers().beginning(&second.id.to_string()[..6]);
    assert!(matches!(by_beginning, Err(LayerError::Damaged(_))), "{by_beginning:?}");
    fs::remove_file(second.directory.join("layer.json")).unwrap();
    assert_eq!(bench.layers().damaged().unwrap().len(), 1);
    assert!(list.iter().any(
        |layer| matches!(layer, Err(LayerError::Damaged(damaged)) if damaged.id == second.id.to_string())
    ));
}

#[test]
fn a_layer_that_does_not_say_which_directory_it_is_of_is_damaged() {
    let bench = Bench::with(&[]);
    let older =
        r#"{"version":1,"folder":[47],"stamp":[1,1],"created_nanos":1,"protected":[],"had_git":false}"#;
    fs::write(bench.layer().directory.join("layer.json"), older).unwrap();
    let list = bench.layers().list().unwrap();
    assert!(
        matches!(&list[..], [Err(LayerError::Damaged(damaged))] if damaged.reason.contains("another version of belljar (format 1)"))
    );
}

#[test]
fn a_terminal_does_not_obey_the_name_of_a_folder_that_is_missing() {
    let bench = Bench::with(&[]);
    let error = bench.layers().create(&bench.root.path().join("\u{1b}]0;evil\u{7}"), &[]).unwrap_err();
    assert!(!error.to_string().contains(['\u{1b}', '\u{7}']), "{error}");
    assert!(error.to_string().contains("\\033]0;evil"), "{error}");
}

#[test]
fn removal_needs_neither_depth_nor_permission_and_follows_nothing() {
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("outside/file"), "stays");
    let top = place.path().join("tree");
    fs::create_dir(&top).unwrap();
    link("../outside", &top.join("link"));
    write(&top.join(".belljar-gone-0/.belljar-gone-1/x"), "x");
    write(&top.join(".belljar-gone-1"), "a file");
    write(&top.join("closed/x"), "x");
    mode(&top.join("closed"), 0o000);
    deep(&top, 3000);
    let open = Beneath::open(place.path()).unwrap();
    remove_at(open.root(), b"tree").unwrap();
    assert!(!top.exists());
    assert!(place.path().join("outside/file").exists());
    remove_at(open.root(), b"tree").unwrap();
}

/// A chain of directories that no path can name, with a file at its end.
pub(super) fn deep(top: &Path, levels: usize) {
    let mut at = sys::open(top, sys::OFlags::PATH | sys::OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        sys::mkdirat(&at, "deeper", Mode::RWXU).unwrap();
        at = sys::openat(&at, "deeper", sys::OFlags::PATH | sys::OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let flags = sys::OFlags::WRONLY | sys::OFlags::CREATE;
    drop(sys::openat(&at, "end", flags, Mode::RUSR | Mode::WUSR).unwrap());
}

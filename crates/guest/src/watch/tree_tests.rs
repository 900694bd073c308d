use super::*;
use belljar_sys::rustix::fs::inotify::Reader;
use belljar_wire::message::FileRoot;
use std::fs;
use std::mem::MaybeUninit;
use tempfile::TempDir;

struct Watched {
    folder: TempDir,
    tree: Tree<'static>,
}

impl Watched {
    fn new(folders: &[&str]) -> Watched {
        Watched::within(folders, ".")
    }

    fn within(folders: &[&str], root: &'static str) -> Watched {
        let folder = TempDir::new().unwrap();
        for below in folders {
            fs::create_dir_all(folder.path().join(below)).unwrap();
        }
        let path = folder.path().to_str().unwrap().to_string();
        let place = Box::leak(Box::new(PathRoot::open(FileRoot::Beneath(vec![path.clone()]), path).unwrap()));
        let tree = Tree::watch(place, root, true).unwrap();
        Watched { folder, tree }
    }

    /// Everything that the kernel has to say now.
    fn changes(&mut self) -> Vec<(ChangeKind, String)> {
        let events = self.tree.events().unwrap();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = Reader::new(&events, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => self.tree.understand(&event),
                Err(Errno::AGAIN) => break,
                Err(errno) => panic!("{errno}"),
            }
        }
        self.tree.caught_up();
        let text = |change: Change| (change.kind, String::from_utf8(change.path.0).unwrap());
        self.tree.take_all().into_iter().map(text).collect()
    }
}

fn change(kind: ChangeKind, path: &str) -> (ChangeKind, String) {
    (kind, path.to_string())
}

#[test]
fn what_a_new_directory_held_before_it_was_watched_is_told_once() {
    let mut watched = Watched::new(&[]);
    let deep = watched.folder.path().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "").unwrap();
    let expected = [
        change(ChangeKind::Created, "a"),
        change(ChangeKind::Created, "a/b"),
        change(ChangeKind::Created, "a/b/file"),
    ];
    assert_eq!(watched.changes(), expected);
    fs::remove_file(deep.join("file")).unwrap();
    fs::write(deep.join("file"), "").unwrap();
    assert_eq!(
        watched.changes(),
        [change(ChangeKind::Removed, "a/b/file"), change(ChangeKind::Created, "a/b/file")]
    );
}

#[test]
fn a_name_that_begins_like_another_is_not_below_it() {
    let mut watched = Watched::new(&["a/x", "ab/x"]);
    let path = |below: &str| watched.folder.path().join(below);
    fs::rename(path("a"), path("c")).unwrap();
    fs::write(path("ab/x/file"), "").unwrap();
    let seen = watched.changes();
    assert!(seen.contains(&change(ChangeKind::Created, "ab/x/file")), "{seen:?}");
    let mut known: Vec<_> =
        watched.tree.directories.values().map(|path| String::from_utf8_lossy(path)).collect();
    known.sort();
    assert_eq!(known, ["", "ab", "ab/x", "c", "c/x"]);
}

#[test]
fn directories_that_are_gone_are_forgotten() {
    let mut watched = Watched::new(&["a/b/c", "d"]);
    assert_eq!(watched.tree.directories.len(), 5);
    fs::remove_dir_all(watched.folder.path().join("a")).unwrap();
    watched.changes();
    assert_eq!(watched.tree.directories.len(), 2);
}

#[test]
fn the_end_of_the_directory_is_told_last() {
    let mut watched = Watched::within(&["root/a"], "root");
    fs::remove_dir_all(watched.folder.path().join("root")).unwrap();
    assert_eq!(watched.changes().last(), Some(&change(ChangeKind::Removed, "")));
    assert!(watched.tree.is_over());
}

#[test]
fn the_same_twice_is_told_once() {
    let mut watched = Watched::new(&[]);
    let file = watched.folder.path().join("file");
    for content in ["1", "22", "333"] {
        fs::write(&file, content).unwrap();
    }
    assert_eq!(
        watched.changes(),
        [change(ChangeKind::Created, "file"), change(ChangeKind::Modified, "file")]
    );
}

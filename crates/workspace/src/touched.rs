//! What a sandbox changed in a folder that it worked in itself: a look before, a look after, and what is different.
//!
//! Only what the kernel says of files is compared (kind, size, inode, time of change, which no program can set); nothing is
//! read. A folder is read as hostile: no link is followed, no other filesystem entered. Whatever lies in a git directory is
//! left out, and so is what nobody inside could change. The engine looks where somebody asked for it.

use crate::layer::beneath::{self, Beneath};
use crate::layer::{Kind, Moment, RelPath, Stat};
use belljar_spec::workspace::{Shielded, View};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

/// What a folder was like.
#[derive(Debug)]
pub struct Look {
    folder: PathBuf,
    /// What nobody inside could change.
    held: HashSet<RelPath>,
    /// `None`: too many.
    seen: Option<Seen>,
}

/// What is different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// This.
    Touched(Touched),
    /// There are too many files, before or after, to be compared.
    TooMany,
}

/// What was touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Touched {
    pub added: u64,
    /// Also with another type or mode.
    pub modified: u64,
    pub deleted: u64,
    /// The first of them, in the order of their names.
    pub paths: Vec<TouchedPath>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TouchedPath {
    pub path: RelPath,
    pub how: How,
}

/// What was done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Added,
    Modified,
    Deleted,
}

/// What was seen, by path.
type Seen = BTreeMap<RelPath, Entry>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// With something in it: whoever works in it touches it, and that is said of what is in it.
    Directory,
    /// With nothing in it, or with what is nobody's business.
    Empty,
    Other {
        kind: Kind,
        size: u64,
        inode: u64,
        changed: Moment,
    },
}

impl Look {
    /// Looks at the folder of a view.
    pub fn at(view: &View) -> Look {
        let held = view.shields.iter().filter(|shield| shield.what != Shielded::Anchored);
        let held = held.filter_map(|shield| RelPath::understand(shield.path.as_ref())).collect();
        let mut look = Look { folder: view.folder.clone(), held, seen: None };
        look.seen = look.again();
        look
    }

    /// Looks again, and says what is different. Nobody works in it any more.
    pub fn compare(&self) -> Compared {
        // Where there were too many, nobody has to count them again.
        match self.seen.as_ref().and_then(|before| Some((before, self.again()?))) {
            Some((before, after)) => Compared::Touched(different(before, &after)),
            None => Compared::TooMany,
        }
    }

    fn again(&self) -> Option<Seen> {
        // Whoever shows the folder says what is wrong with it.
        let Ok(folder) = Beneath::open(&self.folder) else { return Some(Seen::new()) };
        let mut walk = Walk { folder: &folder, held: &self.held, seen: Seen::new(), todo: vec![Vec::new()] };
        while let Some(path) = walk.todo.pop() {
            walk.directory(&path)?;
        }
        Some(walk.seen)
    }
}

struct Walk<'w> {
    folder: &'w Beneath,
    held: &'w HashSet<RelPath>,
    seen: Seen,
    /// Directories that are still to be read.
    todo: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// `None` if there are too many. What cannot be read, or is gone by now, has nothing in it.
    fn directory(&mut self, path: &[u8]) -> Option<()> {
        let Ok(directory) = self.folder.directory(path) else { return Some(()) };
        let names = beneath::some_names(&directory, MOST - self.seen.len()).ok();
        for name in names.unwrap_or(Some(Vec::new()))? {
            let child = RelPath::child(path, &name);
            if self.held.contains(&child) {
                continue;
            }
            let Ok(Some(stat)) = beneath::stat_at(&directory, &name) else { continue };
            if stat.kind == Kind::Directory && name != GIT {
                self.todo.push(child.as_bytes().to_vec());
            }
            if let Some(parent) = self.parent(&child) {
                *parent = Entry::Directory;
            }
            self.seen.insert(child, Entry::from(stat));
        }
        Some(())
    }

    fn parent(&mut self, child: &RelPath) -> Option<&mut Entry> {
        self.seen.get_mut(&child.ancestors().next()?)
    }
}

impl From<Stat> for Entry {
    fn from(stat: Stat) -> Entry {
        let Stat { kind, size, inode, changed, .. } = stat;
        match kind {
            Kind::Directory => Entry::Empty,
            kind => Entry::Other { kind, size, inode, changed },
        }
    }
}

fn different(before: &Seen, after: &Seen) -> Touched {
    let mut found = Vec::new();
    for (path, new) in after {
        let how = match before.get(path) {
            None if *new == Entry::Directory => continue,
            None => How::Added,
            Some(old) if old.is_directory() && new.is_directory() || old == new => continue,
            Some(_) => How::Modified,
        };
        found.push(TouchedPath { path: path.clone(), how });
    }
    let gone = before.iter().filter(|(path, old)| **old != Entry::Directory && !after.contains_key(*path));
    found.extend(gone.map(|(path, _)| TouchedPath { path: path.clone(), how: How::Deleted }));
    let count = |how: How| found.iter().filter(|one| one.how == how).count() as u64;
    let (added, modified, deleted) = (count(How::Added), count(How::Modified), count(How::Deleted));
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.truncate(NAMED);
    Touched { added, modified, deleted, paths: found }
}

impl Entry {
    fn is_directory(self) -> bool {
        matches!(self, Entry::Directory | Entry::Empty)
    }
}

const GIT: &[u8] = b".git";
/// Tens of milliseconds for a look, and some megabytes.
const MOST: usize = 20_000;
/// More than anybody reads.
const NAMED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::workspace::Shield;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn view(folder: &Path) -> View {
        View::plain(folder.into())
    }

    fn words(compared: Compared) -> Vec<String> {
        let Compared::Touched(touched) = compared else { return vec!["too many".into()] };
        let all = touched.added + touched.modified + touched.deleted;
        assert!(touched.paths.len() as u64 == all.min(NAMED as u64));
        touched.paths.iter().map(|one| format!("{:?} {}", one.how, one.path)).collect()
    }

    #[test]
    fn what_was_added_modified_and_deleted_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for directory in ["kept/deep", "emptied", "gone/too", "becomes", ".git/objects"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["kept/deep/same", "kept/written", "emptied/file", "mode", "replaced", "becomes/file"] {
            fs::write(at(file), "x").unwrap();
        }
        symlink("nowhere", at("link")).unwrap();
        let look = Look::at(&view(folder.path()));
        assert_eq!(words(look.compare()), Vec::<String>::new());

        fs::write(at("kept/written"), "y").unwrap();
        fs::remove_file(at("emptied/file")).unwrap();
        fs::remove_dir_all(at("gone")).unwrap();
        fs::remove_dir_all(at("becomes")).unwrap();
        fs::write(at("becomes"), "").unwrap();
        fs::set_permissions(at("mode"), Permissions::from_mode(0o700)).unwrap();
        fs::write(at("new"), "x").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        fs::create_dir_all(at("made/below")).unwrap();
        fs::create_dir_all(at("kept/empty")).unwrap();
        fs::write(at("made/below/file"), "").unwrap();
        fs::remove_file(at("link")).unwrap();
        symlink("elsewhere", at("link")).unwrap();
        fs::write(at(".git/objects/pack"), "").unwrap();
        fs::create_dir_all(at("sub/.git/hooks")).unwrap();
        let expected = [
            "Modified becomes",
            "Deleted becomes/file",
            "Deleted emptied/file",
            "Deleted gone/too",
            "Added kept/empty",
            "Modified kept/written",
            "Modified link",
            "Added made/below/file",
            "Modified mode",
            "Modified replaced",
            "Added sub/.git",
        ];
        assert_eq!(words(look.compare()), expected);
    }

    #[test]
    fn no_link_is_followed_and_nothing_waited_for() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let look = Look::at(&view(folder.path()));
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink("/", folder.path().join("root")).unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        fs::write(outside.path().join("secret"), "").unwrap();
        std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
        assert_eq!(words(look.compare()), ["Added loop", "Added out", "Added pipe", "Added root"]);
        // The folder itself may be gone.
        fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(words(look.compare()), Vec::<String>::new());
    }

    #[test]
    fn what_is_held_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let shield = |path: &str, what| Shield { path: path.into(), what };
        let shields = vec![
            shield(".husky", Shielded::MissingDirectory),
            shield("kept", Shielded::Existing),
            shield("anchor", Shielded::Anchored),
        ];
        fs::create_dir_all(folder.path().join("kept")).unwrap();
        fs::create_dir_all(folder.path().join("anchor")).unwrap();
        let look = Look::at(&View { shields, ..view(folder.path()) });
        for path in [".husky", "kept/more", "anchor/free"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        assert_eq!(words(look.compare()), ["Added anchor/free"]);
    }

    #[test]
    fn names_are_bytes_and_paths_may_be_long() {
        use belljar_sys::rustix::fs::{Mode, OFlags, mkdirat, openat};
        use std::os::fd::OwnedFd;
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let look = Look::at(&view(folder.path()));
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"a\nb\xff")), "").unwrap();
        let mut deepest = OwnedFd::from(fs::File::open(folder.path()).unwrap());
        for _ in 0..30 {
            let name = "n".repeat(200);
            mkdirat(&deepest, &name, Mode::RWXU).unwrap();
            deepest = openat(&deepest, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        }
        openat(&deepest, "end", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU).unwrap();
        let found = words(look.compare());
        assert!(found.len() == 2 && found[0].contains("\\n") && found[1].ends_with("/end"), "{found:?}");
    }

    #[test]
    fn too_many_are_not_compared() {
        let folder = tempfile::tempdir().unwrap();
        let look = Look::at(&view(folder.path()));
        for number in 0..=NAMED {
            fs::write(folder.path().join(format!("{number}")), "").unwrap();
        }
        let Compared::Touched(touched) = look.compare() else { panic!("not so many") };
        assert_eq!((touched.added, touched.paths.len()), (NAMED as u64 + 1, NAMED));
        for directory in ["a", "b"] {
            fs::create_dir(folder.path().join(directory)).unwrap();
            for number in 0..MOST / 2 {
                fs::hard_link(folder.path().join("0"), folder.path().join(format!("{directory}/{number}")))
                    .unwrap();
            }
        }
        assert_eq!(look.compare(), Compared::TooMany);
        assert_eq!(Look::at(&view(folder.path())).compare(), Compared::TooMany);
    }
}

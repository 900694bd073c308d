//! Files that would make git hang in a worktree that an agent worked in.
//!
//! git opens every file that it expects: a pipe in the place of `.gitattributes`, or of `HEAD` in a folder that looks like a
//! repository, makes it wait for ever, and a sparse file of terabytes in the place of a small one keeps it reading. So the worktree
//! is checked first, by names, kinds and sizes; only directories are opened. No sandbox works in it meanwhile. Called for managed
//! clones and clones before git compares their files.

use crate::inert::{Call, GitError};
use belljar_git::ObjectId;
use belljar_overlay::beneath::{self, Beneath};
use belljar_overlay::{Kind, RelPath, Stat};
use belljar_spec::egress::Printable;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

/// A file on which git would hang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    pub path: RelPath,
    pub why: TrapKind,
}

/// The reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrapKind {
    Pipe,
    Device,
    TooLarge,
    /// Below this folder there are more files than the limit.
    TooMany,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Printable::new(self.path.as_bytes());
        match self.why {
            TrapKind::Pipe => write!(f, "`{path}` is a pipe"),
            TrapKind::Device => write!(f, "`{path}` is a device"),
            TrapKind::TooLarge => write!(f, "`{path}` is far too large"),
            TrapKind::TooMany => write!(f, "`{path}` has too many files in it"),
        }
    }
}

/// A file of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Committed {
    pub(crate) path: RelPath,
    what: What,
    pub(crate) id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    File { size: u64 },
    Link,
    Repository,
}

/// All files of a commit, from the call's repository.
pub(crate) fn committed(call: Call, commit: &ObjectId) -> Result<Vec<Committed>, GitError> {
    let list = call.args(["ls-tree", "-r", "-l", "-z", "--full-tree", commit.as_str()]).output()?;
    Ok(list.split(|byte| *byte == 0).filter_map(one).collect())
}

/// `mode kind id size`, a tab, and the path.
fn one(line: &[u8]) -> Option<Committed> {
    let (about, path) = line.split_at(line.iter().position(|byte| *byte == b'\t')?);
    let mut words = std::str::from_utf8(about).ok()?.split_ascii_whitespace();
    let (mode, id, size) = (words.next()?, words.nth(1)?, words.next()?);
    let what = match (mode, size.parse()) {
        ("160000", _) => What::Repository,
        ("120000", _) => What::Link,
        (_, Ok(size)) => What::File { size },
        (_, Err(_)) => return None,
    };
    Some(Committed { path: RelPath::child(b"", &path[1..]), what, id: id.to_string() })
}

/// The state of a committed file in a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// By name and size it may be unchanged: git can compare it.
    Comparable,
    /// Certainly changed, or gone.
    Different,
    /// A submodule, whose files are not compared.
    Apart,
    /// Git must not read it.
    Trapped(Trap),
}

/// A checked worktree.
pub(crate) struct Ground {
    root: Beneath,
    /// A trap in a folder, or above it, for a git that reads a file of it.
    folders: HashMap<Vec<u8>, Option<Trap>>,
}

impl Ground {
    pub(crate) fn at(folder: &Path) -> io::Result<Ground> {
        Ok(Ground { root: Beneath::open(folder)?, folders: HashMap::new() })
    }

    /// The state of a committed file here.
    pub(crate) fn find(&mut self, file: &Committed) -> Found {
        if let Some(trap) = self.rules(file.path.parent()) {
            return Found::Trapped(trap);
        }
        let most = match file.what {
            What::Repository => return Found::Apart,
            What::File { size } => size.saturating_mul(GROWTH).saturating_add(SLACK),
            What::Link => u64::MAX,
        };
        let Some(stat) = self.stat(&file.path) else { return Found::Different };
        match (trap(file.path.clone(), &stat, most), file.what, stat.kind) {
            (Some(trap), ..) => Found::Trapped(trap),
            (None, What::File { .. }, Kind::File) | (None, What::Link, Kind::Link) => Found::Comparable,
            // A folder in its place may look like a repository, and then git would read its `HEAD`.
            (None, ..) => Found::Different,
        }
    }

    /// A trap for a git that writes a file: in its parent folders, and in a folder in its place.
    pub(crate) fn trap_on_the_way_to(&mut self, file: &Committed) -> Option<Trap> {
        if let Some(trap) = self.rules(file.path.parent()) {
            return Some(trap);
        }
        match self.stat(&file.path)?.kind {
            Kind::Directory => self.search(file.path.as_bytes()),
            Kind::File | Kind::Link | Kind::Fifo | Kind::Socket | Kind::Device => None,
        }
    }

    /// Whether a folder there looks like a repository: git would read files of it.
    pub(crate) fn has_repository(&self, folder: &RelPath) -> bool {
        self.stat(&RelPath::child(folder.as_bytes(), b".git")).is_some()
    }

    /// A trap for a git that walks the whole worktree.
    pub(crate) fn trap_anywhere(&self) -> Option<Trap> {
        self.search(b"")
    }

    /// Files that are not in this set, up to a limit.
    pub(crate) fn others(&self, known: &HashSet<&RelPath>, most: usize) -> Vec<RelPath> {
        let mut others = Vec::new();
        let _ = self.walk(b"", &mut |path, stat| {
            if stat.kind != Kind::Directory && !known.contains(&path) {
                others.push(path);
            }
            match others.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        others
    }

    /// A trap for a git that reads the rules (`.gitattributes`, `.gitignore`) for a folder: those of every parent count.
    fn rules(&mut self, folder: &[u8]) -> Option<Trap> {
        if let Some(known) = self.folders.get(folder) {
            return known.clone();
        }
        let above = match folder.iter().rposition(|byte| *byte == b'/') {
            Some(end) => self.rules(&folder[..end]),
            None if folder.is_empty() => None,
            None => self.rules(b""),
        };
        let here = || {
            RULES.iter().find_map(|name| {
                let path = RelPath::child(folder, name);
                let stat = self.stat(&path)?;
                trap(path, &stat, MAX_RULES_BYTES)
            })
        };
        let found = above.or_else(here);
        self.folders.insert(folder.to_vec(), found.clone());
        found
    }

    fn search(&self, folder: &[u8]) -> Option<Trap> {
        let walked = self.walk(folder, &mut |path, stat| {
            let most = match path.name() {
                name if RULES.contains(&name) => MAX_RULES_BYTES,
                // The file in which a folder that looks like a repository names its common directory.
                b"commondir" => MAX_LINE_BYTES,
                _ => u64::MAX,
            };
            trap(path, &stat, most).map_or(ControlFlow::Continue(()), ControlFlow::Break)
        });
        match walked {
            Walked::Whole => None,
            Walked::Until(trap) => Some(trap),
            Walked::TooMuch => {
                let folder = if folder.is_empty() { b"." } else { folder };
                Some(Trap { path: RelPath::child(b"", folder), why: TrapKind::TooMany })
            }
        }
    }

    /// Everything below a folder. Git cannot read an unreadable entry either.
    fn walk<T>(&self, folder: &[u8], visit: &mut dyn FnMut(RelPath, Stat) -> ControlFlow<T>) -> Walked<T> {
        let mut left = MAX_SEEN;
        let mut waiting = vec![folder.to_vec()];
        while let Some(folder) = waiting.pop() {
            let Ok(directory) = self.root.directory(&folder) else { continue };
            let Ok(names) = beneath::some_names(&directory, left) else { continue };
            let Some(names) = names else { return Walked::TooMuch };
            left -= names.len();
            for name in names {
                // The git directory itself: git is never started on it.
                if folder.is_empty() && name == b".git" {
                    continue;
                }
                let Ok(Some(stat)) = beneath::stat_at(&directory, &name) else { continue };
                let path = RelPath::child(&folder, &name);
                if stat.kind == Kind::Directory {
                    waiting.push(path.as_bytes().to_vec());
                }
                if let ControlFlow::Break(found) = visit(path, stat) {
                    return Walked::Until(found);
                }
            }
        }
        Walked::Whole
    }

    fn stat(&self, path: &RelPath) -> Option<Stat> {
        self.root.stat(path).ok()?
    }
}

enum Walked<T> {
    Whole,
    Until(T),
    TooMuch,
}

/// Whether opening it, and reading up to a limit, would hang.
fn trap(path: RelPath, stat: &Stat, most: u64) -> Option<Trap> {
    let why = match stat.kind {
        Kind::Fifo => TrapKind::Pipe,
        Kind::Device => TrapKind::Device,
        Kind::File if stat.size > most => TrapKind::TooLarge,
        // A link is not followed, and opening a socket fails at once.
        Kind::File | Kind::Link | Kind::Directory | Kind::Socket => return None,
    };
    Some(Trap { path, why })
}

/// Files that git reads in every folder on its way.
const RULES: [&[u8]; 2] = [b".gitattributes", b".gitignore"];
/// More rules than a person writes by hand.
const MAX_RULES_BYTES: u64 = 16 << 20;
/// The file holds a path and little else.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// A file may be larger than its committed content: line ends take two bytes, other encodings four for one, and `$Id$` grows
/// twelvefold. One that is even larger was changed.
const GROWTH: u64 = 16;
const SLACK: u64 = 64 << 10;
/// As many as in the largest repositories with their build output.
const MAX_SEEN: usize = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::process::Command;

    fn file(path: &str, size: u64) -> Committed {
        let path = RelPath::understand(path.as_ref()).unwrap();
        Committed { path, what: What::File { size }, id: String::new() }
    }

    fn pipe(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn a_file_is_held_against_what_was_committed_of_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in ["folder", "rules/below", "large"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (name, size) in [("same", 5), ("longer", 50), ("endless", 1 << 42), ("rules/below/same", 5)] {
            File::create(at(name)).unwrap().set_len(size).unwrap();
        }
        for name in ["pipe", "rules/.gitattributes"] {
            pipe(&at(name));
        }
        File::create(at("large/.gitignore")).unwrap().set_len(1 << 42).unwrap();
        std::os::unix::fs::symlink("same", at("link")).unwrap();
        std::os::unix::fs::symlink("/", at("away")).unwrap();
        let mut ground = Ground::at(place.path()).unwrap();
        let mut found = |name: &str| match ground.find(&file(name, 5)) {
            Found::Trapped(trap) => trap.to_string(),
            other => format!("{other:?}"),
        };
        for (name, expected) in [
            ("same", "Comparable"),
            ("longer", "Comparable"),
            ("missing", "Different"),
            ("missing/below", "Different"),
            ("folder", "Different"),
            ("link", "Different"),
            ("away/etc/passwd", "Different"),
            ("pipe", "`pipe` is a pipe"),
            ("endless", "`endless` is far too large"),
            ("rules/below/same", "`rules/.gitattributes` is a pipe"),
            ("large/missing", "`large/.gitignore` is far too large"),
        ] {
            assert_eq!(found(name), expected, "{name}");
        }
    }

    #[test]
    fn traps_are_found_at_any_depth() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in [".git", "a/b/c/.git", "sub"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        pipe(&at(".git/HEAD"));
        fs::write(at("sub/file"), "x").unwrap();
        std::os::unix::net::UnixListener::bind(at("sub/socket")).unwrap();
        let ground = Ground::at(place.path()).unwrap();
        assert_eq!(
            ground.trap_anywhere(),
            None,
            "what is in the git directory is nothing that git meets here"
        );
        File::create(at("a/b/c/.git/commondir")).unwrap().set_len(1 << 42).unwrap();
        let found = |ground: &Ground| ground.trap_anywhere().unwrap().to_string();
        assert_eq!(found(&ground), "`a/b/c/.git/commondir` is far too large");
        fs::remove_file(at("a/b/c/.git/commondir")).unwrap();
        pipe(&at("a/b/c/.git/HEAD"));
        assert_eq!(found(&ground), "`a/b/c/.git/HEAD` is a pipe");
        let known = file("sub/file", 1);
        let others = ground.others(&HashSet::from([&known.path]), 10);
        let names: Vec<_> = others.iter().map(|path| String::from_utf8_lossy(path.as_bytes())).collect();
        assert_eq!(names, ["sub/socket", "a/b/c/.git/HEAD"]);
    }
}

//! A short walk through a work tree, before and after: files that commonly run on the host, repositories, and files with names
//! elsewhere. From the top down, and bounded: a start must not take as long as a walk of everything.

use super::executed::{self, Executed};
use super::fingerprint::{Budget, Fingerprint};
use super::left::{Left, LeftKind, of_repository};
use crate::layer::beneath::{self, Beneath};
use crate::layer::{Kind, Moment, RelPath};
use crate::settings::path_of;
use belljar_sys::rustix::fs::{Dir, FileType};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a work tree had.
#[derive(Debug)]
pub(super) struct Survey {
    executed: BTreeMap<RelPath, Fingerprint>,
    repositories: BTreeMap<RelPath, Fingerprint>,
    /// Whether all of it was looked at: then what is not here was not there.
    is_whole: bool,
    /// When. What changed before has no later time of change: the clock of files is never ahead of this one.
    taken: Moment,
}

/// What is different.
#[derive(Debug, Default)]
pub(super) struct Different {
    pub(super) executed: Vec<Executed>,
    pub(super) left: Vec<Left>,
    pub(super) is_whole: bool,
}

impl Survey {
    pub(super) fn take(folder: &Path) -> Survey {
        let mut survey = Survey {
            executed: BTreeMap::new(),
            repositories: BTreeMap::new(),
            is_whole: false,
            taken: Moment(0, 0),
        };
        let is_whole = walk(folder, MOST_BEFORE, &mut |found| match found.what {
            Seen::Repository => {
                survey.repositories.insert(found.path.clone(), of_repository(&found.place(folder)));
            }
            Seen::Other if survey.executed.len() < MOST_READ && found.runs().is_some() => {
                let now = executed::fingerprint(&found.place(folder), &mut Budget::small());
                survey.executed.insert(found.path.clone(), now);
            }
            Seen::Other => {}
        });
        survey.is_whole = is_whole && survey.executed.len() < MOST_READ;
        survey.taken = now();
        survey
    }

    /// Looks again. `is_held` says what others tell about.
    pub(super) fn compare(&self, folder: &Path, is_held: &dyn Fn(&RelPath) -> bool) -> Different {
        let mut different = Different::default();
        let mut names: HashMap<u64, (u32, u32, RelPath)> = HashMap::new();
        different.is_whole = walk(folder, MOST_AFTER, &mut |found| {
            let place = found.place(folder);
            match found.what {
                Seen::Repository => {
                    let dot_git = RelPath::child(found.path.as_bytes(), b".git");
                    let is_different = match self.repositories.get(&found.path) {
                        Some(before) => *before != of_repository(&place),
                        None => self.is_whole || self.is_later(&place.join(".git")),
                    };
                    if is_different && !is_held(&dot_git) {
                        different.left.push(Left { path: place, what: LeftKind::RepositoryBelow });
                    }
                }
                Seen::Other => {
                    if let Some(reason) = found.runs().filter(|_| !is_held(&found.path)) {
                        let now = executed::fingerprint(&place, &mut Budget::small());
                        let is_different = match self.executed.get(&found.path) {
                            Some(before) => *before != now,
                            None => now != Fingerprint::Nothing && (self.is_whole || self.is_later(&place)),
                        };
                        if is_different {
                            let path = path_of(found.path.as_bytes());
                            different.executed.push(Executed { path, reason });
                        }
                    }
                    if let Ok(Some(stat)) = beneath::stat_at(found.directory, found.path.name())
                        && stat.kind == Kind::File
                        && stat.links > 1
                        && stat.changed > self.taken
                    {
                        let known = names.entry(stat.inode).or_insert((0, stat.links, found.path.clone()));
                        known.0 += 1;
                    }
                }
            }
        });
        // Where not all names were looked for, the others may be in the folder.
        if different.is_whole {
            let mut outside: Vec<RelPath> =
                names.into_values().filter(|(found, all, _)| found < all).map(|(.., path)| path).collect();
            outside.sort();
            let left = outside
                .into_iter()
                .map(|path| Left { path: folder.join(path_of(path.as_bytes())), what: LeftKind::HardLink });
            different.left.extend(left);
        }
        different.executed.sort();
        different
    }

    /// Whether it changed since, by the kernel's own time of change.
    fn is_later(&self, place: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        place.symlink_metadata().is_ok_and(|found| {
            Moment(found.ctime(), u32::try_from(found.ctime_nsec()).unwrap_or_default()) > self.taken
        })
    }
}

/// What a walk comes to.
struct Found<'w> {
    path: RelPath,
    directory: &'w OwnedFd,
    what: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// A folder with a `.git`.
    Repository,
    /// A file, a link, or something else that is no folder.
    Other,
}

impl Found<'_> {
    fn place(&self, folder: &Path) -> PathBuf {
        folder.join(path_of(self.path.as_bytes()))
    }

    /// What runs it. In folders of what others made there are thousands of such files, which change with every install.
    fn runs(&self) -> Option<&'static str> {
        let mut parts = self.path.parts();
        let is_made = parts.any(|part| MADE.contains(&part));
        executed::runs_on_host(self.path.as_bytes()).filter(|_| !is_made)
    }
}

/// Walks from the top down; says whether it saw all of it. Nothing in a git directory.
fn walk(folder: &Path, most: usize, visit: &mut dyn FnMut(&Found<'_>)) -> bool {
    let Ok(root) = Beneath::open(folder) else { return true };
    let mut waiting = VecDeque::from([Vec::new()]);
    let mut seen = 0;
    while let Some(path) = waiting.pop_front() {
        let Ok(directory) = root.directory(&path) else { continue };
        for entry in Dir::read_from(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            seen += 1;
            if seen > most {
                return false;
            }
            if name == b".git" {
                if let Some(path) = RelPath::understand(&path_of(&path)) {
                    visit(&Found { path, directory: &directory, what: Seen::Repository });
                }
                continue;
            }
            let child = RelPath::child(&path, name);
            let is_directory = match entry.file_type() {
                FileType::Unknown => {
                    matches!(beneath::stat_at(&directory, name), Ok(Some(stat)) if stat.kind == Kind::Directory)
                }
                known => known == FileType::Directory,
            };
            match is_directory {
                true => waiting.push_back(child.as_bytes().to_vec()),
                false => visit(&Found { path: child, directory: &directory, what: Seen::Other }),
            }
        }
    }
    true
}

fn now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos())
}

/// Made by tools, not by people.
pub(super) const MADE: [&[u8]; 6] =
    [b"node_modules", b".venv", b"venv", b"site-packages", b"target", b".tox"];
/// A few milliseconds at a start.
const MOST_BEFORE: usize = 8192;
/// Files whose content is kept in mind.
const MOST_READ: usize = 1024;
/// Some tens of milliseconds at an end.
const MOST_AFTER: usize = 20_000;

//! A short walk through a work tree, before and after: files that commonly run on the host, repositories, and files with hard links
//! elsewhere. From the top down, and bounded: a start must not take as long as a full walk.

use super::executed::{self, Executed};
use super::fingerprint::{Budget, Fingerprint};
use super::left::{Left, LeftKind, of_repository};
use crate::settings::path_of;
use belljar_overlay::beneath::{self, Beneath};
use belljar_overlay::{Kind, Moment, RelPath};
use belljar_sys::rustix::fs::{Dir, FileType};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The state of a work tree.
#[derive(Debug)]
pub(super) struct Survey {
    executed: BTreeMap<RelPath, Fingerprint>,
    repositories: BTreeMap<RelPath, Fingerprint>,
    /// How much was read: a path in this extent that is not listed did not exist.
    extent: Extent,
    /// When it was taken. Earlier changes have no later ctime: the clock of files is never ahead of this one.
    taken: Moment,
}

/// The differences.
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
            extent: Extent::Part,
            taken: Moment(0, 0),
        };
        let Walk { extent, .. } = walk(folder, MAX_BEFORE, &mut |found| match found.what {
            Seen::Repository => {
                survey.repositories.insert(found.path.clone(), of_repository(&found.place(folder)));
            }
            Seen::Other if survey.executed.len() < MAX_READ && found.runs().is_some() => {
                let now = executed::fingerprint(&found.place(folder), &mut Budget::small());
                survey.executed.insert(found.path.clone(), now);
            }
            Seen::Other => {}
        });
        survey.extent = if survey.executed.len() < MAX_READ { extent } else { Extent::Part };
        survey.taken = now();
        survey
    }

    /// Looks again. `is_held` is true for paths that are reported elsewhere.
    pub(super) fn compare(&self, folder: &Path, is_held: &dyn Fn(&RelPath) -> bool) -> Different {
        let mut different = Different::default();
        let mut others = Vec::new();
        let mut reached = BTreeSet::new();
        let walked = walk(folder, MAX_AFTER, &mut |found| {
            match found.what {
                Seen::Repository => self.compare_repository(&found.path, folder, is_held, &mut different),
                Seen::Other => {
                    self.compare_executed(found, folder, is_held, &mut different);
                    others.push(found.path.clone());
                }
            }
            if self.executed.contains_key(&found.path) || self.repositories.contains_key(&found.path) {
                reached.insert(found.path.clone());
            }
        });
        if walked.extent == Extent::Part {
            // Known paths are compared even if the walk ended early: so an agent cannot hide a change behind some thousand new
            // files.
            self.compare_unreached(&reached, folder, is_held, &mut different);
        }
        if walked.is_too_many && self.extent != Extent::Part {
            different.left.push(Left { path: folder.to_path_buf(), what: LeftKind::TooMuch });
        }
        different.is_whole = walked.extent == Extent::All;
        // If the walk was incomplete, the other names may be in the folder: then no file is checked.
        if different.is_whole {
            different.left.extend(
                Links::of(folder, &others, self.taken).outside().into_iter().map(|path| Left {
                    path: folder.join(path_of(path.as_bytes())),
                    what: LeftKind::HardLink,
                }),
            );
        }
        different.executed.sort();
        different
    }

    fn compare_repository(
        &self,
        path: &RelPath,
        folder: &Path,
        is_held: &dyn Fn(&RelPath) -> bool,
        different: &mut Different,
    ) {
        let place = folder.join(path_of(path.as_bytes()));
        let is_different = match self.repositories.get(path) {
            Some(before) => *before != of_repository(&place),
            None => self.knew(path) || self.is_later(&place.join(".git")),
        };
        if is_different && !is_held(&RelPath::child(path.as_bytes(), b".git")) {
            different.left.push(Left { path: place, what: LeftKind::RepositoryBelow });
        }
    }

    fn compare_executed(
        &self,
        found: &Found,
        folder: &Path,
        is_held: &dyn Fn(&RelPath) -> bool,
        different: &mut Different,
    ) {
        let Some(reason) = found.runs().filter(|_| !is_held(&found.path)) else { return };
        let place = found.place(folder);
        let now = executed::fingerprint(&place, &mut Budget::small());
        let is_different = match self.executed.get(&found.path) {
            Some(before) => *before != now,
            None => now != Fingerprint::Nothing && (self.knew(&found.path) || self.is_later(&place)),
        };
        if is_different {
            different.executed.push(Executed { path: path_of(found.path.as_bytes()), reason });
        }
    }

    fn compare_unreached(
        &self,
        reached: &BTreeSet<RelPath>,
        folder: &Path,
        is_held: &dyn Fn(&RelPath) -> bool,
        different: &mut Different,
    ) {
        for (path, before) in self.executed.iter().filter(|(path, _)| !reached.contains(path)) {
            let place = folder.join(path_of(path.as_bytes()));
            let now = executed::fingerprint(&place, &mut Budget::small());
            let reason = executed::runs_on_host(path.as_bytes()).filter(|_| !is_held(path));
            if let Some(reason) = reason.filter(|_| now != Fingerprint::Nothing && now != *before) {
                different.executed.push(Executed { path: path_of(path.as_bytes()), reason });
            }
        }
        for path in self.repositories.keys().filter(|path| !reached.contains(path)) {
            self.compare_repository(path, folder, is_held, different);
        }
    }

    /// Whether the survey would list it if it had existed.
    fn knew(&self, path: &RelPath) -> bool {
        match self.extent {
            Extent::All => true,
            Extent::Work => !is_made(path),
            Extent::Part => false,
        }
    }

    /// Whether it changed since, by ctime.
    fn is_later(&self, place: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        place.symlink_metadata().is_ok_and(|found| {
            Moment(found.ctime(), u32::try_from(found.ctime_nsec()).unwrap_or_default()) > self.taken
        })
    }
}

/// An entry that a walk finds.
struct Found {
    path: RelPath,
    what: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// A folder with a `.git`.
    Repository,
    /// A file, a link, or another entry that is no folder.
    Other,
}

impl Found {
    fn place(&self, folder: &Path) -> PathBuf {
        folder.join(path_of(self.path.as_bytes()))
    }

    /// The program that runs it. Folders of installed dependencies have thousands of such files, which change with every install.
    fn runs(&self) -> Option<&'static str> {
        executed::runs_on_host(self.path.as_bytes()).filter(|_| !is_made(&self.path))
    }
}

fn is_made(path: &RelPath) -> bool {
    path.parts().any(|part| MADE.contains(&part))
}

/// Files with several hard links that changed since a moment.
#[derive(Default)]
struct Links {
    /// By inode: how many names were found, how many exist, and one of them.
    names: HashMap<u64, (u32, u32, RelPath)>,
    /// It took too long, and not all were checked.
    is_late: bool,
}

impl Links {
    /// Checks these files, which are ordered by directory. Each costs a `stat`, which takes a millisecond on a network filesystem.
    fn of(folder: &Path, files: &[RelPath], since: Moment) -> Links {
        let mut links = Links::default();
        let Ok(root) = Beneath::open(folder) else { return links };
        let started = Instant::now();
        for siblings in files.chunk_by(|one, next| one.parent() == next.parent()) {
            let Ok(directory) = root.directory(siblings[0].parent()) else { continue };
            for file in siblings {
                if started.elapsed() > MAX_LINK_WALK_TIME {
                    links.is_late = true;
                    return links;
                }
                if let Ok(Some(stat)) = beneath::stat_at(&directory, file.name())
                    && stat.kind == Kind::File
                    && stat.links > 1
                    && stat.changed > since
                {
                    links.names.entry(stat.inode).or_insert((0, stat.links, file.clone())).0 += 1;
                }
            }
        }
        links
    }

    /// Files with a name that was not found; none if not all files were checked.
    fn outside(self) -> Vec<RelPath> {
        let all = self.names.into_values().filter(|(found, all, _)| !self.is_late && found < all);
        let mut outside: Vec<RelPath> = all.map(|(.., path)| path).collect();
        outside.sort();
        outside
    }
}

/// How much of a work tree a walk saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Part,
    /// All except folders that tools fill, and their content.
    Work,
    All,
}

struct Walk {
    extent: Extent,
    /// Whether the work itself has more entries than the limit.
    is_too_many: bool,
}

/// Walks from the top down, and last through folders that tools fill; returns how much it saw. Skips git directories.
fn walk(folder: &Path, most: usize, visit: &mut dyn FnMut(&Found)) -> Walk {
    let whole = Walk { extent: Extent::All, is_too_many: false };
    let Ok(root) = Beneath::open(folder) else { return whole };
    let (mut waiting, mut made) = (VecDeque::from([Vec::new()]), VecDeque::new());
    let (mut seen, start) = (0, Instant::now());
    loop {
        let in_made = waiting.is_empty();
        let Some(path) = waiting.pop_front().or_else(|| made.pop_front()) else { return whole };
        let Ok(directory) = root.directory(&path) else { continue };
        for entry in Dir::read_from(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            seen += 1;
            if seen > most || start.elapsed() > MAX_WALK_TIME {
                let extent = if in_made { Extent::Work } else { Extent::Part };
                return Walk { extent, is_too_many: seen > most && !in_made };
            }
            if name == b".git" {
                if let Some(path) = RelPath::understand(&path_of(&path)) {
                    visit(&Found { path, what: Seen::Repository });
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
                true if in_made || MADE.contains(&name) => made.push_back(child.as_bytes().to_vec()),
                true => waiting.push_back(child.as_bytes().to_vec()),
                false => visit(&Found { path: child, what: Seen::Other }),
            }
        }
    }
}

fn now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos())
}

/// Folders that tools fill, not users.
pub(super) const MADE: [&[u8]; 6] =
    [b"node_modules", b".venv", b"venv", b"site-packages", b"target", b".tox"];
/// A few milliseconds at a start.
const MAX_BEFORE: usize = 8192;
/// Limit of files whose content is remembered.
const MAX_READ: usize = 1024;
/// Some tens of milliseconds at an end.
const MAX_AFTER: usize = 20_000;
/// For slow directory listings, as on a network filesystem.
const MAX_WALK_TIME: Duration = Duration::from_secs(5);
const MAX_LINK_WALK_TIME: Duration = Duration::from_secs(2);

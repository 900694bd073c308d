//! Whether the host's git can work in a git directory that an agent may have made: one that was not there when a sandbox first worked
//! in a folder around it. Git writes through links wherever they lead, and a list of alternates names any directory of the host, which
//! the sandbox would then be shown.

use super::HostGit;
use crate::quarantine::alternates;
use belljar_state::{Survives, create_private, write_atomic};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The folders that sandboxes have worked in, and since when: a directory of belljar's own with a file for each.
#[derive(Debug, Clone)]
pub struct Worked {
    directory: PathBuf,
}

impl Worked {
    /// Below a state directory, which no sandbox can write to.
    pub fn at(state: &Path) -> Worked {
        Worked { directory: state.join("worked") }
    }

    /// Notes that a sandbox is about to work in a folder, unless that is known.
    pub fn note(&self, folder: &Path) -> std::io::Result<()> {
        let file = self.directory.join(name_of(&folder.metadata()?));
        // The first note counts, also if the folder had another name then.
        if file.exists() {
            return Ok(());
        }
        create_private(&self.directory)?;
        write_atomic(&file, folder.as_os_str().as_bytes(), Survives::Kill)
    }

    /// Whether a file was changed since a sandbox first worked in a folder around it. Nothing inside can set the time of the last change
    /// of an inode.
    fn may_be_written_inside(&self, file: &Path) -> bool {
        let changed =
            |path: &Path| fs::symlink_metadata(path).ok().map(|about| (about.ctime(), about.ctime_nsec()));
        let around: BTreeSet<OsString> = file
            .ancestors()
            .filter_map(|folder| folder.metadata().ok())
            .map(|about| name_of(&about))
            .collect();
        let records = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        records.map(|entry| entry.path()).any(|record| {
            // By what it is, since a folder may have been moved, and by its name, since one may have been made anew there.
            let is_around = record.file_name().is_some_and(|name| around.contains(name))
                || fs::read(&record).is_ok_and(|folder| file.starts_with(crate::settings::path_of(&folder)));
            is_around && changed(file) >= changed(&record)
        })
    }

    /// Why git of the host must not work in this git directory, if it must not.
    pub fn obstacle(&self, host: &HostGit) -> Option<String> {
        for directory in [&host.own, &host.common] {
            if let Some(link) = first_link(directory) {
                return Some(format!("`{}` is a link, and git writes wherever it leads", link.display()));
            }
        }
        for objects in alternates::all(&host.common.join("objects")) {
            let list = objects.join("info/alternates");
            if list.symlink_metadata().is_ok() && self.may_be_written_inside(&list) {
                return Some(format!(
                    "`{}` may have been written by a sandbox: it is not older than the first one that worked there",
                    list.display()
                ));
            }
        }
        None
    }
}

/// A folder, whatever its path is: another one has another number, or was made at another time.
fn name_of(folder: &fs::Metadata) -> OsString {
    let made =
        folder.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{:x}-{:x}-{:x}", folder.dev(), folder.ino(), made.as_nanos()).into()
}

/// The first link that git would read or write through.
fn first_link(git_directory: &Path) -> Option<PathBuf> {
    let mut waiting = vec![(git_directory.to_path_buf(), 0)];
    let mut looked = 0;
    while let Some((directory, depth)) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            looked += 1;
            if kind.is_symlink() && !(depth == 0 && name == "hooks") {
                return Some(entry.path());
            }
            let is_followed = match depth {
                0 => FOLLOWED.iter().any(|followed| name == *followed),
                // Not the folders of loose objects: git makes a file there, and never goes on below.
                _ if directory.ends_with("objects") => name == "info" || name == "pack",
                _ => true,
            };
            if kind.is_dir() && is_followed && looked < MAX_LOOKED_AT {
                waiting.push((entry.path(), depth + 1));
            }
        }
    }
    None
}

/// Directories of a git directory that git writes to; hooks may well be links.
const FOLLOWED: [&str; 4] = ["refs", "logs", "objects", "info"];
const MAX_LOOKED_AT: usize = 500_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn host(place: &Path) -> HostGit {
        let own = place.join("w/.git");
        for folder in ["refs/heads", "logs/refs", "objects/info", "objects/ab", "hooks"] {
            fs::create_dir_all(own.join(folder)).unwrap();
        }
        HostGit { top: place.join("w"), common: own.clone(), own }
    }

    #[test]
    fn links_are_an_obstacle_wherever_git_writes() {
        for link in ["refs/heads/x", "logs/refs/heads", "objects/cd", "objects/info/x", "index", "lfs"] {
            let place = tempfile::tempdir().unwrap();
            let host = host(place.path());
            symlink("../../hook", host.own.join("hooks/pre-commit")).unwrap();
            let worked = Worked::at(&place.path().join("state"));
            assert_eq!(worked.obstacle(&host), None);
            fs::remove_dir_all(host.own.join("hooks")).unwrap();
            symlink("../tools/hooks", host.own.join("hooks")).unwrap();
            assert_eq!(worked.obstacle(&host), None);
            symlink("/", host.own.join(link)).unwrap();
            assert!(worked.obstacle(&host).unwrap().contains(link), "{link}");
        }
    }

    #[test]
    fn alternates_count_if_no_sandbox_can_have_written_them() {
        let place = tempfile::tempdir().unwrap();
        let host = host(place.path());
        let worked = Worked::at(&place.path().join("state"));
        let list = host.own.join("objects/info/alternates");
        fs::write(&list, "/elsewhere\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        worked.note(&host.top).unwrap();
        assert_eq!(worked.obstacle(&host), None);
        std::thread::sleep(std::time::Duration::from_millis(20));
        worked.note(&host.top).unwrap();
        fs::write(&list, "/root\n").unwrap();
        assert!(worked.obstacle(&host).unwrap().contains("alternates"));
        // Also where the folder was moved since.
        let moved = place.path().join("moved");
        fs::rename(&host.top, &moved).unwrap();
        let own = moved.join(".git");
        let host = HostGit { top: moved.clone(), common: own.clone(), own };
        worked.note(&moved).unwrap();
        assert!(worked.obstacle(&host).unwrap().contains("alternates"));
        // In a folder that no sandbox worked in it is the user's.
        assert_eq!(Worked::at(&place.path().join("other")).obstacle(&host), None);
    }
}

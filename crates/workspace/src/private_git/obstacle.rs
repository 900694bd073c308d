//! Files that must not be in a git directory that the host's git works in. An agent that once worked in the surrounding folder may
//! have made all of it: git would write through links to any target, wait for pipes for ever, and take another directory that
//! `commondir` names for the repository.

use super::HostGit;
use crate::foreign::Foreign;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Why the host's git must not work in this git directory, if so.
pub fn obstacle(host: &HostGit) -> Option<String> {
    let HostGit { own, common, .. } = host;
    let found = planted(own).or_else(|| if own == common { None } else { planted(common) });
    if found.is_some() {
        return found;
    }
    let leads_elsewhere = |directory: &Path| directory.join("commondir").symlink_metadata().is_ok();
    if leads_elsewhere(common) {
        return Some(format!("`{}` makes it a part of another one", common.join("commondir").display()));
    }
    let read = |directory: &Path, name: &str| {
        let bytes = Foreign::open(directory).ok()?.read(name, MAX_LIST_BYTES).ok()??;
        Some(OsString::from_vec(bytes.trim_ascii_end().to_vec()))
    };
    let named = read(own, "commondir").and_then(|named| own.join(named).canonicalize().ok());
    if own != common && named != common.canonicalize().ok() {
        return Some(format!("`{}` is a part of another repository", own.display()));
    }
    // Git reads ref tables wherever these names lead, and removes tables when it compacts them.
    let lists = [own, common].map(|directory| directory.join("reftable"));
    lists.iter().find_map(|tables| {
        let leads_out = read(tables, "tables.list")?.as_bytes().contains(&b'/');
        leads_out
            .then(|| format!("`{}` names a file of another directory", tables.join("tables.list").display()))
    })
}

/// The first link or pipe where git reads or writes. git does not use git-lfs objects: belljar writes them by descriptors. Git
/// directories of submodules are checked separately.
fn planted(git_directory: &Path) -> Option<String> {
    let mut waiting = vec![(git_directory.to_path_buf(), true)];
    let mut looked = 0;
    while let Some((directory, is_gits)) = waiting.pop() {
        let is_top = directory == git_directory;
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let (name, path): (_, PathBuf) = (entry.file_name(), entry.path());
            looked += 1;
            if looked > MAX_LOOKED_AT {
                return Some(format!("`{}` has too many files to be looked at", git_directory.display()));
            }
            if kind.is_symlink() && is_gits && !(is_top && name == "hooks") {
                return Some(format!("`{}` is a link, and git writes wherever it leads", path.display()));
            }
            if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
                return Some(format!(
                    "`{}` is a pipe or a device, and git would wait for it",
                    path.display()
                ));
            }
            if kind.is_dir() && !(is_top && APART.iter().any(|apart| name == *apart)) {
                // Config may include a pipe in any other directory.
                let is_gits = if is_top { GITS.iter().any(|gits| name == *gits) } else { is_gits };
                waiting.push((path, is_gits));
            }
        }
    }
    None
}

const APART: [&str; 2] = ["modules", "lfs"];
/// Directories of a git directory that git reads and writes; hooks, which are never run on the host, may well be links.
const GITS: [&str; 9] =
    ["refs", "logs", "objects", "info", "worktrees", "reftable", "rebase-merge", "rebase-apply", "sequencer"];
const MAX_LOOKED_AT: usize = 2_000_000;
/// A path, or the names of some tables: git compacts them before there are many.
const MAX_LIST_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::rustix::fs::{CWD, Mode, mkfifoat};
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
            assert_eq!(obstacle(&host), None);
            fs::remove_dir_all(host.own.join("hooks")).unwrap();
            symlink("../tools/hooks", host.own.join("hooks")).unwrap();
            assert_eq!(obstacle(&host), None);
            symlink("/", host.own.join(link)).unwrap();
            assert!(obstacle(&host).unwrap().contains(link), "{link}");
        }
    }

    #[test]
    fn pipes_and_other_repositories_are_an_obstacle() {
        let place = tempfile::tempdir().unwrap();
        let host = host(place.path());
        for pipe in ["config", "HEAD", "objects/info/alternates", "objects/ab/x", "refs/heads/x", "hooks/x"] {
            let path = host.own.join(pipe);
            mkfifoat(CWD, &path, Mode::RUSR).unwrap();
            assert!(obstacle(&host).unwrap().contains("is a pipe"), "{pipe}");
            fs::remove_file(path).unwrap();
        }
        fs::write(host.own.join("commondir"), "/elsewhere/.git\n").unwrap();
        assert!(obstacle(&host).unwrap().contains("commondir"));
        fs::remove_file(host.own.join("commondir")).unwrap();
        // A linked worktree must belong to the repository that it was checked as part of, and to no other.
        let own = host.common.join("worktrees/x");
        fs::create_dir_all(&own).unwrap();
        let linked = HostGit { own: own.clone(), ..host };
        fs::write(own.join("commondir"), "../..\n").unwrap();
        assert_eq!(obstacle(&linked), None);
        fs::write(own.join("commondir"), "/elsewhere/.git\n").unwrap();
        assert!(obstacle(&linked).unwrap().contains("another repository"));
    }

    #[test]
    fn a_table_of_refs_in_another_directory_is_an_obstacle() {
        let place = tempfile::tempdir().unwrap();
        let host = host(place.path());
        fs::create_dir(host.own.join("reftable")).unwrap();
        let list = host.own.join("reftable/tables.list");
        fs::write(&list, "0x000000000001-0x000000000002-5c2a1b3d.ref\n").unwrap();
        assert_eq!(obstacle(&host), None);
        for name in ["../../../other/.git/reftable/x.ref", "/etc/x.ref"] {
            fs::write(&list, format!("0x000000000001-0x000000000002-5c2a1b3d.ref\n{name}\n")).unwrap();
            assert!(obstacle(&host).unwrap().contains("tables.list"), "{name}");
        }
    }
}

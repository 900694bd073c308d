//! Links in a git directory of the host. Git writes through them wherever they lead, and an agent that worked around the directory may
//! have made one: so git of the host never works in a git directory that has any.

use super::HostGit;
use std::fs;
use std::path::{Path, PathBuf};

/// Why git of the host must not work in this git directory, if it must not.
pub fn link_obstacle(host: &HostGit) -> Option<String> {
    let link = first_link(&host.own).or_else(|| first_link(&host.common))?;
    Some(format!("`{}` is a link, and git writes wherever it leads", link.display()))
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
            assert_eq!(link_obstacle(&host), None);
            fs::remove_dir_all(host.own.join("hooks")).unwrap();
            symlink("../tools/hooks", host.own.join("hooks")).unwrap();
            assert_eq!(link_obstacle(&host), None);
            symlink("/", host.own.join(link)).unwrap();
            assert!(link_obstacle(&host).unwrap().contains(link), "{link}");
        }
    }
}

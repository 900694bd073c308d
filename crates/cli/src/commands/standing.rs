//! Where in a repository we stand: `belljar run` in a folder below its top works on the repository, from that folder.

use crate::args::{SandboxOptions, workspace};
use belljar_overlay::quote::visible;
use belljar_spec::SandboxError;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is worked on, and from where in it.
pub(super) struct Standing {
    pub(super) sandbox_options: SandboxOptions,
    /// Relative to the workspace; nothing at its top.
    pub(super) below: Option<String>,
}

impl Standing {
    /// A folder that was named is what it is. Of the current one it is the repository that it belongs to.
    /// `says` tells the user, who may have meant the folder alone.
    pub(super) fn of(sandbox_options: SandboxOptions, says: bool) -> Result<Standing, SandboxError> {
        if sandbox_options.folder().is_some()
            || sandbox_options.is_elsewhere()
            || sandbox_options.is_cloned()
            || sandbox_options.branch().is_some()
        {
            return Ok(Standing { sandbox_options, below: None });
        }
        let here = workspace(None)?;
        match repository_of(&here, std::env::home_dir().as_deref()) {
            Some((top, below)) => {
                if says {
                    let shown = visible(top.as_os_str().as_bytes());
                    eprintln!(
                        "belljar: working on the repository {shown}; `--workspace .` shows this folder alone"
                    );
                }
                Ok(Standing { sandbox_options: sandbox_options.on(Some(top)), below: Some(below) })
            }
            None => Ok(Standing { sandbox_options, below: None }),
        }
    }
}

/// The top of the repository that a folder lies in, if that is another folder of the same owner, and the way from there. A home, or what
/// lies around it, is never taken for one: it may be a repository of settings. Nor is a folder that others can write to, since a file
/// of ours that they move there is not what we made of it.
fn repository_of(here: &Path, home: Option<&Path>) -> Option<(PathBuf, String)> {
    let owner = |path: &Path| path.symlink_metadata().ok().map(|found| found.uid());
    let top = here.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
    let is_open = |folder: &Path| folder.metadata().is_ok_and(|found| found.mode() & OTHERS_WRITE != 0);
    if here.ancestors().take_while(|folder| folder.starts_with(top)).any(is_open) || !is_repository(top) {
        return None;
    }
    let is_around_home = home.is_some_and(|home| home.starts_with(top));
    let is_ours = owner(&top.join(".git")) == owner(here) && owner(top) == owner(here);
    let below = here.strip_prefix(top).ok()?.to_str().filter(|below| !below.is_empty())?;
    (is_ours && !is_around_home).then(|| (top.to_path_buf(), below.to_string()))
}

/// Whether a folder's `.git` is what git makes: a git directory, or a file that leads to one.
fn is_repository(top: &Path) -> bool {
    let dot_git = top.join(".git");
    match dot_git.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            dot_git.join("HEAD").symlink_metadata().is_ok() && dot_git.join("objects").is_dir()
        }
        Ok(found) => found.is_file(),
        Err(_) => false,
    }
}

const OTHERS_WRITE: u32 = 0o002;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_of_a_repository_is_worked_on_from_its_top() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("home/repo");
        let below = top.join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(repository_of(&below, None), None, "there is no repository");
        std::fs::create_dir_all(top.join(".git/objects")).unwrap();
        assert_eq!(repository_of(&below, None), None, "a folder of that name is no repository");
        std::fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(repository_of(&below, None), Some((top.clone(), "a/b".into())));
        for open in [&top, &top.join("a")] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
            assert_eq!(repository_of(&below, None), None, "others can put something there");
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(repository_of(&top, None), None, "it is the top itself");
        assert_eq!(repository_of(&below, Some(&top)), None, "a home is no project");
        assert_eq!(repository_of(&below, Some(&top.join("a"))), None, "nor is what lies around one");
    }
}

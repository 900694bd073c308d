//! Builds a list of shields below one directory: parents first, each path once, no link on the way.

use super::names::Names;
use super::settings_table::IfMissing;
use crate::settings::plain;
use belljar_spec::workspace::{Shield, Shielded};
use belljar_spec::{ErrorCode, SandboxError};
use std::fs::{self, FileType};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Clone)]
pub(super) struct Shields {
    root: PathBuf,
    list: Vec<Shield>,
    /// The names in the root at the start: a path that is made later is handled when it is mounted over.
    names: Option<Names>,
}

/// The placeholder of a missing path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Missing {
    /// An empty directory.
    Directory,
    /// A file with this content.
    File(&'static str),
    /// None: it need not be protected.
    Nothing,
}

impl Shields {
    /// Below `root`, a real path.
    pub(super) fn below(root: &Path) -> Shields {
        Shields { root: root.to_path_buf(), list: Vec::new(), names: Some(Names::of(root)) }
    }

    /// Continues an existing list.
    pub(super) fn with(root: &Path, list: Vec<Shield>) -> Shields {
        Shields { root: root.to_path_buf(), list, names: None }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the root is known to have only names that `is_one` accepts.
    pub(super) fn has_only(&self, is_one: impl FnMut(&String) -> bool) -> bool {
        self.names.as_ref().is_some_and(|names| names.are_all(is_one))
    }

    fn lacks(&self, path: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.lack(path))
    }

    pub(super) fn finish(self) -> Vec<Shield> {
        self.list
    }

    /// Protects `path`, and anchors every directory on the way to it.
    pub(super) fn protect(&mut self, path: &str, missing: Missing) -> Result<(), SandboxError> {
        if self.covers(path) || !self.anchor_parents(path, missing)? {
            return Ok(());
        }
        let what = match (self.look(path)?, missing) {
            (Some(_), _) => Shielded::Existing,
            (None, Missing::Directory) => Shielded::MissingDirectory,
            (None, Missing::File(content)) => Shielded::MissingFile(content),
            (None, Missing::Nothing) => return Ok(()),
        };
        // Paths in it are protected with it.
        self.list.retain(|shield| shield.path != path && !is_below(&shield.path, path));
        self.list.push(Shield { path: path.to_string(), what });
        Ok(())
    }

    /// The same, but missing folders on the way are made, and stay writable.
    pub(super) fn protect_below_made(&mut self, path: &str, missing: Missing) -> Result<(), SandboxError> {
        if self.covers(path) {
            return Ok(());
        }
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            let is_known = |shield: &Shield| shield.path == parent && shield.what != Shielded::Watched;
            if self.look(parent)?.is_none() && !self.list.iter().any(is_known) {
                self.list.push(Shield { path: parent.to_string(), what: Shielded::Anchored });
            }
        }
        self.protect(path, missing)
    }

    /// Has `path` compared at the end. It is not protected, since that is impossible or unnecessary.
    pub(super) fn watch(&mut self, path: &str) {
        let is_known = |shield: &Shield| shield.path == path && shield.what == Shielded::Watched;
        if !self.covers(path) && !self.list.iter().any(is_known) {
            self.list.push(Shield { path: path.to_string(), what: Shielded::Watched });
        }
    }

    /// Protects settings that a program on the host reads from `path`. Users have links there: the target is protected, and the
    /// link, which no mount can protect, is watched.
    pub(super) fn settings(&mut self, path: &str, if_missing: IfMissing) -> Result<(), SandboxError> {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for step in ends.map(|end| &path[..end]) {
            let place = self.root.join(step);
            let found = if self.lacks(step) { None } else { place.symlink_metadata().ok() };
            let Some(found) = found else {
                return match if_missing {
                    IfMissing::HoldDirectory => self.protect(path, Missing::Directory),
                    IfMissing::HoldFile if step == path => self.protect(path, Missing::File("")),
                    // A placeholder folder such as `.hg` would make this a repository for other programs.
                    IfMissing::HoldFile | IfMissing::Tell => {
                        self.watch(path);
                        Ok(())
                    }
                };
            };
            if found.is_symlink() {
                self.watch(step);
                // Each recursion has one link less: a loop of links has no real path.
                return match self.below_root(&place) {
                    Some(target) => self.settings(&format!("{target}{}", &path[step.len()..]), if_missing),
                    None => {
                        self.behind_a_link_to_nothing(&place, if_missing);
                        Ok(())
                    }
                };
            }
            if step == path {
                break;
            }
            // It may be another sandbox's placeholder; nothing can be created in it either way.
            let is_empty = || fs::read_dir(&place).is_ok_and(|mut inside| inside.next().is_none());
            if !found.is_dir() || (if_missing == IfMissing::HoldDirectory && is_empty()) {
                return self.protect(step, Missing::Directory);
            }
        }
        self.protect(path, Missing::Nothing)
    }

    /// A link whose target does not exist yet: a file made there would be the settings. If the path to it has other links, only the
    /// link is watched.
    fn behind_a_link_to_nothing(&mut self, link: &Path, if_missing: IfMissing) {
        let Ok(target) = fs::read_link(link) else { return };
        let target = plain(&link.parent().unwrap_or(&self.root).join(target));
        let Some(below) = target.strip_prefix(&self.root).ok().and_then(Path::to_str) else { return };
        if below.is_empty() || target.symlink_metadata().is_ok() {
            return;
        }
        let mut more = self.clone();
        match if_missing == IfMissing::HoldDirectory && more.protect(below, Missing::Directory).is_ok() {
            true => *self = more,
            false => self.watch(below),
        }
    }

    /// A path with links resolved, relative to the root, if it lies below it.
    pub(super) fn below_root(&self, place: &Path) -> Option<String> {
        let real = place.canonicalize().ok()?;
        let below = real.strip_prefix(&self.root).ok()?.to_str()?;
        (!below.is_empty()).then(|| below.to_string())
    }

    /// The entry at `path`; a link is refused.
    pub(super) fn look(&self, path: &str) -> Result<Option<FileType>, SandboxError> {
        if self.lacks(path) {
            return Ok(None);
        }
        match fs::symlink_metadata(self.root.join(path)) {
            Ok(found) if found.is_symlink() => Err(link(&self.root.join(path))),
            Ok(found) => Ok(Some(found.file_type())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => {
                let place = self.root.join(path);
                let message =
                    format!("`{}` has to be protected and cannot be looked at: {error}", place.display());
                Err(ErrorCode::PathRefused
                    .error(message)
                    .hint("belljar must run as a user who may look into it")
                    .caused_by(error))
            }
        }
    }

    /// Whether a shield of a parent already protects `path`.
    fn covers(&self, path: &str) -> bool {
        let is_around = |shield: &Shield| shield.path == path || is_below(path, &shield.path);
        let holds = |what: &Shielded| !matches!(what, Shielded::Anchored | Shielded::Watched);
        self.list.iter().any(|shield| is_around(shield) && holds(&shield.what))
    }

    /// Anchors the directories on the way. Returns whether the path continues: a missing directory is protected in place of its
    /// possible content.
    fn anchor_parents(&mut self, path: &str, missing: Missing) -> Result<bool, SandboxError> {
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            let is_known = |shield: &Shield| shield.path == parent && shield.what != Shielded::Watched;
            if self.list.iter().any(is_known) {
                continue;
            }
            let what = match (self.look(parent)?, missing) {
                (Some(kind), _) if kind.is_dir() => Shielded::Anchored,
                (Some(_), _) => return Err(below_file(&self.root.join(parent), path)),
                (None, Missing::Nothing) => return Ok(false),
                (None, Missing::Directory | Missing::File(_)) => Shielded::MissingDirectory,
            };
            let leads_on = what == Shielded::Anchored;
            self.list.push(Shield { path: parent.to_string(), what });
            if !leads_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn link(place: &Path) -> SandboxError {
    let message = format!(
        "`{}` has to be protected and is a symbolic link: a process that can change the link decides what is protected",
        place.display()
    );
    ErrorCode::PathRefused.error(message)
        .hint("look where it leads (an agent may have made it); put the real file or folder in its place, or remove it")
}

fn below_file(place: &Path, path: &str) -> SandboxError {
    let message = format!(
        "`{path}` cannot be protected: `{}` is not a folder, and nothing can be in it",
        place.display()
    );
    ErrorCode::PathRefused.error(message).hint("name the file itself, or take the path out of `protected`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(paths: &[&str]) -> (tempfile::TempDir, Shields) {
        let place = tempfile::tempdir().unwrap();
        for path in paths {
            let place = place.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            if path.ends_with('/') { fs::create_dir_all(place) } else { fs::write(place, "x") }.unwrap();
        }
        let shields = Shields::below(place.path());
        (place, shields)
    }

    fn seen(shields: Shields) -> Vec<(String, Shielded)> {
        shields.finish().into_iter().map(|shield| (shield.path, shield.what)).collect()
    }

    #[test]
    fn parents_come_first_and_each_path_once() {
        let (_place, mut shields) = below(&["a/b/c", "a/d/"]);
        for path in ["a/b/c", "a/b/c", "a/d", "a/d/e", "a/x/y", "a/x/z"] {
            shields.protect(path, Missing::File("")).unwrap();
        }
        let expected = [
            ("a", Shielded::Anchored),
            ("a/b", Shielded::Anchored),
            ("a/b/c", Shielded::Existing),
            ("a/d", Shielded::Existing),
            ("a/x", Shielded::MissingDirectory),
        ];
        assert_eq!(seen(shields), expected.map(|(path, what)| (path.to_string(), what)));
    }

    #[test]
    fn a_whole_directory_takes_the_place_of_its_parts() {
        let (_place, mut shields) = below(&["a/b/c"]);
        shields.protect("a/b/c", Missing::Nothing).unwrap();
        shields.protect("a", Missing::Nothing).unwrap();
        shields.protect("a/b/c", Missing::Nothing).unwrap();
        assert_eq!(seen(shields), [("a".to_string(), Shielded::Existing)]);
    }

    #[test]
    fn links_and_children_of_files_are_refused() {
        let (place, _) = below(&["file", "real/"]);
        std::os::unix::fs::symlink("real", place.path().join("link")).unwrap();
        let mut shields = Shields::below(place.path());
        for (path, code) in [
            ("link", ErrorCode::PathRefused),
            ("link/below", ErrorCode::PathRefused),
            ("file/child", ErrorCode::PathRefused),
        ] {
            assert_eq!(shields.protect(path, Missing::Directory).unwrap_err().code, code, "{path}");
        }
    }
}

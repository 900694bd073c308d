//! Files and folders of the workspace that the caller hides. Each is found before the start, and covered wherever a mount shows it:
//! a file by `/dev/null`, a folder by an empty one. Links and other names of a hidden file are followed to the file itself. A search
//! that does not come to its end means that there is no sandbox.

use super::{Bind, seen_at, spelled};
use belljar_spec::workspace::{HidePattern, Shield, Shielded, View};
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is hidden, and where it lies on the host, or would lie without the overlay.
#[derive(Default)]
pub(super) struct Hidden {
    paths: BTreeSet<PathBuf>,
}

/// Finds what these patterns mean in the workspace. The folders around it then stay where they are: moved, it would be seen under another
/// name by the next sandbox, which looks for it anew. In an overlay a folder that is moved is copied, without what is hidden.
pub(super) fn find(view: &mut View, patterns: &[HidePattern]) -> Result<Hidden, SandboxError> {
    if patterns.is_empty() {
        return Ok(Hidden::default());
    }
    let elsewhere = shown_from_elsewhere(view);
    let mut search = Search { patterns, elsewhere: &elsewhere, left: MAX_ENTRIES, found: Found::default() };
    search.folder(&view.folder, &view.folder, &mut Vec::new())?;
    if let Some(layer) = &view.layer {
        // A file in an overlay's upper directory is seen at the same path in the folder.
        search.folder(&layer.upper, &view.folder, &mut Vec::new())?;
    }
    // A file has the same content under each of its names.
    if !search.found.several_names.is_empty() {
        search.left = MAX_ENTRIES;
        search.names_of(&view.folder)?;
    }
    let paths = search.found.paths;
    if view.layer.is_none() {
        let around = paths.iter().filter_map(|path| path.strip_prefix(&view.folder).ok()?.parent());
        let around = around.flat_map(|folder| folder.ancestors().filter(|folder| *folder != Path::new("")));
        // A set of paths has parents before what is in them.
        for folder in around.collect::<BTreeSet<_>>() {
            let path = folder.to_str().ok_or_else(|| not_text(&folder.display().to_string()))?.to_string();
            if view.shields.iter().all(|shield| shield.path != path) {
                view.shields.push(Shield { path, what: Shielded::Anchored });
            }
        }
    }
    Ok(Hidden { paths })
}

/// Git directories in whose place another one is seen, relative to the folder.
fn shown_from_elsewhere(view: &View) -> Vec<String> {
    let linked = view.git.iter().map(|_| ".git".to_string());
    view.private_git.iter().map(|git| git.dot_git.clone()).chain(linked).collect()
}

impl Hidden {
    /// The paths inside to mount something over, without their leading slash.
    pub(super) fn places(&self, binds: &[Bind]) -> Result<Vec<String>, SandboxError> {
        let mut places = BTreeSet::new();
        for (_, place) in self.paths.iter().flat_map(|path| seen_at(path, binds)) {
            let shown = place.display().to_string();
            places.insert(spelled(place).ok_or_else(|| not_text(&shown))?);
        }
        // What is in a hidden folder is hidden with it.
        let all: Vec<String> = places.into_iter().collect();
        let is_within = |place: &str| {
            Path::new(place)
                .ancestors()
                .skip(1)
                .any(|outer| all.iter().any(|known| Path::new(known) == outer))
        };
        Ok(all.iter().filter(|place| !is_within(place)).cloned().collect())
    }
}

#[derive(Default)]
struct Found {
    paths: BTreeSet<PathBuf>,
    /// Files that have more names than the one that was found: device and inode.
    several_names: BTreeSet<(u64, u64)>,
}

impl Found {
    fn note_names(&mut self, entry: &Metadata) {
        if entry.is_file() && entry.nlink() > 1 {
            self.several_names.insert((entry.dev(), entry.ino()));
        }
    }
}

struct Search<'p> {
    patterns: &'p [HidePattern],
    elsewhere: &'p [String],
    left: usize,
    found: Found,
}

impl Search<'_> {
    /// Everything in a folder that a pattern means. `folder` is where it lies, `top` what the names on the way to it begin at.
    fn folder(&mut self, folder: &Path, top: &Path, names: &mut Vec<String>) -> Result<(), SandboxError> {
        let Some(entries) = self.entries(folder)? else {
            // Its owner inside could give themselves the right to read it.
            self.found.paths.insert(top.join(names.join("/")));
            return Ok(());
        };
        for (path, name, entry) in entries {
            names.push(name);
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            if self.patterns.iter().any(|pattern| pattern.matches(&all)) {
                // A link itself says nothing, and to cover it would cover what it leads to inside.
                if !entry.is_symlink() {
                    self.found.paths.insert(top.join(all.join("/")));
                }
                self.hide(&path, &entry, top)?;
            } else if entry.is_dir() && !self.elsewhere.contains(&all.join("/")) {
                self.folder(&path, top, names)?;
            }
            names.pop();
        }
        Ok(())
    }

    /// Notes other names of a hidden file, of the files in a hidden folder, and of what a hidden link leads to in the workspace. A link
    /// that leads out of it hides nothing there: an agent may have made it.
    fn hide(&mut self, path: &Path, entry: &Metadata, top: &Path) -> Result<(), SandboxError> {
        if entry.is_dir() {
            for (path, _, entry) in self.entries(path)?.unwrap_or_default() {
                self.hide(&path, &entry, top)?;
            }
        } else if entry.is_symlink()
            && let Ok(target) = path.canonicalize()
            && target != top
            && target.starts_with(top)
            && let Ok(entry) = fs::symlink_metadata(&target)
            && self.found.paths.insert(target.clone())
        {
            self.hide(&target, &entry, top)?;
        }
        self.found.note_names(entry);
        Ok(())
    }

    /// The other names of files that are hidden.
    fn names_of(&mut self, folder: &Path) -> Result<(), SandboxError> {
        for (path, _, entry) in self.entries(folder)?.unwrap_or_default() {
            if entry.is_dir() {
                if !self.found.paths.contains(&path) {
                    self.names_of(&path)?;
                }
            } else if entry.is_file() && self.found.several_names.contains(&(entry.dev(), entry.ino())) {
                self.found.paths.insert(path);
            }
        }
        Ok(())
    }

    /// What is in a folder; `None` if it may not be read.
    fn entries(&mut self, folder: &Path) -> Result<Option<Vec<Entry>>, SandboxError> {
        let failed = |error: io::Error| unreadable(folder, &error);
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            other => other.map_err(failed)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            self.left = self.left.checked_sub(1).ok_or_else(|| too_much(folder))?;
            let metadata = match entry.metadata() {
                // It can be listed and not entered.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
                // It was removed a moment ago.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            };
            // A name that is not UTF-8 is compared after a lossy conversion.
            all.push((entry.path(), entry.file_name().to_string_lossy().into_owned(), metadata));
        }
        Ok(Some(all))
    }
}

type Entry = (PathBuf, String, Metadata);

fn unreadable(folder: &Path, error: &io::Error) -> SandboxError {
    let message = format!("cannot look for what has to be hidden in `{}`: {error}", folder.display());
    ErrorCode::PathRefused.error(message).hint("start again, or hide the folder")
}

fn too_much(folder: &Path) -> SandboxError {
    let message = format!(
        "the workspace has more than {MAX_ENTRIES} files, so not all that has to be hidden can be found (the search ended in `{}`)",
        folder.display()
    );
    ErrorCode::NotSupported.error(message).hint("work on a folder further down")
}

fn not_text(shown: &str) -> SandboxError {
    let message = format!("`/{shown}` has to be hidden, and its name is not valid UTF-8");
    ErrorCode::PathInvalid.error(message).hint("rename it, or hide the folder that it is in")
}

/// More take seconds at each start.
const MAX_ENTRIES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, BindOrigin};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_covered_under_every_name_that_a_mount_shows() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let write = |path: &str| {
            fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            fs::write(folder.join(path), "x").unwrap();
        };
        ["web/.env", "keys/a", "plain", "real.txt", "x/.git/.env", "deep/er/.env.d/f"]
            .into_iter()
            .for_each(write);
        fs::hard_link(folder.join("web/.env"), folder.join("second")).unwrap();
        symlink("real.txt", folder.join("linked.pem")).unwrap();
        let bind = |source: &Path, target: &str| Bind {
            source: source.into(),
            target: target.into(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        };
        let binds = [bind(&folder, "workspace"), bind(&folder.join("web"), "srv/web")];
        let hide = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
            let mut view = View::plain(folder.clone());
            let places = find(&mut view, &patterns).unwrap().places(&binds).unwrap();
            let held = view.shields.into_iter().map(|shield| shield.path).collect::<Vec<_>>();
            (places.join(" "), held.join(" "))
        };
        let said = |places: &str, held: &str| (places.to_string(), held.to_string());
        let places = "srv/web/.env workspace/second workspace/web/.env workspace/x/.git/.env";
        assert_eq!(hide(&[".env"]), said(places, "web x x/.git"));
        // A file in a hidden folder has the same content under a name outside of it; a link leads to the file.
        fs::hard_link(folder.join("keys/a"), folder.join("copy")).unwrap();
        let places = "workspace/copy workspace/keys workspace/real.txt";
        assert_eq!(hide(&["keys", "*.pem"]), said(places, ""));
        assert_eq!(hide(&[".env.d"]), said("workspace/deep/er/.env.d", "deep deep/er"));
        // One that leads out of the workspace, or to all of it, hides nothing there.
        symlink("..", folder.join("out")).unwrap();
        symlink(".", folder.join("all")).unwrap();
        assert_eq!(hide(&["out", "all"]), said("", ""));
        assert_eq!(hide(&["/.env", "absent"]), said("", ""));
    }

    #[test]
    fn a_folder_that_may_not_be_read_is_hidden_as_a_whole() {
        if belljar_sys::rustix::process::geteuid().is_root() {
            return; // Root may read everything.
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        for mode in [0o000, 0o111, 0o444] {
            fs::create_dir(folder.join("web")).unwrap();
            fs::write(folder.join("web/.env"), "x").unwrap();
            fs::set_permissions(folder.join("web"), fs::Permissions::from_mode(mode)).unwrap();
            let found = find(&mut View::plain(folder.clone()), &[".env".parse().unwrap()]).unwrap();
            assert!(found.paths.contains(&folder.join("web")), "{mode:o}");
            fs::set_permissions(folder.join("web"), fs::Permissions::from_mode(0o700)).unwrap();
            fs::remove_dir_all(folder.join("web")).unwrap();
        }
    }
}

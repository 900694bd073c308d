//! Files and folders of the workspace that the caller hides. Each is found before the start, and covered wherever a mount shows it:
//! a file by `/dev/null`, a folder by an empty one. Links and other names of a hidden file are followed to the file itself. A search
//! that does not come to its end means that there is no sandbox.

use super::{Bind, seen_at, spelled};
use belljar_spec::workspace::{HidePattern, View};
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The paths inside to mount something over, without their leading slash.
pub(super) fn below(
    view: &View,
    patterns: &[HidePattern],
    binds: &[Bind],
) -> Result<Vec<String>, SandboxError> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Found::default();
    let mut search = Search { patterns, left: MAX_ENTRIES };
    // A file in an overlay's upper directory is seen at the same path in the folder.
    let roots = std::iter::once(&view.folder).chain(view.layer.as_ref().map(|layer| &layer.upper));
    for root in roots {
        search.folder(root, &mut Vec::new(), &mut |path, names, entry| {
            found.add(&view.folder.join(names.join("/")), path, entry)
        })?;
    }
    // A file has the same content under each of its names.
    if !found.several_names.is_empty() {
        search.left = MAX_ENTRIES;
        search.names_of(&view.folder, &mut found)?;
    }
    let mut places = Vec::new();
    for path in &found.paths {
        for (_, place) in seen_at(path, binds) {
            let shown = place.display().to_string();
            places.push(spelled(place).ok_or_else(|| not_text(&shown))?);
        }
    }
    places.sort();
    places.dedup();
    Ok(places)
}

/// What is hidden.
#[derive(Default)]
struct Found {
    paths: BTreeSet<PathBuf>,
    /// Files that have more names than the one that was found: device and inode.
    several_names: BTreeSet<(u64, u64)>,
}

impl Found {
    /// `shown` is where it is seen, `path` where it lies.
    fn add(&mut self, shown: &Path, path: &Path, entry: &Metadata) {
        self.paths.insert(shown.to_path_buf());
        if entry.is_symlink() {
            // The link itself says nothing; what it leads to is hidden where it lies.
            if let Ok(target) = path.canonicalize() {
                if let Ok(entry) = fs::metadata(&target) {
                    self.note_names(&entry);
                }
                self.paths.insert(target);
            }
        }
        self.note_names(entry);
    }

    fn note_names(&mut self, entry: &Metadata) {
        if entry.is_file() && entry.nlink() > 1 {
            self.several_names.insert((entry.dev(), entry.ino()));
        }
    }
}

struct Search<'p> {
    patterns: &'p [HidePattern],
    left: usize,
}

impl Search<'_> {
    /// Everything below that a pattern means; what lies in a hidden folder is hidden with it.
    fn folder(
        &mut self,
        folder: &Path,
        names: &mut Vec<String>,
        found: &mut impl FnMut(&Path, &[String], &Metadata),
    ) -> Result<(), SandboxError> {
        for (path, name, entry) in self.entries(folder)? {
            // Git directories are shown from elsewhere.
            if name == ".git" {
                continue;
            }
            names.push(name);
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            if self.patterns.iter().any(|pattern| pattern.matches(&all)) {
                found(&path, names, &entry);
            } else if entry.is_dir() {
                self.folder(&path, names, found)?;
            }
            names.pop();
        }
        Ok(())
    }

    /// The other names of files that are hidden.
    fn names_of(&mut self, folder: &Path, found: &mut Found) -> Result<(), SandboxError> {
        for (path, _, entry) in self.entries(folder)? {
            if entry.is_dir() {
                self.names_of(&path, found)?;
            } else if entry.is_file() && found.several_names.contains(&(entry.dev(), entry.ino())) {
                found.paths.insert(path);
            }
        }
        Ok(())
    }

    /// What is in a folder. One that belljar may not read cannot be read inside either.
    fn entries(&mut self, folder: &Path) -> Result<Vec<(PathBuf, String, Metadata)>, SandboxError> {
        let failed = |error: io::Error| unreadable(folder, &error);
        let mut all = Vec::new();
        let Some(entries) = if_there(fs::read_dir(folder)).map_err(failed)? else { return Ok(all) };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            self.left = self.left.checked_sub(1).ok_or_else(|| too_much(folder))?;
            let (path, name) = (entry.path(), entry.file_name());
            let Some(metadata) = if_there(entry.metadata()).map_err(failed)? else { continue };
            // A name that is not UTF-8 is compared after a lossy conversion.
            all.push((path, name.to_string_lossy().into_owned(), metadata));
        }
        Ok(all)
    }
}

/// `None` for what has gone meanwhile, and for what may not be read.
fn if_there<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        Err(error) => Err(error),
    }
}

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
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_covered_under_every_name_that_a_mount_shows() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let write = |path: &str| {
            fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            fs::write(folder.join(path), "x").unwrap();
        };
        ["web/.env", "keys/a", "plain", "real.txt", ".git/.env"].into_iter().for_each(write);
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
            below(&View::plain(folder.clone()), &patterns, &binds).unwrap()
        };
        assert_eq!(hide(&[".env"]), ["srv/web/.env", "workspace/second", "workspace/web/.env"]);
        assert_eq!(
            hide(&["keys", "*.pem"]),
            ["workspace/keys", "workspace/linked.pem", "workspace/real.txt"]
        );
        assert_eq!(hide(&["/.env", "absent"]), [""; 0]);
    }
}

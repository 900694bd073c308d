//! Repositories around a folder, which is then a part of their work tree: their config may name something in it.
//!
//! What is above the folder nobody inside can change, and so it is believed without being named back.

use super::git_dir::is_one;
use super::linked::first_line;
use crate::settings::path_of;
use std::path::{Path, PathBuf};

/// A repository whose work tree the folder is below.
pub(super) struct Enclosing {
    /// The top of its work tree.
    pub(super) root: PathBuf,
    /// Where its config is.
    pub(super) common: PathBuf,
    /// `worktrees/NAME`, or empty.
    pub(super) own: String,
}

/// Every one of them, the nearest first. Git takes the nearest, but a host works in the others as well.
pub(super) fn around(folder: &Path) -> Vec<Enclosing> {
    folder.ancestors().skip(1).filter_map(at).collect()
}

fn at(root: &Path) -> Option<Enclosing> {
    let entry = root.join(".git");
    let git_dir = match first_line(&entry) {
        Some(line) => root.join(path_of(line.strip_prefix(b"gitdir: ")?)),
        None => entry,
    };
    let git_dir = git_dir.canonicalize().ok()?;
    let common = first_line(&git_dir.join("commondir")).map(|line| git_dir.join(path_of(&line)));
    let common = common.and_then(|common| common.canonicalize().ok()).unwrap_or_else(|| git_dir.clone());
    if !is_one(&common) {
        return None;
    }
    let own = git_dir.strip_prefix(&common).ok().and_then(Path::to_str).unwrap_or_default().to_string();
    Some(Enclosing { root: root.to_path_buf(), common, own })
}

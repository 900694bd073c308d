//! The machine's cgroups, of either version.

use std::fs;
use std::path::{Path, PathBuf};

/// Those whose name is meant, however far down they are: what systemd delegates to a user is four levels below the top.
pub fn cgroups(is_meant: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = ahead.pop() {
        for below in folders(&folder) {
            if is_meant(&below.file_name().unwrap_or_default().to_string_lossy()) {
                found.push(below.clone());
            }
            ahead.push(below);
        }
    }
    found
}

/// Not links: a controller may have two names.
fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

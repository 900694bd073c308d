//! The disk usage of our directories.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The usage of the files below a directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// Allocated bytes, hard links counted once.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

/// Counts a file or a directory with all below it. No link is followed and no other filesystem entered; entries that are removed
/// meanwhile or cannot be read are skipped.
pub fn disk_usage(path: &Path) -> DiskUsage {
    let mut usage = DiskUsage::default();
    let Ok(top) = fs::symlink_metadata(path) else { return usage };
    let mut linked = HashSet::new();
    let mut add = |found: &Metadata| {
        if found.is_dir() || found.nlink() == 1 || linked.insert((found.dev(), found.ino())) {
            usage.bytes += found.blocks() * BLOCK_BYTES;
            usage.entries += 1;
        }
    };
    add(&top);
    let mut left = if top.is_dir() { vec![path.to_path_buf()] } else { Vec::new() };
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            // The metadata of the entry itself, even of a link.
            let Ok(found) = entry.metadata() else { continue };
            if found.dev() != top.dev() {
                continue;
            }
            add(&found);
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    usage
}

/// The unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_with_two_names_counts_once_and_a_link_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("kept")).unwrap();
        fs::write(path("kept/file"), vec![1; 100_000]).unwrap();
        let before = disk_usage(&path("kept"));
        assert!(before.bytes >= 100_000 && before.entries == 2, "{before:?}");
        fs::hard_link(path("kept/file"), path("kept/again")).unwrap();
        fs::write(path("outside"), vec![1; 1_000_000]).unwrap();
        symlink(path("outside"), path("kept/link")).unwrap();
        let after = disk_usage(&path("kept"));
        assert_eq!(after.entries, 3);
        assert!(after.bytes < before.bytes + 100_000, "{after:?}");
        assert_eq!(disk_usage(&path("none")), DiskUsage::default());
    }
}

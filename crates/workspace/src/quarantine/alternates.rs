//! Where a repository borrows objects from.

use std::fs;
use std::path::{Path, PathBuf};

/// The object directories that these objects may refer to: the directory itself, and all that it borrows from. Written out
/// flat, since git does not follow a relative path in a borrowed list.
pub(crate) fn all(objects: &Path) -> Vec<PathBuf> {
    let mut found = vec![objects.to_path_buf()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        next += 1;
        let list = fs::read_to_string(directory.join("info/alternates")).unwrap_or_default();
        for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let path = directory.join(line);
            let path = fs::canonicalize(&path).unwrap_or(path);
            if found.len() < MOST && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// git itself follows lists five deep.
const MOST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_lists_are_followed_once() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir_all(place.path().join(name).join("info")).unwrap();
        }
        let write = |name: &str, list: &str| fs::write(place.path().join(name).join("info/alternates"), list);
        write("a", "# no\n../b\n").unwrap();
        write("b", &format!("../a\n{}\n", place.path().join("c").display())).unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        assert_eq!(all(&place.join("a")), ["a", "b", "c"].map(|name| place.join(name)));
    }
}

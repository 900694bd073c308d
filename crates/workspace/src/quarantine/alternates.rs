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

/// The same, for a sandbox to be shown. Any program that once wrote to the repository could put any directory of the host into its list:
/// so one that lies below none of `trusted` is an obstacle.
pub(crate) fn all_trusted(objects: &Path, trusted: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let found = all(objects);
    let real = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let trusted: Vec<PathBuf> = trusted.iter().map(real).collect();
    match found.iter().skip(1).find(|path| !trusted.iter().any(|one| path.starts_with(one))) {
        None => Ok(found),
        Some(outside) => {
            let list = objects.join("info/alternates");
            Err(format!("`{}` makes objects in `{}` a part of it", list.display(), outside.display()))
        }
    }
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

    #[test]
    fn only_trusted_directories_are_borrowed_from() {
        let place = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        for name in ["a/info", "trusted/b/info", "c"] {
            fs::create_dir_all(place.join(name)).unwrap();
        }
        let trusted = [place.join("trusted")];
        let judged = |list: &str| {
            fs::write(place.join("a/info/alternates"), list).unwrap();
            all_trusted(&place.join("a"), &trusted)
        };
        assert_eq!(judged(""), Ok(vec![place.join("a")]));
        assert_eq!(judged("../trusted/b\n"), Ok(vec![place.join("a"), place.join("trusted/b")]));
        assert!(judged("../c\n").unwrap_err().contains("/c`"));
        assert!(judged("../trusted/b\n../trusted/../c\n").is_err());
        // A directory that lies there borrows in its turn, or is a link.
        fs::write(place.join("trusted/b/info/alternates"), "../../c\n").unwrap();
        assert!(judged("../trusted/b\n").is_err());
        fs::write(place.join("trusted/b/info/alternates"), "").unwrap();
        std::os::unix::fs::symlink(place.join("c"), place.join("trusted/link")).unwrap();
        assert!(judged("../trusted/link\n").is_err());
    }
}

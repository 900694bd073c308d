//! Where a repository borrows objects from.

use crate::protect::git_dir::is_one;
use belljar_state::damage::read_small;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The object directories that these objects may refer to: the directory itself, and all that it borrows from. As a flat list,
/// since git does not follow a relative path in a borrowed list.
pub(crate) fn all(objects: &Path) -> Vec<PathBuf> {
    follow(objects, |_| true).unwrap_or_else(|_| vec![objects.to_path_buf()])
}

/// The same, to be mounted in a sandbox; or why it must not be. Any program that once wrote to the repository could put any
/// directory of the host into its list: so each has to be the object directory of a repository that lies below one of `trusted`.
pub(crate) fn all_trusted(objects: &Path, trusted: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let trusted: Vec<PathBuf> = trusted.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    follow(objects, |path| {
        let is_objects = path.file_name().is_some_and(|name| name == "objects");
        is_objects && path.parent().is_some_and(is_one) && trusted.iter().any(|one| path.starts_with(one))
    })
}

fn follow(objects: &Path, is_trusted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![objects.to_path_buf()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        next += 1;
        let list = directory.join("info/alternates");
        let text = match read_small(&list, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("`{}` cannot be read: {error}", list.display())),
        };
        let text = String::from_utf8(text).map_err(|_| format!("`{}` is not valid UTF-8", list.display()))?;
        for line in text.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let named = |why: &str| format!("`{}` names `{}`, {why}", list.display(), line.escape_debug());
            // git also has a quoted form, which we do not parse.
            if line.starts_with('"') || line.chars().any(char::is_control) {
                return Err(named("which is not written as a plain path"));
            }
            let path = fs::canonicalize(directory.join(line)).map_err(|_| named("which is not there"))?;
            if !is_trusted(&path) {
                return Err(named("which makes objects of another directory a part of it"));
            }
            if !found.contains(&path) {
                found.push(path);
            }
            if found.len() > MAX_ALTERNATES {
                return Err(format!("`{}` names too many directories", list.display()));
            }
        }
    }
    Ok(found)
}

const MAX_BYTES: u64 = 64 << 10;
/// git itself follows lists five deep.
const MAX_ALTERNATES: usize = 32;

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
    fn only_object_directories_of_trusted_repositories_are_borrowed_from() {
        let place = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        let repository = |name: &str| {
            fs::create_dir_all(place.join(name).join("objects/info")).unwrap();
            fs::create_dir_all(place.join(name).join("refs")).unwrap();
            fs::write(place.join(name).join("HEAD"), "ref: refs/heads/main\n").unwrap();
        };
        ["a", "trusted/b", "c"].into_iter().for_each(repository);
        fs::create_dir_all(place.join("trusted/plain/objects")).unwrap();
        let trusted = [place.join("trusted"), place.join("not-there")];
        let judged = |list: &[u8]| {
            fs::write(place.join("a/objects/info/alternates"), list).unwrap();
            all_trusted(&place.join("a/objects"), &trusted)
        };
        assert_eq!(judged(b""), Ok(vec![place.join("a/objects")]));
        let both = ["a/objects", "trusted/b/objects"].map(|path| place.join(path));
        assert_eq!(judged(b"../../trusted/b/objects\n"), Ok(both.to_vec()));
        for list in [
            &b"../../c/objects\n"[..],
            b"../../trusted/../c/objects\n",
            // No object directory.
            b"../../trusted/b\n",
            b"../../trusted/plain/objects\n",
            // A path that may have another target later.
            b"../../trusted/none/../../c/objects\n",
            b"../../not-there/objects\n",
            // Spellings that git reads in another way.
            b"\"../../trusted/b/objects\"\n",
            b"../../trusted/b/objects\r\n",
            b"\xff\n",
        ] {
            assert!(judged(list).is_err(), "{}", String::from_utf8_lossy(list));
        }
        // A trusted directory borrows itself, or is a link.
        fs::write(place.join("trusted/b/objects/info/alternates"), "../../../c/objects\n").unwrap();
        assert!(judged(b"../../trusted/b/objects\n").is_err());
        fs::write(place.join("trusted/b/objects/info/alternates"), "").unwrap();
        std::os::unix::fs::symlink(place.join("c"), place.join("trusted/link")).unwrap();
        assert!(judged(b"../../trusted/link/objects\n").is_err());
    }
}

//! The names directly in a folder, listed once. Most of the many queried paths do not exist, and the first part of a path shows
//! that.

use std::fs;
use std::path::Path;

/// All names in a folder; `None` if the folder is too large for a short list.
#[derive(Debug, Clone)]
pub(super) struct Names(Option<Vec<String>>);

impl Names {
    pub(super) fn of(folder: &Path) -> Names {
        let Ok(entries) = fs::read_dir(folder) else { return Names(None) };
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            is_plain(&name).then_some(name)
        };
        let names: Option<Vec<String>> = entries.take(MAX_NAMES + 1).map(name).collect();
        Names(names.filter(|names| names.len() <= MAX_NAMES))
    }

    /// Whether nothing is at `path`, which is relative to the folder.
    pub(super) fn lack(&self, path: &str) -> bool {
        let first = path.split('/').next().unwrap_or(path);
        self.0.as_ref().is_some_and(|names| !names.iter().any(|name| name.eq_ignore_ascii_case(first)))
    }

    /// Whether `is_one` accepts all names.
    pub(super) fn are_all(&self, is_one: impl FnMut(&String) -> bool) -> bool {
        self.0.as_ref().is_some_and(|names| names.iter().all(is_one))
    }
}

/// Whether it can be no other spelling of an ASCII name except for letter case: some file systems have short names (`GIT~1`), and
/// some ignore characters.
fn is_plain(name: &str) -> bool {
    name.is_ascii() && !name.contains('~')
}

/// One read of a directory; in a larger folder each path is looked up.
const MAX_NAMES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absent_only_where_no_name_can_mean_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        fs::create_dir(folder.join(".Claude")).unwrap();
        let names = Names::of(folder);
        assert!(names.lack(".vscode/tasks.json") && !names.lack(".claude/hooks"));
        for other in ["GIT~1", ".g\u{200c}it"] {
            fs::write(folder.join(other), "").unwrap();
            assert!(!Names::of(folder).lack(".vscode"), "{other}");
            fs::remove_file(folder.join(other)).unwrap();
        }
        for number in 0..MAX_NAMES {
            fs::write(folder.join(number.to_string()), "").unwrap();
        }
        assert!(!Names::of(folder).lack(".vscode"), "not all of them were read");
        assert!(!Names::of(&folder.join("missing")).lack("x"));
    }
}

//! Settings in a work tree that programs on the host execute. The data is in `settings.table`.

use std::sync::LazyLock;

/// A path of a work tree that a program on the host reads settings from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsPath {
    /// Relative to the folder.
    pub path: &'static str,
    /// The program that obeys it, and how.
    pub reason: &'static str,
    pub(super) if_missing: IfMissing,
}

/// The treatment of a missing path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    /// An empty directory is its placeholder.
    HoldDirectory,
    /// An empty file is its placeholder, if its folder exists; without the folder, a file that is made there is reported at the
    /// end.
    HoldFile,
    /// A file that is made there is reported at the end.
    Tell,
}

/// All that is protected by default.
pub fn settings_paths() -> &'static [SettingsPath] {
    &TABLE
}

fn read(table: &'static str) -> Result<Vec<SettingsPath>, String> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split('|').map(str::trim).collect();
            let [path, missing, reason] = columns[..] else { return Err(line.to_string()) };
            let if_missing = match missing {
                "held" => IfMissing::HoldDirectory,
                "file" => IfMissing::HoldFile,
                "told" => IfMissing::Tell,
                _ => return Err(line.to_string()),
            };
            Ok(SettingsPath { path, reason, if_missing })
        })
        .collect()
}

static TABLE: LazyLock<Vec<SettingsPath>> = LazyLock::new(|| {
    read(include_str!("settings.table"))
        .expect("a test reads every row of settings.table, which is part of the program")
});

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::workspace::ProtectedPath;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_a_path_with_a_reason() {
        let mut seen = HashSet::new();
        for SettingsPath { path, reason, .. } in settings_paths() {
            assert_eq!(path.parse::<ProtectedPath>().unwrap().as_str(), *path);
            assert!(!reason.is_empty() && seen.insert(path), "{path}");
        }
        assert!(seen.len() > 30);
    }
}

//! Files that commonly run on the host and that an agent changes as a part of its work: told at the end, not held. The data is in
//! `executed.table`.

use super::fingerprint::{Budget, Fingerprint};
use super::settings_table::settings_paths;
use crate::settings::contents;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A file that commonly runs on the host, and changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Executed {
    /// Relative to the folder.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// What runs it.
    pub reason: &'static str,
}

/// An agent chose the name, which need not be UTF-8.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// What commonly runs a file of the host at this path, which is relative to the top of a work tree.
pub fn runs_on_host(path: &[u8]) -> Option<&'static str> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let known = TABLE.iter().find(|(pattern, _)| matches(pattern.as_bytes(), path, name));
    // Settings of programs are held at the top; further down they are at least told.
    let settings = || {
        let mut all = settings_paths().iter();
        all.find(|known| is_or_lies_in(known.path.as_bytes(), path)).map(|known| known.reason)
    };
    known.map(|(_, reason)| *reason).or_else(settings)
}

/// Of a file that commonly runs: of `package.json` all but what it depends on, which changes every day, and what is said of it. Not
/// only its scripts: `lint-staged`, `husky`, `eslintConfig` and others are commands and programs too.
pub(super) fn fingerprint(place: &Path, budget: &mut Budget) -> Fingerprint {
    if place.file_name().is_some_and(|name| name == "package.json")
        && let Some(bytes) = contents(place)
        && let Ok(Value::Object(mut package)) = serde_json::from_slice::<Value>(&bytes)
    {
        package.retain(|name, _| !HARMLESS.contains(&name.as_str()));
        let content = Sha256::digest(Value::Object(package).to_string()).into();
        return Fingerprint::File { is_executable: false, content };
    }
    Fingerprint::of(place, budget)
}

/// What of a `package.json` runs nothing.
const HARMLESS: [&str; 21] = [
    "author",
    "bugs",
    "bundleDependencies",
    "bundledDependencies",
    "contributors",
    "dependencies",
    "dependenciesMeta",
    "description",
    "devDependencies",
    "engines",
    "funding",
    "homepage",
    "keywords",
    "license",
    "name",
    "optionalDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "private",
    "repository",
    "version",
];

fn matches(pattern: &[u8], path: &[u8], name: &[u8]) -> bool {
    match pattern {
        [b'*', end @ ..] => name.len() > end.len() && name.ends_with(end),
        [begin @ .., b'*'] => name.starts_with(begin),
        [folder @ .., b'/'] => path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/")),
        whole if whole.contains(&b'/') => path == whole,
        whole => name == whole,
    }
}

/// Whether a path, from any folder on, is this one or lies in it.
fn is_or_lies_in(wanted: &[u8], path: &[u8]) -> bool {
    let starts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).any(|start| {
        path[start..].strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

fn read(table: &'static str) -> Result<Vec<(&'static str, &'static str)>, String> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| line.split_once('|').ok_or(line);
    lines.map(|line| row(line).map(|(a, b)| (a.trim(), b.trim())).map_err(str::to_string)).collect()
}

static TABLE: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    read(include_str!("executed.table"))
        .expect("a test reads every row of executed.table, which is part of the program")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_are_known_by_name_and_by_place() {
        for path in [
            "Makefile",
            "deep/er/Makefile",
            "rules.mk",
            ".github/workflows/ci.yml",
            "vite.config.ts",
            "crates/x/build.rs",
            ".lintstagedrc.json",
            "packages/a/.vscode/tasks.json",
            "packages/a/.claude/settings.json",
            "sub/.envrc",
        ] {
            assert!(runs_on_host(path.as_bytes()).is_some(), "{path}");
        }
        for path in
            ["src/main.rs", "a/.github/workflows/x", ".mk", "my.Makefile", ".claude/notes.md", ".github"]
        {
            assert_eq!(runs_on_host(path.as_bytes()), None, "{path}");
        }
        assert!(TABLE.iter().all(|(pattern, reason)| !pattern.is_empty() && !reason.is_empty()));
    }

    #[test]
    fn of_a_package_all_counts_that_can_run() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("package.json");
        let now = |text: &str| {
            std::fs::write(&file, text).unwrap();
            fingerprint(&file, &mut Budget::small())
        };
        let before = now(r#"{"scripts":{"test":"true"},"dependencies":{"a":"1"}}"#);
        assert_eq!(now(r#"{"dependencies":{"a":"2"}, "scripts":{"test":"true"}}"#), before);
        assert_ne!(now(r#"{"scripts":{"test":"true","postinstall":"evil"}}"#), before);
        let staged = r#"{"scripts":{"test":"true"},"lint-staged":{"*":"evil"}}"#;
        assert_ne!(now(staged), before, "a hook runs it");
    }
}

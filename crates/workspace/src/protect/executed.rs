//! Files that commonly run on the host and that an agent changes as a part of its work: reported at the end, not protected. The
//! data is in `executed.table`.

use super::fingerprint::{Budget, Fingerprint};
use super::settings_table::settings_paths;
use crate::settings::contents;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A changed file that commonly runs on the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Executed {
    /// Relative to the folder.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// The program that runs it.
    pub reason: &'static str,
}

/// An agent chose the name, which need not be UTF-8.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The program that commonly runs a file at this path, which is relative to the top of a work tree, on the host.
pub fn runs_on_host(path: &[u8]) -> Option<&'static str> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let Lookup { whole, patterns, settings } = &*LOOKUP;
    let exact = [whole.get(name), whole.get(path)].into_iter().flatten().copied();
    let others = patterns.iter().filter(|(_, pattern)| matches(pattern, path, name)).map(|(row, _)| *row);
    if let Some(row) = exact.chain(others).min() {
        return Some(TABLE[row].1);
    }
    // Settings of programs are protected at the top; further down they are at least reported.
    let starts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    let known = iter::once(0).chain(starts).flat_map(|start| {
        let rest = &path[start..];
        let rows = settings.get(first_part(rest)).map(Vec::as_slice).unwrap_or_default();
        rows.iter().copied().filter(|row| is_or_lies_in(settings_paths()[*row].path.as_bytes(), rest))
    });
    known.min().map(|row| settings_paths()[row].reason)
}

/// The fingerprint of a file that commonly runs: of `package.json` all except dependencies, which change every day, and
/// descriptions. Not only its scripts: `lint-staged`, `husky`, `eslintConfig` and others name commands and programs too.
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

/// Keys of a `package.json` that run nothing.
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

/// Both tables, indexed for many thousand lookups.
struct Lookup {
    /// Rows without a wildcard, by their name or path.
    whole: HashMap<&'static [u8], usize>,
    /// The other rows.
    patterns: Vec<(usize, &'static [u8])>,
    /// Rows of the table of settings, by the first part of their path.
    settings: HashMap<&'static [u8], Vec<usize>>,
}

impl Lookup {
    fn of_tables() -> Lookup {
        let mut lookup = Lookup { whole: HashMap::new(), patterns: Vec::new(), settings: HashMap::new() };
        for (row, (pattern, _)) in TABLE.iter().enumerate() {
            match pattern.as_bytes() {
                pattern @ ([b'*', ..] | [.., b'*' | b'/']) => lookup.patterns.push((row, pattern)),
                whole => drop(lookup.whole.entry(whole).or_insert(row)),
            }
        }
        for (row, known) in settings_paths().iter().enumerate() {
            lookup.settings.entry(first_part(known.path.as_bytes())).or_default().push(row);
        }
        lookup
    }
}

fn matches(pattern: &[u8], path: &[u8], name: &[u8]) -> bool {
    match pattern {
        [b'*', end @ ..] => name.len() > end.len() && name.ends_with(end),
        [begin @ .., b'*'] => name.starts_with(begin),
        [folder @ .., b'/'] => path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/")),
        _ => false,
    }
}

/// Whether a path is this one or lies in it.
fn is_or_lies_in(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn first_part(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or(path)
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

static LOOKUP: LazyLock<Lookup> = LazyLock::new(Lookup::of_tables);

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

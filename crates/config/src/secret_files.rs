//! Files at the top of a workspace that hold secrets by their name and by their content, and that a sandbox will see: a suggestion to
//! hide them. A template or a public key is none, so that the suggestion is always worth reading.

use crate::load::Note;
use belljar_spec::workspace::HidePattern;
use belljar_spec::{Term, hint};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The suggestion, if there is something to hide.
pub(crate) fn note(workspace: &Path, known: &[HidePattern]) -> Option<Note> {
    let mut names: Vec<String> = fs::read_dir(workspace)
        .ok()?
        .take(MAX_ENTRIES)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !known.iter().any(|pattern| pattern.matches(&[name])))
        .filter(|name| holds_secret(workspace, name))
        .collect();
    names.sort();
    let (first, more) = names.split_first()?;
    let others = match more.len() {
        0 => String::new(),
        1 => format!(" and `{}`", more[0].escape_debug()),
        number => format!(" and {number} other files with secrets"),
    };
    let is_environment = is_environment(first);
    let first = first.escape_debug().to_string();
    let message = format!("{SECRET_VISIBLE_MESSAGE} `{first}`{others}");
    let hide = Term::Hide.to(first.clone());
    let hint = match is_environment {
        true => hint!(
            "hide it with {}, or its values with {} (`hide` and `placeholders` in `[workspace]` of belljar.toml); `visible` there says \
             that it may be read",
            hide,
            Term::Placeholders.to(first)
        ),
        false => hint!(
            "hide it with {} or `hide` in `[workspace]` of belljar.toml; `visible` there says that it may be read",
            hide
        ),
    };
    Some(Note { code: SECRET_VISIBLE, message, hint: Some(hint) })
}

/// Whether a file is what its name says.
fn holds_secret(workspace: &Path, name: &str) -> bool {
    let is_environment = is_environment(name);
    let is_template = TEMPLATES.iter().any(|end| name.ends_with(end));
    let is_key = name.ends_with(".pem") || name.starts_with("id_") && !name.ends_with(".pub");
    if !(is_environment && !is_template || is_key) {
        return false;
    }
    let mut content = Vec::new();
    let opened = File::open(workspace.join(name));
    if opened.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut content)).is_err() {
        return false;
    }
    let text = String::from_utf8_lossy(&content);
    match is_key {
        true => text.contains("PRIVATE KEY-----"),
        false => text.lines().any(assigns),
    }
}

fn is_environment(name: &str) -> bool {
    name == ".env" || name.starts_with(".env.")
}

/// `NAME=value`, with something behind the sign.
fn assigns(line: &str) -> bool {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let value = line.split_once('=').filter(|(name, _)| !name.is_empty() && !name.starts_with('#'));
    value.is_some_and(|(_, value)| !value.trim_matches(['"', '\'', ' ']).is_empty())
}

/// The code of the note.
pub const SECRET_VISIBLE: &str = "secret_visible";
/// The beginning of its message, which is all that a client of the API gets.
pub const SECRET_VISIBLE_MESSAGE: &str = "the sandbox can read";
const TEMPLATES: [&str; 5] = [".example", ".sample", ".template", ".dist", ".defaults"];
/// A key or a first setting is within so many bytes.
const MAX_BYTES: u64 = 4096;
/// Of a folder with more files not all are looked at.
const MAX_ENTRIES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_is_made_only_for_a_secret_that_will_be_seen() {
        const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
        for (name, content, expected) in [
            (".env", "# c\nTOKEN=x\n", true),
            (".env.local", "export A='x'", true),
            (".env", "", false),
            (".env", "# A=b\nTOKEN=\nB=\"\"\n", false),
            (".env.example", "TOKEN=x", false),
            (".envrc", "TOKEN=x", false),
            ("server.pem", KEY, true),
            ("server.pem", "-----BEGIN CERTIFICATE-----\n", false),
            ("id_ed25519", KEY, true),
            ("id_ed25519.pub", "ssh-ed25519 AAAA", false),
            ("id_mapping.py", "id = 1", false),
            ("env", "TOKEN=x", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(name), content).unwrap();
            let found = note(folder.path(), &[]);
            assert_eq!(found.is_some(), expected, "{name} {content}: {found:?}");
            assert_eq!(note(folder.path(), &[name.parse().unwrap()]), None, "{name}");
        }
        assert_eq!(note(Path::new("/nonexistent"), &[]), None);
        let folder = tempfile::tempdir().unwrap();
        for name in [".env", ".env.local", ".env.prod"] {
            fs::write(folder.path().join(name), "A=b").unwrap();
        }
        let found = note(folder.path(), &[]).unwrap();
        assert_eq!(found.message, "the sandbox can read `.env` and 2 other files with secrets");
        let pattern = ".env.*".parse().unwrap();
        assert_eq!(note(folder.path(), &[pattern]).unwrap().message, "the sandbox can read `.env`");
    }
}

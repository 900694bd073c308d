//! Adds a host name to a repository's file, and leaves the rest of it as it was written. Only to a file that the user trusts: what an
//! agent wrote there is not trusted along with it.

use crate::origin::ConfigPaths;
use crate::read::{self, FILE, FOLDER};
use crate::trust::{Standing, propose_content, standing};
use belljar_spec::egress::{Rule, RuleSource};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::{Survives, write_atomic};
use serde::Deserialize;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A rule in a repository's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    pub file: PathBuf,
    pub rule: String,
    /// It was not there before.
    pub is_new: bool,
}

/// Allows a host name in the file of a workspace, and trusts the file.
pub fn allow(workspace: &Path, rule: &str) -> Result<Allowed, SandboxError> {
    allow_in(&ConfigPaths::real(), workspace, rule)
}

/// The same, with files from elsewhere.
pub fn allow_in(places: &ConfigPaths, workspace: &Path, rule: &str) -> Result<Allowed, SandboxError> {
    Rule::allow(rule, RuleSource::Flag).map_err(|error| ErrorCode::RequestValue.error(error.to_string()))?;
    let folder = workspace.join(FOLDER);
    let file = folder.join(FILE);
    // Read once: what is judged is what is added to. An agent may change the file at any moment.
    let before = match read::repository(workspace) {
        Ok(None) => None,
        Ok(Some(bytes)) if standing(places, workspace, &bytes) != Standing::Trusted => {
            let message = format!("`{}` is not trusted, so nothing is added to it", file.display());
            return Err(ErrorCode::ConfigInvalid
                .error(message)
                .hint(hint!("look at it, then say {}", CommandLine::Trust)));
        }
        Ok(Some(bytes)) => {
            let text = String::from_utf8(bytes);
            Some(text.map_err(|_| failed(&file, &io::Error::other("it is not UTF-8 text")))?)
        }
        Err(unread) => {
            let error = io::Error::other(unread.to_string());
            return Err(failed(&file, &error));
        }
    };
    let text = before.clone().unwrap_or_default();
    let Some(added) = with_rule(&text, rule) else {
        return Ok(Allowed { file, rule: rule.into(), is_new: false });
    };
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(&file, &error)),
        Ok(()) | Err(_) => {}
    }
    // A link in the place of the folder would make us write elsewhere.
    if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
        return Err(failed(&file, &io::Error::other("`.belljar` is no folder")));
    }
    let write = |text: &str| {
        write_atomic(&file, text.as_bytes(), Survives::Kill).map_err(|error| failed(&file, &error))
    };
    // Of what is written here, and nothing else, is recorded that it is trusted.
    let proposal = propose_content(places, workspace, added.clone().into_bytes())?;
    write(&added)?;
    if let Err(error) = proposal.keep() {
        match &before {
            Some(before) => write(before)?,
            None => fs::remove_file(&file).map_err(|error| failed(&file, &error))?,
        }
        return Err(error);
    }
    Ok(Allowed { file, rule: rule.into(), is_new: true })
}

fn failed(file: &Path, error: &io::Error) -> SandboxError {
    let message = format!("`{}` cannot be changed: {error}", file.display());
    ErrorCode::StateFailed.error(message).hint("see to it that you can write there")
}

/// The text with the rule in `allow` of `[egress]`; nothing if it is there.
fn with_rule(text: &str, rule: &str) -> Option<String> {
    let file: File = toml::from_str(text).unwrap_or_default();
    // A rule was parsed: it has no letter that would have to be written in another way.
    let quoted = format!("\"{rule}\"");
    let insert = |at: usize, words: &str| format!("{}{words}{}", &text[..at], &text[at..]);
    match file.egress {
        Some(table) => match &table.get_ref().allow {
            Some(list) if list.get_ref().iter().any(|known| known.as_str() == Some(rule)) => None,
            Some(list) => {
                let comma = if list.get_ref().is_empty() { "" } else { ", " };
                Some(insert(list.span().start + 1, &format!("{quoted}{comma}")))
            }
            None => {
                let line = text[table.span().start..].find('\n').map(|end| table.span().start + end + 1);
                let at = line.unwrap_or(text.len());
                let newline = if line.is_none() { "\n" } else { "" };
                Some(insert(at, &format!("{newline}allow = [{quoted}]\n")))
            }
        },
        None => {
            let gap = match text {
                "" => "",
                text if text.ends_with('\n') => "\n",
                _ => "\n\n",
            };
            Some(format!("{text}{gap}[egress]\nallow = [{quoted}]\n"))
        }
    }
}

/// As much of the file as is changed.
#[derive(Default, Deserialize)]
struct File {
    egress: Option<Spanned<Egress>>,
}

#[derive(Deserialize)]
struct Egress {
    allow: Option<Spanned<Vec<toml::Value>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_added_and_the_rest_stays_as_it_was() {
        for (before, expected) in [
            ("", "[egress]\nallow = [\"a.example\"]\n"),
            ("# c\n", "# c\n\n[egress]\nallow = [\"a.example\"]\n"),
            (
                "[egress]\n# c\nmode = \"strict\"\n",
                "[egress]\nallow = [\"a.example\"]\n# c\nmode = \"strict\"\n",
            ),
            ("[egress]", "[egress]\nallow = [\"a.example\"]\n"),
            ("[egress]\nallow = []\n", "[egress]\nallow = [\"a.example\"]\n"),
            (
                "[egress]\nallow = [ # c\n  \"b.example\",\n]\n[git]\n",
                "[egress]\nallow = [\"a.example\",  # c\n  \"b.example\",\n]\n[git]\n",
            ),
        ] {
            let after = with_rule(before, "a.example").unwrap();
            assert_eq!(after, expected, "{before}");
            assert_eq!(with_rule(&after, "a.example"), None, "{before}");
            toml::from_str::<toml::Table>(&after).unwrap();
        }
    }
}

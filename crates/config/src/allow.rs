//! Adds a rule to a repository's file or to the user's, and leaves the rest of it as it was written. A repository's only if the user
//! trusts it: what an agent wrote there is not trusted along with it. A rule that says the opposite, in the same words, goes.

use crate::origin::ConfigPaths;
use crate::read::{self, FILE, FOLDER};
use crate::trust::{Standing, propose_content, standing};
use belljar_spec::egress::{Rule, RuleSource};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::{Survives, create_private, write_atomic};
use serde::Deserialize;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A rule in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    pub file: PathBuf,
    pub rule: String,
    /// It was not there before.
    pub is_new: bool,
}

/// A file as it is, and as it would be with more rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesProposal {
    pub file: PathBuf,
    pub before: String,
    pub after: String,
}

/// The repository's file with these rules beside those that it has, for a person to look at. Nothing is written, and nothing in the file is
/// believed.
pub fn propose_rules(workspace: &Path, rules: &[String]) -> Result<RulesProposal, SandboxError> {
    let file = workspace.join(FOLDER).join(FILE);
    let before = match read::repository(workspace) {
        Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(None) => String::new(),
        Err(unread) => return Err(failed(&file, &io::Error::other(unread.to_string()))),
    };
    let mut after = before.clone();
    // Each is put before the others.
    for rule in rules.iter().rev() {
        RuleList::Allow.judge(rule)?;
        after = with_rule(&after, RuleList::Allow, rule).unwrap_or(after);
    }
    Ok(RulesProposal { file, before, after })
}

/// Which list of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleList {
    Allow,
    Deny,
}

/// Which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleFile<'f> {
    /// `.belljar/config.toml` of a workspace, which is trusted then.
    Repository(&'f Path),
    /// The user's belljar.toml.
    User,
}

impl RuleList {
    fn key(self) -> &'static str {
        match self {
            RuleList::Allow => "allow",
            RuleList::Deny => "deny",
        }
    }

    fn opposite(self) -> RuleList {
        match self {
            RuleList::Allow => RuleList::Deny,
            RuleList::Deny => RuleList::Allow,
        }
    }

    fn judge(self, rule: &str) -> Result<(), SandboxError> {
        let judged = match self {
            RuleList::Allow => Rule::allow(rule, RuleSource::Flag),
            RuleList::Deny => Rule::deny(rule, RuleSource::Flag),
        };
        judged.map(drop).map_err(|error| ErrorCode::RequestValue.error(error.to_string()))
    }
}

/// Adds a rule to a file.
pub fn add_rule(file: RuleFile<'_>, list: RuleList, rule: &str) -> Result<Allowed, SandboxError> {
    add_rule_in(&ConfigPaths::real(), file, list, rule)
}

/// The same, with files from elsewhere.
pub fn add_rule_in(
    places: &ConfigPaths,
    file: RuleFile<'_>,
    list: RuleList,
    rule: &str,
) -> Result<Allowed, SandboxError> {
    list.judge(rule)?;
    match file {
        RuleFile::Repository(workspace) => add_to_repository(places, workspace, list, rule),
        RuleFile::User => add_to_user(places, list, rule),
    }
}

fn add_to_user(places: &ConfigPaths, list: RuleList, rule: &str) -> Result<Allowed, SandboxError> {
    let Some(file) = places.user.clone() else {
        let message = "there is no place for your belljar.toml: neither `HOME` nor `XDG_CONFIG_HOME` is an absolute path";
        return Err(ErrorCode::ConfigInvalid
            .error(message)
            .hint("set `HOME`, or `XDG_CONFIG_HOME` to a folder of yours"));
    };
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(&file, &error)),
    };
    let Some(added) = with_rule(&text, list, rule) else {
        return Ok(Allowed { file, rule: rule.into(), is_new: false });
    };
    let folder = file.parent().unwrap_or(Path::new("/"));
    let written = create_private(folder).and_then(|()| write_atomic(&file, added.as_bytes(), Survives::Kill));
    written.map_err(|error| failed(&file, &error))?;
    Ok(Allowed { file, rule: rule.into(), is_new: true })
}

fn add_to_repository(
    places: &ConfigPaths,
    workspace: &Path,
    list: RuleList,
    rule: &str,
) -> Result<Allowed, SandboxError> {
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
    let Some(added) = with_rule(&text, list, rule) else {
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

/// The text with the rule in a list of `[egress]`, and not in the other one; nothing if it is so.
fn with_rule(text: &str, list: RuleList, rule: &str) -> Option<String> {
    let without = without_rule(text, list.opposite(), rule);
    let base = without.as_deref().unwrap_or(text);
    with_added(base, list, rule).or_else(|| without.clone())
}

/// The text without the rule in a list; nothing if it is not there.
fn without_rule(text: &str, list: RuleList, rule: &str) -> Option<String> {
    let file: File = toml::from_str(text).ok()?;
    let egress = file.egress?.into_inner();
    let rules = egress.list(list)?.get_ref();
    let span = rules.iter().find(|known| known.get_ref().as_str() == Some(rule))?.span();
    let behind = &text[span.end..];
    let comma =
        behind.find(|letter: char| !letter.is_whitespace()).filter(|at| behind[*at..].starts_with(','));
    let before = &text[..span.start];
    // The last one of several: the comma before it goes.
    let begin = match (comma, before.trim_end().strip_suffix(',')) {
        (None, Some(kept)) => kept.len(),
        (None, None) | (Some(_), _) => span.start,
    };
    let mut end = span.end + comma.map_or(0, |at| at + 1);
    if comma.is_some() && text[end..].starts_with(' ') {
        end += 1;
    }
    let after = format!("{}{}", &text[..begin], &text[end..]);
    // Comments between the parts can be in the way: then it stays, and `deny` still wins.
    toml::from_str::<toml::Table>(&after).is_ok().then_some(after)
}

fn with_added(text: &str, list: RuleList, rule: &str) -> Option<String> {
    let file: File = toml::from_str(text).unwrap_or_default();
    let key = list.key();
    // A rule was parsed: it has no letter that would have to be written in another way.
    let quoted = format!("\"{rule}\"");
    let insert = |at: usize, words: &str| format!("{}{words}{}", &text[..at], &text[at..]);
    match file.egress {
        Some(table) => match table.get_ref().list(list) {
            Some(rules) if rules.get_ref().iter().any(|known| known.get_ref().as_str() == Some(rule)) => None,
            Some(rules) => {
                let comma = if rules.get_ref().is_empty() { "" } else { ", " };
                Some(insert(rules.span().start + 1, &format!("{quoted}{comma}")))
            }
            None => {
                let line = text[table.span().start..].find('\n').map(|end| table.span().start + end + 1);
                let at = line.unwrap_or(text.len());
                let newline = if line.is_none() { "\n" } else { "" };
                Some(insert(at, &format!("{newline}{key} = [{quoted}]\n")))
            }
        },
        None => {
            let gap = match text {
                "" => "",
                text if text.ends_with('\n') => "\n",
                _ => "\n\n",
            };
            Some(format!("{text}{gap}[egress]\n{key} = [{quoted}]\n"))
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
    allow: Option<Spanned<Vec<Spanned<toml::Value>>>>,
    deny: Option<Spanned<Vec<Spanned<toml::Value>>>>,
}

impl Egress {
    fn list(&self, list: RuleList) -> Option<&Spanned<Vec<Spanned<toml::Value>>>> {
        match list {
            RuleList::Allow => self.allow.as_ref(),
            RuleList::Deny => self.deny.as_ref(),
        }
    }
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
            let after = with_rule(before, RuleList::Allow, "a.example").unwrap();
            assert_eq!(after, expected, "{before}");
            assert_eq!(with_rule(&after, RuleList::Allow, "a.example"), None, "{before}");
            toml::from_str::<toml::Table>(&after).unwrap();
        }
    }

    #[test]
    fn the_opposite_goes_and_the_rest_stays_as_it_was() {
        for (before, expected) in [
            ("[egress]\ndeny = [\"a.example\"]\n", "[egress]\nallow = [\"a.example\"]\ndeny = []\n"),
            (
                "[egress]\ndeny = [\"a.example\", \"b.example\"] # c\n",
                "[egress]\nallow = [\"a.example\"]\ndeny = [\"b.example\"] # c\n",
            ),
            (
                "[egress]\ndeny = [\"b.example\", \"a.example\"]\nallow = []\n",
                "[egress]\ndeny = [\"b.example\"]\nallow = [\"a.example\"]\n",
            ),
        ] {
            let after = with_rule(before, RuleList::Allow, "a.example").unwrap();
            assert_eq!(after, expected, "{before}");
            let denied = with_rule(&after, RuleList::Deny, "a.example").unwrap();
            let table: toml::Table = toml::from_str(&denied).unwrap();
            assert_eq!(table["egress"]["allow"].as_array().map(Vec::len), Some(0), "{denied}");
        }
    }

    #[test]
    fn the_users_file_is_made_and_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config/belljar/belljar.toml");
        let places = ConfigPaths {
            operator: folder.path().join("none"),
            operator_id: 0,
            user: Some(file.clone()),
            state: None,
        };
        let add = |list, rule| add_rule_in(&places, RuleFile::User, list, rule).unwrap().is_new;
        assert!(add(RuleList::Allow, "a.example") && !add(RuleList::Allow, "a.example"));
        assert!(add(RuleList::Deny, "b.example"));
        let text = fs::read_to_string(file).unwrap();
        assert_eq!(text, "[egress]\ndeny = [\"b.example\"]\nallow = [\"a.example\"]\n");
        assert!(add_rule_in(&places, RuleFile::User, RuleList::Allow, "*").is_err());
    }
}

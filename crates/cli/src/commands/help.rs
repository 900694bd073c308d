//! `belljar help`: the help of a command, or a page of the manual. The pages are part of the program, so that a hint can name one
//! wherever belljar was installed.

use super::print;
use crate::args::command;
use belljar_spec::{ErrorCode, SandboxError};

pub(crate) fn help(words: &[String]) -> Result<u8, SandboxError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut root = command();
    root.build();
    match words.as_slice() {
        ["topics"] => return print(list().as_bytes()),
        // A command of the same name comes first.
        ["topics", topic] | [topic] if words.len() == 2 || root.find_subcommand(topic).is_none() => {
            let page = TOPICS.iter().find(|page| page.name == *topic).ok_or_else(|| unknown(topic))?;
            // A mark for the test that runs the other blocks.
            return print(page.text.replace("```console norun", "```console").as_bytes());
        }
        _ => {}
    }
    words.iter().try_fold(&root, |found, word| found.find_subcommand(word).ok_or_else(|| unknown(word)))?;
    let arguments = ["belljar"].into_iter().chain(words).chain(["--help"]);
    let shown = command().try_get_matches_from(arguments).err().map(|help| help.render().to_string());
    print(shown.unwrap_or_default().as_bytes())
}

fn unknown(word: &str) -> SandboxError {
    ErrorCode::NameUnknown
        .error(format!("there is no command and no topic `{word}`"))
        .hint("`belljar help` lists commands, `belljar help topics` topics")
}

fn list() -> String {
    let lines: Vec<String> =
        TOPICS.iter().map(|page| format!("{:<22}{}\n", page.name, page.title())).collect();
    lines.concat()
}

/// Names of topics, for completions.
pub(super) fn topics() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|page| page.name)
}

/// A page of the manual.
struct Page {
    name: &'static str,
    /// Markdown.
    text: &'static str,
}

impl Page {
    /// The heading of the page.
    fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }
}

macro_rules! pages {
    ($($name:literal)*) => {
        &[$(Page { name: $name, text: include_str!(concat!("../../../../docs/", $name, ".md")) }),*]
    };
}

const TOPICS: &[Page] = pages! {
    "agent-context" "agents" "backends" "configuration" "credentials" "docker" "egress" "environment" "exit-codes"
    "filesystem" "first-steps" "git" "glossary" "gvisor" "hardening" "image-build" "images" "integrations" "limits" "lifecycle" "llm" "one-shot"
    "overlay" "persistent-sandboxes" "profiles" "protected-paths" "roots" "threat-model" "tutorial" "volumes" "workspaces"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_title() {
        for page in TOPICS {
            assert!(!page.title().is_empty() && page.text.starts_with("# "), "{}", page.name);
        }
    }
}

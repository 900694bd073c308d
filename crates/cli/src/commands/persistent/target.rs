//! Which sandbox is meant: a folder's, or one by its name or key.

use super::repository::Repository;
use crate::args::WhichArgs;
use crate::failure::of_client;
use belljar_api::SandboxInfo;
use belljar_api::client::{Client, SandboxFilter};
use belljar_spec::git::BranchName;
use belljar_spec::{ErrorCode, SandboxError};
use std::path::Path;

/// Which sandbox is meant.
pub(super) enum Target {
    Folder(Repository),
    /// A name, the beginning of one, or a key.
    Named(String),
}

impl Target {
    pub(super) fn of(which: WhichArgs) -> Result<Target, SandboxError> {
        let WhichArgs { target, branch } = which;
        match target {
            None => Repository::here(branch).map(Target::Folder),
            Some(word) => Target::word(word, branch),
        }
    }

    /// A word is a folder if there is one of that name, or if it can be nothing else.
    pub(super) fn word(word: String, branch: Option<BranchName>) -> Result<Target, SandboxError> {
        let path = Path::new(&word);
        let looks_like_one = word == "."
            || word == ".."
            || word.starts_with('/')
            || word.starts_with("./")
            || word.starts_with("../");
        if path.is_dir() || looks_like_one {
            return Repository::of(path, branch).map(Target::Folder);
        }
        if let Some(branch) = branch {
            let message = format!("`--branch {branch}` goes with a folder, and `{word}` is none");
            return Err(ErrorCode::RequestValue.error(message).hint("name the folder, or omit `--branch`"));
        }
        Ok(Target::Named(word))
    }

    /// The sandbox, which must be there.
    pub(super) async fn find(&self, client: &Client) -> Result<SandboxInfo, SandboxError> {
        match self {
            Target::Folder(repository) => {
                let filter = SandboxFilter { key: Some(repository.key()), state: None };
                let found = client.sandboxes(&filter).await.map_err(of_client)?;
                found.into_iter().next().ok_or_else(|| no_sandbox_of(repository))
            }
            Target::Named(word) => {
                let all = client.sandboxes(&SandboxFilter::default()).await.map_err(of_client)?;
                choose(word, all)
            }
        }
    }
}

/// A folder that has none.
pub(super) fn no_sandbox_of(repository: &Repository) -> SandboxError {
    let branch = repository.branch.as_ref().map(|branch| format!(" on `{branch}`")).unwrap_or_default();
    let message = format!("`{}`{branch} has no sandbox", repository.folder.display());
    ErrorCode::SandboxNotFound
        .error(message)
        .hint("`belljar start` makes one; `belljar list` shows what there is")
}

/// The one that a word means.
fn choose(word: &str, all: Vec<SandboxInfo>) -> Result<SandboxInfo, SandboxError> {
    let is_exact = |one: &&SandboxInfo| one.name == word || one.key == word;
    if let Some(one) = all.iter().find(is_exact) {
        return Ok(one.clone());
    }
    let begins = |one: &&SandboxInfo| {
        !word.is_empty()
            && (one.name.starts_with(word) || one.name.trim_start_matches("bj-").starts_with(word))
    };
    let meant: Vec<&SandboxInfo> = all.iter().filter(begins).collect();
    match meant.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(ErrorCode::SandboxNotFound.error(format!("there is no sandbox `{word}`")).hint(
            match word.bytes().all(|byte| byte.is_ascii_digit()) && !word.is_empty() {
                true => format!("a command is named in full: `cmd_{word}`"),
                false => on_offer(all.iter()),
            },
        )),
        several => Err(ErrorCode::RequestValue
            .error(format!("`{word}` could be several sandboxes"))
            .hint(on_offer(several.iter().copied()))),
    }
}

fn on_offer<'a>(all: impl Iterator<Item = &'a SandboxInfo>) -> String {
    let names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
    match names.len() {
        0 => "there are no sandboxes; `belljar start` makes one of the current folder".into(),
        1..=SHOWN => format!("there is {}", names.join(", ")),
        more => format!("there is {} and {} more (`belljar list`)", names[..SHOWN].join(", "), more - SHOWN),
    }
}

const SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::State;

    fn named(name: &str, key: &str) -> SandboxInfo {
        SandboxInfo {
            name: name.into(),
            key: key.into(),
            state: State::Live,
            persistent: true,
            owner: "owner".into(),
            profile: "default".into(),
            backend: None,
            assurance: None,
            id: None,
            folder: None,
            workspace: None,
            egress: "strict".into(),
            ports: Vec::new(),
            forwarded: Vec::new(),
            leases: Vec::new(),
            commands: 0,
            created_ms: 0,
            started_ms: None,
            ends_ms: None,
            fault: None,
            warm: false,
        }
    }

    #[test]
    fn a_word_means_one_sandbox_or_none() {
        let all =
            || vec![named("bj-web-1a", "web"), named("bj-web-1b", "bj-web-1a#x"), named("bj-api-2c", "api")];
        let chosen = |word: &str| choose(word, all()).map(|one| one.name).map_err(|error| error.code);
        for (word, expected) in [
            ("bj-web-1a", Ok("bj-web-1a")),
            ("web", Ok("bj-web-1a")),
            ("bj-web-1a#x", Ok("bj-web-1b")),
            ("bj-a", Ok("bj-api-2c")),
            ("ap", Ok("bj-api-2c")),
            ("web-", Err(ErrorCode::RequestValue)),
            ("bj-", Err(ErrorCode::RequestValue)),
            ("x", Err(ErrorCode::SandboxNotFound)),
            ("", Err(ErrorCode::SandboxNotFound)),
        ] {
            assert_eq!(chosen(word), expected.map(String::from), "{word}");
        }
        assert_eq!(
            choose("x", all()).unwrap_err().hint.unwrap().to_string(),
            "there is bj-web-1a, bj-web-1b, bj-api-2c"
        );
        assert!(choose("x", Vec::new()).unwrap_err().hint.unwrap().to_string().contains("belljar start"));
    }
}

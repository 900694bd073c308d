//! Pull requests: GitHub's API, through an HTTP client that the caller provides.

use super::CloneError;
use super::clone_dir::CloneDir;
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_vault::Secret;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// An HTTP client for the API.
pub trait Forge {
    /// Posts JSON with `Authorization: Bearer TOKEN`, and returns the response's status and body, or an error message.
    fn post_json(&self, url: &str, body: &str, token: &Secret) -> Result<(u16, Vec<u8>), String>;
}

/// A pull request to be opened.
#[derive(Debug, Clone)]
pub struct PullRequest {
    pub title: String,
    pub body: String,
    /// The branch to merge into; without one, the remote's default.
    pub base: Option<String>,
    /// The API's URL, if it does not follow from the remote's host: `https://git.example.com/api/v3`.
    pub api: Option<String>,
}

/// Opens a pull request for the pushed branch, and returns its page.
pub fn pull_request(
    state: &Path,
    id: SandboxId,
    request: &PullRequest,
    forge: &dyn Forge,
    token: &Secret,
) -> Result<Printable, CloneError> {
    let (_, label) = CloneDir::find(state, id)?;
    let (_, head) = label.pushed.as_ref().ok_or(CloneError::NothingToPush)?;
    let no_forge = || CloneError::NoForge(label.url.clone());
    let repository = Repository::of(&label.url).ok_or_else(no_forge)?;
    let api = request.api.clone().unwrap_or_else(|| repository.api());
    let base = request.base.clone().or(label.default.clone()).unwrap_or_else(|| "main".to_string());
    let question = Question { title: &request.title, body: &request.body, head, base: &base };
    let failed = |reason: String| {
        CloneError::NoRequest(Printable::from(reason.replace(token.reveal_text(), "***").as_str()))
    };
    let text = serde_json::to_string(&question).map_err(|error| failed(error.to_string()))?;
    let url = format!("{}/repos/{}/{}/pulls", api.trim_end_matches('/'), repository.owner, repository.name);
    let (status, answer) = forge.post_json(&url, &text, token).map_err(failed)?;
    let answer: Answer = serde_json::from_slice(&answer).unwrap_or_default();
    match (status, answer.html_url) {
        (201, Some(page)) => Ok(Printable::from(page.as_str())),
        (status, _) => {
            let details = answer.errors.into_iter().filter_map(|error| error.message);
            let words: Vec<String> = answer.message.into_iter().chain(details).collect();
            Err(failed(format!("the host answered {status}: {}", words.join(", "))))
        }
    }
}

/// A repository on a host.
struct Repository<'a> {
    host: &'a str,
    owner: &'a str,
    name: &'a str,
}

impl Repository<'_> {
    /// `https://HOST/OWNER/NAME`, `ssh://git@HOST/OWNER/NAME`, `git@HOST:OWNER/NAME`; with `.git` or without.
    fn of(url: &str) -> Option<Repository<'_>> {
        let (authority, path) = match url.split_once("://") {
            Some(("https" | "http" | "ssh", rest)) => rest.split_once('/')?,
            Some(_) => return None,
            None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let path = path.trim_matches('/');
        let (owner, name) = path.strip_suffix(".git").unwrap_or(path).split_once('/')?;
        // As GitHub names them; anything else would be another path of its API.
        let plain = |text: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !text.is_empty() && text != "." && text != ".." && text.bytes().all(known)
        };
        (plain(owner) && plain(name) && !host.is_empty()).then_some(Repository { host, owner, name })
    }

    fn api(&self) -> String {
        match self.host {
            "github.com" | "www.github.com" | "ssh.github.com:443" => "https://api.github.com".to_string(),
            host => format!("https://{host}/api/v3"),
        }
    }
}

#[derive(Serialize)]
struct Question<'a> {
    title: &'a str,
    body: &'a str,
    head: &'a str,
    base: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    html_url: Option<String>,
    message: Option<String>,
    errors: Vec<Detail>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Detail {
    message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_by_their_url() {
        for (url, expected) in [
            ("https://github.com/ada/engine.git", Some(("https://api.github.com", "ada", "engine"))),
            ("git@github.com:ada/engine", Some(("https://api.github.com", "ada", "engine"))),
            (
                "ssh://git@git.example.com/ada/engine",
                Some(("https://git.example.com/api/v3", "ada", "engine")),
            ),
            ("https://github.com/ada", None),
            ("https://github.com/ada/engine/x", None),
            ("https://github.com/../engine", None),
            ("/srv/ada/engine", None),
            ("file:///srv/engine", None),
        ] {
            let found = Repository::of(url);
            let found = found.as_ref().map(|found| (found.api(), found.owner, found.name));
            assert_eq!(found, expected.map(|(api, owner, name)| (api.to_string(), owner, name)), "{url}");
        }
    }
}

//! Where a model is, and what is spoken there.

use crate::egress::Printable;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The URL of a model's API, as a person configured it: `https://api.anthropic.com`, `http://127.0.0.1:4000`. It may
/// lead anywhere, loopback and private networks included: no program inside has a say in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Upstream(String);

impl Upstream {
    /// As a URL, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is spoken there, as far as the name of the host says. LiteLLM speaks everything and is at home anywhere.
    pub fn guessed_kind(&self) -> UpstreamKind {
        match self.host() {
            "api.anthropic.com" => UpstreamKind::Anthropic,
            "generativelanguage.googleapis.com" => UpstreamKind::Gemini,
            "api.openai.com" | "openrouter.ai" => UpstreamKind::OpenAi,
            _ => UpstreamKind::LiteLlm,
        }
    }

    /// Whether both are the same server, so that what belongs to one may be told the other.
    pub fn same_server(&self, other: &Upstream) -> bool {
        self.origin() == other.origin()
    }

    /// The name or address of the host.
    pub fn host(&self) -> &str {
        let authority = self.origin().split_once("://").map_or("", |(_, authority)| authority);
        match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => authority.split(':').next().unwrap_or_default(),
        }
    }

    /// What comes behind the host; nothing, or a path without a slash at its end.
    pub fn path(&self) -> &str {
        &self.0[self.origin().len()..]
    }

    fn origin(&self) -> &str {
        let start = self.0.find("://").map_or(0, |at| at + 3);
        let end = self.0[start..].find('/').map_or(self.0.len(), |at| start + at);
        &self.0[..end]
    }
}

/// Not the URL of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    #[error("`{0}` is not the URL of a model: write one, as in `https://api.anthropic.com`")]
    NoUrl(Printable),
    /// It may have a secret in it, and is not repeated.
    #[error("the URL of a model has no user, query or fragment: the key is a setting of its own")]
    More,
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Upstream, UpstreamError> {
        let wrong = || UpstreamError::NoUrl(text.into());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(wrong());
        }
        if rest.contains(['@', '?', '#']) {
            return Err(UpstreamError::More);
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if !is_authority(authority) || !is_path(path) {
            return Err(wrong());
        }
        let path = path.trim_end_matches('/');
        Ok(Upstream(format!("{scheme}://{}{path}", authority.to_ascii_lowercase())))
    }
}

fn is_authority(text: &str) -> bool {
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return address.parse::<std::net::Ipv6Addr>().is_ok() && port_fits;
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.len() <= 253 && host.bytes().all(fits) && port.is_none_or(is_port)
}

/// Plain segments: nothing that could be read in two ways.
fn is_path(path: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/');
    let odd = |segment: &str| segment == "." || segment == "..";
    path.bytes().all(fits) && !path.trim_end_matches('/').contains("//") && !path.split('/').any(odd)
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which protocol, and how the key is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamKind {
    /// A LiteLLM proxy: all of the others, and billing headers.
    #[serde(rename = "litellm")]
    LiteLlm,
    Anthropic,
    /// OpenAI, or a server with the same API.
    #[serde(rename = "openai")]
    OpenAi,
    Gemini,
}

impl UpstreamKind {
    /// Every one.
    pub const ALL: [UpstreamKind; 4] =
        [UpstreamKind::LiteLlm, UpstreamKind::Anthropic, UpstreamKind::OpenAi, UpstreamKind::Gemini];

    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            UpstreamKind::LiteLlm => "litellm",
            UpstreamKind::Anthropic => "anthropic",
            UpstreamKind::OpenAi => "openai",
            UpstreamKind::Gemini => "gemini",
        }
    }
}

/// Not a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of model server: write litellm, anthropic, openai or gemini")]
pub struct UpstreamKindError(Printable);

impl FromStr for UpstreamKind {
    type Err = UpstreamKindError;

    fn from_str(text: &str) -> Result<UpstreamKind, UpstreamKindError> {
        let known = UpstreamKind::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| UpstreamKindError(text.into()))
    }
}

impl fmt::Display for UpstreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_plain_url() {
        for (text, shown, host, path, kind) in [
            ("https://api.anthropic.com", "https://api.anthropic.com", "api.anthropic.com", "", "anthropic"),
            ("HTTPS://API.OpenAI.com/v1/", "https://api.openai.com/v1", "api.openai.com", "/v1", "openai"),
            ("http://127.0.0.1:4000/", "http://127.0.0.1:4000", "127.0.0.1", "", "litellm"),
            ("http://[::1]:4000/proxy", "http://[::1]:4000/proxy", "::1", "/proxy", "litellm"),
            (
                "https://evil.api.openai.com",
                "https://evil.api.openai.com",
                "evil.api.openai.com",
                "",
                "litellm",
            ),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!((upstream.as_str(), upstream.host(), upstream.path()), (shown, host, path));
            assert_eq!(upstream.guessed_kind().as_str(), kind, "{text}");
        }
        for text in [
            "",
            "api.anthropic.com",
            "ftp://x",
            "https://",
            "https://x:0",
            "https://x:99999",
            "https://x:+1",
            "https://a b",
            "https://x/..",
            "https://x//y",
            "https://x/%2e",
            "https://[::1",
            "https://x\n",
        ] {
            assert!(matches!(text.parse::<Upstream>(), Err(UpstreamError::NoUrl(_))), "{text:?}");
        }
    }

    #[test]
    fn a_key_in_a_url_is_not_repeated() {
        for text in ["https://user:sk-123@x", "https://x/?key=sk-123", "https://x/#sk-123"] {
            let error = text.parse::<Upstream>().expect_err(text);
            assert!(!error.to_string().contains("sk-123"), "{error}");
        }
    }
}

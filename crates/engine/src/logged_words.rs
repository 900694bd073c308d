//! The words of a command as the audit log has them: without values that are secrets, and bounded. What a person typed may hold a secret that
//! belljar does not know; what looks like one is left out as well. Reading the log must open nothing.

use belljar_spec::egress::Printable;
use belljar_vault::Secret;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// A command's words, fit for the log.
pub(crate) fn shown(words: &[OsString], known: &[Secret]) -> Vec<Printable> {
    let mut shown = Vec::new();
    let mut is_value = false;
    for word in words.iter().take(MAX_WORDS) {
        let text = word.to_string_lossy();
        let is_hidden = is_value || holds_known(word.as_bytes(), known) || looks_secret(&text);
        is_value = names_secret(&text) && text.starts_with('-') && !text.contains('=');
        shown.push(match (is_hidden, text.split_once('=')) {
            (true, Some((name, _))) if !looks_secret(name) && !is_value && name.len() <= MAX_NAME => {
                Printable::new(format!("{name}={HIDDEN}").as_bytes())
            }
            (true, _) => HIDDEN.into(),
            (false, Some((name, _))) if names_secret(name) => {
                Printable::new(format!("{name}={HIDDEN}").as_bytes())
            }
            (false, _) => Printable::new(without_login(&text).as_bytes()),
        });
    }
    if words.len() > MAX_WORDS {
        shown.push("...".into());
    }
    shown
}

fn holds_known(word: &[u8], known: &[Secret]) -> bool {
    known.iter().any(|secret| secret.is_within(word))
}

/// A flag or a variable whose value is a secret by its name.
fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|word| name.contains(word))
}

/// A word with a token in it, by how tokens begin.
fn looks_secret(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    word.split(|character: char| !character.is_ascii() || !is_part(character as u8))
        .any(|part| part.len() >= MIN_TOKEN && TOKEN_PREFIXES.iter().any(|prefix| part.starts_with(prefix)))
        || word.to_ascii_lowercase().contains("bearer ")
        || word.to_ascii_lowercase().contains("authorization:")
}

/// A URL without the user and password in it.
fn without_login(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_string() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{}", &rest[end..]),
        None => text.to_string(),
    }
}

const HIDDEN: &str = "<hidden>";
const SECRET_NAMES: &[&str] =
    &["password", "passwd", "passphrase", "token", "secret", "apikey", "api-key", "api_key", "credential"];
/// GitHub, GitLab, OpenAI and Anthropic, Slack, AWS, npm, PyPI, Google, Stripe, JSON web tokens.
const TOKEN_PREFIXES: &[&str] = &[
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "npm_",
    "pypi-",
    "AIza",
    "ya29.",
    "eyJ",
    "hf_",
];
const MIN_TOKEN: usize = 16;
const MAX_NAME: usize = 64;
/// More than a person reads.
const MAX_WORDS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_or_looks_like_a_secret_is_left_out() {
        let known = [Secret::from_text("correct horse")];
        for (words, expected) in [
            (&["npm", "test"][..], "npm test"),
            (&["curl", "-H", "Authorization: Basic abc"], "curl -H <hidden>"),
            (&["curl", "-H", "X-Key: sk-ant-api03-0123456789abcdef"], "curl -H <hidden>"),
            (&["tool", "--token", "abc", "next"], "tool --token <hidden> next"),
            (&["tool", "--token=abc", "next"], "tool --token=<hidden> next"),
            (&["env", "DB_PASSWORD=abc", "make"], "env DB_PASSWORD=<hidden> make"),
            (&["env", "URL=correct horse"], "env URL=<hidden>"),
            (&["echo", "it is correct horse!"], "echo <hidden>"),
            (
                &["git", "clone", "https://me:abc@host.example/a@b"],
                "git clone https://<hidden>@host.example/a@b",
            ),
            (&["git", "clone", "https://host.example/a@b"], "git clone https://host.example/a@b"),
            (&["echo", "ghp_0123456789abcdef0123"], "echo <hidden>"),
            (&["echo", "a\x1b[2J"], r"echo a\u{1b}[2J"),
            (&["sk-short"], "sk-short"),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let shown: Vec<String> = shown(&words, &known).iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), expected);
        }
        let many: Vec<OsString> = (0..100).map(|number| number.to_string().into()).collect();
        assert_eq!(shown(&many, &[]).len(), MAX_WORDS + 1);
    }
}

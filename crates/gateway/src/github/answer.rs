//! What GitHub answers to a request for a token, read with care: more than was asked for is as wrong as nothing.

use belljar_spec::egress::Printable;
use belljar_spec::secret::GitHubGrant;
use belljar_vault::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A token that can do what was asked for, and nothing else.
pub(super) struct Granted {
    pub(super) token: Secret,
    /// In seconds from 1970.
    pub(super) expires: u64,
}

/// Why an answer is no such token. A token that came all the same has to be given back.
pub(super) struct Unfit {
    pub(super) why: String,
    pub(super) token: Option<Secret>,
}

#[derive(Deserialize)]
struct Answer {
    token: String,
    expires_at: String,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    repositories: Vec<Repository>,
}

#[derive(Deserialize)]
struct Repository {
    full_name: String,
}

#[derive(Deserialize)]
struct Complaint {
    message: String,
}

/// Reads an answer of success.
pub(super) fn granted(body: &[u8], grant: &GitHubGrant) -> Result<Granted, Unfit> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| Unfit { why: "GitHub's answer is not valid".into(), token: None })?;
    let token = Secret::new(answer.token.into_bytes());
    let wrong = |why: String| Err(Unfit { why, token: Some(token.clone()) });
    let requested = grant.profile.permissions();
    if answer.permissions.is_empty() {
        return wrong("GitHub does not say what its token can do".into());
    }
    for (what, how) in &answer.permissions {
        let enough = requested.iter().any(|(known, most)| known == what && (most == how || how == "read"));
        if !enough {
            let (what, how) = (Printable::from(what.as_str()), Printable::from(how.as_str()));
            return wrong(format!("GitHub gave more than was asked for: {what}: {how}"));
        }
    }
    let named: Vec<String> = grant.repositories.iter().map(|one| one.to_string().to_lowercase()).collect();
    if !named.is_empty() {
        let given: Vec<String> = answer.repositories.iter().map(|one| one.full_name.to_lowercase()).collect();
        if let Some(other) = given.iter().find(|given| !named.contains(given)) {
            let other = Printable::from(other.as_str());
            return wrong(format!("GitHub gave a token for `{other}`, which was not asked for"));
        }
        if given.is_empty() {
            return wrong("GitHub does not say for which repositories its token is".into());
        }
    }
    match seconds(&answer.expires_at) {
        Some(expires) => Ok(Granted { token, expires }),
        None => wrong("GitHub does not say when its token ends".into()),
    }
}

/// What GitHub says of a request that it refused.
pub(super) fn complaint(status: u16, body: &[u8]) -> String {
    match serde_json::from_slice::<Complaint>(body) {
        Ok(Complaint { message }) => format!("{} (status {status})", Printable::from(message.as_str())),
        Err(_) => format!("status {status}"),
    }
}

/// `2026-11-15T09:00:00Z` in seconds from 1970, by Howard Hinnant's `days_from_civil`.
fn seconds(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !text.ends_with('Z') {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::secret::{GitHubApp, GitHubProfile};

    fn grant(profile: GitHubProfile, repositories: &[&str]) -> GitHubGrant {
        GitHubGrant {
            app: GitHubApp {
                app: 1,
                installation: 2,
                key: "secret:key".parse().unwrap(),
                api: "https://api.github.com".into(),
                host: "github.com".parse().unwrap(),
            },
            profile,
            repositories: repositories.iter().map(|name| name.parse().unwrap()).collect(),
            danger_forward_key: false,
        }
    }

    fn why(body: &str, grant: &GitHubGrant) -> Option<String> {
        granted(body.as_bytes(), grant).err().map(|unfit| {
            assert!(!unfit.why.contains("ghs_"), "{}", unfit.why);
            unfit.why
        })
    }

    #[test]
    fn more_than_was_asked_for_is_not_taken() {
        let read = grant(GitHubProfile::Read, &[]);
        let body = |permissions: &str| {
            format!(r#"{{"token":"ghs_x","expires_at":"2026-11-15T10:00:00Z","permissions":{permissions}}}"#)
        };
        assert_eq!(why(&body(r#"{"contents":"read","metadata":"read"}"#), &read), None);
        for more in [r#"{"contents":"write"}"#, r#"{"administration":"read"}"#, r#"{"metadata":"admin"}"#] {
            assert!(why(&body(more), &read).unwrap().contains("more than was asked for"), "{more}");
        }
        assert_eq!(why(&body(r#"{"contents":"write"}"#), &grant(GitHubProfile::RepoWrite, &[])), None);
    }

    #[test]
    fn a_token_that_could_do_anything_is_not_taken() {
        let read = grant(GitHubProfile::Read, &[]);
        for more in ["", r#","permissions":{}"#] {
            let body = format!(r#"{{"token":"ghs_x","expires_at":"2026-11-15T10:00:00Z"{more}}}"#);
            assert!(why(&body, &read).unwrap().contains("what its token can do"), "{body}");
        }
    }

    #[test]
    fn another_repository_is_not_taken() {
        let one = grant(GitHubProfile::Read, &["acme/widgets"]);
        let body = |names: &str| {
            format!(
                r#"{{"token":"ghs_x","expires_at":"2026-11-15T10:00:00Z","permissions":{{"contents":"read"}},"repositories":{names}}}"#
            )
        };
        assert_eq!(why(&body(r#"[{"full_name":"Acme/Widgets"}]"#), &one), None);
        assert!(why(&body(r#"[{"full_name":"evil/widgets"}]"#), &one).unwrap().contains("`evil/widgets`"));
        assert!(why(&body("[]"), &one).unwrap().contains("for which repositories"));
    }

    #[test]
    fn a_moment_is_read() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-15T09:30:05Z", Some(1_794_735_005)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199)),
            ("2026-11-15", None),
            ("2026-03-00T09:30:05Z", None),
            ("2026-11-15T09:30:05+01:00", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_complaint_is_passed_on_and_harmless() {
        assert_eq!(complaint(404, br#"{"message":"Not Found"}"#), "Not Found (status 404)");
        assert_eq!(complaint(502, b"<html>"), "status 502");
        assert!(!complaint(400, b"{\"message\":\"a\\u001b[2Jb\"}").contains('\x1b'));
    }
}

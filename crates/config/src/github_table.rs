//! `[github]`: the App that mints tokens for sandboxes. Nothing here gives a sandbox its key: that is requested per run.

use crate::fault::at;
use crate::file::GitHubTable;
use crate::layer::Layer;
use crate::origin::At;
use crate::read::Text;
use belljar_spec::SandboxError;
use belljar_spec::egress::HostName;
use belljar_spec::secret::{GitHubApp, SecretRef};
use std::fmt;
use toml::Spanned;

/// The App of a file. A repository has none.
pub(crate) fn understand(
    text: &Text,
    table: Option<&Spanned<GitHubTable>>,
) -> Result<Option<At<GitHubApp>>, SandboxError> {
    let Some(table) = table else { return Ok(None) };
    let place = text.place(table.span().start);
    if text.layer == Layer::Repository {
        return Err(at(&place, "a repository cannot name a GitHub App")
            .hint("take the table out here; it belongs in your own belljar.toml, or the operator's"));
    }
    let table = table.get_ref();
    let api = match &table.api {
        Some(api) => one(text, api, |api| url(api))?,
        None => "https://api.github.com".to_string(),
    };
    let value = GitHubApp {
        app: one(text, &table.app, |number| id(*number))?,
        installation: one(text, &table.installation, |number| id(*number))?,
        key: one(text, &table.key, |key| key.parse::<SecretRef>())?,
        api,
        host: match &table.host {
            Some(host) => one(text, host, |host| host.parse::<HostName>())?,
            None => "github.com".parse().map_err(|error| at(&place, error))?,
        },
    };
    Ok(Some(At { value, place }))
}

/// By TLS; without TLS only to this machine, which is for tests.
fn url(text: &str) -> Result<String, &'static str> {
    let rest = text.strip_prefix("https://").or_else(|| {
        text.strip_prefix("http://")
            .filter(|rest| rest.starts_with("127.0.0.1:") || rest.starts_with("[::1]:"))
    });
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['@', '?', '#', ' ']) => {
            Ok(text.trim_end_matches('/').to_string())
        }
        _ => Err("`api` is not the URL of an API: write one like `https://api.github.com`"),
    }
}

fn id(number: i64) -> Result<u64, &'static str> {
    u64::try_from(number).ok().filter(|number| *number > 0).ok_or("this is not an id: write a number above 0")
}

fn one<W, T, E: fmt::Display>(
    text: &Text,
    written: &Spanned<W>,
    parse: impl FnOnce(&W) -> Result<T, E>,
) -> Result<T, SandboxError> {
    parse(written.get_ref()).map_err(|error| at(&text.place(written.span().start), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Settings;

    fn read(layer: Layer, lines: &str) -> Result<GitHubApp, SandboxError> {
        let content = format!("[github]\n{lines}\n");
        let text = Text { layer, name: "belljar.toml".into(), content };
        Ok(Settings::understand(&text)?.github.expect("an App").value)
    }

    const WHOLE: &str = "app = 123\ninstallation = 456\nkey = \"secret:github-app\"\n";

    #[test]
    fn an_app_is_read() {
        let app = read(Layer::Operator, WHOLE).expect("an App");
        assert_eq!((app.app, app.installation, app.api.as_str()), (123, 456, "https://api.github.com"));
        assert_eq!(app.host.as_str(), "github.com");
        let more = format!("{WHOLE}api = \"https://ghe.example.com/api/v3/\"\nhost = \"ghe.example.com\"");
        let app = read(Layer::User, &more).expect("an App");
        assert_eq!(
            (app.api.as_str(), app.host.as_str()),
            ("https://ghe.example.com/api/v3", "ghe.example.com")
        );
        assert!(read(Layer::Repository, WHOLE).is_err());
    }

    #[test]
    fn no_key_of_a_file_lets_the_apps_key_into_a_sandbox() {
        for key in ["forward_key", "danger_forward_key", "danger_forward_app_key", "allow_app_pem", "profile"]
        {
            let error = read(Layer::Operator, &format!("{WHOLE}{key} = true")).expect_err(key);
            assert!(error.message.contains(&format!("there is no key `{key}`")), "{error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line() {
        for (lines, line, says) in [
            ("app = 0\ninstallation = 1\nkey = \"secret:x\"", 2, "not an id"),
            ("app = 1\ninstallation = 1\nkey = \"-----BEGIN RSA\"", 4, "not a reference to a secret"),
            ("app = 1\ninstallation = 1", 1, "missing field `key`"),
        ] {
            let error = read(Layer::User, lines).expect_err(lines);
            assert!(error.message.starts_with(&format!("belljar.toml:{line}: ")), "{error}");
            assert!(error.message.contains(says), "{error}");
        }
        for api in ["http://api.github.com", "api.github.com", "https://", "https://a@b/", "ftp://x"] {
            let error = read(Layer::User, &format!("{WHOLE}api = \"{api}\"")).expect_err(api);
            assert!(error.message.contains("is not the URL of an API"), "{error}");
        }
    }
}

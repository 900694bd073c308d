//! A file as it was written: its keys and where they stand. What they mean is the layer's business.

use super::llm::LlmTable;
use super::read::Text;
use super::toml_text::TomlText;
use belljar_spec::SandboxError;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;

/// `belljar.toml`, or `.belljar/config.toml`. A new key also has its line in `schema.json`; a test compares.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) egress: Egress,
    pub(super) credential: BTreeMap<String, Spanned<CredentialTable>>,
    pub(super) github: Option<Spanned<GitHubTable>>,
    pub(super) llm: Option<Spanned<LlmTable>>,
    pub(super) workspace: WorkspaceTable,
    pub(super) agent: Option<Spanned<AgentTable>>,
    pub(super) git: Option<Spanned<GitTable>>,
    pub(super) profile: BTreeMap<String, Spanned<ProfileTable>>,
    pub(super) sandbox: Option<Spanned<SandboxTable>>,
    pub(super) golden: Option<Spanned<GoldenTable>>,
    pub(super) images: Option<Spanned<ImagesTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Egress {
    pub(super) mode: Option<Spanned<String>>,
    pub(super) widest: Option<Spanned<String>>,
    pub(super) groups: Vec<Spanned<String>>,
    pub(super) allow: Vec<Spanned<String>>,
    pub(super) deny: Vec<Spanned<String>>,
    pub(super) only: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) private: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) resolvers: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) authorities: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) inspect: Option<Spanned<bool>>,
    pub(super) connections: Option<Spanned<i64>>,
    pub(super) bytes: Option<Spanned<Scalar>>,
    pub(super) rule: Vec<RuleTable>,
}

/// `[[egress.rule]]`: a rule that does not fit in a line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    pub(super) host: Spanned<String>,
    #[serde(default)]
    pub(super) ports: Option<Spanned<Vec<Spanned<Scalar>>>>,
    #[serde(default)]
    pub(super) protocols: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) methods: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) paths: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) inspect: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) matches: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) does_not_match: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// `[credential.NAME]`: a secret, and where it may go.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CredentialTable {
    pub(super) secret: Option<Spanned<String>>,
    pub(super) host: Option<Spanned<String>>,
    pub(super) hosts: Vec<Spanned<String>>,
    pub(super) port: Option<Spanned<Scalar>>,
    pub(super) paths: Vec<Spanned<String>>,
    pub(super) methods: Vec<Spanned<String>>,
    #[serde(rename = "as")]
    pub(super) carrier: Option<Spanned<String>>,
    pub(super) user: Option<Spanned<String>>,
    pub(super) header: Option<Spanned<String>>,
    pub(super) query: Option<Spanned<String>>,
    pub(super) variables: Option<Vec<Spanned<String>>>,
    pub(super) bodies: Option<Spanned<String>>,
    pub(super) inject: Option<Spanned<String>>,
}

/// `[github]`: the App that mints tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GitHubTable {
    pub(super) app: Spanned<i64>,
    pub(super) installation: Spanned<i64>,
    pub(super) key: Spanned<String>,
    #[serde(default)]
    pub(super) api: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) host: Option<Spanned<String>>,
}

/// `[workspace]`: what of it nobody inside may change.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WorkspaceTable {
    pub(super) protect: Vec<Spanned<String>>,
    pub(super) unprotect: Option<Spanned<Vec<Spanned<String>>>>,
}

/// `[agent]`: what agents are told.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AgentTable {
    pub(super) context: Option<Spanned<String>>,
}

/// `[git]`: what a push may do, and what repositories may borrow.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GitTable {
    pub(super) push: Vec<Spanned<String>>,
    pub(super) tags: Option<bool>,
    pub(super) force: Option<bool>,
    pub(super) delete: Option<bool>,
    pub(super) workflows: Option<bool>,
    pub(super) bytes: Option<Spanned<Scalar>>,
    pub(super) objects: Option<Spanned<i64>>,
    pub(super) alternates: Vec<Spanned<String>>,
}

/// `[profile.NAME]`: named choices of a sandbox.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProfileTable {
    pub(super) label: Option<String>,
    pub(super) description: Option<String>,
    pub(super) default: bool,
    pub(super) backend: Option<Spanned<String>>,
    pub(super) at_least: Option<Spanned<String>>,
    pub(super) rootfs: Option<Spanned<String>>,
    pub(super) egress: Option<Spanned<String>>,
    pub(super) allow: Vec<Spanned<String>>,
    pub(super) groups: Vec<Spanned<String>>,
    pub(super) inspect: bool,
    pub(super) secrets: Vec<Spanned<String>>,
    pub(super) nested: Option<bool>,
    pub(super) memory: Option<Spanned<Scalar>>,
    pub(super) cpus: Option<Spanned<Scalar>>,
    pub(super) pids: Option<Spanned<i64>>,
    pub(super) disk: Option<Spanned<Scalar>>,
    pub(super) timeout: Option<Spanned<Scalar>>,
    pub(super) output: Option<Spanned<Scalar>>,
}

/// `[golden]`: how the golden root is built.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GoldenTable {
    pub(super) mirror: Option<Spanned<String>>,
    pub(super) release: Option<Spanned<String>>,
    pub(super) sha256: Option<Spanned<String>>,
    pub(super) tier: Option<Spanned<String>>,
}

/// `[sandbox]`: what a repository's sandboxes need.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SandboxTable {
    pub(super) ports: Vec<Spanned<i64>>,
    pub(super) volumes: BTreeMap<String, Spanned<String>>,
    pub(super) env: BTreeMap<String, Spanned<String>>,
    pub(super) rootfs: Option<Spanned<String>>,
    pub(super) profile: Option<Spanned<String>>,
}

/// `[images]`: where images come from.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ImagesTable {
    pub(super) mirrors: BTreeMap<String, Spanned<String>>,
    pub(super) plain_http: Vec<Spanned<String>>,
    pub(super) authorities: Vec<Spanned<String>>,
}

/// A number or text: people write `443` and `"8000-8100"` in one list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scalar(pub(super) String);

impl AsRef<str> for Scalar {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl File {
    /// The file as written, or the line that is none.
    pub(super) fn parse(text: &Text) -> Result<File, SandboxError> {
        TomlText { name: &text.name, content: &text.content }.parse(correction)
    }
}

fn correction(message: &str) -> &'static str {
    if message.contains("expected a sequence") {
        "write a list, as in `[\"example.com\"]`"
    } else if message.contains("expected a string") {
        "write text in quotes, as in `\"example.com\"`"
    } else if message.contains("missing field `host`") {
        "write `host = \"example.com\"` below `[[egress.rule]]`"
    } else if ["app", "installation", "key"].iter().any(|key| message == format!("missing field `{key}`")) {
        "write app, installation and key below `[github]`"
    } else if message.contains("array of tables") || message.contains("struct RuleTable") {
        "write `[[egress.rule]]`, with two brackets, before each rule"
    } else {
        "correct the line; `belljar config schema` prints what a file may say"
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or text in quotes")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_string()))
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

/// The keys that a table knows, as serde has them: what the schema is held against.
#[cfg(test)]
pub(super) fn known_keys(header: &str) -> Vec<String> {
    let content = format!("{header}\nno_such_key = 1\n");
    let error = toml::from_str::<File>(&content).expect_err("there is no such key");
    super::toml_text::unknown_key(error.message()).expect("serde names the keys that it knows").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layer::Layer;

    fn parse(content: &str) -> Result<File, SandboxError> {
        File::parse(&Text { layer: Layer::User, name: "belljar.toml".into(), content: content.into() })
    }

    #[test]
    fn a_slip_is_named_with_its_line_and_what_was_meant() {
        for (content, message, hint) in [
            (
                "[egress]\nmode = \"strict\"\nalow = []",
                "belljar.toml:3: there is no key `alow`",
                "did you mean `allow`?",
            ),
            ("[egres]", "belljar.toml:1: there is no key `egres`", "did you mean `egress`?"),
            (
                "\n\negress.zebra = 1",
                "belljar.toml:3: there is no key `zebra`",
                "known here: mode, widest, groups",
            ),
            (
                "[[egress.rule]]\nhost = \"x.com\"\nport = [1]",
                "belljar.toml:3: there is no key `port`",
                "did you mean `ports`?",
            ),
            ("[egress]\n\"a`b\\u001b\" = 1", "belljar.toml:2: there is no key `a`b\\u{1b}`", "known here"),
            ("[egress]\nallow = \"x.com\"", "belljar.toml:2: invalid type: string", "write a list"),
            ("[egress]\nmode = 3", "belljar.toml:2: invalid type: integer `3`", "text in quotes"),
            ("[egress]\nallow = [\n  3,\n]", "belljar.toml:3: invalid type: integer `3`", "text in quotes"),
            (
                "[[egress.rule]]\nports = [1]",
                "belljar.toml:1: missing field `host`",
                "host = \"example.com\"",
            ),
            ("[egress.rule]\nhost = \"x.com\"", "belljar.toml:1: invalid type: map", "write"),
            (
                "[egress]\nmode = \"strict\"\nmode = \"open\"",
                "belljar.toml:3: duplicate key",
                "correct the line",
            ),
            ("[egress]\nallow = [\"x.com\"\ndeny = []", "belljar.toml:3", "correct the line"),
            ("mode", "belljar.toml:1", "correct the line"),
            (
                "[[egress.rule]]\nhost = \"x\"\nports = [true]",
                "belljar.toml:3: invalid type: boolean",
                "correct",
            ),
        ] {
            let error = parse(content).expect_err(content);
            assert!(error.message.starts_with(message), "{content}: {error}");
            let said = error.hint.unwrap_or_default();
            assert!(said.contains(hint), "{content}: {said}");
            assert!(!error.message.contains(['\n', '\x1b']), "{content}: {}", error.message);
        }
    }

    #[test]
    fn numbers_and_text_stand_in_one_list() {
        let file = parse("[[egress.rule]]\nhost = \"x\"\nports = [443, \"8000-8100\"]").expect("a file");
        let ports = file.egress.rule[0].ports.as_ref().expect("ports").get_ref();
        let ports: Vec<&str> = ports.iter().map(|port| port.get_ref().0.as_str()).collect();
        assert_eq!(ports, ["443", "8000-8100"]);
    }
}

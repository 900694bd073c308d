//! A file as written: its keys and their positions. `layer` interprets them.

use crate::llm::LlmTable;
use crate::read::Text;
use crate::toml_text::TomlText;
use belljar_spec::{CommandLine, Hint, SandboxError, hint};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;

/// `belljar.toml`, or `.belljar/config.toml`. A new key also has its line in `schema.json`; a test compares.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    pub(crate) egress: Egress,
    pub(crate) credential: BTreeMap<String, Spanned<CredentialTable>>,
    pub(crate) github: Option<Spanned<GitHubTable>>,
    pub(crate) llm: Option<Spanned<LlmTable>>,
    pub(crate) workspace: WorkspaceTable,
    pub(crate) agent: Option<Spanned<AgentTable>>,
    pub(crate) git: Option<Spanned<GitTable>>,
    pub(crate) profile: BTreeMap<String, Spanned<ProfileTable>>,
    pub(crate) sandbox: Option<Spanned<SandboxTable>>,
    pub(crate) golden: Option<Spanned<GoldenTable>>,
    pub(crate) daemon: Option<Spanned<DaemonTable>>,
    pub(crate) images: Option<Spanned<ImagesTable>>,
    pub(crate) e2b: Option<Spanned<E2bTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Egress {
    pub(crate) mode: Option<Spanned<String>>,
    pub(crate) widest: Option<Spanned<String>>,
    pub(crate) groups: Vec<Spanned<String>>,
    pub(crate) allow: Vec<Spanned<String>>,
    pub(crate) deny: Vec<Spanned<String>>,
    pub(crate) only: Option<Spanned<Vec<Spanned<String>>>>,
    pub(crate) private: Option<Spanned<Vec<Spanned<String>>>>,
    pub(crate) host_ports: Option<Spanned<Vec<Spanned<i64>>>>,
    pub(crate) resolvers: Option<Spanned<Vec<Spanned<String>>>>,
    pub(crate) proxy: Option<Spanned<ProxyTable>>,
    pub(crate) authorities: Option<Spanned<Vec<Spanned<String>>>>,
    pub(crate) inspect: Option<Spanned<bool>>,
    pub(crate) connections: Option<Spanned<i64>>,
    pub(crate) bytes: Option<Spanned<Scalar>>,
    pub(crate) rule: Vec<RuleTable>,
}

/// `[egress.proxy]`: what the gateway dials through.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyTable {
    pub(crate) url: Option<Spanned<String>>,
    pub(crate) secret: Option<Spanned<String>>,
    pub(crate) resolve: Option<Spanned<String>>,
    pub(crate) except: Vec<Spanned<String>>,
}

/// `[[egress.rule]]`: a rule that does not fit in a line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    pub(crate) host: Spanned<String>,
    #[serde(default)]
    pub(crate) ports: Option<Spanned<Vec<Spanned<Scalar>>>>,
    #[serde(default)]
    pub(crate) protocols: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(crate) methods: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(crate) paths: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(crate) inspect: Option<Spanned<bool>>,
    #[serde(default)]
    pub(crate) matches: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) does_not_match: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// `[credential.NAME]`: a secret, and where it may go.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CredentialTable {
    pub(crate) secret: Option<Spanned<String>>,
    pub(crate) host: Option<Spanned<String>>,
    pub(crate) hosts: Vec<Spanned<String>>,
    pub(crate) port: Option<Spanned<Scalar>>,
    pub(crate) paths: Vec<Spanned<String>>,
    pub(crate) methods: Vec<Spanned<String>>,
    #[serde(rename = "as")]
    pub(crate) location: Option<Spanned<String>>,
    pub(crate) user: Option<Spanned<String>>,
    pub(crate) header: Option<Spanned<String>>,
    pub(crate) query: Option<Spanned<String>>,
    pub(crate) variables: Option<Vec<Spanned<String>>>,
    pub(crate) bodies: Option<Spanned<String>>,
    pub(crate) inject: Option<Spanned<String>>,
}

/// `[github]`: the App that mints tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitHubTable {
    pub(crate) app: Spanned<i64>,
    pub(crate) installation: Spanned<i64>,
    pub(crate) key: Spanned<String>,
    #[serde(default)]
    pub(crate) api: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) host: Option<Spanned<String>>,
}

/// `[workspace]`: the paths of it that the sandbox may not change.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkspaceTable {
    pub(crate) protect: Vec<Spanned<String>>,
    pub(crate) hide: Vec<Spanned<String>>,
    pub(crate) placeholders: Vec<Spanned<String>>,
    pub(crate) visible: Option<Spanned<Vec<Spanned<String>>>>,
    pub(crate) unprotect: Option<Spanned<Vec<Spanned<String>>>>,
}

/// `[agent]`: instructions for agents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentTable {
    pub(crate) context: Option<Spanned<String>>,
}

/// `[git]`: push rules, and the objects that repositories may borrow.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GitTable {
    pub(crate) push: Vec<Spanned<String>>,
    pub(crate) tags: Option<bool>,
    pub(crate) force: Option<bool>,
    pub(crate) delete: Option<bool>,
    pub(crate) workflows: Option<bool>,
    pub(crate) bytes: Option<Spanned<Scalar>>,
    pub(crate) objects: Option<Spanned<i64>>,
    pub(crate) alternates: Vec<Spanned<String>>,
}

/// `[profile.NAME]`: named sandbox configurations.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProfileTable {
    pub(crate) label: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) default: bool,
    pub(crate) backend: Option<Spanned<String>>,
    pub(crate) at_least: Option<Spanned<String>>,
    pub(crate) rootfs: Option<Spanned<String>>,
    pub(crate) egress: Option<Spanned<String>>,
    pub(crate) allow: Vec<Spanned<String>>,
    pub(crate) groups: Vec<Spanned<String>>,
    pub(crate) inspect: bool,
    pub(crate) secrets: Vec<Spanned<String>>,
    pub(crate) nested: Option<bool>,
    pub(crate) memory: Option<Spanned<Scalar>>,
    pub(crate) cpus: Option<Spanned<Scalar>>,
    pub(crate) pids: Option<Spanned<i64>>,
    pub(crate) disk: Option<Spanned<Scalar>>,
    pub(crate) timeout: Option<Spanned<Scalar>>,
    pub(crate) output: Option<Spanned<Scalar>>,
}

/// `[golden]`: how the golden root is built.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GoldenTable {
    pub(crate) mirror: Option<Spanned<String>>,
    pub(crate) release: Option<Spanned<String>>,
    pub(crate) sha256: Option<Spanned<String>>,
    pub(crate) tier: Option<Spanned<String>>,
}

/// `[daemon]`: the daemon's settings.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DaemonTable {
    pub(crate) warm: Option<Spanned<i64>>,
    pub(crate) retention: Option<Spanned<String>>,
    pub(crate) e2b: Option<Spanned<String>>,
    pub(crate) e2b_domain: Option<Spanned<String>>,
}

/// `[sandbox]`: the needs of a repository's sandboxes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxTable {
    pub(crate) ports: Vec<Spanned<i64>>,
    pub(crate) volumes: BTreeMap<String, Spanned<String>>,
    pub(crate) env: BTreeMap<String, Spanned<String>>,
    pub(crate) rootfs: Option<Spanned<String>>,
    pub(crate) profile: Option<Spanned<String>>,
    pub(crate) checkpoint: bool,
}

/// `[images]`: where images come from.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ImagesTable {
    pub(crate) mirrors: BTreeMap<String, Spanned<String>>,
    pub(crate) plain_http: Vec<Spanned<String>>,
    pub(crate) authorities: Vec<Spanned<String>>,
}

/// `[e2b]`: a service elsewhere that makes sandboxes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct E2bTable {
    pub(crate) domain: Option<Spanned<String>>,
    pub(crate) api_url: Option<Spanned<String>>,
    pub(crate) sandbox_url: Option<Spanned<String>>,
    pub(crate) key: Option<Spanned<String>>,
    pub(crate) template: Option<Spanned<String>>,
}

/// A number or text: users write `443` and `"8000-8100"` in one list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scalar(pub(super) String);

impl AsRef<str> for Scalar {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl File {
    /// Parses the file, or returns the faulty line.
    pub(crate) fn parse(text: &Text) -> Result<File, SandboxError> {
        TomlText { name: &text.name, content: &text.content }.parse(correction)
    }
}

fn correction(message: &str) -> Hint {
    if message.contains("expected a sequence") {
        "write a list, as in `[\"example.com\"]`".into()
    } else if message.contains("expected a string") {
        "write text in quotes, as in `\"example.com\"`".into()
    } else if message.contains("missing field `host`") {
        "write `host = \"example.com\"` below `[[egress.rule]]`".into()
    } else if ["app", "installation", "key"].iter().any(|key| message == format!("missing field `{key}`")) {
        "write app, installation and key below `[github]`".into()
    } else if message.contains("array of tables") || message.contains("struct RuleTable") {
        "write `[[egress.rule]]`, with two brackets, before each rule".into()
    } else {
        hint!("correct the line; {} prints what a file may say", CommandLine::ConfigSchema)
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

/// The keys of a table, from serde: the schema is compared with them.
#[cfg(test)]
pub(crate) fn known_keys(header: &str) -> Vec<String> {
    let content = format!("{header}\nno_such_key = 1\n");
    let error = toml::from_str::<File>(&content).expect_err("there is no such key");
    crate::toml_text::unknown_key(error.message()).expect("serde names the keys that it knows").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Layer;

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
            let shown = error.hint.unwrap_or_default().to_string();
            assert!(shown.contains(hint), "{content}: {shown}");
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

//! The credentials that belljar knows. The data is in `credentials.table`.

use super::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Inject, SecretName, SecretRef, SecretSource,
};
use crate::EnvName;
use crate::egress::{HostPattern, PathGlob, PortRange, RequestFilter};
use std::sync::LazyLock;

/// A credential that comes with belljar.
#[derive(Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// As `--secret NAME` means it: the secret of the same name in the vault.
    pub credential: Credential,
    /// Only where a run asks for web search.
    pub is_search: bool,
}

/// All of them, by name.
pub fn built_ins() -> impl Iterator<Item = &'static BuiltIn> {
    TABLE.iter()
}

/// The one of this name.
pub fn built_in(name: &str) -> Option<&'static BuiltIn> {
    built_ins().find(|known| known.credential.name.as_str() == name)
}

/// Those that search the web, in the order in which they are tried.
pub fn searches() -> impl Iterator<Item = &'static BuiltIn> {
    ["tavily", "exa", "brave"].into_iter().filter_map(built_in)
}

fn read(table: &'static str) -> Result<Vec<BuiltIn>, String> {
    let mut known: Vec<BuiltIn> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, host, paths, locations, variables, bodies, when, _reason] = columns[..] else {
            return Err(format!("not eight columns: {line}"));
        };
        let wrong = |error: &dyn std::fmt::Display| format!("{line}: {error}");
        let binding = CredentialBinding {
            host: format!("={host}").parse::<HostPattern>().map_err(|error| wrong(&error))?,
            ports: PortRange::only(443).map_err(|error| wrong(&error))?,
            requests: RequestFilter {
                methods: Vec::new(),
                paths: words(paths)
                    .map(str::parse::<PathGlob>)
                    .collect::<Result<_, _>>()
                    .map_err(|error| wrong(&error))?,
            },
            locations: words(locations)
                .map(location)
                .collect::<Result<_, _>>()
                .map_err(|error| wrong(&error))?,
            inject: Inject::Placeholder,
        };
        let name: SecretName = name.parse().map_err(|error| wrong(&error))?;
        match known.last_mut().filter(|last| last.credential.name == name) {
            Some(last) => last.credential.bindings.push(binding),
            None => known.push(BuiltIn {
                credential: Credential {
                    source: SecretSource::Stored(SecretRef::Vault(name.clone())),
                    name,
                    bindings: vec![binding],
                    variables: words(variables)
                        .map(str::parse::<EnvName>)
                        .collect::<Result<_, _>>()
                        .map_err(|error| wrong(&error))?,
                    bodies: match bodies {
                        "watched" => Bodies::Watched,
                        "open" => Bodies::Open,
                        other => return Err(wrong(&other)),
                    },
                },
                is_search: match when {
                    "always" => false,
                    "search" => true,
                    other => return Err(wrong(&other)),
                },
            }),
        }
    }
    Ok(known)
}

fn words(column: &'static str) -> impl Iterator<Item = &'static str> {
    column.split_whitespace().filter(|word| *word != "-")
}

fn location(word: &str) -> Result<CredentialLocation, String> {
    match word.split_once(':') {
        None if word == "bearer" => Ok(CredentialLocation::Bearer),
        Some(("basic", user)) => CredentialLocation::basic(user).map_err(|error| error.to_string()),
        Some(("header", name)) => CredentialLocation::header(name).map_err(|error| error.to_string()),
        Some(("query", name)) => CredentialLocation::query(name).map_err(|error| error.to_string()),
        _ => Err(format!("`{word}` is not a credential location")),
    }
}

static TABLE: LazyLock<Vec<BuiltIn>> = LazyLock::new(|| {
    read(include_str!("credentials.table"))
        .expect("a test reads every row of credentials.table, which is part of the program")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        let names: Vec<&str> = built_ins().map(|known| known.credential.name.as_str()).collect();
        assert_eq!(names, ["anthropic", "brave", "exa", "github", "openai", "openrouter", "tavily"]);
        for known in built_ins() {
            let Credential { bindings, variables, .. } = &known.credential;
            assert!(
                !variables.is_empty() && bindings.iter().all(|binding| !binding.locations.is_empty()),
                "{known:?}"
            );
        }
    }

    #[test]
    fn keys_go_only_to_their_makers() {
        let at = |name: &str, host: &str, port: u16| {
            let bindings = &built_in(name).expect(name).credential.bindings;
            bindings.iter().any(|binding| binding.is_at(&host.parse().expect(host), port))
        };
        for (name, host) in [
            ("anthropic", "api.anthropic.com"),
            ("github", "api.github.com"),
            ("github", "github.com"),
            ("github", "uploads.github.com"),
            ("github", "codeload.github.com"),
            ("openrouter", "openrouter.ai"),
            ("brave", "api.search.brave.com"),
        ] {
            assert!(at(name, host, 443) && !at(name, host, 80) && !at(name, host, 8443), "{name} {host}");
        }
        for (name, host) in [
            ("anthropic", "console.anthropic.com"),
            ("anthropic", "api.openai.com"),
            ("github", "gist.github.com"),
            ("github", "x.api.github.com"),
        ] {
            assert!(!at(name, host, 443), "{name} {host}");
        }
    }

    #[test]
    fn searches_are_tried_in_their_order() {
        let names: Vec<&str> = searches().map(|known| known.credential.name.as_str()).collect();
        assert_eq!(names, ["tavily", "exa", "brave"]);
        assert!(built_ins().filter(|known| known.is_search).count() == 3);
    }
}

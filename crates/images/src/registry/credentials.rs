//! Passwords of registries, from the file that `docker login` writes. Programs that it names are never run: a pull must not
//! become a way to start one.

use crate::error::ImageError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// Who we are to a registry. It cannot be printed.
pub(super) struct Login {
    user: String,
    password: Zeroizing<String>,
}

impl Login {
    /// As the header `Authorization` has it.
    pub(super) fn header(&self) -> Zeroizing<String> {
        let pair = Zeroizing::new(format!("{}:{}", self.user, *self.password));
        Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())))
    }
}

#[derive(Deserialize, Default)]
struct Written {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    auth: Shy,
    username: String,
    password: Shy,
}

/// A secret that was written. It cannot be printed, and is gone when it is dropped.
#[derive(Deserialize, Default)]
#[serde(from = "String")]
pub(super) struct Shy(pub(super) Zeroizing<String>);

impl From<String> for Shy {
    fn from(text: String) -> Shy {
        Shy(Zeroizing::new(text))
    }
}

/// The login for a registry, if the file has one.
pub(super) fn login(file: &Path, registry: &str) -> Result<Option<Login>, ImageError> {
    let failed = |why: String| ImageError::Credentials { path: file.to_path_buf(), why };
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| failed(error.to_string()))?,
    };
    let mut text = Zeroizing::new(Vec::new());
    opened.take(LARGEST).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    // What serde says could quote a password.
    let written: Written = serde_json::from_slice(&text)
        .map_err(|error| failed(format!("it is no JSON of docker's, line {}", error.line())))?;
    let entry = written.auths.into_iter().find(|(name, _)| host_of(name) == host_of(registry));
    let Some((_, entry)) = entry else { return Ok(None) };
    if entry.auth.0.is_empty() {
        let is_there = !entry.username.is_empty();
        return Ok(is_there.then_some(Login { user: entry.username, password: entry.password.0 }));
    }
    let decoded = STANDARD.decode(entry.auth.0.trim_end_matches('\0').as_bytes()).map(Zeroizing::new);
    let pair = decoded.ok().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok().map(Zeroizing::new));
    let pair = pair.ok_or_else(|| failed(format!("what it has for `{registry}` is no password")))?;
    let Some((user, password)) = pair.split_once(':') else {
        return Err(failed(format!("what it has for `{registry}` is no password")));
    };
    Ok(Some(Login { user: user.to_string(), password: Zeroizing::new(password.to_string()) }))
}

/// `https://index.docker.io/v1/` is how `docker login` writes Docker's own.
fn host_of(name: &str) -> &str {
    let name = name.trim_start_matches("https://").trim_start_matches("http://");
    match name.split('/').next().unwrap_or_default() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

const LARGEST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found_by_host_and_nothing_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let pair = STANDARD.encode("ann:s3cret:x");
        std::fs::write(
            &file,
            format!(
                r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{pair}"}},"b.lan:5000":{{"username":"u","password":"p"}},
                "empty.lan":{{}}}},"credsStore":"evil","credHelpers":{{"c.lan":"evil"}}}}"#
            ),
        )
        .unwrap();
        let header = |registry: &str| {
            login(&file, registry).unwrap().map(|login| {
                let header = login.header();
                let packed = header.strip_prefix("Basic ").unwrap().to_string();
                String::from_utf8(STANDARD.decode(packed).unwrap()).unwrap()
            })
        };
        assert_eq!(header("docker.io").as_deref(), Some("ann:s3cret:x"));
        assert_eq!(header("b.lan:5000").as_deref(), Some("u:p"));
        for registry in ["b.lan", "c.lan", "empty.lan", "evil.io"] {
            assert_eq!(header(registry), None, "{registry}");
        }
        std::fs::write(&file, r#"{"auths":{"x.lan":{"auth":"%%%"}}}"#).unwrap();
        assert!(login(&file, "x.lan").is_err());
        assert!(login(&folder.path().join("none"), "x.lan").unwrap().is_none());
    }
}

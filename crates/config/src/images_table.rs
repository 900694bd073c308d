//! `[images]`: where images come from, from the operator and the user. Not from a repository: the one who names a mirror decides
//! what a tag means.

use crate::fault::at;
use crate::file::ImagesTable;
use crate::layer::Settings;
use crate::load::above;
use crate::origin::ConfigPaths;
use crate::read::Text;
use belljar_images::{Mirror, PullOptions, Transport};
use belljar_spec::SandboxError;
use std::path::PathBuf;
use toml::Spanned;

/// A file's settings of images.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSettings {
    pub mirrors: Vec<Mirror>,
    pub plain_http: Vec<String>,
    pub authorities: Vec<PathBuf>,
}

impl ImageSettings {
    pub(crate) fn understand(text: &Text, table: &ImagesTable) -> Result<ImageSettings, SandboxError> {
        let mut settings = ImageSettings::default();
        for (registry, written) in &table.mirrors {
            let (place, scheme) = mirror(text, written)?;
            if scheme == Scheme::Clear {
                settings.plain_http.extend(place.split('/').next().map(str::to_string));
            }
            let transport = if scheme == Scheme::Tls { Transport::Tls } else { Transport::Usual };
            settings.mirrors.push(Mirror { registry: registry.to_ascii_lowercase(), place, transport });
        }
        for written in &table.plain_http {
            let host = written.get_ref();
            if host.is_empty() || host.contains(['/', ' ', '*', '@']) {
                let what = format!("`{host}` is no registry: write `host` or `host:port`");
                return Err(at(&text.place(written.span().start), what));
            }
            settings.plain_http.push(host.clone());
        }
        for written in &table.authorities {
            let path = PathBuf::from(written.get_ref());
            if !path.is_absolute() {
                let what = format!("`{}` is no absolute path", path.display());
                return Err(at(&text.place(written.span().start), what));
            }
            settings.authorities.push(path);
        }
        Ok(settings)
    }
}

/// How images are pulled on this machine: the files' settings, the user's mirrors before the operator's, and the passwords of
/// `docker login`.
pub fn pull_options() -> Result<PullOptions, SandboxError> {
    pull_options_from(&ConfigPaths::real())
}

/// The same, with files from elsewhere.
pub fn pull_options_from(places: &ConfigPaths) -> Result<PullOptions, SandboxError> {
    let layers = above(places, &mut Vec::new())?;
    let of = |layer: &Option<Settings>| layer.as_ref().map(|layer| layer.images.clone()).unwrap_or_default();
    let (user, operator) = (of(&layers.user), of(&layers.operator));
    let joined = |one: Vec<String>, two: Vec<String>| [one, two].concat();
    Ok(PullOptions {
        mirrors: [user.mirrors, operator.mirrors].concat(),
        plain_http: joined(user.plain_http, operator.plain_http),
        authorities: [user.authorities, operator.authorities].concat(),
        credentials: credentials(),
        ..PullOptions::default()
    })
}

/// The file of `docker login`.
fn credentials() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = variable("DOCKER_CONFIG").or_else(|| variable("HOME").map(|home| home.join(".docker")));
    folder.map(|folder| folder.join("config.json"))
}

/// The TLS setting.
#[derive(PartialEq, Eq)]
enum Scheme {
    Nothing,
    Tls,
    Clear,
}

/// `host[:port][/path]`, and the transport.
fn mirror(text: &Text, written: &Spanned<String>) -> Result<(String, Scheme), SandboxError> {
    let (place, scheme) = match written.get_ref().split_once("://") {
        None => (written.get_ref().as_str(), Scheme::Nothing),
        Some(("https", place)) => (place, Scheme::Tls),
        Some(("http", place)) => (place, Scheme::Clear),
        Some(_) => ("", Scheme::Nothing),
    };
    let place = place.trim_end_matches('/');
    let is_place =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/' | '[' | ']');
    if place.is_empty() || place.starts_with('/') || !place.chars().all(is_place) || place.contains("..") {
        let what = format!("`{}` is no mirror: write `https://host/path`", written.get_ref());
        return Err(at(&text.place(written.span().start), what));
    }
    Ok((place.to_string(), scheme))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ErrorCode;

    fn options(toml: &str) -> Result<PullOptions, SandboxError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("belljar.toml");
        std::fs::write(&file, toml).unwrap();
        let operator = folder.path().join("none.toml");
        pull_options_from(&ConfigPaths { operator, operator_id: 0, user: Some(file), state: None })
    }

    #[test]
    fn mirrors_are_named_with_or_without_tls() {
        let options = options(
            "[images]\nplain_http = [\"registry.lan:5000\"]\nauthorities = [\"/etc/corp.pem\"]\n\
             [images.mirrors]\n\"docker.io\" = \"https://mirror.lan/hub/\"\n\"ghcr.io\" = \"http://10.0.0.1:5000\"\n",
        )
        .unwrap();
        let places: Vec<(&str, &str)> =
            options.mirrors.iter().map(|mirror| (mirror.registry.as_str(), mirror.place.as_str())).collect();
        assert_eq!(places, [("docker.io", "mirror.lan/hub"), ("ghcr.io", "10.0.0.1:5000")]);
        assert_eq!(options.plain_http, ["10.0.0.1:5000", "registry.lan:5000"]);
        assert_eq!(options.authorities, [PathBuf::from("/etc/corp.pem")]);
    }

    #[test]
    fn what_is_no_place_is_said_with_its_line() {
        for toml in [
            "[images.mirrors]\n\"docker.io\" = \"ftp://x\"",
            "[images.mirrors]\n\"docker.io\" = \"https://\"",
            "[images.mirrors]\n\"docker.io\" = \"user:pass@host\"",
            "[images]\nplain_http = [\"http://x\"]",
            "[images]\nauthorities = [\"corp.pem\"]",
        ] {
            let error = options(toml).unwrap_err();
            assert_eq!(error.code, ErrorCode::ConfigInvalid, "{toml}");
            assert!(error.message.contains(":2"), "{}", error.message);
        }
    }
}

//! `[e2b]`: the E2B-compatible service that the backend `e2b` makes sandboxes in, from the operator and the user. Not from a repository:
//! who names the service gets its API key, and all that a sandbox is given.

use crate::fault::at;
use crate::file::E2bTable;
use crate::layer::Settings;
use crate::load::above;
use crate::origin::ConfigPaths;
use crate::read::Text;
use belljar_spec::SandboxError;
use belljar_spec::secret::SecretRef;

/// A file's settings of the service. Addresses are those of the SDKs' variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct E2bSettings {
    pub domain: Option<String>,
    pub api_url: Option<String>,
    pub sandbox_url: Option<String>,
    /// Where its API key is.
    pub key: Option<SecretRef>,
    /// What its sandboxes are made of.
    pub template: Option<String>,
}

impl E2bSettings {
    pub(crate) fn understand(text: &Text, table: &E2bTable) -> Result<E2bSettings, SandboxError> {
        let E2bTable { domain, api_url, sandbox_url, key, template } = table;
        let plain =
            |value: &Option<toml::Spanned<String>>| value.as_ref().map(|value| value.get_ref().clone());
        let key = key.as_ref().map(|key| {
            key.get_ref().parse().map_err(|error: belljar_spec::secret::SecretRefError| {
                at(&text.place(key.span().start), error.to_string())
            })
        });
        Ok(E2bSettings {
            domain: plain(domain),
            api_url: plain(api_url),
            sandbox_url: plain(sandbox_url),
            key: key.transpose()?,
            template: plain(template),
        })
    }
}

/// The service: the user's settings before the operator's.
pub fn e2b_service() -> Result<E2bSettings, SandboxError> {
    e2b_service_from(&ConfigPaths::real())
}

/// The same, with files from elsewhere.
pub(crate) fn e2b_service_from(places: &ConfigPaths) -> Result<E2bSettings, SandboxError> {
    let layers = above(places, &mut Vec::new())?;
    let of = |layer: &Option<Settings>| layer.as_ref().map(|layer| layer.e2b.clone()).unwrap_or_default();
    let (user, operator) = (of(&layers.user), of(&layers.operator));
    // Together: a key of one is not sent to an address of the other.
    let names_a_service = user.domain.is_some() || user.api_url.is_some() || user.sandbox_url.is_some();
    let (service, other) = if names_a_service { (user, operator) } else { (operator, user) };
    Ok(E2bSettings { template: service.template.clone().or(other.template), ..service })
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ErrorCode;

    fn service(user: &str) -> Result<E2bSettings, SandboxError> {
        let folder = tempfile::tempdir().expect("a folder");
        let (operator, file) = (folder.path().join("operator.toml"), folder.path().join("config.toml"));
        std::fs::write(
            &operator,
            "[e2b]\ndomain = \"corp.test\"\nkey = \"secret:corp\"\ntemplate = \"corp\"\n",
        )
        .expect("written");
        std::fs::write(&file, user).expect("written");
        let operator_id = belljar_sys::rustix::process::geteuid().as_raw();
        e2b_service_from(&ConfigPaths { operator, operator_id, user: Some(file), state: None })
    }

    #[test]
    fn a_key_belongs_to_the_service_of_its_file() {
        let corp = service("[e2b]\ntemplate = \"mine\"\n").expect("valid");
        let key = corp.key.map(|key| key.to_string());
        assert_eq!((corp.domain.as_deref(), key.as_deref()), (Some("corp.test"), Some("secret:corp")));
        assert_eq!(corp.template.as_deref(), Some("corp"));
        let own = service("[e2b]\napi_url = \"https://mine.test\"\nsandbox_url = \"https://s.test\"\n")
            .expect("valid");
        assert_eq!((own.domain, own.key), (None, None), "not the operator's key");
        assert_eq!(own.template.as_deref(), Some("corp"));
    }

    #[test]
    fn a_key_is_a_reference_and_never_the_key_itself() {
        let error = service("[e2b]\nkey = \"e2b_0123456789abcdef\"\n").expect_err("a key");
        assert_eq!(error.code, ErrorCode::ConfigInvalid);
        assert!(!error.message.contains("0123456789"), "{error}");
    }
}

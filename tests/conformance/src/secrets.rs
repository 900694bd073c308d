//! Secrets of a test, and credentials that are bound to its servers.

use belljar_spec::egress::{HostPattern, PortRange, RequestFilter};
use belljar_spec::secret::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Inject, SecretRef, SecretSource,
};
use belljar_vault::{Secret, SecretError, SecretStore};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by their reference, which a test can change while a sandbox runs.
#[derive(Default)]
pub struct Drawer(Mutex<BTreeMap<String, String>>);

impl Drawer {
    /// With these: `("secret:model", "sk-…")`.
    pub fn with<const N: usize>(values: [(&str, &str); N]) -> Arc<Drawer> {
        let drawer = Drawer::default();
        for (reference, value) in values {
            drawer.set(reference, value);
        }
        Arc::new(drawer)
    }

    /// Changes one.
    pub fn set(&self, reference: &str, value: &str) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(reference.into(), value.into());
    }

    /// Removes one.
    pub fn remove(&self, reference: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(reference);
    }
}

impl SecretStore for Drawer {
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match values.get(&reference.to_string()) {
            Some(value) => Ok(Secret::new(value.as_bytes().to_vec())),
            None => Err(SecretError {
                message: format!("there is no secret `{reference}`"),
                hint: "keep one".into(),
            }),
        }
    }
}

/// `secret:NAME` for one host and port, in these locations, under `NAME_KEY`.
pub fn credential<const N: usize>(
    name: &str,
    host: &str,
    port: u16,
    locations: [CredentialLocation; N],
) -> Credential {
    Credential {
        name: name.parse().expect("a name"),
        source: SecretSource::Stored(format!("secret:{name}").parse().expect("a reference")),
        bindings: vec![binding(host, port, locations)],
        variables: vec![format!("{}_KEY", name.to_uppercase()).parse().expect("a variable")],
        bodies: Bodies::Watched,
    }
}

/// One host and port, any request.
pub fn binding<const N: usize>(
    host: &str,
    port: u16,
    locations: [CredentialLocation; N],
) -> CredentialBinding {
    CredentialBinding {
        host: format!("={host}").parse::<HostPattern>().expect("a host"),
        ports: PortRange::only(port).expect("a port"),
        requests: RequestFilter::ANY,
        locations: locations.into(),
        inject: Inject::Placeholder,
    }
}

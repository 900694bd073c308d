//! A cage that may use a secret at one place, for attacks on the secret.

use crate::egress::{Cage, cage_by};
use belljar_engine::Engine;
use belljar_spec::BackendName;
use belljar_spec::egress::{EgressPolicy, PortRange, RequestFilter};
use belljar_spec::secret::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Inject, SecretRef, SecretSource,
};
use belljar_vault::{Secret, SecretError, SecretStore};
use std::sync::Arc;

/// What must never be seen inside, nor anywhere but at its place.
pub const REAL: &str = "sk-real-Zq81Lm40Xv7Tn26Rb93Kd5w";

/// The only secret there is.
struct One;

impl SecretStore for One {
    fn read(&self, _: &SecretRef) -> Result<Secret, SecretError> {
        Ok(Secret::new(REAL.as_bytes().to_vec()))
    }
}

/// [`REAL`] for one host and port: GET and POST of `/v1/**`, as `x-api-key` or a bearer. Inside it is `KEY`.
pub fn credential(host: &str, port: u16) -> Credential {
    Credential {
        name: "model".parse().unwrap(),
        source: SecretSource::Stored("secret:model".parse().unwrap()),
        bindings: vec![CredentialBinding {
            host: format!("={host}").parse().unwrap(),
            ports: PortRange::only(port).unwrap(),
            requests: RequestFilter {
                methods: vec!["GET".parse().unwrap(), "POST".parse().unwrap()],
                paths: vec!["/v1/**".parse().unwrap()],
            },
            locations: vec![CredentialLocation::header("x-api-key").unwrap(), CredentialLocation::Bearer],
            inject: Inject::Placeholder,
        }],
        variables: vec!["KEY".parse().unwrap()],
        bodies: Bodies::Watched,
    }
}

/// A cage with this policy and this credential.
pub fn cage_with_key(backend: BackendName, policy: &EgressPolicy, credential: Credential) -> Cage {
    let engine = Engine::new().with_secrets(Arc::new(One));
    cage_by(engine, backend, policy, |spec, _| spec.credentials = vec![credential])
}

impl Cage {
    /// What stands for the secret inside.
    pub fn placeholder(&self) -> String {
        String::from_utf8_lossy(&self.jail.sh("printf %s \"$KEY\"").stdout).into_owned()
    }
}

/// What attacks are made of: `ask` sends one request over a connection of its own, by TLS that is trusted or in the
/// clear, and returns all that came back; `answers` the same, over and over. What is refused is no error.
pub const ASK: &str = r#"
import ssl, base64
KEY = os.environ['KEY']
def raw(host, port, data, tls=True, pause=0.0):
    said = b''
    try:
        s = dial(host, port)
        if tls:
            s = ssl.create_default_context().wrap_socket(s, server_hostname=host)
        for piece in data if isinstance(data, list) else [data]:
            s.sendall(piece)
            time.sleep(pause)
        said = reply(s, timeout=3)
        s.close()
    except OSError as error:
        said = repr(error).encode()
    return said
def head(host, port, method='GET', target='/v1/x', headers=(), length=None):
    lines = ['%s %s HTTP/1.1' % (method, target), 'Host: %s:%s' % (host, port), 'Connection: close']
    lines += ['%s: %s' % pair for pair in headers]
    if length is not None:
        lines.append('Content-Length: %d' % length)
    return ('\r\n'.join(lines) + '\r\n\r\n').encode()
def ask(host, port, method='GET', target='/v1/x', headers=(), body=b'', tls=True):
    return raw(host, port, head(host, port, method, target, headers, len(body) if body else None) + body, tls)
"#;

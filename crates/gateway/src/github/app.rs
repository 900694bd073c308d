//! Who the App is: a JSON web token, signed with its private key (RFC 7519, RS256).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use belljar_spec::secret::GitHubApp;
use belljar_vault::{Secret, SecretError};
use data_encoding::BASE64URL_NOPAD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use zeroize::Zeroize;

/// Says that we are this App, for the next nine minutes. `now` counts seconds from 1970.
pub(super) fn jwt(app: &GitHubApp, key: &Secret, now: u64) -> Result<Secret, SecretError> {
    let wrong = |what: &str| SecretError {
        message: format!("the key of the GitHub App ({}) {what}", app.key),
        hint: "download a private key from the App's settings, and keep it as it is, in PEM".into(),
    };
    let pair = pair(key).ok_or_else(|| wrong("is not an RSA private key in PEM"))?;
    // Clocks differ: GitHub refuses what was made in its future, and what lives longer than ten minutes.
    let issued = now.saturating_sub(EARLIER);
    let claims = json!({ "iat": issued, "exp": issued + LIFE, "iss": app.app.to_string() });
    let header = json!({ "alg": "RS256", "typ": "JWT" });
    let part = |value: serde_json::Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let text = format!("{}.{}", part(header), part(claims));
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(|_| wrong("does not sign"))?;
    Ok(Secret::new(format!("{text}.{}", BASE64URL_NOPAD.encode(&signature)).into_bytes()))
}

/// PKCS#1, as GitHub gives it, or PKCS#8.
fn pair(key: &Secret) -> Option<RsaKeyPair> {
    let mut read = PrivateKeyDer::from_pem_slice(key.reveal()).ok()?;
    let pair = match &read {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        _ => None,
    };
    read.zeroize();
    pair
}

const EARLIER: u64 = 60;
const LIFE: u64 = 600;

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    fn app() -> GitHubApp {
        GitHubApp {
            app: 123,
            installation: 456,
            key: "secret:github-app".parse().unwrap(),
            api: "https://api.github.com".into(),
            host: "github.com".parse().unwrap(),
        }
    }

    fn pem(label: &str, der: &[u8]) -> Secret {
        let body = data_encoding::BASE64.encode(der);
        Secret::new(format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes())
    }

    /// The PKCS#1 key inside of a PKCS#8 one: its last element (RFC 5958).
    fn pkcs1(pkcs8: &[u8]) -> &[u8] {
        let at = (20..40).find(|at| RsaKeyPair::from_der(&pkcs8[*at..]).is_ok()).unwrap();
        &pkcs8[at..]
    }

    #[test]
    fn a_jwt_says_who_we_are_and_for_how_long() {
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der = key.as_der().unwrap();
        for key_text in [pem("PRIVATE KEY", der.as_ref()), pem("RSA PRIVATE KEY", pkcs1(der.as_ref()))] {
            let jwt = jwt(&app(), &key_text, 1_000_000).unwrap_or_else(|error| panic!("{error}"));
            let text = String::from_utf8(jwt.reveal().to_vec()).unwrap();
            let (signed, signature) = text.rsplit_once('.').unwrap();
            let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
            let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
            public.verify(signed.as_bytes(), &signature).unwrap();
            let claims = BASE64URL_NOPAD.decode(signed.split_once('.').unwrap().1.as_bytes()).unwrap();
            let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
            assert_eq!(claims, json!({ "iat": 999_940, "exp": 1_000_540, "iss": "123" }));
        }
    }

    #[test]
    fn what_is_no_key_is_said_and_not_shown() {
        for text in ["", "ghp_0123456789", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let error = jwt(&app(), &Secret::new(text.as_bytes().to_vec()), 0).err().unwrap();
            assert_eq!(
                error.message,
                "the key of the GitHub App (secret:github-app) is not an RSA private key in PEM"
            );
        }
    }
}

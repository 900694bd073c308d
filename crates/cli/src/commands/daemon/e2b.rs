//! `belljar e2b`, and what `belljar serve` needs to serve E2B-compatible clients.

use crate::args::{E2bCommand, ServeArgs};
use crate::commands::print;
use belljar_config::DaemonSettings;
use belljar_e2b::{Certificate, Serving, Settings};
use belljar_spec::{ErrorCode, SandboxError};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use tracing::warn;

pub(crate) fn e2b(command: &E2bCommand) -> Result<u8, SandboxError> {
    match command {
        E2bCommand::Env => print(environment(&directory()?)?.as_bytes()),
    }
}

/// How E2B-compatible clients are served, if they are: flags come before the configuration.
pub(super) fn settings(
    options: &ServeArgs,
    configured: &DaemonSettings,
) -> Result<Option<Settings>, SandboxError> {
    let listen = options.e2b.or(configured.e2b.as_ref().map(|set| set.value));
    let domain = options.e2b_domain.clone().or(configured.e2b_domain.as_ref().map(|set| set.value.clone()));
    let Some(listen) = listen else {
        return match options.e2b_domain {
            None => Ok(None),
            Some(_) => Err(ErrorCode::RequestConflict
                .error("a domain of E2B-compatible clients is served at no address")
                .hint("name one with --e2b ADDRESS:PORT")),
        };
    };
    let plain = listen.ip().is_loopback() || options.danger_plain_http;
    if !plain && domain.is_none() {
        let message = format!("{listen} can be reached from other machines, and nothing is encrypted");
        return Err(ErrorCode::RequestValue.error(message).hint(
            "name a domain with --e2b-domain, which is served with TLS alone; or listen at 127.0.0.1 behind a server that \
             speaks TLS; or say --danger-plain-http",
        ));
    }
    if !listen.ip().is_loopback() && plain {
        warn!(
            "{listen} can be reached from other machines: whatever comes there without TLS can be read and changed on the way"
        );
    }
    let domain = domain.map(|domain| domain.to_ascii_lowercase());
    if let Some(domain) = domain.as_deref().filter(|domain| !is_domain(domain)) {
        return Err(ErrorCode::RequestValue
            .error(format!("`{}` is not a domain", domain.escape_debug()))
            .hint("write a name as in sandboxes.example, without a port"));
    }
    let certificate = options.e2b_certificate.clone().zip(options.e2b_key.clone());
    let certificate = certificate.map(|(chain, key)| Certificate { chain, key });
    Ok(Some(Settings { listen, plain, domain, certificate, directory: directory()? }))
}

fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 200 && text.split('.').all(is_label)
}

fn directory() -> Result<PathBuf, SandboxError> {
    Ok(belljar_state::state_directory()?.join("e2b"))
}

/// What a shell is to set.
fn environment(directory: &Path) -> Result<String, SandboxError> {
    let serving = Serving::find(directory).ok_or_else(|| {
        ErrorCode::DaemonUnreachable
            .error("no daemon serves E2B-compatible clients")
            .hint("start one with `belljar serve --e2b 127.0.0.1:3000`, or set `e2b` below [daemon]")
    })?;
    let mut text = String::new();
    let mut set = |name: &str, value: &str| {
        let _ = writeln!(text, "export {name}={}", quoted(value));
    };
    match (&serving.domain, serving.plain) {
        (Some(domain), _) => set("E2B_DOMAIN", domain),
        (None, _) => {
            set("E2B_API_URL", &serving.url);
            set("E2B_SANDBOX_URL", &serving.url);
        }
    }
    if let Some(ca) = &serving.authority {
        let ca = ca.display().to_string();
        let trusted = trusted(directory, Path::new(&ca))?.display().to_string();
        set("NODE_EXTRA_CA_CERTS", &ca);
        set("SSL_CERT_FILE", &trusted);
        set("REQUESTS_CA_BUNDLE", &trusted);
    }
    Ok(text)
}

/// The CAs of this machine and our own in one file: some clients take one file in the place of the machine's.
fn trusted(directory: &Path, ca: &Path) -> Result<PathBuf, SandboxError> {
    let failed = |path: &Path, error: std::io::Error| {
        ErrorCode::StateFailed.error(format!("{}: {error}", path.display())).caused_by(error)
    };
    let own = fs::read(ca).map_err(|error| failed(ca, error))?;
    let machine = BUNDLES.iter().find_map(|bundle| fs::read(bundle).ok()).unwrap_or_default();
    let path = directory.join("trusted.pem");
    let all = [machine, b"\n".to_vec(), own].concat();
    belljar_state::write_atomic(&path, &all, belljar_state::Survives::Kill)
        .map_err(|error| failed(&path, error))?;
    Ok(path)
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Where distributions keep the CAs that programs trust.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_without_a_port() {
        for (text, expected) in [
            ("bell.test", true),
            ("localhost", true),
            ("bell.test:1", false),
            ("-a.test", false),
            ("a..b", false),
            ("", false),
            ("*.a", false),
        ] {
            assert_eq!(is_domain(text), expected, "{text}");
        }
    }
}

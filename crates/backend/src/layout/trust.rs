//! Which CAs programs inside trust, where the sandbox has a CA of its own: all that the host trusts, and that one.
//!
//! The host's stores are read and never touched. A directory that holds one is no longer a mount, but made again, entry by
//! entry, with that one file changed. Without a sandbox CA nothing here is called.

use super::etc::Etc;
use super::java;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Puts the authority into every store that the root has, and says which variables name them.
pub(super) fn add(authority: &str, etc: &mut Etc) -> Vec<(OsString, OsString)> {
    etc.files.push((OWN.into(), authority.as_bytes().to_vec()));
    let mut bundle = None;
    for store in BUNDLES {
        let Ok(known) = fs::read(store) else { continue };
        if replace(etc, store, with(known, authority)) {
            bundle = bundle.or(Some(store));
        }
    }
    let bundle = bundle.map_or_else(|| format!("/{OWN}"), str::to_string);
    for store in JAVA {
        let all = fs::read(&bundle).unwrap_or_default();
        if Path::new(store).exists() {
            replace(etc, store, java::store(&with(all, authority)));
        }
    }
    variables(&bundle)
}

/// All CAs that the host trusts.
pub(super) fn of_host() -> Vec<u8> {
    BUNDLES.iter().find_map(|store| fs::read(store).ok()).unwrap_or_default()
}

/// The variables that name a file with all CAs, and ours.
pub(super) fn variables(bundle: &str) -> Vec<(OsString, OsString)> {
    variables_at(Path::new(bundle), Path::new(&format!("/{OWN}")))
}

/// The same for files at these places.
pub(super) fn variables_at(bundle: &Path, ours: &Path) -> Vec<(OsString, OsString)> {
    let all_clients = ALL_CLIENTS.iter().map(|name| (OsString::from(name), bundle.into()));
    let ours_beside = BESIDE.iter().map(|name| (OsString::from(name), ours.into()));
    all_clients.chain(ours_beside).collect()
}

pub(super) fn with(mut known: Vec<u8>, authority: &str) -> Vec<u8> {
    if !known.is_empty() && !known.ends_with(b"\n") {
        known.push(b'\n');
    }
    known.extend_from_slice(authority.as_bytes());
    known
}

/// Puts a file in the place of the host's, which may be a link, a copy, or lie in a directory that is mounted.
fn replace(etc: &mut Etc, path: &str, content: Vec<u8>) -> bool {
    let target = super::relative(path);
    let within = |bind: &super::Bind| Path::new(target).starts_with(&bind.target);
    while let Some(index) = etc.binds.iter().position(within) {
        let bind = etc.binds.remove(index);
        if bind.target != target && open_up(etc, &bind).is_none() {
            etc.binds.insert(index, bind);
            return false;
        }
    }
    // A link on the way leads to another store, which has a row of its own.
    let is_below_link = |(link, _): &(String, String)| link != target && Path::new(target).starts_with(link);
    if etc.links.iter().any(is_below_link) {
        return false;
    }
    etc.links.retain(|(link, _)| link != target);
    etc.files.retain(|(file, _)| file != target);
    etc.files.push((target.to_string(), content));
    true
}

/// Makes a directory's entries the layout's own: links as links, directories as mounts, files as mounts or copies.
fn open_up(etc: &mut Etc, directory: &super::Bind) -> Option<()> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(&directory.source).ok()?.flatten().map(|entry| entry.path()).collect();
    if names.len() > MAX_CERTIFICATES {
        return None;
    }
    names.sort();
    for source in names {
        let Some(name) = source.file_name().and_then(|name| name.to_str()) else { continue };
        let target = format!("{}/{name}", directory.target);
        etc.take(&source, target);
    }
    Some(())
}

/// Ours alone, without the leading slash; docs/egress.md names it.
pub(super) const OWN: &str = "etc/belljar/authority.pem";
/// Where systems keep what they trust: Debian, Fedora, Alpine and others.
pub(super) const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cert.pem",
];
/// The same for Java: Debian, Fedora, Adoptium.
pub(super) const JAVA: [&str; 3] =
    ["/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts", "/etc/ssl/certs/adoptium/cacerts"];
/// Variables that name a file with all CAs that a program trusts. SSL_CERT_DIR is left alone: it adds to these.
const ALL_CLIENTS: [&str; 7] = [
    "SSL_CERT_FILE",      // OpenSSL, Go, rustls-native-certs
    "REQUESTS_CA_BUNDLE", // Python's requests, which brings its own otherwise
    "CURL_CA_BUNDLE",     // curl, when it is linked to something else than OpenSSL
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
];
/// Variables that name a file with additional CAs.
const BESIDE: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
/// Debian has three hundred.
const MAX_CERTIFICATES: usize = 4000;

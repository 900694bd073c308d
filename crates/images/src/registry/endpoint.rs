//! The servers that are asked for an image: its mirrors, then its registry.

use crate::options::{PullOptions, Transport};
use crate::reference::{HUB, Reference};
use std::net::IpAddr;

/// A host that serves images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// With its port, if it has one.
    pub(crate) host: String,
    /// What stands before the repository's name: empty, or with a slash behind.
    prefix: String,
    /// Whether it is spoken to without TLS.
    pub(crate) is_plain: bool,
    /// As passwords name it.
    pub(crate) known_as: String,
}

impl Endpoint {
    fn new(place: &str, known_as: &str, transport: Transport, options: &PullOptions) -> Endpoint {
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let path = path.trim_matches('/');
        Endpoint {
            host: host.to_string(),
            prefix: if path.is_empty() { String::new() } else { format!("{path}/") },
            is_plain: transport == Transport::Usual && may_be_plain(host, &options.plain_http),
            known_as: known_as.to_string(),
        }
    }

    /// Where something of a repository is: `kind` is `manifests` or `blobs`.
    pub(super) fn url(&self, repository: &str, kind: &str, which: &str) -> String {
        let scheme = if self.is_plain { "http" } else { "https" };
        format!("{scheme}://{}/v2/{}{repository}/{kind}/{which}", self.host, self.prefix)
    }

    /// The repository's name here.
    pub(super) fn repository(&self, repository: &str) -> String {
        format!("{}{repository}", self.prefix)
    }
}

/// In the order in which they are asked.
pub(crate) fn endpoints(reference: &Reference, options: &PullOptions) -> Vec<Endpoint> {
    let mirrors = options.mirrors.iter().filter(|mirror| mirror.registry == reference.registry);
    let mut all: Vec<Endpoint> = mirrors
        .map(|mirror| {
            let host = mirror.place.split('/').next().unwrap_or_default();
            Endpoint::new(&mirror.place, host, mirror.transport, options)
        })
        .collect();
    let place = if reference.registry == HUB { HUB_HOST } else { &reference.registry };
    all.push(Endpoint::new(place, &reference.registry, Transport::Usual, options));
    all
}

/// Whether a host may be spoken to in the clear: it is this machine, or the user said so.
fn may_be_plain(host: &str, named: &[String]) -> bool {
    is_this_machine(host) || is_named(host, named)
}

/// Whether a server in the clear may redirect us to a host in the clear: to itself, to a host that the user named, and from
/// this machine to this machine. Else an attacker on the way could have us request what it must not see.
pub(super) fn may_lead_to(from: &str, to: &str, named: &[String]) -> bool {
    from.eq_ignore_ascii_case(to) || is_named(to, named) || is_this_machine(from) && is_this_machine(to)
}

fn is_named(host: &str, named: &[String]) -> bool {
    named.iter().any(|plain| plain.eq_ignore_ascii_case(host))
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Docker's registry, which is not where its name leads.
const HUB_HOST: &str = "registry-1.docker.io";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Mirror;

    #[test]
    fn mirrors_are_asked_first_and_only_for_their_registry() {
        let mirror = |registry: &str, place: &str| {
            let transport = if place.starts_with("localhost") { Transport::Tls } else { Transport::Usual };
            Mirror { registry: registry.into(), place: place.into(), transport }
        };
        let mirrors = vec![
            mirror("docker.io", "mirror.lan:5000/hub/"),
            mirror("docker.io", "localhost:5000"),
            mirror("ghcr.io", "elsewhere.lan"),
        ];
        let options =
            PullOptions { mirrors, plain_http: vec!["mirror.lan:5000".into()], ..Default::default() };
        let reference = Reference::of(&"alpine:3".parse().unwrap());
        let urls: Vec<String> = endpoints(&reference, &options)
            .iter()
            .map(|endpoint| endpoint.url(&reference.repository, "manifests", "3"))
            .collect();
        assert_eq!(
            urls,
            [
                "http://mirror.lan:5000/v2/hub/library/alpine/manifests/3",
                "https://localhost:5000/v2/library/alpine/manifests/3",
                "https://registry-1.docker.io/v2/library/alpine/manifests/3",
            ]
        );
    }

    #[test]
    fn only_this_machine_and_named_registries_are_spoken_to_in_the_clear() {
        let named = ["registry.lan:5000".to_string()];
        for (host, plain) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("127.9.9.9", true),
            ("[::1]:5000", true),
            ("registry.lan:5000", true),
            ("Registry.LAN:5000", true),
            ("registry.lan", false),
            ("registry.lan:5001", false),
            ("localhost.evil.com", false),
            ("127.0.0.1.evil.com", false),
            ("10.0.0.1:5000", false),
            ("docker.io", false),
        ] {
            assert_eq!(may_be_plain(host, &named), plain, "{host}");
        }
    }

    #[test]
    fn who_is_spoken_to_in_the_clear_leads_nowhere_else_in_the_clear() {
        let named = ["registry.lan:5000".to_string(), "storage.lan".to_string()];
        for (from, to, may) in [
            ("registry.lan:5000", "registry.lan:5000", true),
            ("registry.lan:5000", "storage.lan", true),
            ("127.0.0.1:5000", "localhost:5001", true),
            ("registry.lan:5000", "127.0.0.1:5000", false),
            ("registry.lan:5000", "169.254.169.254", false),
            ("127.0.0.1:5000", "169.254.169.254", false),
        ] {
            assert_eq!(may_lead_to(from, to, &named), may, "{from} to {to}");
        }
    }
}

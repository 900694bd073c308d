//! Where a clone comes from.

use super::CloneError;
use super::token::Login;
use crate::inert::{Call, other_side};
use belljar_spec::egress::Printable;
use belljar_vault::Secret;
use std::path::PathBuf;
use std::time::Duration;

/// Where a clone comes from: a URL without secrets, and how git may speak to it.
pub(super) struct Address {
    /// The URL as passed to git, stored and shown.
    pub(super) url: String,
    pub(super) protocol: Protocol,
    login: Option<Login>,
}

/// Protocols that a repository may be fetched by; git's `ext::` and the like would start programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Https,
    Http,
    Ssh,
    Git,
    File,
}

/// The service that the remote runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// Fetch: the remote sends.
    Upload,
    /// Push: the remote receives.
    Receive,
}

impl Service {
    /// On this machine the remote is also a git process, which our git starts without our settings.
    fn on_this_machine(self, call: Call) -> Call {
        let (option, name) = match self {
            Service::Upload => ("--upload-pack", "upload-pack"),
            Service::Receive => ("--receive-pack", "receive-pack"),
        };
        call.arg(format!("{option}={}", other_side(name)))
    }
}

/// The path of a repository on this machine that an address names.
pub fn local_path(url: &str) -> Option<PathBuf> {
    let path = match url.strip_prefix("file://") {
        Some(rest) => &rest[rest.find('/')?..],
        None => url,
    };
    path.starts_with('/').then(|| PathBuf::from(path))
}

impl Address {
    /// Parses the requested address. A token in it is split off; a separately given token takes precedence.
    pub(super) fn understand(text: &str, token: Option<Secret>) -> Result<Address, CloneError> {
        let refused = |why| CloneError::Address { url: Printable::from(shown(text).as_str()), why };
        if text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control) {
            return Err(refused("it is empty, starts with `-`, or has control characters in it"));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => return Address::without_scheme(text).ok_or_else(|| refused(WHAT_IT_MAY_BE)),
        };
        let protocol = match scheme {
            "https" => Protocol::Https,
            "http" => Protocol::Http,
            "ssh" | "git+ssh" | "ssh+git" => Protocol::Ssh,
            "git" => Protocol::Git,
            "file" => Protocol::File,
            _ => return Err(refused(WHAT_IT_MAY_BE)),
        };
        if protocol == Protocol::File && rest.contains('%') {
            return Err(refused("write the path itself, without `file://`: git would decode `%` in it"));
        }
        if !matches!(protocol, Protocol::Https | Protocol::Http) {
            let authority = rest.split('/').next().unwrap_or_default();
            if authority
                .rsplit_once('@')
                .is_some_and(|(user, _)| user.contains(':') || protocol == Protocol::Git)
            {
                // The token would appear in arguments, files and messages.
                return Err(refused("only an https address may have a password or token in it"));
            }
            return Ok(Address { url: text.to_string(), protocol, login: None });
        }
        if rest.contains(['?', '#']) {
            return Err(refused("it has a `?` or `#`, which may carry a secret and is not for git"));
        }
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.is_empty() {
            return Err(refused("it names no host"));
        }
        let in_url = user.filter(|user| !user.is_empty()).map(Login::of_url);
        let login = token.map(Login::with_token).or(in_url);
        if login.is_some() && protocol == Protocol::Http && !is_loopback(host) {
            return Err(refused(
                "a token does not go over http, which anybody on the way can read; use https",
            ));
        }
        Ok(Address { url: format!("{scheme}://{host}{path}"), protocol, login })
    }

    /// Paths, and what scp made of ssh: `git@example.com:ada/engine.git`.
    fn without_scheme(text: &str) -> Option<Address> {
        let protocol = match text.split_once(':') {
            _ if text.starts_with('/') => Protocol::File,
            // `ext::` and its kind are helpers.
            Some((host, path)) if !host.contains('/') && !path.starts_with(':') => Protocol::Ssh,
            _ => return None,
        };
        Some(Address { url: text.to_string(), protocol, login: None })
    }

    /// Lets a call connect to this address, and to nothing else, with the login, if any. The call already has the command and its
    /// options, not yet the address.
    pub(super) fn reach(&self, call: Call, service: Service) -> Call {
        let call = call
            .time_limit(TRANSFER_TIMEOUT)
            .config("http.lowSpeedLimit", "1")
            .config("http.lowSpeedTime", "60");
        match self.protocol {
            Protocol::Https => self.log_in(from_host(call, &PROXIES).allow_protocols(&["https"])),
            // A server may redirect us to https, which is safer.
            Protocol::Http => self.log_in(from_host(call, &PROXIES).allow_protocols(&["http", "https"])),
            Protocol::Git => call.allow_protocols(&["git"]),
            Protocol::File => service.on_this_machine(call).allow_protocols(&["file"]),
            // The user's own ssh keys and settings; BatchMode, since there is no user to answer a prompt.
            Protocol::Ssh => from_host(call, &["HOME", "SSH_AUTH_SOCK", "USER", "LOGNAME"])
                .allow_protocols(&["ssh"])
                .env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
        }
    }

    /// Text with the login's token removed.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.login.as_ref().map_or_else(|| text.to_string(), |login| login.scrub(text))
    }

    /// The login is sent only when its own host asks: git selects credential helpers by scheme, host and port, after a redirect by
    /// those of the new location. A header set from the start would be sent there too.
    fn log_in(&self, call: Call) -> Call {
        let Some(login) = &self.login else { return call };
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        call.config(&format!("credential.{scheme}://{host}.helper"), HELPER)
            .env("BELLJAR_GIT_USER", &login.user)
            .env("BELLJAR_GIT_TOKEN", login.token.reveal_text())
    }
}

/// Makes a URL, even an invalid one, safe to show: without the parts before `@` and after `?`.
fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, rest)| rest))
        }
        None => text.to_string(),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}

/// Variables of the host's own user, which no sandbox can set.
fn from_host(call: Call, names: &[&str]) -> Call {
    let set = names.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    set.fold(call, |call, (name, value)| call.env(name, value))
}

/// The shell's builtin `printf`: the token is in no process's arguments.
const HELPER: &str = "!f() { test \"$1\" = get && \
    printf 'username=%s\\npassword=%s\\n' \"$BELLJAR_GIT_USER\" \"$BELLJAR_GIT_TOKEN\"; }; f";
const PROXIES: [&str; 9] = [
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "GIT_SSL_CAINFO",
];
const WHAT_IT_MAY_BE: &str = "use https, http, ssh, git or file, or a path that starts with `/`";
/// Large repositories on slow lines.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_split_off() {
        for (text, url) in [
            ("https://ada:secret@example.com/x.git", "https://example.com/x.git"),
            ("https://secret@example.com:8443/x", "https://example.com:8443/x"),
            ("https://a@b:secret@example.com/x", "https://example.com/x"),
            ("http://secret@127.0.0.1:1/x", "http://127.0.0.1:1/x"),
            ("https://example.com/x@y", "https://example.com/x@y"),
        ] {
            let address = Address::understand(text, None).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(address.url, url);
        }
    }

    #[test]
    fn what_is_refused_does_not_show_them() {
        for text in [
            "http://secret@example.com/x",
            "https://example.com/x?token=secret",
            "https://secret@/x",
            "ext::secret@x",
            "foo://ada:secret@example.com/x",
            "ssh://ada:secret@example.com/x",
            "git://secret@example.com/x",
            "-u/secret@x",
            "https://x/\nsecret@x",
            "relative/path",
            "",
        ] {
            match Address::understand(text, None) {
                Ok(_) => panic!("{text} is taken"),
                Err(error) if text.contains("://") => {
                    assert!(!error.to_string().contains("secret@"), "{error}");
                    assert!(!error.to_string().contains("token=secret"), "{error}");
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn the_ways_that_git_has() {
        for (text, protocol) in [
            ("https://example.com/x", Protocol::Https),
            ("ssh://git@example.com/x", Protocol::Ssh),
            ("git@example.com:ada/x.git", Protocol::Ssh),
            ("git://example.com/x", Protocol::Git),
            ("file:///srv/x", Protocol::File),
            ("/srv/x:y", Protocol::File),
        ] {
            assert_eq!(Address::understand(text, None).map(|address| address.protocol).ok(), Some(protocol));
        }
    }
}

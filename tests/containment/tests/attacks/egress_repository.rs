//! A repository, and an agent that works in it, ask for egress; only the user grants it, and never to a private address.

use belljar_tests_containment::egress::at;
use belljar_tests_containment::*;
use belljar_tests_hosts::Dns;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A person: a home with a resolver of their own, which notes the names it was asked for. The gateway asks no resolver for a name
/// that is not allowed, so a query is the sign that something got out.
struct Person {
    home: TempDir,
    repository: TempDir,
    dns: Dns,
}

impl Person {
    fn new() -> Person {
        let (home, repository) = (folder(), folder());
        let dns = Dns::start(|_| vec![at("127.0.0.1")]);
        let config = home.path().join(".config/belljar");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("belljar.toml"), format!("[egress]\nresolvers = [\"{}\"]\n", dns.address()))
            .unwrap();
        fs::set_permissions(config.join("belljar.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        Person { home, repository, dns }
    }

    fn belljar(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(belljar());
        command.args(arguments).current_dir(self.repository.path());
        for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", self.home.path()).output().unwrap()
    }

    /// Whether a program inside gets so far that the resolver is asked for `evil.test`.
    fn gets_out(&self, backend: &str) -> bool {
        let before = self.dns.queries().len();
        let dial = "exec 3<>/dev/tcp/evil.test/80 && printf 'GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n' >&3 && cat <&3";
        self.belljar(&["run", "--backend", backend, "--", "bash", "-c", dial]);
        self.dns.queries().len() > before
    }

    fn write(&self, config: &str) {
        let folder = self.repository.path().join(".belljar");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), config).unwrap();
    }
}

#[test]
fn an_untrusted_file_opens_nothing() {
    for backend in gateway_backends() {
        let (backend, person) = (backend.as_str(), Person::new());
        person.write("[egress]\nallow = [\"evil.test\"]\n");
        assert!(!person.gets_out(backend), "{backend}: the user did not trust it");
        // An agent writes one, and a record of trust beside it.
        let agent = "mkdir -p .belljar && echo '[egress]
allow = [\"evil.test\"]' > .belljar/config.toml; mkdir -p .local/state/belljar/trust; \
            sha256sum .belljar/config.toml | cut -d' ' -f1 > .local/state/belljar/trust/x";
        person.belljar(&["run", "--backend", backend, "--", "sh", "-c", agent]);
        assert!(!person.gets_out(backend), "{backend}: an agent wrote it");
        // Trusted, it counts; this is what the others are measured by.
        assert!(person.belljar(&["trust", "--yes"]).status.success(), "{backend}");
        assert!(person.gets_out(backend), "{backend}: what people trust counts");
        person.belljar(&["run", "--backend", backend, "--", "sh", "-c", "echo >> .belljar/config.toml"]);
        assert!(person.gets_out(backend), "{backend}: no process inside changes it");
        person.write("[egress]\nallow = [\"evil.test\"]\n\n");
        assert!(!person.gets_out(backend), "{backend}: it changed since");
    }
}

#[test]
fn no_trust_makes_a_private_range_or_a_resolver_of_a_repositorys_wish() {
    for backend in gateway_backends() {
        let (backend, person) = (backend.as_str(), Person::new());
        for wish in [
            "private = [\"127.0.0.0/8\"]",
            "private = []",
            "host_ports = [5432]",
            "host_ports = []",
            "proxy = { url = \"http://127.0.0.1:3128\" }",
            "resolvers = [\"127.0.0.1:53\"]",
            "widest = \"open\"",
            "only = [\"evil.test\"]",
            "mode = \"open\"",
        ] {
            person.write(&format!("[egress]\nallow = [\"evil.test\"]\n{wish}\n"));
            let outcome = person.belljar(&["trust", "--yes"]);
            assert!(!outcome.status.success(), "{backend}: {wish}: {}", text(&outcome.stdout));
            assert!(!person.gets_out(backend), "{backend}: {wish}");
        }
    }
}

#[test]
fn no_link_makes_another_file_the_repositorys() {
    let elsewhere = folder();
    fs::create_dir_all(elsewhere.path().join("dir")).unwrap();
    let file = elsewhere.path().join("dir/config.toml");
    fs::write(&file, "[egress]\nallow = [\"evil.test\"]\n").unwrap();
    for backend in gateway_backends() {
        for what in ["the folder", "the file"] {
            let person = Person::new();
            let place = person.repository.path().join(".belljar");
            if what == "the folder" {
                symlink(elsewhere.path().join("dir"), &place).unwrap();
            } else {
                fs::create_dir(&place).unwrap();
                symlink(&file, place.join("config.toml")).unwrap();
            }
            let trusted = person.belljar(&["trust", "--yes"]);
            assert!(!trusted.status.success(), "{what}: {}", text(&trusted.stdout));
            assert!(!person.gets_out(backend.as_str()), "{what}");
        }
    }
}

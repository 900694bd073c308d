//! A daemon that serves E2B-compatible clients, and programs that are its clients.

use belljar_sys::rustix::process::geteuid;
use belljar_tests_daemon::{Address, Client, Home, Started};
use belljar_tests_hosts::own_address;
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// The domain of the tests.
pub(crate) const DOMAIN: &str = "bell.test";

/// A daemon, and where it serves.
pub(crate) struct Served {
    pub(crate) home: Home,
    pub(crate) started: Option<Started>,
    pub(crate) address: SocketAddr,
}

impl Served {
    /// One that runs.
    pub(crate) fn new() -> Served {
        let mut served = Served::to_start();
        served.start();
        served
    }

    /// One that does not run yet.
    pub(crate) fn to_start() -> Served {
        let address = own_address();
        let text = address.to_string();
        let home = Home::new().args(&["--e2b", &text, "--e2b-domain", DOMAIN]);
        Served { home, started: None, address }
    }

    pub(crate) fn start(&mut self) {
        self.started = Some(self.home.start());
    }

    /// A new key, as an operator makes one who lets its holder reach everything.
    pub(crate) fn key(&self, name: &str) -> String {
        let words = [
            "daemon", "grants", "create", name, "--e2b", "--egress", "open", "--egress", "strict", "--host",
            "*",
        ];
        let made = self.home.belljar().args(words).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_string()
    }

    /// Requests as no SDK makes them.
    pub(crate) fn client(&self) -> Client {
        Client::new(Address::Tcp(self.address))
    }

    /// A new sandbox of a key: its id and its access token.
    pub(crate) fn sandbox(&self, key: &str, more: Value) -> (String, String) {
        let mut asked = json!({ "templateID": "base", "timeout": 120 });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.client().with("x-api-key", key).post("/v2/sandboxes", &asked).ok();
        let text = |name: &str| made[name].as_str().unwrap().to_string();
        (text("sandboxID"), text("envdAccessToken"))
    }

    /// A program in Python, with the SDK.
    pub(crate) fn python(&self, name: &str, text: &str) -> Command {
        self.program(sdks().join("bin/python"), &["-W", "ignore"], name, text)
    }

    /// A program in JavaScript, with the SDK.
    pub(crate) fn node(&self, name: &str, text: &str) -> Command {
        let mut command = self.program("node".into(), &[], name, text);
        command.env("E2B_NODE_MODULES", sdks().join("node"));
        command
    }

    fn program(&self, program: PathBuf, words: &[&str], name: &str, text: &str) -> Command {
        let folder = self.home.folder("programs");
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        let mut command = Command::new(program);
        command.args(words).arg(file).current_dir(folder);
        command
    }
}

/// Where `./dev setup` puts the SDKs.
pub(crate) fn sdks() -> PathBuf {
    match env::var_os("BELLJAR_TEST_E2B").filter(|folder| !folder.is_empty()) {
        Some(folder) => folder.into(),
        None if geteuid().is_root() => PathBuf::from("/var/cache/belljar-e2b"),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/belljar-e2b"),
    }
}

/// Whether they are there. In CI they have to be.
pub(crate) fn has_sdks() -> bool {
    let found = sdks().join("versions").exists();
    assert!(found || env::var_os("CI").is_none(), "the E2B SDKs are missing: `./dev setup` installs them");
    found
}

/// Runs several programs at once, to their ends.
#[track_caller]
pub(crate) fn all_succeed(commands: Vec<Command>) {
    let running: Vec<_> = commands
        .into_iter()
        .map(|mut command| std::thread::spawn(move || command.output().unwrap()))
        .collect();
    for output in running.into_iter().map(|running| running.join().unwrap()) {
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{}\n{}", said[0], said[1]);
    }
}

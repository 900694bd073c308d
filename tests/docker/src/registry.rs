//! A registry on loopback, gone when it is dropped.

use belljar_tests_daemon::eventually;
use belljar_tests_hosts::{Child, own_address};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Debian's `docker-registry`, over plain HTTP, which Docker takes from loopback.
pub struct Registry {
    address: SocketAddr,
    // Dropped in this order.
    _server: Child,
    _folder: TempDir,
}

impl Registry {
    #[expect(clippy::new_without_default, reason = "it starts a program")]
    pub fn new() -> Registry {
        let folder = TempDir::new().unwrap();
        let address = own_address();
        let config = folder.path().join("registry.yml");
        let storage = folder.path().join("storage");
        let text = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }}, delete: {{ enabled: true }} }}\n\
             http: {{ addr: \"{address}\" }}\n",
            storage.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Child::start(&mut command);
        assert!(eventually(|| TcpStream::connect(address).is_ok()), "the registry does not listen");
        Registry { address, _server: server, _folder: folder }
    }

    /// An image's name in this registry.
    pub fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }
}

//! A real registry, Debian's `docker-registry`, on loopback; images are pushed by its own API.

use crate::archive::config;
use belljar_images::Digest;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Registry {
    pub(crate) address: String,
    child: Child,
    _folder: tempfile::TempDir,
    authorization: Option<&'static str>,
}

/// bcrypt of `s3cret`, for the user `ann`.
const HTPASSWD: &str = "ann:$2b$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK\n";
/// `ann:s3cret`
const BASIC: &str = "Basic YW5uOnMzY3JldA==";

impl Registry {
    /// One that needs no password; not where there is none.
    pub(crate) fn start() -> Option<Registry> {
        Registry::start_with(None)
    }

    /// One that wants a password.
    pub(crate) fn closed() -> Option<Registry> {
        Registry::start_with(Some(BASIC))
    }

    fn start_with(authorization: Option<&'static str>) -> Option<Registry> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut settings = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n",
            folder.path().join("data").display()
        );
        if authorization.is_some() {
            let file = folder.path().join("htpasswd");
            std::fs::write(&file, HTPASSWD).unwrap();
            settings += &format!("auth: {{htpasswd: {{realm: x, path: {}}}}}\n", file.display());
        }
        let file = folder.path().join("config.yml");
        std::fs::write(&file, settings).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "docker-registry is missing: {error}");
                eprintln!("skipped: docker-registry is missing");
                return None;
            }
        };
        let registry = Registry { address, child, _folder: folder, authorization };
        while TcpStream::connect(&registry.address).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }

    /// Pushes an image of these blobs, which unpack to these archives; gives its manifest's digest and size.
    pub(crate) fn push(
        &self,
        repository: &str,
        tag: &str,
        layers: &[(&[u8], Vec<u8>, &str)],
    ) -> (Digest, usize) {
        let archives: Vec<&[u8]> = layers.iter().map(|(archive, _, _)| *archive).collect();
        let config = config(&archives);
        self.push_blob(repository, config.as_bytes());
        let mut described = Vec::new();
        for (_, blob, media_type) in layers {
            self.push_blob(repository, blob);
            described.push(format!(
                r#"{{"mediaType":"{media_type}","digest":"{}","size":{}}}"#,
                Digest::of(blob),
                blob.len()
            ));
        }
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{{"mediaType":"application/vnd.oci.image.config.v1+json",
            "digest":"{}","size":{}}},"layers":[{}]}}"#,
            Digest::of(config.as_bytes()),
            config.len(),
            described.join(",")
        );
        (self.push_manifest(repository, tag, MANIFEST, &manifest), manifest.len())
    }

    pub(crate) fn push_manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        manifest: &str,
    ) -> Digest {
        let path = format!("/v2/{repository}/manifests/{tag}");
        let (status, _) = self.send("PUT", &path, media_type, manifest.as_bytes());
        assert_eq!(status, 201, "{manifest}");
        Digest::of(manifest.as_bytes())
    }

    fn push_blob(&self, repository: &str, blob: &[u8]) {
        let (status, location) =
            self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), "text/plain", b"");
        assert_eq!(status, 202);
        let location = location.split_once(&self.address).unwrap().1;
        let path = format!("{location}&digest={}", Digest::of(blob));
        assert_eq!(self.send("PUT", &path, "application/octet-stream", blob).0, 201);
    }

    fn send(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let who = self.authorization.map_or(String::new(), |value| format!("Authorization: {value}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {media_type}\r\n{who}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let location = answer.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default();
        (status, location.trim().to_string())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const PLAIN: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

//! A registry of npm's packages on loopback, with small packages by the names of the real ones.

use belljar_tests_hosts::{HttpServer, Request, Response};
use serde_json::{Map, Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// A name, its programs, and the versions of it.
struct Package {
    name: &'static str,
    programs: &'static [&'static str],
    versions: Vec<&'static str>,
}

/// It, and what was asked of it.
pub(crate) struct Npm {
    server: HttpServer,
    packages: Arc<Mutex<Vec<Package>>>,
}

impl Npm {
    pub(crate) fn start() -> Npm {
        let package = |name, programs, versions: &[&'static str]| Package {
            name,
            programs,
            versions: versions.to_vec(),
        };
        let packages = Arc::new(Mutex::new(vec![
            package("@anthropic-ai/claude-code", &["claude"], &["1.0.0", "2.0.1"]),
            package("@openai/codex", &["codex"], &["0.1.0", "0.2.0"]),
            package("opencode-ai", &["opencode"], &["1.0.0", "1.4.0", "2.0.0"]),
            package("@ast-grep/cli", &["ast-grep", "sg"], &["0.3.0"]),
        ]));
        let known = Arc::clone(&packages);
        let server =
            HttpServer::start(Ipv4Addr::LOCALHOST, move |request| answer(&known.lock().unwrap(), request));
        Npm { server, packages }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// There is a new version from now on.
    pub(crate) fn publish(&self, name: &str, version: &'static str) {
        let mut packages = self.packages.lock().unwrap();
        packages.iter_mut().find(|package| package.name == name).unwrap().versions.push(version);
    }

    /// The packages that were fetched so far, with their versions.
    pub(crate) fn fetched(&self) -> Vec<String> {
        let targets = self.server.requests().into_iter().map(|request| request.target);
        targets
            .filter_map(|target| {
                target.strip_prefix("/fetch/").map(|rest| rest.trim_end_matches(".tgz").to_string())
            })
            .collect()
    }
}

fn answer(packages: &[Package], request: &Request) -> Response {
    let host = request.header("host").unwrap_or_default();
    let target = request.target.replace("%2f", "/").replace("%2F", "/");
    if let Some(expected) = target.strip_prefix("/fetch/") {
        let expected = expected.trim_end_matches(".tgz");
        let found = packages.iter().find_map(|package| {
            let version = expected.strip_prefix(package.name)?.strip_prefix('-')?;
            Some((package, package.versions.iter().find(|known| **known == version)?))
        });
        // It is told of, and not there.
        return match found {
            Some((_, version)) if *version == "6.6.6" => Response::status(404),
            Some((package, version)) => Response::ok(packed(package, version)),
            None => Response::status(404),
        };
    }
    match packages.iter().find(|package| target == format!("/{}", package.name)) {
        Some(package) => Response::ok(reported(package, host).to_string()),
        None => Response::status(404),
    }
}

fn reported(package: &Package, host: &str) -> Value {
    let version = |version: &&str| {
        let tarball = format!("http://{host}/fetch/{}-{version}.tgz", package.name);
        let about = json!({ "dist": { "tarball": tarball }, "bin": programs(package) });
        (version.to_string(), merged(manifest(package, version), about))
    };
    let versions: Map<String, Value> = package.versions.iter().map(version).collect();
    json!({ "name": package.name, "dist-tags": { "latest": package.versions.last() }, "versions": versions })
}

fn manifest(package: &Package, version: &str) -> Value {
    json!({ "name": package.name, "version": version, "bin": programs(package) })
}

fn programs(package: &Package) -> Map<String, Value> {
    package.programs.iter().map(|program| (program.to_string(), json!(format!("bin/{program}")))).collect()
}

/// Programs say what they are; one of version 13 does not even start.
fn packed(package: &Package, version: &str) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("package");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(root.join("package.json"), manifest(package, version).to_string()).unwrap();
    for program in package.programs {
        let path = root.join("bin").join(program);
        let end = if version.starts_with("13.") { "echo 'no native binary' >&2; exit 1" } else { "" };
        fs::write(&path, format!("#!/bin/sh\necho {program} {version}\n{end}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output =
        Command::new("tar").args(["-C"]).arg(folder.path()).args(["-cz", "package"]).output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn merged(mut one: Value, other: Value) -> Value {
    if let (Some(one), Value::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

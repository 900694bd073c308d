//! Docker's socket is the host: no spelling of its path brings it into a sandbox, with any backend.
//!
//! The attacker asks Docker for a container of its own. Whether there is one is what Docker says, outside.

use belljar_tests_docker::{Dockerd, Work, busybox};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn dockers_socket_cannot_be_shared_by_any_spelling() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    busybox(&daemon.host(), "prize:1");
    // The attack works where there is no isolation: else it would prove nothing.
    let free = Command::new("python3").args(["-c", ATTACK]).arg(daemon.socket()).output().unwrap();
    assert_eq!(daemon.containers(), ["prize"], "{free:?}");
    daemon.docker(&["rm", "--force", "prize"]);

    let spellings = Spellings::of(&daemon, &work.root().join("spellings"));
    for backend in ["native", "bwrap", "docker", "docker+runsc"] {
        for path in &spellings.all {
            for flag in ["--ro", "--rw"] {
                let path = path.to_str().unwrap();
                let output = work
                    .run(backend, &[flag, path, "--", "/usr/bin/python3", "-c", ATTACK, path])
                    .output()
                    .unwrap();
                let found: Vec<String> =
                    daemon.containers().into_iter().filter(|name| name == "prize").collect();
                assert!(found.is_empty(), "{backend} {flag} {path} led out: {output:?}");
                refused_by_name(&format!("{backend} {flag} {path}"), &output);
            }
        }
    }
}

/// Not by luck: it is said what cannot be shared.
fn refused_by_name(what: &str, output: &Output) {
    let printed = String::from_utf8_lossy(&output.stderr).to_lowercase();
    // Some of what it is in is refused for itself.
    let is_reported = printed.contains("socket") || printed.contains("no sandbox");
    assert!(!output.status.success() && is_reported, "{what}: {output:?}");
}

/// Ways to name the socket, or something that it is in. The mounts are gone with this.
struct Spellings {
    all: Vec<PathBuf>,
    mounted: Vec<PathBuf>,
}

impl Spellings {
    fn of(daemon: &Dockerd, folder: &Path) -> Spellings {
        let (socket, home) = (daemon.socket(), daemon.folder().to_path_buf());
        fs::create_dir_all(folder.join("mounted-folder")).unwrap();
        let at = |name: &str| folder.join(name);
        symlink(&socket, at("link")).unwrap();
        symlink(at("link"), at("link-to-a-link")).unwrap();
        symlink(&home, at("link-to-its-folder")).unwrap();
        fs::write(at("mounted"), "").unwrap();
        let mut spellings = Spellings { all: Vec::new(), mounted: Vec::new() };
        spellings.mount(&socket, at("mounted"));
        spellings.mount(&home, at("mounted-folder"));
        let outside =
            |path: &Path| PathBuf::from(format!("/proc/{}/root{}", std::process::id(), path.display()));
        let name = home.file_name().unwrap();
        spellings.all.extend([
            socket.clone(),
            home.join("./docker.sock"),
            home.join("exec/../docker.sock"),
            PathBuf::from(format!("/{}", socket.display())),
            at("link"),
            at("link-to-a-link"),
            at("link-to-its-folder").join("docker.sock"),
            at("mounted"),
            at("mounted-folder/docker.sock"),
            outside(&socket),
            PathBuf::from(format!("/proc/self/root{}", socket.display())),
            // What it is in.
            home.clone(),
            at("link-to-its-folder"),
            at("mounted-folder"),
            outside(&home),
            home.parent().unwrap().join(".").join(name),
            // What that is in.
            home.parent().unwrap().to_path_buf(),
        ]);
        // A second name of the same socket.
        let second = home.parent().unwrap().join(format!("{}.second", name.to_string_lossy()));
        fs::create_dir(&second).unwrap();
        fs::hard_link(&socket, second.join("plain-file")).unwrap();
        spellings.all.push(second.join("plain-file"));
        spellings.mounted.push(second);
        spellings
    }

    fn mount(&mut self, what: &Path, at: PathBuf) {
        let mounted = Command::new("mount").arg("--bind").arg(what).arg(&at).status().unwrap();
        assert!(mounted.success(), "{}", at.display());
        self.mounted.push(at);
    }
}

impl Drop for Spellings {
    fn drop(&mut self) {
        for path in &self.mounted {
            let unmounted = Command::new("umount").arg("--lazy").arg(path).output();
            // The one that is no mount is a folder with a second name in it.
            if !unmounted.is_ok_and(|output| output.status.success()) {
                let _ = fs::remove_file(path.join("plain-file"));
                let _ = fs::remove_dir(path);
            }
        }
    }
}

/// At the path itself, and at everything below it that is a socket.
const ATTACK: &str = r#"
import os, socket, stat, sys
BODY = b'{"Image":"prize:1","Cmd":["true"],"HostConfig":{"NetworkMode":"none"}}'
def ask(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    try:
        s.connect(path)
        s.sendall(b'POST /v1.41/containers/create?name=prize HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n'
                  b'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(BODY) + BODY)
        print(s.recv(4096))
    except OSError as e:
        print(path, e)
asked = [sys.argv[1]]
seen = 0
for directory, folders, files in os.walk(sys.argv[1]):
    seen += 1
    if seen > 2000:
        break
    for name in files:
        path = os.path.join(directory, name)
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode) and name in ('docker.sock', 'plain-file'):
                asked.append(path)
        except OSError:
            pass
for path in asked:
    ask(path)
"#;

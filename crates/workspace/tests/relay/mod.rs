//! A host's repository, a relay before it, and clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
// Every test file uses a part of it.
#![allow(dead_code, unreachable_pub)]

use crate::repository::{Repository, directory, git};
use belljar_git::pkt;
use belljar_spec::git::RefPolicy;
use belljar_sys::rustix::process::Pid;
use belljar_workspace::inert::{Git, Leash};
use belljar_workspace::quarantine::HostRepository;
use belljar_workspace::relay::{LANDING, Relay, RelayEvent, RelayTerms};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The host's side, served.
pub struct Stage {
    pub host: Repository,
    pub place: PathBuf,
    pub address: SocketAddr,
    pub events: Arc<Mutex<Vec<RelayEvent>>>,
    pub relay: Option<Relay>,
    _place: tempfile::TempDir,
}

impl Stage {
    /// A repository with a commit on `main`, which is checked out; `agent/*` and `main` may be pushed.
    pub fn new() -> Stage {
        Stage::with(policy())
    }

    pub fn with(policy: RefPolicy) -> Stage {
        Stage::of(policy, Repository::with_commit)
    }

    pub fn of(policy: RefPolicy, host: impl FnOnce(&Path) -> Repository) -> Stage {
        Stage::served(policy, host, Repository::git_directory)
    }

    /// Serves the git directory that `which` names.
    pub fn served(
        policy: RefPolicy,
        host: impl FnOnce(&Path) -> Repository,
        which: impl FnOnce(&Repository) -> PathBuf,
    ) -> Stage {
        let (guard, place) = directory();
        let host = host(&place.join("host"));
        fs::create_dir_all(place.join("state")).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (address, relay) = serve(&which(&host), &place.join("state"), policy, events.clone());
        Stage { host, place, address, events, relay: Some(relay), _place: guard }
    }

    /// The same, by another relay with this time limit for landing pushes when it ends.
    pub fn landing(mut self, landing: Duration) -> Stage {
        let (directory, state) = (self.host.git_directory(), self.place.join("state"));
        let (address, relay) = serve_with(&directory, &state, policy(), self.events.clone(), landing);
        (self.address, self.relay) = (address, Some(relay));
        self
    }

    pub fn url(&self) -> String {
        format!("git://{}/repo", self.address)
    }

    /// A sandbox's clone.
    pub fn clone_as(&self, name: &str) -> Repository {
        let folder = self.place.join(name);
        let words = ["clone", "-q", "-o", "host", &self.url(), folder.to_str().unwrap()];
        let output = git(&self.place, &words);
        assert!(output.status.success(), "{}", stderr_text(&output));
        Repository { folder }
    }

    /// Everything of the host's repository and worktree but its objects.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.host.folder, &mut files);
        files.retain(|path, _| !path.starts_with(self.host.folder.join(".git/objects")));
        files
    }

    /// The same, including its objects.
    pub fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.host.folder, &mut files);
        files
    }

    pub fn refs(&self) -> String {
        self.host.git(&["for-each-ref", "--format=%(objectname) %(refname)"])
    }

    /// The codes of all refusals so far.
    pub fn refusals(&self) -> Vec<&'static str> {
        let events = self.events.lock().unwrap();
        let codes = events.iter().filter_map(|event| match event {
            RelayEvent::Refused { refusal, .. } => Some(refusal.code()),
            _ => None,
        });
        codes.collect()
    }

    /// No quarantine is left, once the relay has seen that a client is gone.
    pub fn assert_swept(&self) {
        let left = || {
            let left = fs::read_dir(self.place.join("state/quarantine")).unwrap().flatten();
            left.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
        };
        for _ in 0..200 {
            if left().is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{:?}", left());
    }
}

pub fn serve(
    directory: &Path,
    state: &Path,
    policy: RefPolicy,
    events: Arc<Mutex<Vec<RelayEvent>>>,
) -> (SocketAddr, Relay) {
    serve_with(directory, state, policy, events, LANDING)
}

fn serve_with(
    directory: &Path,
    state: &Path,
    policy: RefPolicy,
    events: Arc<Mutex<Vec<RelayEvent>>>,
    landing: Duration,
) -> (SocketAddr, Relay) {
    let repository = HostRepository::open(&Git::find().unwrap(), directory).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let note = Box::new(move |event| events.lock().unwrap().push(event));
    let terms = RelayTerms {
        repository,
        policy,
        state: state.to_path_buf(),
        landing,
        leash: Leash::of_sandbox(None),
        note,
    };
    (address, Relay::serve(vec![listener.into()], terms).unwrap())
}

/// `agent/*` and `main`, and nothing else.
pub fn policy() -> RefPolicy {
    RefPolicy::only(["agent/*", "main"].map(|text| text.parse().unwrap()).to_vec())
}

/// The output of a client.
pub fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Pushes, which must succeed.
pub fn push(from: &Repository, words: &[&str]) -> String {
    let output = try_push(from, words);
    assert!(output.status.success(), "{words:?}: {}", stderr_text(&output));
    stderr_text(&output)
}

pub fn try_push(from: &Repository, words: &[&str]) -> Output {
    git(&from.folder, &[&["push", "host"], words].concat())
}

fn collect(path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => {
                files.insert(path.clone(), b"a directory".to_vec());
                collect(&path, files);
            }
            kind if kind.is_symlink() => {
                files.insert(
                    path.clone(),
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                );
            }
            _ => {
                files.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
}

/// A pack of exactly these objects, one per line.
pub fn pack_of(folder: &Path, list: &str) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(["pack-objects", "--stdout", "-q"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// A connection without git.
pub struct Raw {
    pub socket: TcpStream,
}

impl Raw {
    /// Connects and sends a request.
    pub fn ask(address: SocketAddr, request: &[u8]) -> Raw {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        socket.write_all(request).unwrap();
        Raw { socket }
    }

    /// Connects for a push, and reads the list of refs.
    pub fn push(address: SocketAddr) -> Raw {
        let mut raw = Raw::ask(address, &pkt::data(b"git-receive-pack /repo\0host=x\0"));
        raw.list();
        raw
    }

    /// Reads packets up to a flush.
    pub fn list(&mut self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        loop {
            let mut digits = [0; 4];
            self.socket.read_exact(&mut digits).unwrap();
            match pkt::announced(digits).unwrap() {
                pkt::Announced::Data(length) => {
                    let mut line = vec![0; length];
                    self.socket.read_exact(&mut line).unwrap();
                    lines.push(line);
                }
                _ => return lines,
            }
        }
    }

    /// Sends, ignoring errors.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// All that the relay sends until it hangs up.
    pub fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.socket.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The process that unpacks a push, once it runs.
pub fn indexer(state: &Path) -> Pid {
    for _ in 0..2000 {
        let quarantines = fs::read_dir(state.join("quarantine")).into_iter().flatten().flatten();
        let noted = quarantines.filter_map(|entry| fs::read_to_string(entry.path().join("indexer")).ok());
        let numbers = noted.filter_map(|text| text.split_once(' ')?.0.parse().ok());
        if let Some(process) = numbers.filter_map(Pid::from_raw).next() {
            return process;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody unpacks");
}

/// The commands of a push as git writes them, up to the pack.
pub fn commands(updates: &[(String, String, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, (old, new, name)) in updates.iter().enumerate() {
        let words = if index == 0 { "\0 report-status object-format=sha1" } else { "" };
        pkt::append(&mut bytes, format!("{old} {new} {name}{words}").as_bytes());
    }
    bytes.extend_from_slice(pkt::FLUSH);
    bytes
}

/// A push without git; returns the answer.
pub fn raw_push(address: SocketAddr, updates: &[(String, String, &str)], pack: &[u8]) -> String {
    let mut raw = Raw::push(address);
    raw.send(&commands(updates));
    raw.send(pack);
    raw.socket.shutdown(std::net::Shutdown::Write).unwrap();
    raw.rest()
}

//! A host's repository, a relay before it, and clients.

// Every test file uses a part of it.
#![allow(dead_code, unreachable_pub)]

use crate::repository::{Repository, directory, git};
use belljar_spec::git::RefPolicy;
use belljar_workspace::inert::Git;
use belljar_workspace::quarantine::HostRepository;
use belljar_workspace::relay::{Relay, RelayEvent, RelayTerms};
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};

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
        Stage::of(policy, |folder| Repository::with_commit(folder))
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
        fs::create_dir(place.join("state")).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (address, relay) = serve(&which(&host), &place.join("state"), policy, events.clone());
        Stage { host, place, address, events, relay: Some(relay), _place: guard }
    }

    pub fn url(&self) -> String {
        format!("git://{}/repo", self.address)
    }

    /// What a sandbox has.
    pub fn clone_as(&self, name: &str) -> Repository {
        let folder = self.place.join(name);
        let words = ["clone", "-q", "-o", "host", &self.url(), folder.to_str().unwrap()];
        let output = git(&self.place, &words);
        assert!(output.status.success(), "{}", said(&output));
        Repository { folder }
    }

    /// Everything of the host's repository and worktree but its objects.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.host.folder, &mut files);
        files.retain(|path, _| !path.starts_with(self.host.folder.join(".git/objects")));
        files
    }

    /// The same, with its objects.
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

    /// Nothing waits in a quarantine.
    pub fn assert_swept(&self) {
        let left = fs::read_dir(self.place.join("state/quarantine")).unwrap().flatten();
        let left = left.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>();
        assert!(left.is_empty(), "{left:?}");
    }
}

pub fn serve(
    directory: &Path,
    state: &Path,
    policy: RefPolicy,
    events: Arc<Mutex<Vec<RelayEvent>>>,
) -> (SocketAddr, Relay) {
    let repository = HostRepository::open(&Git::find().unwrap(), directory).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let note = Box::new(move |event| events.lock().unwrap().push(event));
    let terms = RelayTerms { repository, policy, state: state.to_path_buf(), note };
    (address, Relay::serve(vec![listener.into()], terms).unwrap())
}

/// `agent/*` and `main`, and nothing else.
pub fn policy() -> RefPolicy {
    RefPolicy::only(["agent/*", "main"].map(|text| text.parse().unwrap()).to_vec())
}

/// What a client printed.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Pushes, which must go well.
pub fn push(from: &Repository, words: &[&str]) -> String {
    let output = try_push(from, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    said(&output)
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

//! What the host computes for a push counts as the sandbox's own.

use belljar_engine::Engine;
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{BackendChoice, BackendName, SandboxSpec};
use belljar_tests_containment::{HeldCommandFor, Jail, backends, canary, eventually, folder, processes_with};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A push that began and never ends, so that git on the host waits in the middle of it.
const UNFINISHED: &str = r"
import socket, struct, sys, time
link = socket.create_connection(('127.0.0.1', 9418))
def packet(content):
    return b'%04x' % (len(content) + 4) + content
link.sendall(packet(b'git-receive-pack /repo\0host=x\0'))
heard = b''
while not heard.endswith(b'0000'):
    heard += link.recv(65536)
link.sendall(packet(b'0' * 40 + b' ' + b'1' * 40 + b' refs/heads/agent/x\0 report-status') + b'0000')
link.sendall(b'PACK' + struct.pack('>II', 2, 1))
time.sleep(1000)
";

#[test]
fn a_push_is_unpacked_within_the_limits_of_its_sandbox() {
    // A container's cgroup is the Docker daemon's: there git has another one with the same limits.
    for backend in
        backends().iter().filter(|backend| matches!(backend, BackendName::Native | BackendName::Bwrap))
    {
        let (place, state) = (folder(), folder());
        for line in
            ["init -q -b main", "-c user.name=T -c user.email=t@example.org commit -q --allow-empty -m x"]
        {
            let output =
                Command::new("git").args(line.split(' ')).current_dir(place.path()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let spec = SandboxSpec {
            backend: BackendChoice::Named(*backend),
            workspace: Some(place.path().canonicalize().unwrap()),
            mode: WorkspaceMode::ManagedClone { branch: Some("agent/x".parse().unwrap()) },
            ..SandboxSpec::default()
        };
        let sandbox = Engine::new().with_state(state.path()).create_blocking(&spec).unwrap();
        let jail = Jail { sandbox, workspace: place };
        let marker = canary("pusher");
        let running = HeldCommandFor::start(&jail, &["/usr/bin/python3", "-c", UNFINISHED, &marker]);
        let mut indexer = None;
        assert!(eventually(|| {
            indexer = indexer_below(state.path());
            indexer.is_some()
        }));
        let inside = processes_with(&marker);
        let limits = |process: u32| {
            let listed = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
            let of_limits =
                |line: &&str| ["0::", ":memory:", ":pids:", ":cpu:"].iter().any(|name| line.contains(name));
            listed.lines().filter(of_limits).map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(limits(indexer.unwrap()), limits(inside[0]), "{backend}");
        drop(running);
    }
}

/// The `git index-pack` that works in a directory below this one.
fn indexer_below(state: &Path) -> Option<u32> {
    let of_it = |process: &u32| {
        let read = |file: &str| fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        let environment = read("environ");
        let mut variables = environment.split(|byte| *byte == 0);
        let directory = format!("GIT_DIR={}/", state.display()).into_bytes();
        let is_indexer = read("cmdline").split(|byte| *byte == 0).any(|word| word == b"index-pack");
        is_indexer && variables.any(|variable| variable.starts_with(&directory))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(of_it)
}

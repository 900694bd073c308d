//! A jail with egress, for attacks on it: hosts outside that note what arrives, and an audit log that no process inside can
//! touch.

use crate::{Jail, folder};
use belljar_engine::Engine;
use belljar_spec::egress::{EgressPolicy, Reason};
use belljar_spec::{BackendChoice, BackendName, SandboxSpec};
use belljar_tests_hosts::Dns;
use std::fs;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A jail that may reach something.
pub struct Cage {
    pub jail: Jail,
    records: TempDir,
}

/// These rules, with names that `dns` knows, at test hosts on loopback.
pub fn policy(dns: &Dns, rules: &[&str]) -> EgressPolicy {
    let mut policy = EgressPolicy::strict();
    policy.allow = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    policy.private = vec!["127.0.0.0/8".parse().expect("a range")];
    policy.resolvers = vec![dns.address()];
    policy
}

/// An address, for the tables of tests.
pub fn at(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A jail with this policy.
pub fn cage(backend: BackendName, policy: &EgressPolicy) -> Cage {
    cage_with(backend, policy, |_, _| {})
}

/// The same with more of a specification; the folder of its records is at hand.
pub fn cage_with(
    backend: BackendName,
    policy: &EgressPolicy,
    change: impl FnOnce(&mut SandboxSpec, &Path),
) -> Cage {
    cage_by(Engine::new(), backend, policy, change)
}

/// The same by an engine of the test's own.
pub fn cage_by(
    engine: Engine,
    backend: BackendName,
    policy: &EgressPolicy,
    change: impl FnOnce(&mut SandboxSpec, &Path),
) -> Cage {
    let (workspace, records) = (folder(), folder());
    let mut spec = SandboxSpec {
        backend: BackendChoice::Named(backend),
        workspace: Some(workspace.path().to_path_buf()),
        egress: Some(policy.clone()),
        ..SandboxSpec::default()
    };
    change(&mut spec, records.path());
    let engine = engine.with_records(records.path());
    let sandbox =
        engine.create_blocking(&spec).unwrap_or_else(|error| panic!("{backend}: no sandbox: {error}"));
    Cage { jail: Jail { sandbox, workspace }, records }
}

impl Cage {
    /// Runs a Python script that may use [`NET`], and returns the lines that it printed. One that did not get to its
    /// end is a failure of the test.
    pub fn attack(&self, script: &str, args: &[&str]) -> Vec<String> {
        self.jail.successes(&format!("{NET}{script}"), args)
    }

    /// Where its record is.
    pub fn record(&self) -> PathBuf {
        self.records.path().join(format!("{}.jsonl", self.jail.sandbox.id()))
    }

    /// The lines of its record.
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.record()).expect("a sandbox has a record");
        text.lines().map(str::to_string).collect()
    }

    /// Whether something was let out, by its record.
    pub fn opened(&self) -> usize {
        self.lines().iter().filter(|line| line.contains(r#""kind":"connection_opened""#)).count()
    }

    /// Whom it was refused for this reason.
    pub fn refused_for(&self, reason: Reason) -> Vec<String> {
        let all = self.jail.sandbox.refused().into_iter();
        all.filter(|it| it.refusal.reason == reason).map(|it| it.refusal.destination.to_string()).collect()
    }
}

impl Deref for Cage {
    type Target = Jail;

    fn deref(&self) -> &Jail {
        &self.jail
    }
}

/// Runs the rest of a test in a process of its own, for what is to be said of a whole process. `name` is the test's, with its
/// module's before it.
pub fn alone(name: &str, limits: &[&str], test: impl FnOnce()) {
    const ALONE: &str = "BELLJAR_TEST_ALONE";
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        return test();
    }
    let output = std::process::Command::new("prlimit")
        .args(limits)
        .arg(std::env::current_exe().expect("a test is a file"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ALONE, name)
        .output()
        .expect("a test can be run again");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// How much more memory this process had at its worst, in KiB.
pub fn growth(during: impl FnOnce()) -> u64 {
    // Forgets the worst so far (proc(5), clear_refs).
    fs::write("/proc/self/clear_refs", "5").expect("our own worst can be forgotten");
    let before = memory("VmRSS:");
    during();
    memory("VmHWM:").saturating_sub(before)
}

fn memory(which: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix(which)).expect("it says how much memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Building blocks of attacks on egress: `dial`, `send` and `reply` for bytes over TCP, `ask` for a DNS query, and a TLS
/// hello piece by piece.
pub const NET: &str = r#"
def dial(host, port, timeout=5):
    s = socket.create_connection((host, int(port)), timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
def reply(s, timeout=1.5, most=1 << 16):
    s.settimeout(timeout)
    said = b''
    try:
        while len(said) < most:
            more = s.recv(65536)
            if not more:
                break
            said += more
    except OSError:
        pass
    return said
def send(host, port, *pieces, pause=0.0, timeout=1.5):
    said = b''
    try:
        s = dial(host, port)
        for piece in pieces:
            s.sendall(piece)
            time.sleep(pause)
        said = reply(s, timeout)
        s.close()
    except OSError:
        pass
    return said
def answered(host, port, *pieces, **how):
    said = send(host, port, *pieces, **how)
    if not said:
        raise OSError('nothing came back')
    return said
def labels(name):
    return b''.join(bytes([len(part)]) + part for part in name) + b'\0'
def question(name, kind=1, number=4660, kindclass=1):
    parts = name if isinstance(name, list) else [part.encode() for part in name.split('.')]
    return struct.pack('!HHHHHH', number, 0x100, 1, 0, 0, 0) + labels(parts) + struct.pack('!HH', kind, kindclass)
def ask(message, server='127.0.0.1', timeout=2):
    s = socket.socket(socket.AF_INET6 if ':' in server else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(timeout)
    try:
        s.sendto(message, (server, 53))
        return s.recv(4096)
    except OSError:
        return b''
    finally:
        s.close()
def vec(size, data):
    return len(data).to_bytes(size, 'big') + data
def ext(kind, data):
    return kind.to_bytes(2, 'big') + vec(2, data)
def sni(*names):
    return ext(0, vec(2, b''.join(b'\0' + vec(2, name) for name in names)))
def hello(*extensions):
    return b'\x01' + vec(3, b'\x03\x03' + bytes(range(32)) + vec(1, b'') + vec(2, b'\x13\x01\x13\x02\xc0\x2f')
        + vec(1, b'\0') + vec(2, b''.join(extensions)))
def record(payload, kind=22, version=b'\x03\x01'):
    return bytes([kind]) + version + vec(2, payload)
"#;

//! The world outside of a sandbox: names that lead to servers of the test, an authority, and a place for records.

use crate::{SandboxFixture, has_netfilter, text};
use belljar_audit::{Reader, verify};
use belljar_engine::{Engine, Sandbox};
use belljar_spec::egress::{EgressPolicy, Mode, Reason};
use belljar_spec::{BackendName, Command};
use belljar_tests_hosts::{Authority, Dns, HttpServer, Request, Response};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use tempfile::TempDir;

/// Where most servers of tests are.
pub const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What a sandbox of a test may reach, if its policy lets it.
pub struct World {
    pub dns: Dns,
    pub authority: Authority,
    records: TempDir,
}

/// What the record says of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub name: String,
    pub port: u64,
    pub protocol: String,
    pub rule: String,
    pub sent: u64,
    pub received: u64,
    pub ending: String,
}

impl World {
    /// With these names; one may have several addresses.
    pub fn new<const N: usize>(names: [(&str, &str); N]) -> World {
        let address = |(name, address): (_, &str)| (name, address.parse::<IpAddr>().expect("an address"));
        World::with(Dns::of(names.map(address)))
    }

    /// With a resolver of the test's own.
    pub fn with(dns: Dns) -> World {
        let records = TempDir::new().expect("there is room for records");
        World { dns, authority: Authority::new(), records }
    }

    /// A policy that asks this world's resolver, may dial loopback, and allows this.
    pub fn policy<const N: usize>(&self, rules: [String; N]) -> EgressPolicy {
        let mut policy = EgressPolicy::strict();
        policy.resolvers = vec![self.dns.address()];
        policy.private = ["127.0.0.0/8", "::1/128"].map(|range| range.parse().expect("a range")).into();
        policy.allow =
            rules.map(|rule| rule.parse().unwrap_or_else(|error| panic!("{rule}: {error}"))).into();
        policy
    }

    /// The same, with every public name allowed, at these ports at least: where not every port arrives, a rule has to name them.
    pub fn open_policy<const N: usize>(&self, backend: BackendName, ports: [u16; N]) -> EgressPolicy {
        let policy = match has_netfilter(backend) {
            true => self.policy([]),
            false => self.policy(ports.map(|port| format!("=another.test:{port}/tcp"))),
        };
        EgressPolicy { mode: Mode::Open, ..policy }
    }

    /// A sandbox with this policy. Its workspace has the authority's certificate, `ca.pem`.
    pub async fn fixture(&self, backend: BackendName, policy: EgressPolicy) -> SandboxFixture {
        let engine = Engine::new().with_records(self.records());
        match SandboxFixture::made_by(&engine, backend, |spec| spec.egress = Some(policy)).await {
            Ok(fixture) => {
                fs::write(fixture.host("ca.pem"), self.authority.pem()).expect("the workspace is ours");
                fixture
            }
            Err(error) => panic!("no sandbox: {error} ({})", error.code),
        }
    }

    /// Where the records of this world's sandboxes are.
    pub fn records(&self) -> &Path {
        self.records.path()
    }

    /// The events of a sandbox's record so far, which must be as they were written.
    pub fn events(&self, sandbox: &Sandbox) -> Vec<serde_json::Value> {
        let id = sandbox.id();
        let report = verify(self.records(), Some(id), None, |_| {}).expect("the records can be read");
        assert!(report.is_fine(), "{:?}", report.findings);
        let log = belljar_audit::find(self.records(), Some(&id.to_string())).expect("there is a record");
        let mut reader = Reader::open(&log.path).expect("the record can be read");
        let mut events = Vec::new();
        while let Some(record) = reader.next_record().expect("the record can be read") {
            events.push(record.written());
        }
        events
    }

    /// The connections of a sandbox that was disposed of, in the order in which they were opened.
    pub fn connections(&self, sandbox: &Sandbox) -> Vec<Connection> {
        let events = self.events(sandbox);
        let of = |kind: &str| events.iter().filter(|event| event["kind"] == *kind).collect::<Vec<_>>();
        let closed = of("connection_closed");
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
        of("connection_opened")
            .into_iter()
            .map(|opened| {
                let mut ends = closed.iter().filter(|closed| closed["connection"] == opened["connection"]);
                let (Some(end), None) = (ends.next(), ends.next()) else {
                    panic!("{opened} has not one end: {events:?}")
                };
                Connection {
                    name: word(&opened["name"]),
                    port: opened["port"].as_u64().unwrap_or_default(),
                    protocol: word(&opened["protocol"]),
                    rule: word(&opened["rule"]),
                    sent: end["sent"].as_u64().unwrap_or_default(),
                    received: end["received"].as_u64().unwrap_or_default(),
                    ending: word(&end["ending"]),
                }
            })
            .collect()
    }
}

impl SandboxFixture {
    /// What was refused so far: to what, where and why.
    pub fn refusals(&self) -> Vec<(String, Option<u16>, Reason)> {
        let refused = self.refused();
        refused
            .iter()
            .map(|refused| &refused.refusal)
            .map(|refusal| (refusal.destination.to_string(), refusal.port, refusal.reason))
            .collect()
    }

    /// What a Python program wrote, without the end of its last line; it must succeed.
    pub async fn python(&self, script: &str) -> String {
        let result = self.run(&python(script)).await;
        let (printed, wrong) = (text(&result.stdout), text(&result.stderr));
        assert_eq!(result.exit_code, Some(0), "{printed}{wrong}{:?}", self.refusals());
        printed.trim_end_matches('\n').to_string()
    }
}

/// A Python program that has some words for the network already.
pub fn python(script: &str) -> Command {
    crate::command(["/usr/bin/python3", "-c", &format!("{PRELUDE}{script}")])
}

const PRELUDE: &str = r#"
import hashlib, os, socket, ssl, struct, sys, threading, time

def dial(host, port, family=0):
    """a connection to a name, as most programs make it"""
    last = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM):
        s = socket.socket(family, kind, protocol)
        s.settimeout(25)
        try:
            s.connect(address)
            return s
        except OSError as error:
            last = error
            s.close()
    raise last

def everything(s):
    """all bytes until the other side has no more"""
    pieces = []
    while piece := s.recv(65536):
        pieces.append(piece)
    return b''.join(pieces)

def question(name, kind, number=0x1234):
    labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.') if label)
    return struct.pack('>HHHHHH', number, 0x0100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>HH', kind, 1)

def understood(reply, asked):
    """the code of a reply and its data"""
    number, flags, questions, answers, _, _ = struct.unpack('>HHHHHH', reply[:12])
    assert number == 0x1234 and flags & 0x8000 and questions == 1, reply
    assert reply[12:len(asked)] == asked[12:], (reply, asked)
    at, found = len(asked), []
    for _ in range(answers):
        assert reply[at] & 0xc0 == 0xc0, reply
        kind, _, _, length = struct.unpack('>HHIH', reply[at + 2:at + 12])
        data = reply[at + 12:at + 12 + length]
        if kind in (1, 28):
            data = socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data)
        found.append(data)
        at += 12 + length
    return flags & 15, found

def ask(name, kind=1, server='127.0.0.1', tcp=False):
    asked = question(name, kind)
    family = socket.AF_INET6 if ':' in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(25)
        s.connect((server, 53))
        if not tcp:
            s.send(asked)
            return understood(s.recv(4096), asked)
        s.sendall(struct.pack('>H', len(asked)) + asked)
        with s.makefile('rb') as f:
            return understood(f.read(struct.unpack('>H', f.read(2))[0]), asked)
"#;

/// A web server at `api.test`, and a sandbox that may ask it.
pub async fn web(
    backend: BackendName,
    handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> (World, HttpServer, SandboxFixture) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = HttpServer::start(LOOPBACK, handler);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/http", server.port())])).await;
    (world, server, fixture)
}

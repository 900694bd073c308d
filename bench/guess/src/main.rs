//! Whether the time that an answer takes says how much of a guess is right: a program in a sandbox has a server repeat guesses of a
//! secret, in random order, and measures each answer. Over HTTP/1.1, as events, over HTTP/2, gRPC and a web socket, from a host that a
//! secret is bound to, and over the route to a model. Prints medians and two statistics for each pair of guesses.
//!
//! `./dev bench guess [REQUESTS]`, for each kind of guess. Two pairs say what the figures of the first are worth: two guesses that
//! are both wrong, which cannot differ, and a whole value beside a wrong one, which do (`SECURITY.md` says so).

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod statistics;

use belljar_engine::{Engine, Sandbox};
use belljar_spec::egress::{EgressPolicy, PortRange, RequestFilter};
use belljar_spec::llm::{LlmRoute, UpstreamKind};
use belljar_spec::secret::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Inject, SecretRef, SecretSource,
};
use belljar_spec::{BackendChoice, BackendName, Command, SandboxSpec};
use belljar_tests_hosts::http_body_util::BodyExt;
use belljar_tests_hosts::hyper::{self, body::Incoming};
use belljar_tests_hosts::{
    Agreement, Authority, Dns, HttpServer, Leaf, Request, Response, TlsServer, WebServer, piece, pieces,
    trailers, whole,
};
use belljar_vault::{Secret, SecretError, SecretStore};
use statistics::{Samples, compare};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The secret of the host, and the model's key.
struct One;

impl SecretStore for One {
    fn read(&self, _: &SecretRef) -> Result<Secret, SecretError> {
        Ok(Secret::new(VALUE.into()))
    }
}

fn main() -> Outcome<()> {
    let requests = std::env::args().nth(1).map_or(Ok(REQUESTS), |word| word.parse())?;
    belljar_bench_sample::say_how_busy();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(requests))
}

async fn run(requests: usize) -> Outcome<()> {
    let directory = tempfile::Builder::new().prefix("belljar-bench-").tempdir()?;
    let authority = Authority::new();
    let leaf = authority.leaf([NAME]);
    let bound = HttpServer::start_tls(Ipv4Addr::LOCALHOST, &leaf, repeat);
    let modern = modern(&leaf);
    let socket = TlsServer::start(Ipv4Addr::LOCALHOST, &leaf, |stream| {
        // Until the client goes.
        let _ = repeat_messages(stream);
    });
    let model = HttpServer::start(Ipv4Addr::LOCALHOST, repeat);
    let dns = Dns::of([(NAME, IpAddr::V4(Ipv4Addr::LOCALHOST))]);
    let ports = [bound.port(), modern.port(), socket.port()];
    let sandbox = sandbox(&dns, &authority, ports, &model, directory.path()).await?;
    println!("\nOne value of {} letters; {requests} answers of each kind, in random order", VALUE.len());
    println!(
        "  {:<18} {:<26} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "", "", "median us", "beside us", "apart ns", "U as z", "Welch t"
    );
    for (name, port, words) in [
        ("HTTP/1.1", bound.port(), ["tls", NAME, "/v1/echo"]),
        ("HTTP/1.1, events", bound.port(), ["tls", NAME, "/v1/events"]),
        ("HTTP/2", modern.port(), ["h2", NAME, "/v1/echo"]),
        ("gRPC", modern.port(), ["grpc", NAME, "/echo.Echo/Say"]),
        ("web socket", socket.port(), ["socket", NAME, "/v1/socket"]),
        ("route to a model", ROUTE_PORT, ["plain", "127.0.0.1", "/v1/responses"]),
    ] {
        let measured = measure(&sandbox, words, port, requests).await?;
        for (what, one, two) in [
            ("right beside wrong", "right", "wrong"),
            ("wrong beside wrong", "other", "wrong"),
            ("whole beside wrong", "whole", "almost"),
        ] {
            let compared = compare(&measured[one], &measured[two]);
            println!(
                "  {name:<18} {what:<26} {:>10.1} {:>10.1} {:>10.0} {:>8.2} {:>8.2}",
                compared.medians.0 / 1000.0,
                compared.medians.1 / 1000.0,
                compared.medians.0 - compared.medians.1,
                compared.rank_sum,
                compared.welch
            );
        }
    }
    for refused in sandbox.refused() {
        println!("warning: refused {} times: {}", refused.times, refused.refusal);
    }
    sandbox.dispose().await;
    Ok(())
}

/// Says what it was told, as it is or in events.
fn repeat(request: &Request) -> Response {
    let body = String::from_utf8_lossy(&request.body);
    if request.target != "/v1/events" {
        return Response::ok(request.body.clone()).with("content-type", "application/json");
    }
    let events: String = body.split(' ').map(|guess| format!("data: {guess}\n\n")).collect();
    Response { chunks: Some(EVENTS), ..Response::ok(events) }.with("content-type", "text/event-stream")
}

/// The same over HTTP/2; what is gRPC ends with a status.
fn modern(leaf: &Leaf) -> WebServer {
    let agreement = Agreement { alpn: &["h2"], client_certificates: None };
    WebServer::start(Ipv4Addr::LOCALHOST, leaf, agreement, |request: hyper::Request<Incoming>| async {
        let kind = request.headers().get("content-type").cloned();
        let is_grpc = kind.as_ref().is_some_and(|kind| kind == "application/grpc");
        let received = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body = if is_grpc {
            let (sender, body) = pieces();
            tokio::spawn(async move {
                let _ = sender.send(piece(received)).await;
                let _ = sender.send(trailers([("grpc-status", "0")])).await;
            });
            body
        } else {
            whole(received)
        };
        let mut response = hyper::Response::new(body);
        response.headers_mut().extend(kind.map(|kind| (hyper::header::CONTENT_TYPE, kind)));
        response
    })
}

/// The same over a web socket, message by message (RFC 6455, 5.2). Every client's key is that of the RFC's example.
fn repeat_messages(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    stream.write_all(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    )?;
    loop {
        stream.flush()?;
        // A final text of 126 to 65535 bytes, and a mask.
        let mut start = [0; 8];
        stream.read_exact(&mut start)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes([start[2], start[3]]))];
        stream.read_exact(&mut message)?;
        for (byte, mask) in message.iter_mut().zip(start[4..].iter().cycle()) {
            *byte ^= mask;
        }
        stream.write_all(&[&[0x81, 126, start[2], start[3]], message.as_slice()].concat())?;
    }
}

/// With a secret for the host, at these ports, and a model.
async fn sandbox(
    dns: &Dns,
    authority: &Authority,
    ports: [u16; 3],
    model: &HttpServer,
    directory: &Path,
) -> Outcome<Sandbox> {
    let (mut policy, mut bindings) = (EgressPolicy::strict(), Vec::new());
    for port in ports {
        policy = policy.allow(format!("={NAME}:{port}/tls").parse()?);
        bindings.push(CredentialBinding {
            host: format!("={NAME}").parse()?,
            ports: PortRange::only(port)?,
            requests: RequestFilter::ANY,
            locations: vec![CredentialLocation::Bearer],
            inject: Inject::Placeholder,
        });
    }
    policy.private = vec!["127.0.0.0/8".parse()?];
    policy.resolvers = vec![dns.address()];
    policy.authorities = authority.pem().into_bytes();
    let credential = Credential {
        name: "bound".parse()?,
        source: SecretSource::Stored("secret:bound".parse()?),
        bindings,
        variables: vec!["KEY".parse()?],
        bodies: Bodies::Watched,
    };
    let mut route = LlmRoute::to(format!("http://127.0.0.1:{}", model.port()).parse()?);
    route.kind = UpstreamKind::OpenAi;
    route.key = Some("secret:model".parse()?);
    let spec = SandboxSpec {
        backend: BackendChoice::Named(BackendName::Native),
        egress: Some(policy),
        credentials: vec![credential],
        llm: Some(route),
        ..SandboxSpec::default()
    };
    let engine = Engine::new().with_secrets(Arc::new(One)).with_records(directory.join("records"));
    Ok(engine.create(spec).await?)
}

/// Nanoseconds of every answer, by the kind of guess.
async fn measure(
    sandbox: &Sandbox,
    [tls, host, path]: [&str; 3],
    port: u16,
    requests: usize,
) -> Outcome<BTreeMap<String, Samples>> {
    let end = VALUE.len() - 1;
    // Another letter at the end, of the same kind.
    let almost = format!("{}{WRONG_END}", &VALUE[..end]);
    let guesses = [
        ("right", VALUE[..end].to_string()),
        ("wrong", format!("{}{WRONG_END}", &VALUE[..end - 1])),
        ("other", OTHER[..end].to_string()),
        ("whole", VALUE.to_string()),
        ("almost", almost),
    ];
    // Nothing in what the guesses are called by may differ in length, and no argument may have the value in it.
    let coded = |guess: &str| guess.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(",");
    let guesses: Vec<String> =
        guesses.iter().map(|(name, guess)| format!("{name}={}", coded(guess))).collect();
    let words = [tls, host, &port.to_string(), path, &requests.to_string()].map(str::to_string);
    let argv = ["/usr/bin/python3", "-c", CLIENT].map(str::to_string).into_iter().chain(words).chain(guesses);
    let mut command = Command::new(argv)?;
    command.timeout = Some(Duration::from_secs(3600));
    let result = sandbox.exec(&command).await?;
    if result.exit_code != Some(0) {
        return Err(String::from_utf8_lossy(&result.stderr).into_owned().into());
    }
    let mut measured: BTreeMap<String, Samples> = BTreeMap::new();
    for line in String::from_utf8(result.stdout)?.lines() {
        let (name, nanoseconds) = line.split_once(' ').ok_or("a line without a figure")?;
        measured.entry(name.into()).or_default().push(nanoseconds.parse()?);
    }
    Ok(measured)
}

/// The client that guesses: one connection, one request after the other. HTTP/2 is RFC 9113 and 7541 without tables and Huffman's code.
const CLIENT: &str = r#"
import os, random, socket, ssl, sys, time
kind, host, port, path, count = sys.argv[1:6]
guesses = {}
for word in sys.argv[6:]:
    name, coded = word.split('=')
    guess = ''.join(chr(int(number)) for number in coded.split(','))
    guesses[name] = ' '.join([guess] * 64)
key, place = os.environ['KEY'], '%s:%s' % (host, port)
s = socket.create_connection((host, int(port)))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if kind != 'plain':
    context = ssl.create_default_context()
    if kind in ('h2', 'grpc'):
        context.set_alpn_protocols(['h2'])
    s = context.wrap_socket(s, server_hostname=host)
f = s.makefile('rb')

def http(said):
    body = said if kind == 'tls' else '{"model":"m","input":"%s"}' % said
    head = 'POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n'
    return (head % (path, place, key, len(body)) + body).encode()
def http_answer():
    status = f.readline()
    assert b' 200 ' in status, (status, f.read(500))
    length = None
    while line := f.readline().strip().lower():
        if line.startswith(b'content-length:'):
            length = int(line.split(b':')[1])
    if length is not None:
        f.read(length)
    else:
        while size := int(f.readline(), 16):
            f.read(size + 2)
        f.readline()

def frame(what, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([what, flags]) + stream.to_bytes(4, 'big') + payload
stream = -1
def http2(said):
    global stream
    stream += 2
    fields = [(':method', 'POST'), (':scheme', 'https'), (':authority', place), (':path', path),
        ('authorization', 'Bearer ' + key), ('content-type', 'application/grpc' if kind == 'grpc' else 'text/plain'), ('te', 'trailers')]
    block = b''.join(b'\0' + b''.join(bytes([len(word)]) + word.encode() for word in field) for field in fields)
    body = said.encode()
    if kind == 'grpc':
        body = b'\0' + len(body).to_bytes(4, 'big') + body
    return frame(1, 4, stream, block) + frame(0, 1, stream, body)
def http2_answer():
    got = 0
    while True:
        head = f.read(9)
        length, what, flags, of = int.from_bytes(head[:3], 'big'), head[3], head[4], int.from_bytes(head[5:], 'big')
        payload = f.read(length)
        assert what not in (3, 7), (what, payload)
        if what == 4 and not flags & 1:
            s.sendall(frame(4, 1, 0, b''))
        if what == 6 and not flags & 1:
            s.sendall(frame(6, 1, 0, payload))
        if of == stream and what == 0:
            got += length
        if of == stream and flags & 1 and what in (0, 1):
            assert got > 1000, (got, payload)
            return

def message(said):
    body, mask = said.encode(), os.urandom(4)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(body))
    return bytes([0x81, 0xfe]) + len(body).to_bytes(2, 'big') + mask + masked
def message_answer():
    head = f.read(4)
    assert head[:2] == b'\x81\x7e', head
    f.read(int.from_bytes(head[2:], 'big'))

request, answer = {'h2': (http2, http2_answer), 'grpc': (http2, http2_answer), 'socket': (message, message_answer)}.get(kind, (http, http_answer))
if request == http2:
    # Windows that are never full.
    most = 2**31 - 1
    s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b'\0\4' + most.to_bytes(4, 'big')) + frame(8, 0, 0, (most - 65535).to_bytes(4, 'big')))
if request == message:
    s.sendall(('GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n'
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n' % (path, place, key)).encode())
    status = f.readline()
    assert b' 101 ' in status, (status, f.read(500))
    while f.readline().strip():
        pass

def ask(said):
    sent = request(said)
    begin = time.perf_counter_ns()
    s.sendall(sent)
    answer()
    return time.perf_counter_ns() - begin
order = [name for name in guesses for _ in range(int(count))]
random.shuffle(order)
for _ in range(200):
    ask(guesses['wrong'])
for name in order:
    print(name, ask(guesses[name]))
"#;

const NAME: &str = "far.test";
const VALUE: &str = "ghp_R34lS3cretV4lueQ7zx9PmK2bT5";
/// Of the same shape.
const OTHER: &str = "ghp_Q21kR8bqdsU9ktdP0yw4OlJ7aS6";
/// A letter that VALUE has not at its last two places; both are then wrong.
const WRONG_END: &str = "X";
const ROUTE_PORT: u16 = 14180;
const REQUESTS: usize = 4000;
/// Bytes in a chunk.
const EVENTS: usize = 1000;

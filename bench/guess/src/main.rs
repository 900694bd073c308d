//! Whether the time that an answer takes says how much of a guess is right: a program in a sandbox has a server repeat guesses of a
//! secret, in random order, and measures each answer. Over HTTP/1.1 and as events, from a host that a secret is bound to, and
//! over the route to a model. Prints medians and two statistics for each pair of guesses.
//!
//! `./dev bench guess [REQUESTS]`, for each kind of guess. Two pairs say what the figures of the first are worth: two guesses that
//! are both wrong, which cannot differ, and a whole value beside a wrong one, which do (`SECURITY.md` says so).

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod statistics;

use belljar_engine::{Engine, Sandbox};
use belljar_spec::egress::{EgressPolicy, PortRange, RequestFilter};
use belljar_spec::llm::{LlmRoute, UpstreamKind};
use belljar_spec::secret::{Bodies, Carrier, Credential, CredentialPlace, Inject, SecretRef, SecretSource};
use belljar_spec::{BackendChoice, BackendName, Command, SandboxSpec};
use belljar_tests_hosts::{Authority, Dns, HttpServer, Request, Response};
use belljar_vault::{Secret, SecretError, SecretStore};
use statistics::{Samples, compare};
use std::collections::BTreeMap;
use std::error::Error;
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
    let bound = HttpServer::start_tls(Ipv4Addr::LOCALHOST, &authority.leaf([NAME]), repeat);
    let model = HttpServer::start(Ipv4Addr::LOCALHOST, repeat);
    let dns = Dns::of([(NAME, IpAddr::V4(Ipv4Addr::LOCALHOST))]);
    let sandbox = sandbox(&dns, &authority, &bound, &model, directory.path()).await?;
    println!("\nOne value of {} letters; {requests} answers of each kind, in random order", VALUE.len());
    println!(
        "  {:<18} {:<26} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "", "", "median us", "beside us", "apart ns", "U as z", "Welch t"
    );
    for (name, words) in [
        ("HTTP/1.1", ["tls", NAME, "/v1/echo"]),
        ("HTTP/1.1, events", ["tls", NAME, "/v1/events"]),
        ("route to a model", ["plain", "127.0.0.1", "/v1/responses"]),
    ] {
        let port = if words[0] == "tls" { bound.port() } else { ROUTE_PORT };
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
    let said = String::from_utf8_lossy(&request.body);
    if request.target != "/v1/events" {
        return Response::ok(request.body.clone()).with("content-type", "application/json");
    }
    let events: String = said.split(' ').map(|guess| format!("data: {guess}\n\n")).collect();
    Response { chunks: Some(EVENTS), ..Response::ok(events) }.with("content-type", "text/event-stream")
}

/// With a secret for the host, and a model.
async fn sandbox(
    dns: &Dns,
    authority: &Authority,
    bound: &HttpServer,
    model: &HttpServer,
    directory: &Path,
) -> Outcome<Sandbox> {
    let mut policy = EgressPolicy::strict().allow(format!("={NAME}:{}/tls", bound.port()).parse()?);
    policy.private = vec!["127.0.0.0/8".parse()?];
    policy.resolvers = vec![dns.address()];
    policy.authorities = authority.pem().into_bytes();
    let credential = Credential {
        name: "bound".parse()?,
        source: SecretSource::Kept("secret:bound".parse()?),
        places: vec![CredentialPlace {
            host: format!("={NAME}").parse()?,
            ports: PortRange::only(bound.port())?,
            requests: RequestFilter::ANY,
            carriers: vec![Carrier::Bearer],
            inject: Inject::Placeholder,
        }],
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

/// Whoever guesses: one connection, one request after the other.
const CLIENT: &str = r#"
import os, random, socket, ssl, sys, time
tls, host, port, path, count = sys.argv[1:6]
guesses = {}
for word in sys.argv[6:]:
    name, coded = word.split('=')
    guess = ''.join(chr(int(number)) for number in coded.split(','))
    guesses[name] = ' '.join([guess] * 64)
s = socket.create_connection((host, int(port)))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if tls == 'tls':
    s = ssl.create_default_context().wrap_socket(s, server_hostname=host)
f = s.makefile('rb')
def ask(said):
    body = said if tls == 'tls' else '{"model":"m","input":"%s"}' % said
    head = 'POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n'
    request = (head % (path, host, port, os.environ['KEY'], len(body)) + body).encode()
    begin = time.perf_counter_ns()
    s.sendall(request)
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
const ROUTE_PORT: u16 = 8080;
const REQUESTS: usize = 4000;
/// Bytes in a chunk.
const EVENTS: usize = 1000;

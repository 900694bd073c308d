//! A shim that was started, and how to speak with it.

use axum::body::Body;
use belljar_api::{ApiError, CommandEvent, CommandInfo, SHIM_TOKEN_HEADER, SandboxRequest};
use belljar_fleet::{SandboxDir, ShimPlan};
use belljar_server::shim::Contact;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// Says to the process of a test that it is to be a shim.
pub(crate) const DIRECTORY: &str = "BELLJAR_TEST_SHIM";

pub(crate) struct Started {
    pub(crate) place: SandboxDir,
    pub(crate) contact: Contact,
    pub(crate) child: Child,
    plan: ShimPlan,
    _state: tempfile::TempDir,
}

impl Started {
    /// A shim of a sandbox that has nothing but defaults.
    pub(crate) fn new() -> Started {
        Started::with(SandboxRequest::default())
    }

    pub(crate) fn with(sandbox: SandboxRequest) -> Started {
        Started::try_with(sandbox).expect("a sandbox that starts")
    }

    pub(crate) fn try_with(sandbox: SandboxRequest) -> Result<Started, Box<ApiError>> {
        let state = tempfile::tempdir().expect("a directory");
        let place = SandboxDir::new(state.path().join("belljar/fleet/sandboxes/box"));
        std::fs::create_dir_all(place.workspace()).expect("room");
        let bytes: [u8; 8] =
            std::array::from_fn(|at| (std::process::id() >> (at % 4 * 8)) as u8 ^ nanos()[at]);
        let id = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let plan = ShimPlan {
            name: "box".into(),
            key: "box".into(),
            id,
            sandbox,
            persistent: false,
            is_owners: true,
            environment: Default::default(),
        };
        let (child, answer) = process(&place, state.path(), &plan);
        match answer["ready"].is_null() {
            true => Err(serde_json::from_value(answer["error"].clone()).expect("an error")),
            false => {
                let contact: Contact = serde_json::from_value(answer["ready"].clone()).expect("a contact");
                assert_eq!(Contact::read(&place).expect("readable").as_ref(), Some(&contact));
                Ok(Started { place, contact, child, plan, _state: state })
            }
        }
    }

    /// Another shim of the same place.
    pub(crate) fn another(&self) -> (Child, Value) {
        process(&self.place, self._state.path(), &self.plan)
    }

    pub(crate) async fn stream(&self) -> UnixStream {
        let stream = self.contact.connect().expect("the shim listens");
        stream.set_nonblocking(true).expect("a socket");
        UnixStream::from_std(stream).expect("a socket")
    }

    /// Asks below the sandbox's own path, or at `/keeper`.
    pub(crate) fn request(&self, method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
        let path = if path.starts_with("/keeper") { path.into() } else { format!("/v1/sandboxes/box{path}") };
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "keeper")
            .header(SHIM_TOKEN_HEADER, &self.contact.token)
            .body(body.into())
            .expect("a request")
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Incoming> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(self.stream().await)).await.expect("a server");
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.expect("an answer")
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.send(self.request(method, path, body)).await;
        let status = response.status();
        (status, response.into_body().collect().await.expect("a body").to_bytes().to_vec())
    }

    pub(crate) async fn json<T: DeserializeOwned>(&self, method: &str, path: &str, body: Value) -> T {
        let (status, text) = self.ask(method, path, body.to_string()).await;
        assert!(status.is_success(), "{method} {path}: {status} {}", String::from_utf8_lossy(&text));
        serde_json::from_slice(&text).expect("what was asked for")
    }

    /// The code of a refusal, and its status.
    pub(crate) async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        let (status, text) = self.ask(method, path, body.to_string()).await;
        let body: belljar_api::ErrorBody = serde_json::from_slice(&text).expect("an error");
        (status.as_u16(), body.error.code.to_string())
    }

    pub(crate) async fn run(&self, body: Value) -> CommandInfo {
        self.json("POST", "/commands", body).await
    }

    /// A command in the background.
    pub(crate) async fn begin(&self, mut body: Value) -> CommandInfo {
        body["background"] = true.into();
        self.json("POST", "/commands", body).await
    }

    pub(crate) async fn events(&self, path: &str) -> Events {
        let response = self.send(self.request("GET", path, Body::empty())).await;
        assert_eq!(response.status(), 200);
        Events { body: response.into_body(), held: Vec::new() }
    }

    /// Memory that is this process's alone, in KiB.
    pub(crate) fn private_kib(&self) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.contact.pid)).expect("it lives");
        let line = text.lines().find(|line| line.starts_with("Private_Dirty:")).expect("the kernel says it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Ready when the process has ended.
    pub(crate) fn wait(&mut self) -> bool {
        self.child.wait().expect("our child").success()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let time_limit = Instant::now() + Duration::from_secs(20);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < time_limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Server-sent events, as they come.
pub(crate) struct Events {
    body: Incoming,
    /// Bytes, since a frame may end within a character.
    held: Vec<u8>,
}

impl Events {
    /// The next one: its id, and what it says.
    pub(crate) async fn next(&mut self) -> Option<(u64, Value)> {
        loop {
            if let Some(end) = self.held.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.held.drain(..end + 2).collect();
                let event = std::str::from_utf8(&event).expect("events are text");
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name).map(str::to_string));
                let found = field("data: ").map(|data| {
                    let id = field("id: ").and_then(|id| id.parse().ok()).unwrap_or(0);
                    (id, serde_json::from_str(&data).expect("json"))
                });
                match found {
                    Some(found) => return Some(found),
                    None => continue,
                }
            }
            let frame = self.body.frame().await?.expect("a body");
            self.held.extend_from_slice(frame.data_ref()?);
        }
    }

    /// All output of a stream to the end, and how it ended.
    pub(crate) async fn all(mut self) -> (Vec<u8>, Option<belljar_api::CommandResult>) {
        let mut bytes = Vec::new();
        while let Some((_, event)) = self.next().await {
            match serde_json::from_value(event).expect("an event") {
                CommandEvent::Output { text: Some(text), .. } => bytes.extend(text.into_bytes()),
                CommandEvent::Output { base64, .. } => {
                    use base64::Engine as _;
                    let engine = base64::engine::general_purpose::STANDARD;
                    bytes.extend(engine.decode(base64.expect("bytes")).expect("base64"));
                }
                CommandEvent::Ended { result } => return (bytes, Some(result)),
                CommandEvent::Started { .. } => {}
            }
        }
        (bytes, None)
    }
}

/// A shim, and what it answers.
fn process(place: &SandboxDir, state: &std::path::Path, plan: &ShimPlan) -> (Child, Value) {
    let mut child = Command::new(std::env::current_exe().expect("our own program"))
        .args(["--exact", "shim::shim_process", "--nocapture"])
        .env(DIRECTORY, place.directory())
        .env("XDG_STATE_HOME", state)
        .env("XDG_CONFIG_HOME", state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mut stdin = child.stdin.take().expect("a pipe");
    writeln!(stdin, "{}", json!({ "sandbox": plan })).expect("it reads");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut answers = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
    let answer = answers.next().expect("an answer");
    (child, answer)
}

fn nanos() -> [u8; 8] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    (now.as_nanos() as u64).to_le_bytes()
}

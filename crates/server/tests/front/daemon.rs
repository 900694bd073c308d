//! A daemon in this process, its shims beside it, and how to speak with it.

use axum::body::Body;
use belljar_api::{ErrorBody, NewToken};
use belljar_server::front::{Settings, serve};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Says to the process of a test that it is to be a shim.
pub(crate) const DIRECTORY: &str = "BELLJAR_TEST_SHIM";

pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    pub(crate) tcp: SocketAddr,
    running: JoinHandle<()>,
    names: std::sync::Mutex<Vec<String>>,
    pub(crate) root: tempfile::TempDir,
}

impl Daemon {
    pub(crate) async fn start() -> Daemon {
        Daemon::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Daemon {
        Daemon::begin(tempfile::tempdir().unwrap(), change).await
    }

    async fn begin(root: tempfile::TempDir, change: impl FnOnce(&mut Settings)) -> Daemon {
        let socket = root.path().join("run/daemon.sock");
        let mut settings = Settings {
            directory: root.path().join("state/belljar/fleet"),
            socket: socket.clone(),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            program: Some(shim_program(root.path())),
            ..Settings::default()
        };
        change(&mut settings);
        let (tell, receiver) = oneshot::channel();
        let running = tokio::spawn(async move {
            serve(settings, |ready| _ = tell.send(ready.listen.unwrap())).await.unwrap();
        });
        let tcp = receiver.await.expect("a daemon that listens");
        Daemon { socket, tcp, running, names: std::sync::Mutex::default(), root }
    }

    /// As if it were killed, and started again.
    pub(crate) async fn again(self) -> Daemon {
        self.running.abort();
        let Daemon { running, names, root, .. } = self;
        let _ = running.await;
        Daemon { names, ..Daemon::begin(root, |_| {}).await }
    }

    /// Ends it with all that it made.
    pub(crate) async fn end(self) {
        let names = std::mem::take(&mut *self.names.lock().unwrap());
        for name in names {
            let (status, _) = self.owner("DELETE", &format!("/v1/sandboxes/{name}"), Value::Null).await;
            assert!([204, 404].contains(&status), "{status}");
        }
        self.running.abort();
    }

    /// Asks as the owner, over the unix socket.
    pub(crate) async fn owner(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let response = self.send(request(method, path, None, body)).await;
        answer_of(response).await
    }

    /// Asks over the network, with a token.
    pub(crate) async fn ask(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let stream = TcpStream::connect(self.tcp).await.unwrap();
        let response = speak(TokioIo::new(stream), request(method, path, Some(token), body)).await;
        answer_of(response).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Incoming> {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        speak(TokioIo::new(stream), request).await
    }

    /// The name of a new sandbox.
    pub(crate) async fn sandbox(&self, body: Value) -> String {
        let (status, created) = self.owner("POST", "/v1/sandboxes", body).await;
        assert!(status == 201 || status == 200, "{status}: {created}");
        let name = created["sandbox"]["name"].as_str().unwrap().to_string();
        self.names.lock().unwrap().push(name.clone());
        name
    }

    pub(crate) async fn grant(&self, rules: Value) -> NewToken {
        let (status, made) = self.owner("POST", "/v1/grants", rules).await;
        assert_eq!(status, 201, "{made}");
        serde_json::from_value(made).unwrap()
    }

    /// What comes back for these very bytes, until the daemon hangs up.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        // A daemon that refuses early may not read all of it.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

pub(crate) fn request(method: &str, path: &str, token: Option<&str>, body: Value) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    request.body(body).unwrap()
}

pub(crate) async fn speak<I>(io: I, request: Request<Body>) -> Response<Incoming>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.unwrap()
}

/// Status and body; every refusal has the body that refusals have.
pub(crate) async fn answer_of(response: Response<Incoming>) -> (u16, Value) {
    let status = response.status();
    let id = response.headers().get("x-request-id").cloned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(json!(String::from_utf8_lossy(&bytes)));
    if status.is_client_error() || status.is_server_error() {
        let error: ErrorBody =
            serde_json::from_value(body.clone()).unwrap_or_else(|_| panic!("{status}: {body}"));
        assert_eq!(error.error.request_id.as_deref(), id.as_ref().and_then(|id| id.to_str().ok()));
    }
    (status.as_u16(), body)
}

pub(crate) fn code((status, body): &(u16, Value)) -> (u16, &str) {
    (*status, body["error"]["code"].as_str().unwrap_or_default())
}

/// A program that is a shim when it is called as one: this one, told so by a variable.
fn shim_program(root: &std::path::Path) -> PathBuf {
    let program = root.join("shim");
    let own = std::env::current_exe().unwrap();
    let state = root.join("state");
    let script = format!(
        "#!/bin/sh\nexport {DIRECTORY}=\"$2\" XDG_STATE_HOME='{}'\nexec '{}' --exact front::shim_process --nocapture\n",
        state.display(),
        own.display(),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

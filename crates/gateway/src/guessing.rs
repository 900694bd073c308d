//! The attack of guessing a secret, letter by letter, on every path that answers take into a sandbox: a server repeats a guess,
//! and the attacker looks at which pieces come. Right and wrong guesses have to look the same. On loopback, without a sandbox.

use crate::connection_limits::{Arrival, DescriptorBudget};
use crate::credentials::Credentials;
use crate::gateway::Terms;
use crate::hello::{self, Hello};
use crate::llm;
use crate::names::Addresses;
use crate::record::Recorder;
use crate::sandbox_ca::Authority;
use crate::serving::Serving;
use crate::tls_interception::{self, Alpn};
use belljar_spec::SandboxId;
use belljar_spec::egress::{EgressPolicy, HostName, PortRange, RequestFilter};
use belljar_spec::llm::{LlmRoute, UpstreamKind};
use belljar_spec::secret::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Inject, SecretRef, SecretSource,
};
use belljar_vault::{Secret, SecretError, SecretStore};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const VALUE: &str = "ghp_R34lS3cretV4lueQ7zx9PmK2bT5";
/// Of the same shape.
const OTHER: &str = "ghp_Q21kR8bqdsU9ktdP0yw4OlJ7aS6";
const NAME: &str = "bound.test";

/// What can be seen inside: the sizes of pieces, in their order, and names beside them.
type Seen = Vec<(&'static str, usize)>;

/// What the server says next, whatever it is asked.
#[derive(Clone, Default)]
struct Says {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<Bytes>,
    trailers: Option<(String, String)>,
    later: Option<Arc<Mutex<Later>>>,
}

struct Drawer(Mutex<String>);

impl SecretStore for Drawer {
    fn read(&self, _: &SecretRef) -> Result<Secret, SecretError> {
        Ok(Secret::new(self.0.lock().unwrap().clone().into_bytes()))
    }
}

/// A server, and a gateway in front of it.
struct Scene {
    says: Arc<Mutex<Says>>,
    got: Arc<Mutex<Vec<HeaderMap>>>,
    drawer: Arc<Drawer>,
    placeholder: String,
    gateway: SocketAddr,
    port: u16,
    client: ClientConfig,
}

/// Frames that there are already, and those that a test sends later.
struct Ready(Vec<Frame<Bytes>>, Option<Arc<Mutex<Later>>>);

type Later = tokio::sync::mpsc::Receiver<Bytes>;

impl hyper::body::Body for Ready {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        match (next, &self.1) {
            (None, Some(later)) => later
                .lock()
                .unwrap()
                .poll_recv(context)
                .map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
            (next, _) => Poll::Ready(next.map(Ok)),
        }
    }
}

impl Says {
    fn pieces(pieces: &[&str]) -> Says {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
        Says { status: 200, pieces, ..Says::default() }
    }

    fn header(mut self, name: &'static str, value: &str) -> Says {
        self.headers.push((name, value.to_string()));
        self
    }

    fn response(self) -> Response<Ready> {
        let mut frames: Vec<Frame<Bytes>> = self.pieces.into_iter().map(Frame::data).collect();
        if let Some((name, value)) = self.trailers {
            let name: HeaderName = name.parse().unwrap();
            frames.push(Frame::trailers(HeaderMap::from_iter([(
                name,
                HeaderValue::from_str(&value).unwrap(),
            )])));
        }
        let mut response = Response::builder().status(StatusCode::from_u16(self.status).unwrap());
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(Ready(frames, self.later)).unwrap()
    }
}

/// Serves what it is told to say, over any stream.
async fn serve(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    alpn: Alpn,
    says: Arc<Mutex<Says>>,
    got: Arc<Mutex<Vec<HeaderMap>>>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (says, got) = (says.lock().unwrap().clone(), Arc::clone(&got));
        async move {
            got.lock().unwrap().push(request.headers().clone());
            if says.status == 101 {
                let upgrade = hyper::upgrade::on(&mut request);
                let pieces = says.pieces.concat();
                tokio::spawn(async move {
                    let mut open = TokioIo::new(upgrade.await.unwrap());
                    open.write_all(&pieces).await.unwrap();
                    open.flush().await.unwrap();
                    // Open, until the client goes.
                    let _ = open.read(&mut [0]).await;
                });
                let response = Says { pieces: Vec::new(), ..says }.response();
                return Ok::<_, Infallible>(response);
            }
            let _ = request.into_body().collect().await;
            Ok::<_, Infallible>(says.response())
        }
    });
    let io = TokioIo::new(stream);
    let _ = match alpn {
        Alpn::Http2 => {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        }
        Alpn::Http1 => {
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades().await
        }
    };
}

/// Says of every name that it is here (RFC 1035, 4.1): the question again, and one address.
async fn names(socket: UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let question = &buffer[12..length];
        let end = question.iter().position(|byte| *byte == 0).unwrap() + 5;
        let is_ipv4 = question[end - 4..end - 2] == [0, 1];
        let mut reply =
            [&buffer[..2], &[0x81, 0x80, 0, 1, 0, is_ipv4.into(), 0, 0, 0, 0], &question[..end]].concat();
        if is_ipv4 {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        socket.send_to(&reply, client).await.unwrap();
    }
}

fn serving(policy: EgressPolicy, credentials: Credentials, authority: &Arc<Authority>) -> Arc<Serving> {
    let terms = Terms {
        policy,
        recorder: Arc::new(Recorder::new(None)),
        llm: None,
        credentials: Arc::new(credentials),
        authority: Some(Arc::clone(authority)),
        pushes: None,
        proxy: None,
        rules: Vec::new(),
        ports: None,
    };
    Arc::new(Serving::new(&Arc::new(DescriptorBudget::here()), terms, Addresses::Ipv4, Arrival::Accepted))
}

fn authority(number: u8) -> Arc<Authority> {
    Arc::new(Authority::new(SandboxId::from_random([number; 8])).unwrap())
}

async fn scene(alpn: Alpn, inject: Inject) -> Scene {
    let (says, got) = (Arc::new(Mutex::new(Says::default())), Arc::new(Mutex::new(Vec::new())));
    let (outside, inside) = (authority(1), authority(2));
    let name: HostName = NAME.parse().unwrap();
    // The server.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(outside.server(&name, Some(alpn)).unwrap());
    let (script, received) = (Arc::clone(&says), Arc::clone(&got));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            tokio::spawn(serve(stream, alpn, Arc::clone(&script), Arc::clone(&received)));
        }
    });
    // The gateway.
    let resolver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut policy = EgressPolicy::strict();
    policy.allow = vec![format!("={NAME}:{port}/tls").parse().unwrap()];
    policy.private = vec!["127.0.0.0/8".parse().unwrap()];
    policy.resolvers = vec![resolver.local_addr().unwrap()];
    policy.authorities = outside.certificate_pem().as_bytes().to_vec();
    tokio::spawn(names(resolver));
    let drawer = Arc::new(Drawer(Mutex::new(VALUE.into())));
    let credential = Credential {
        name: "bound".parse().unwrap(),
        source: SecretSource::Stored("secret:bound".parse().unwrap()),
        bindings: vec![CredentialBinding {
            host: format!("={NAME}").parse().unwrap(),
            ports: PortRange::only(port).unwrap(),
            requests: RequestFilter::ANY,
            locations: vec![CredentialLocation::Bearer],
            inject,
        }],
        variables: Vec::new(),
        bodies: Bodies::Watched,
    };
    let credentials = Credentials::new(vec![credential], Arc::clone(&drawer) as _).ok().unwrap();
    let placeholder = credentials.placeholder(&"bound".parse().unwrap()).unwrap().to_string();
    let serving = serving(policy, credentials, &inside);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let gateway = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (serving, name) = (Arc::clone(&serving), name.clone());
            tokio::spawn(async move {
                let mut ahead = Vec::new();
                while !matches!(hello::read(&ahead), Hello::Complete(_)) {
                    assert!(stream.read_buf(&mut ahead).await.unwrap() > 0, "a hello");
                }
                let (alive, _over) = channel();
                tls_interception::serve(stream, ahead, name, port, serving, alive).await;
            });
        }
    });
    // The client, which trusts the sandbox's authority.
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(inside.certificate_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![alpn.name().to_vec()];
    Scene { says, got, drawer, placeholder, gateway, port, client }
}

impl Scene {
    async fn dial(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.gateway).await.unwrap();
        let connector = TlsConnector::from(Arc::new(self.client.clone()));
        connector.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap()
    }

    fn request(&self, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
        let is_http2 = self.client.alpn_protocols[0] == b"h2";
        let (port, scheme) = (self.port, if is_http2 { "https" } else { "" });
        let target = if is_http2 { format!("{scheme}://{NAME}:{port}/x") } else { "/x".into() };
        let mut request = Request::builder().method("POST").uri(target);
        if !is_http2 {
            request = request.header("host", format!("{NAME}:{port}"));
        }
        for (name, value) in headers {
            request = if *name == ":method" { request.method(*value) } else { request.header(*name, *value) };
        }
        request.body(Full::new(Bytes::from_static(b"guess"))).unwrap()
    }

    /// Asks, and gives the head and every piece of what came.
    async fn ask(&self, says: Says, headers: &[(&str, &str)]) -> (Response<()>, Vec<Frame<Bytes>>) {
        *self.says.lock().unwrap() = says;
        let (io, request) = (TokioIo::new(self.dial().await), self.request(headers));
        let response = match self.client.alpn_protocols[0] == b"h2" {
            true => {
                let (mut send, driven) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
                tokio::spawn(driven);
                send.send_request(request).await.unwrap()
            }
            false => {
                let (mut send, driven) = hyper::client::conn::http1::handshake(io).await.unwrap();
                tokio::spawn(driven);
                send.send_request(request).await.unwrap()
            }
        };
        let (head, mut body) = response.into_parts();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap());
        }
        (Response::from_parts(head, ()), frames)
    }

    /// What stands for a value of this length.
    fn filled(&self, length: usize) -> String {
        self.placeholder.chars().cycle().take(length).collect()
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.placeholder)
    }
}

fn seen(head: &Response<()>, frames: &[Frame<Bytes>]) -> Seen {
    let mut seen = vec![("status", usize::from(head.status().as_u16()))];
    seen.extend(head.headers().values().map(|value| ("header", value.len())));
    for frame in frames {
        seen.extend(frame.data_ref().map(|data| ("data", data.len())));
        let trailers = frame.trailers_ref().into_iter().flat_map(|trailers| trailers.iter());
        seen.extend(trailers.map(|(name, value)| ("trailer", name.as_str().len() + value.len())));
    }
    seen
}

fn text(frames: &[Frame<Bytes>]) -> String {
    let data = frames.iter().filter_map(|frame| frame.data_ref().cloned()).collect::<Vec<_>>().concat();
    String::from_utf8_lossy(&data).into_owned()
}

/// The ways in which a server may repeat a guess in an answer.
fn echoes(guess: &str) -> Vec<(&'static str, Says)> {
    let coded = data_encoding::BASE64.encode(guess.as_bytes());
    let wrapped = format!("{{\"content\":\"{}\\n{coded}", "A".repeat(60));
    let edge = format!("{}{guess}", " ".repeat(16 * 1024 - guess.len()));
    let trailing = Says { trailers: Some(("x-echo".into(), guess.into())), ..Says::pieces(&["zz ", guess]) };
    vec![
        ("at the end", Says::pieces(&[&format!("zz {guess}")])),
        ("at the edge of a piece", Says::pieces(&[&format!("zz {guess}"), " and more"])),
        ("at the edge of a frame", Says::pieces(&[&edge, " and more"])),
        ("in base64", Says::pieces(&[&format!("zz {coded}"), " x"])),
        ("in base64 on lines", Says::pieces(&[&wrapped, "\"}"])),
        ("an error", Says { status: 500, ..Says::pieces(&[&format!("bad key {guess}")]) }),
        ("a header", Says::pieces(&["x"]).header("x-echo", guess)),
        (
            "events",
            Says::pieces(&[&format!("data: {guess}\n\n"), &format!("data: {guess}")])
                .header("content-type", "text/event-stream"),
        ),
        ("trailers", trailing),
        ("compressed", Says::pieces(&[&format!("zz {guess}")]).header("content-encoding", "gzip")),
    ]
}

#[tokio::test]
async fn a_right_guess_looks_like_a_wrong_one_in_every_answer() {
    for alpn in [Alpn::Http1, Alpn::Http2] {
        let scene = scene(alpn, Inject::Placeholder).await;
        let bearer = scene.bearer();
        let headers = [("authorization", bearer.as_str())];
        for length in [5, 12, VALUE.len() - 1] {
            let (right, wrong) = (echoes(&VALUE[..length]), echoes(&OTHER[..length]));
            for ((way, right), (_, wrong)) in right.into_iter().zip(wrong) {
                let (one, first) = scene.ask(right, &headers).await;
                let (two, second) = scene.ask(wrong, &headers).await;
                assert_eq!(seen(&one, &first), seen(&two, &second), "{alpn:?}: {way}, {length} letters");
            }
        }
        // All of it never comes back.
        for (way, says) in echoes(VALUE) {
            let (head, frames) = scene.ask(says, &headers).await;
            let shown = format!("{:?} {frames:?} {}", head.headers(), text(&frames));
            assert!(!shown.contains(VALUE), "{alpn:?}: {way}: {shown}");
        }
        assert_eq!(scene.got.lock().unwrap()[0]["authorization"], format!("Bearer {VALUE}"));
    }
}

#[tokio::test]
async fn a_right_guess_looks_like_a_wrong_one_in_grpc() {
    let scene = scene(Alpn::Http2, Inject::Placeholder).await;
    let bearer = scene.bearer();
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/grpc"), ("te", "trailers")];
    let mut all = Vec::new();
    for guess in [&VALUE[..9], &OTHER[..9]] {
        let message = [&[0, 0, 0, 0, guess.len() as u8][..], guess.as_bytes()].concat();
        let mut says = Says::pieces(&[]).header("content-type", "application/grpc");
        says.pieces = vec![Bytes::from(message.clone()), Bytes::from(message)];
        says.trailers = Some(("grpc-message".into(), guess.into()));
        let (head, frames) = scene.ask(says, &headers).await;
        all.push(seen(&head, &frames));
    }
    assert_eq!(all[0], all[1]);
    // The end of a message is heard though the server says nothing more, and does not end.
    let (_tell, later) = tokio::sync::mpsc::channel(1);
    let message = [&[0, 0, 0, 0, 9][..], &VALUE.as_bytes()[..9]].concat();
    let mut says = Says::pieces(&[]).header("content-type", "application/grpc");
    says.pieces = vec![Bytes::from(message.clone())];
    says.later = Some(Arc::new(Mutex::new(later)));
    *scene.says.lock().unwrap() = says;
    let io = TokioIo::new(scene.dial().await);
    let (mut send, driven) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(driven);
    let mut open = send.send_request(scene.request(&headers)).await.unwrap().into_body();
    let mut shown = Vec::new();
    let all = async {
        while shown.len() < message.len() {
            shown.extend_from_slice(&open.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("all of the message");
    assert_eq!(shown, message);
}

/// A server that repeats a content type and a body repeats lengths of messages too, which end where the sandbox says.
#[tokio::test]
async fn no_length_of_a_message_that_is_repeated_cuts_a_value() {
    let scene = scene(Alpn::Http2, Inject::Placeholder).await;
    let bearer = scene.bearer();
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/grpc")];
    for left in 1..5 {
        let length = VALUE.len() - left;
        let mut says = Says::pieces(&[]).header("content-type", "application/grpc");
        let head = [0, 0, 0, 0, length as u8];
        let first = Bytes::from([&head[..], &VALUE.as_bytes()[..length]].concat());
        says.pieces = vec![first, Bytes::from_static(&VALUE.as_bytes()[length..])];
        let (_, frames) = scene.ask(says, &headers).await;
        let expected = [&head[..], scene.placeholder.as_bytes()].concat();
        assert_eq!(text(&frames), String::from_utf8_lossy(&expected), "{left}");
    }
}

#[tokio::test]
async fn a_right_guess_looks_like_a_wrong_one_on_a_web_socket() {
    let scene = scene(Alpn::Http1, Inject::Placeholder).await;
    for guess in [&VALUE[..7], &OTHER[..7]] {
        let frame = [&[0x81, guess.len() as u8][..], guess.as_bytes()].concat();
        // The answer to this key (RFC 6455, 1.3).
        let mut says = Says { status: 101, ..Says::default() }
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        says.pieces = vec![frame.clone().into()];
        *scene.says.lock().unwrap() = says;
        let mut open = scene.dial().await;
        let request = format!(
            "GET /x HTTP/1.1\r\nhost: {NAME}:{}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nauthorization: {}\r\n\r\n",
            scene.port,
            scene.bearer()
        );
        open.write_all(request.as_bytes()).await.unwrap();
        let mut shown = Vec::new();
        let all = async {
            while !shown.ends_with(&frame) {
                assert!(open.read_buf(&mut shown).await.unwrap() > 0, "{}", String::from_utf8_lossy(&shown));
            }
        };
        let came = tokio::time::timeout(Duration::from_secs(20), all).await;
        assert!(came.is_ok(), "of `{guess}` only {:?} came", String::from_utf8_lossy(&shown));
    }
}

#[tokio::test]
async fn a_value_that_is_renewed_does_not_pass_on_a_stream_that_is_open() {
    const RENEWED: &str = "ghp_N3wS3cretV4lueQ7zx9PmK2bT5aa";
    let scene = scene(Alpn::Http1, Inject::Placeholder).await;
    let bearer = scene.bearer();
    let (tell, later) = tokio::sync::mpsc::channel(4);
    *scene.says.lock().unwrap() =
        Says { later: Some(Arc::new(Mutex::new(later))), ..Says::pieces(&["open\n"]) };
    let (mut send, driven) =
        hyper::client::conn::http1::handshake(TokioIo::new(scene.dial().await)).await.unwrap();
    tokio::spawn(driven);
    let mut open = send.send_request(scene.request(&[("authorization", &bearer)])).await.unwrap().into_body();
    assert_eq!(open.frame().await.unwrap().unwrap().into_data().unwrap(), "open\n");
    // Meanwhile another request uses the new value.
    *scene.drawer.0.lock().unwrap() = RENEWED.into();
    let (_, frames) = scene.ask(Says::pieces(&[RENEWED, " ", VALUE]), &[("authorization", &bearer)]).await;
    assert_eq!(text(&frames), format!("{} {}", &scene.filled(RENEWED.len()), scene.placeholder));
    for (value, expected) in [(RENEWED, scene.filled(RENEWED.len())), (VALUE, scene.placeholder.clone())] {
        tell.send(Bytes::from(format!("{value}\n"))).await.unwrap();
        let shown = open.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(shown, format!("{expected}\n"));
    }
}

#[tokio::test]
async fn a_header_whose_name_has_the_value_in_it_does_not_come_back() {
    for alpn in [Alpn::Http1, Alpn::Http2] {
        let scene = scene(alpn, Inject::Placeholder).await;
        let bearer = scene.bearer();
        let name = format!("x-{}", VALUE.to_ascii_lowercase());
        let mut says = Says::pieces(&["fine"]).header("te", "trailers");
        says.headers = vec![(String::leak(name.clone()), "1".into()), ("x-other", "1".into())];
        says.trailers = Some((name, "1".into()));
        let (head, frames) = scene.ask(says, &[("authorization", &bearer)]).await;
        let shown = format!("{:?} {frames:?}", head.headers()).to_ascii_lowercase();
        assert!(!shown.contains(&VALUE.to_ascii_lowercase()), "{shown}");
        assert_eq!((text(&frames).as_str(), head.headers().contains_key("x-other")), ("fine", true));
    }
}

#[tokio::test]
async fn a_request_that_holds_no_placeholder_is_sent_without_the_value() {
    for (inject, expected) in [(Inject::Placeholder, None), (Inject::Always, Some(format!("Bearer {VALUE}")))]
    {
        let scene = scene(Alpn::Http2, inject).await;
        scene.ask(Says::pieces(&["fine"]), &[]).await;
        let got = scene.got.lock().unwrap()[0].get("authorization").cloned();
        assert_eq!(got.map(|value| value.to_str().unwrap().to_string()), expected);
    }
}

#[tokio::test]
async fn a_part_is_cut_out_of_what_was_searched() {
    for alpn in [Alpn::Http1, Alpn::Http2] {
        let scene = scene(alpn, Inject::Placeholder).await;
        let bearer = scene.bearer();
        let whole = format!("0123456789{VALUE}0123456789");
        for (name, from, to) in [
            ("range", 0, 9),
            ("range", 5, 20),
            ("range", 20, 50),
            ("range", 45, 60),
            ("request-range", 0, 20),
            ("x-ms-range", 20, 50),
        ] {
            let says = Says::pieces(&[&whole]).header("content-length", &whole.len().to_string());
            let range = format!("bytes={from}-{to}");
            let headers = [("authorization", bearer.as_str()), (":method", "GET"), (name, &range)];
            let (head, frames) = scene.ask(says, &headers).await;
            let masked = whole.replace(VALUE, &scene.placeholder);
            let end = (to + 1).min(whole.len());
            assert_eq!(head.status(), StatusCode::PARTIAL_CONTENT, "{alpn:?}: {range}");
            assert_eq!(text(&frames), masked[from..end], "{alpn:?}: {range}");
            assert_eq!(head.headers()["content-range"], format!("bytes {from}-{}/{}", end - 1, whole.len()));
        }
        let is_range_request =
            |headers: &HeaderMap| headers.keys().any(|name| name.as_str().contains("range"));
        assert!(!scene.got.lock().unwrap().iter().any(is_range_request));
    }
}

#[tokio::test]
async fn what_cannot_be_searched_is_refused_for_the_true_reason() {
    let scene = scene(Alpn::Http1, Inject::Placeholder).await;
    let bearer = scene.bearer();
    for (name, value, says) in [
        ("content-encoding", "gzip", "compressed"),
        ("content-type", "text/plain; charset=utf-16", "charset `utf-16`"),
    ] {
        let answer = Says::pieces(&["PACKED"]).header(name, value);
        let (head, frames) = scene.ask(answer, &[("authorization", &bearer)]).await;
        assert_eq!(head.status(), StatusCode::BAD_GATEWAY);
        let shown = text(&frames);
        assert!(
            shown.contains("encoded_response") && shown.contains(says) && !shown.contains("PACKED"),
            "{shown}"
        );
        assert_eq!(shown.contains("compressed"), says == "compressed", "{shown}");
    }
    // What the refusal repeats of a header is searched as well.
    for (name, value) in
        [("content-encoding", VALUE.to_string()), ("content-type", format!("text/plain; charset={VALUE}"))]
    {
        let answer = Says::pieces(&["PACKED"]).header(name, &value);
        let (head, frames) = scene.ask(answer, &[("authorization", &bearer)]).await;
        let shown = text(&frames).to_ascii_lowercase();
        assert!(head.status() == StatusCode::BAD_GATEWAY && shown.contains("encoded_response"), "{shown}");
        assert!(!shown.contains(&VALUE.to_ascii_lowercase()), "{shown}");
    }
    let answer = Says::pieces(&["fine"]).header("content-type", "text/plain; charset=Shift_JIS");
    assert_eq!(text(&scene.ask(answer, &[("authorization", &bearer)]).await.1), "fine");
}

/// The route to a model, where nothing else may leave.
#[tokio::test]
async fn a_right_guess_of_the_models_key_looks_like_a_wrong_one() {
    let (says, got) = (Arc::new(Mutex::new(Says::default())), Arc::new(Mutex::new(Vec::new())));
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://127.0.0.1:{}", upstream.local_addr().unwrap().port());
    let (script, received) = (Arc::clone(&says), Arc::clone(&got));
    tokio::spawn(async move {
        while let Ok((stream, _)) = upstream.accept().await {
            tokio::spawn(serve(stream, Alpn::Http1, Arc::clone(&script), Arc::clone(&received)));
        }
    });
    let mut terms = LlmRoute::to(url.parse().unwrap());
    terms.kind = UpstreamKind::OpenAi;
    terms.key = Some("secret:model".parse().unwrap());
    let drawer = Arc::new(Drawer(Mutex::new(VALUE.into())));
    let recorder = Arc::new(Recorder::new(None));
    let route = llm::Route::new(terms, SandboxId::from_random([3; 8]), drawer, recorder, None).unwrap();
    let (route, serving) =
        (Arc::new(route), serving(EgressPolicy::strict(), Credentials::none(), &authority(4)));
    let ask = async |answer: Says, streamed: bool| {
        *says.lock().unwrap() = answer;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (inside, _) = listener.accept().await.unwrap();
        let (alive, _over) = channel();
        tokio::spawn(Arc::clone(&route).serve(inside, Arc::clone(&serving), alive));
        let (mut send, driven) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
        tokio::spawn(driven);
        let body = format!(r#"{{"model":"m","input":"x","stream":{streamed}}}"#);
        let request = Request::post("/v1/responses")
            .header("host", "localhost")
            .header("content-type", "application/json");
        let response = send.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        let (head, mut body) = response.into_parts();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap());
        }
        (Response::from_parts(head, ()), frames)
    };
    for streamed in [true, false] {
        for length in [5, 12, VALUE.len() - 1] {
            let (right, wrong) = (echoes(&VALUE[..length]), echoes(&OTHER[..length]));
            for ((way, right), (_, wrong)) in right.into_iter().zip(wrong) {
                let (one, first) = ask(right, streamed).await;
                let (two, second) = ask(wrong, streamed).await;
                assert_eq!(seen(&one, &first), seen(&two, &second), "{way}, {length} letters");
            }
        }
    }
    for (way, answer) in echoes(VALUE) {
        let (head, frames) = ask(answer, true).await;
        assert!(!format!("{:?} {}", head.headers(), text(&frames)).contains(VALUE), "{way}");
    }
    assert_eq!(got.lock().unwrap()[0]["authorization"], format!("Bearer {VALUE}"));
}

//! The dashboard's run: its address, its connections, and which request is for what.

use crate::access::{Access, Closed};
use crate::actions;
use crate::decisions::Decisions;
use crate::pages;
use crate::peer::is_ours;
use belljar_api::client::Client;
use belljar_spec::{ErrorCode, SandboxError};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A dashboard that has its address.
pub struct Bound {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What every request can use.
pub(crate) struct Shared {
    pub(crate) access: Access,
    pub(crate) client: Client,
    pub(crate) decisions: Decisions,
}

/// The daemon's client.
pub type Starter = Client;

impl Bound {
    /// Takes an address: this one, or a loopback address that no other server has.
    pub async fn new(client: Starter, address: Option<SocketAddr>) -> Result<Bound, SandboxError> {
        let failed = |error: std::io::Error| {
            ErrorCode::Internal
                .error(format!("the dashboard has no address: {error}"))
                .hint("name another address to listen at")
                .caused_by(error)
        };
        let address = match address {
            Some(address) if !address.ip().is_loopback() => {
                let message =
                    format!("{address} can be reached from other machines, and nothing is encrypted");
                return Err(ErrorCode::RequestValue
                    .error(message)
                    .hint("listen at a loopback address, and reach it with `ssh -L`"));
            }
            Some(address) => address,
            None => SocketAddr::new(own_address()?, 0),
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let access = Access::new(listener.local_addr().map_err(failed)?).map_err(failed)?;
        let shared = Shared { access, client, decisions: Decisions::default() };
        Ok(Bound { listener, shared: Arc::new(shared) })
    }

    /// The link that lets one browser in, once.
    pub fn link(&self) -> Option<String> {
        self.shared.access.link()
    }

    /// Serves until it is dropped.
    pub async fn serve(self) {
        let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&open).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let is_ours = stream.local_addr().is_ok_and(|local| is_ours(peer, local));
                    let shared = Arc::clone(&self.shared);
                    tokio::spawn(async move {
                        let service = service_fn(move |request| {
                            let shared = Arc::clone(&shared);
                            async move { Ok::<_, Infallible>(answer(&shared, request, is_ours).await) }
                        });
                        let _ = http1::Builder::new()
                            .timer(TokioTimer::new())
                            .header_read_timeout(TO_ASK)
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                        drop(place);
                    });
                }
                // Too many open files, for the moment.
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await,
            }
        }
    }
}

/// Any of 127.64.0.0/10: all of them lead to this machine, and a cookie for one of them goes to no other.
fn own_address() -> Result<IpAddr, SandboxError> {
    let id = belljar_state::new_id()?.to_string();
    let number = u32::from_str_radix(id.get(..6).unwrap_or("1"), 16).unwrap_or(1);
    let first = Ipv4Addr::new(127, 64, 0, 2).to_bits();
    Ok(IpAddr::V4(Ipv4Addr::from(first + number % MAX_ADDRESSES)))
}

type Page = Response<Full<Bytes>>;

async fn answer(shared: &Shared, request: Request<Incoming>, is_ours: bool) -> Page {
    let answered = match is_ours {
        true => routed(shared, request).await,
        false => Err(Closed(
            StatusCode::FORBIDDEN,
            "this dashboard is another user's: open it in a browser of the user who started it",
        )),
    };
    let mut response = match answered {
        Ok(response) => response,
        Err(Closed(status, why)) => page(status, pages::error(status, why, None)),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

async fn routed(shared: &Shared, request: Request<Incoming>) -> Result<Page, Closed> {
    let (head, body) = request.into_parts();
    shared.access.judge_host(&head.headers)?;
    let path = head.uri.path().to_string();
    let asset = match path.as_str() {
        "/style.css" => Some(("text/css; charset=utf-8", STYLE)),
        "/script.js" => Some(("text/javascript; charset=utf-8", SCRIPT)),
        _ => None,
    };
    // They are in every copy of belljar.
    if let Some((kind, text)) = asset {
        let mut response = Response::new(Full::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        return Ok(response);
    }
    if path == "/enter" && head.method == Method::GET {
        return enter(shared, head.uri.query().unwrap_or_default());
    }
    shared.access.judge(&head.method, &head.headers)?;
    match head.method {
        Method::GET => pages::page(shared, &path).await,
        Method::POST => {
            let body = Limited::new(body, MAX_FORM_BYTES).collect().await;
            let form =
                body.map_err(|_| Closed(StatusCode::PAYLOAD_TOO_LARGE, "the form is too long"))?.to_bytes();
            Ok(actions::carry_out(shared, &path, &form).await)
        }
        _ => Err(Closed(StatusCode::METHOD_NOT_ALLOWED, "there is no such method here")),
    }
}

fn enter(shared: &Shared, query: &str) -> Result<Page, Closed> {
    let key = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "key");
    let cookie = key
        .and_then(|(_, key)| shared.access.enter(&key))
        .and_then(|cookie| HeaderValue::from_str(&cookie).ok());
    let Some(cookie) = cookie else {
        return Err(Closed(
            StatusCode::UNAUTHORIZED,
            "this link was used already, or is not ours: start the dashboard again for a new one",
        ));
    };
    // A page of ours leads on: a cookie that is strict does not come along where another page led here.
    let mut response = page(StatusCode::OK, pages::entered());
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

pub(crate) fn page(status: StatusCode, html: String) -> Page {
    let mut response = Response::new(Full::from(html));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// On to a page of ours.
pub(crate) fn on_to(path: &str) -> Page {
    let mut response = page(StatusCode::SEE_OTHER, String::new());
    let is_ours = path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let path = if is_ours { path } else { "/" };
    response
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/")));
    response
}

const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    // Without one, browsers say of the forms of these pages that they come from nowhere.
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];
const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/script.js");
const MAX_CONNECTIONS: usize = 64;
const MAX_FORM_BYTES: usize = 64 * 1024;
/// Addresses of 127.64.0.0/10, but for the last ones.
const MAX_ADDRESSES: u32 = 0x003f_ff00;
const TO_ASK: Duration = Duration::from_secs(30);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

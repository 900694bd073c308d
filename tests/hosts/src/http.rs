//! HTTP/1.1, as much of it as tests need.

use crate::{Leaf, Server, TlsServer};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sends the body in chunks of this size, with no length told before.
    pub chunks: Option<usize>,
}

impl Response {
    /// 200 with this body.
    pub fn ok(body: impl Into<Vec<u8>>) -> Response {
        Response { status: 200, headers: Vec::new(), body: body.into(), chunks: None }
    }

    /// A status without a body.
    pub fn status(status: u16) -> Response {
        Response { status, ..Response::ok("") }
    }

    /// A redirect.
    pub fn redirect(status: u16, to: &str) -> Response {
        Response::status(status).with("location", to)
    }

    /// One header more.
    pub fn with(mut self, name: &str, value: &str) -> Response {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A web server; keeps every request.
pub struct HttpServer {
    server: Kind,
    requests: Arc<Mutex<Vec<Request>>>,
}

enum Kind {
    Plain(Server),
    Tls(TlsServer),
}

impl HttpServer {
    /// At a free port of this address, in the clear.
    pub fn start(
        at: impl Into<IpAddr>,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> HttpServer {
        let (requests, handler) = kept(handler);
        let server = Server::start(at, move |mut stream| {
            let _ = stream.set_nodelay(true);
            serve(&mut stream, &handler);
            let _ = stream.shutdown(Shutdown::Write);
        });
        HttpServer { server: Kind::Plain(server), requests }
    }

    /// The same over TLS.
    pub fn start_tls(
        at: impl Into<IpAddr>,
        leaf: &Leaf,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> HttpServer {
        HttpServer::at_tls(SocketAddr::new(at.into(), 0), leaf, handler)
    }

    /// The same at this very address.
    pub fn at_tls(
        at: SocketAddr,
        leaf: &Leaf,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> HttpServer {
        let (requests, handler) = kept(handler);
        let server = TlsServer::at(at, leaf, move |stream| serve(stream, &handler));
        HttpServer { server: Kind::Tls(server), requests }
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.base().address()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.base().port()
    }

    /// How many connections it got.
    pub fn accepted(&self) -> usize {
        self.base().accepted()
    }

    fn base(&self) -> &Server {
        match &self.server {
            Kind::Plain(server) => server,
            Kind::Tls(server) => server,
        }
    }
}

type RequestLog = Arc<Mutex<Vec<Request>>>;

fn kept(
    handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> (RequestLog, impl Fn(&Request) -> Response + Send + Sync + 'static) {
    let requests = RequestLog::default();
    let log = Arc::clone(&requests);
    let handler = move |request: &Request| {
        log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        handler(request)
    };
    (requests, handler)
}

/// Answers the requests of one connection until its client has no more.
pub fn serve(stream: &mut (impl Read + Write), handler: &impl Fn(&Request) -> Response) {
    let mut stream = BufReader::new(Both(stream));
    while let Ok(Some(request)) = read(&mut stream) {
        let response = handler(&request);
        let is_last = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if write(&mut stream.get_mut().0, &request, &response).is_err() || is_last {
            return;
        }
    }
}

/// A borrowed stream, to read from through a buffer and to write to directly.
pub(crate) struct Both<'a, S>(pub(crate) &'a mut S);

impl<S: Read> Read for Both<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

pub(crate) fn read<S: Read + Write>(stream: &mut BufReader<Both<'_, S>>) -> io::Result<Option<Request>> {
    let first = line(stream)?;
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let mut request =
        Request { method: method.into(), target: target.into(), headers: Vec::new(), body: Vec::new() };
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
    }
    if request.header("expect").is_some() {
        stream.get_mut().0.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        stream.get_mut().0.flush()?;
    }
    if request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let size = usize::from_str_radix(&line(stream)?, 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size];
            stream.read_exact(&mut chunk)?;
            line(stream)?;
            if size == 0 {
                break;
            }
            request.body.extend(chunk);
        }
    } else if let Some(length) = request.header("content-length") {
        request.body = vec![0; length.parse().map_err(io::Error::other)?];
        stream.read_exact(&mut request.body)?;
    }
    Ok(Some(request))
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    Ok(line.trim_end().to_string())
}

pub(crate) fn write(stream: &mut impl Write, request: &Request, response: &Response) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Whatever\r\n", response.status);
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match response.chunks {
        Some(_) => head.push_str("transfer-encoding: chunked\r\n\r\n"),
        None => head.push_str(&format!("content-length: {}\r\n\r\n", response.body.len())),
    }
    stream.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        match response.chunks {
            Some(size) => {
                for chunk in response.body.chunks(size) {
                    stream
                        .write_all(&[format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())?;
                }
                stream.write_all(b"0\r\n\r\n")?;
            }
            None => stream.write_all(&response.body)?,
        }
    }
    stream.flush()
}

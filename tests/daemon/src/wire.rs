//! HTTP/1.1 as it stands on the wire: one connection, one request after the other.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Where a daemon listens.
#[derive(Debug, Clone)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connection to one.
pub struct Connection {
    stream: BufReader<Box<dyn ReadWrite>>,
}

/// What was answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The body of an answer, as it comes.
pub struct Body {
    connection: Connection,
    left: Left,
}

/// Both ways.
pub trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

enum Left {
    Bytes(u64),
    /// Of this chunk, and then the next one.
    Chunk(u64),
    UntilClosed,
    Nothing,
}

impl Connection {
    pub fn open(address: &Address) -> io::Result<Connection> {
        let stream: Box<dyn ReadWrite> = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
                stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
                Box::new(stream)
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
                stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Asks, and reads the whole answer. The connection can be used again if the server agrees.
    pub fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.send(method, target, headers, body)?;
        let (status, headers) = self.head()?;
        let mut left = left(method, status, &headers);
        let mut body = Vec::new();
        read_all(&mut self.stream, &mut left, &mut body)?;
        Ok(Answer { status, headers, body })
    }

    /// Asks, and reads only how the answer begins.
    pub fn begin(
        mut self,
        method: &str,
        target: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> io::Result<(Answer, Body)> {
        self.send(method, target, headers, body)?;
        let (status, headers) = self.head()?;
        let left = left(method, status, &headers);
        Ok((Answer { status, headers, body: Vec::new() }, Body { connection: self, left }))
    }

    fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name == "host") {
            head.push_str("host: localhost\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        loop {
            let first = self.line()?;
            let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
            let status: u16 = status.ok_or_else(|| bad(format!("no status line: {first:?}")))?;
            let mut headers = Vec::new();
            loop {
                let line = self.line()?;
                let Some((name, value)) = line.split_once(':') else { break };
                headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
            }
            // 100 Continue and its like; 101 is an answer.
            if status >= 200 || status == 101 {
                return Ok((status, headers));
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        read_line(&mut self.stream)
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body, which is JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The stable code of a refusal; nothing where it is none.
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_string()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, if it went well.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// That it was refused in this way.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.text());
    }
}

impl Body {
    /// The bytes below: what is left of HTTP after an upgrade.
    pub fn raw(&mut self) -> &mut dyn ReadWrite {
        self.connection.stream.get_mut()
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_some(&mut self.connection.stream, &mut self.left, into)
    }
}

fn left(method: &str, status: u16, headers: &[(String, String)]) -> Left {
    let header =
        |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    if method == "HEAD" || status == 204 || status == 304 {
        return Left::Nothing;
    }
    if status == 101 {
        return Left::UntilClosed;
    }
    if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return Left::Chunk(0);
    }
    match header("content-length").and_then(|value| value.parse().ok()) {
        Some(length) => Left::Bytes(length),
        None => Left::UntilClosed,
    }
}

fn read_all(stream: &mut dyn BufRead, left: &mut Left, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        match read_some(stream, left, &mut buffer)? {
            0 => return Ok(()),
            count => into.extend_from_slice(&buffer[..count]),
        }
    }
}

fn read_some(stream: &mut dyn BufRead, left: &mut Left, into: &mut [u8]) -> io::Result<usize> {
    if let Left::Chunk(0) = left {
        let line = read_line(stream)?;
        let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
        let size = size.map_err(|_| bad(format!("no chunk size: {line:?}")))?;
        if size == 0 {
            while !read_line(stream)?.is_empty() {}
            *left = Left::Nothing;
        } else {
            *left = Left::Chunk(size);
        }
    }
    let most = match left {
        Left::Nothing | Left::Bytes(0) => return Ok(0),
        Left::Bytes(most) | Left::Chunk(most) => (*most).min(into.len() as u64) as usize,
        Left::UntilClosed => into.len(),
    };
    let count = stream.read(&mut into[..most])?;
    match left {
        Left::UntilClosed | Left::Nothing => return Ok(count),
        Left::Bytes(most) => *most -= count as u64,
        Left::Chunk(most) => {
            *most -= count as u64;
            if *most == 0 && count > 0 {
                read_line(stream)?;
            }
        }
    }
    match count {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

fn read_line(stream: &mut dyn BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.pop_if(|last| *last == b'\r');
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn bad(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// What takes longer hangs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

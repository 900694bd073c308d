//! A git host on loopback: git's own `http-backend` behind a small HTTP server that requires a password.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A git host.
pub struct GitHost {
    pub address: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

/// One request.
pub struct Seen {
    pub authorization: Option<String>,
    /// The arguments of all processes of the machine at that moment.
    pub words: Vec<u8>,
}

/// How it behaves.
#[derive(Clone)]
pub enum Manner {
    /// Serves a folder to clients that send this `Authorization`.
    Serve { root: PathBuf, authorization: String },
    /// Redirects every request.
    Redirect { to: String },
    /// Always asks for a password, and echoes the one it gets.
    Echo,
}

impl GitHost {
    pub fn start(manner: Manner) -> GitHost {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, record) = (manner.clone(), Arc::clone(&record));
                std::thread::spawn(move || answer(stream.unwrap(), &manner, &record));
            }
        });
        GitHost { address, seen }
    }

    /// The `Authorization` headers of all requests.
    pub fn authorizations(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter_map(|seen| seen.authorization.clone()).collect()
    }
}

fn answer(stream: TcpStream, manner: &Manner, record: &Mutex<Vec<Seen>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    if reader.read_line(&mut first).unwrap_or_default() == 0 {
        return;
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_string())),
            None => break,
        }
    }
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let authorization = header("authorization");
    record.lock().unwrap().push(Seen { authorization: authorization.clone(), words: all_words() });
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap().to_string(), words.next().unwrap().to_string());
    let mut stream = stream;
    match manner {
        Manner::Redirect { to } => {
            let _ = write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {to}{target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
        Manner::Echo => {
            let given = authorization.unwrap_or_default();
            let body = format!("no: {given}\n");
            let status = if given.is_empty() { "401 Unauthorized" } else { "403 Forbidden" };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
        Manner::Serve { root, authorization: required } => {
            if authorization.as_ref() != Some(required) {
                let _ = write!(
                    stream,
                    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                return;
            }
            let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let output = backend(root, &method, &target, &headers, &body);
            let text = String::from_utf8_lossy(&output).into_owned();
            let status =
                text.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_string();
            let _ = write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n");
            let _ = stream.write_all(&output);
        }
    }
}

fn backend(root: &Path, method: &str, target: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "somebody")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = body.to_vec();
    std::thread::spawn(move || stdin.write_all(&body));
    child.wait_with_output().unwrap().stdout
}

fn all_words() -> Vec<u8> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).flatten().collect()
}

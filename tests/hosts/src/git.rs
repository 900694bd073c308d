//! A real `git http-backend` (git-http-backend(1)) behind a web server.

use crate::{Request, Response};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What git answers to a request about the repositories in this folder.
pub fn http_backend(root: &Path, request: &Request) -> Response {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let header = |name: &str| request.header(name).unwrap_or_default().to_string();
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "http-backend"])
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", &request.method)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        // Without a user name, git refuses every push.
        .env("REMOTE_USER", "somebody")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is git");
    let mut input = child.stdin.take().expect("it was asked for");
    let body = request.body.clone();
    let writer = std::thread::spawn(move || {
        let _ = input.write_all(&body);
    });
    let output = child.wait_with_output().expect("git ends");
    let _ = writer.join();
    answer(&output.stdout)
}

/// What a CGI program said (RFC 3875, 6).
fn answer(body: &[u8]) -> Response {
    let end = body.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(body.len());
    let head = String::from_utf8_lossy(&body[..end]).into_owned();
    let mut response = Response::ok(body.get(end + 4..).unwrap_or_default());
    for (name, value) in head.lines().filter_map(|line| line.split_once(':')) {
        match name.eq_ignore_ascii_case("status") {
            true => {
                response.status =
                    value.trim().split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(500)
            }
            false => response.headers.push((name.to_ascii_lowercase(), value.trim().to_string())),
        }
    }
    response
}

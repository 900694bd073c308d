//! `belljar ask`, inside a sandbox: a wish for a host name, told to the gateway by the name that only sandboxes know. Holds no right of its own:
//! any program inside can say the same with `curl`.

use super::print_json;
use crate::args::AskArgs;
use belljar_spec::egress::ASKING;
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(super) fn ask(options: &AskArgs) -> Result<u8, SandboxError> {
    let host = options.host.trim();
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)) {
        let message = format!("`{}` is not a host", host.escape_debug());
        return Err(ErrorCode::RequestValue
            .error(message)
            .hint("write it as in `belljar ask api.example.com:8443`"));
    }
    let (status, answer) = send(host, options.why.as_deref().unwrap_or_default()).map_err(|error| {
        ErrorCode::ConnectionFailed
            .error(format!("nothing here takes the question: {error}"))
            .hint("`belljar ask` is for programs in a sandbox with egress; outside, `belljar allow HOST` allows one")
            .caused_by(error)
    })?;
    let word = answer["answer"].as_str().unwrap_or_default();
    if options.json {
        print_json(&answer)?;
    } else {
        eprintln!("belljar: {host}: {}", answer["message"].as_str().unwrap_or("no answer"));
    }
    match (status, word) {
        (200, _) => Ok(0),
        (_, "denied" | "unanswered") => Ok(1),
        _ => Ok(belljar_spec::exit_code::REFUSED),
    }
}

/// One request: what comes back is a JSON object.
fn send(host: &str, why: &str) -> io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect((ASKING, 80))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let length = why.len();
    write!(
        stream,
        "POST /{host} HTTP/1.1\r\nHost: {ASKING}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}"
    )?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
    let unclear = || io::Error::from(io::ErrorKind::InvalidData);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(unclear)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(unclear)?;
    Ok((status, serde_json::from_str(body)?))
}

/// Longer than the gateway waits for a person.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

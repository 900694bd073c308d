//! For tests: a server whose answers come a byte at a time, and are whole in the end.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Serves what `answer` says of a request's head and the server's address: a status, headers, and a text, which comes behind
/// [`DRIPS`] blanks. Where there is no text nothing drips.
pub(crate) fn serve(
    answer: impl Fn(&str, &str) -> (&'static str, String, &'static str) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let own = address.clone();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let (status, headers, text) = answer(&head(&stream), &own);
            spawn(move || drip(stream, status, &headers, text));
        }
    });
    address
}

/// All that comes of a text.
pub(crate) fn dripped(text: &str) -> String {
    " ".repeat(DRIPS) + text
}

fn head(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn drip(mut stream: TcpStream, status: &str, headers: &str, text: &str) {
    let drips = if text.is_empty() { 0 } else { DRIPS };
    let length = drips + text.len();
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    let mut send = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    let is_open = send(head.as_bytes())
        && (0..drips).all(|_| {
            sleep(Duration::from_millis(10));
            send(b" ")
        });
    if is_open {
        send(text.as_bytes());
    }
}

/// Bytes, of which each takes a hundredth of a second. Blanks mean nothing in JSON.
const DRIPS: usize = 500;

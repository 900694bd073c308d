//! The server at the end of every way: gives as many bytes as its path says, and takes as many as it is sent.

use belljar_tests_hosts::{Leaf, TlsServer};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;

pub(crate) fn start(leaf: &Leaf) -> TlsServer {
    TlsServer::start(Ipv4Addr::LOCALHOST, leaf, |stream| {
        let mut stream = BufReader::with_capacity(PIECE, stream);
        while answer(&mut stream).is_some() {}
    })
}

fn answer<S: Read + Write>(stream: &mut BufReader<S>) -> Option<()> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let (mut length, mut chunked) = (0_u64, false);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok().filter(|length| *length > 0)?;
        let header = header.trim().to_ascii_lowercase();
        match header.split_once(':') {
            None => break,
            Some(("content-length", value)) => length = value.trim().parse().ok()?,
            Some(("transfer-encoding", _)) => chunked = true,
            Some(_) => {}
        }
    }
    if chunked {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).ok()?;
            let size = u64::from_str_radix(size.trim(), 16).ok()?;
            std::io::copy(&mut stream.take(size + 2), &mut std::io::sink()).ok()?;
            if size == 0 {
                break;
            }
        }
    } else {
        std::io::copy(&mut stream.take(length), &mut std::io::sink()).ok()?;
    }
    let bytes: u64 = line.split(' ').nth(1)?.trim_start_matches('/').parse().unwrap_or(0);
    let stream = stream.get_mut();
    stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").as_bytes()).ok()?;
    let zeros = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(PIECE as u64);
        stream.write_all(&zeros[..piece as usize]).ok()?;
        left -= piece;
    }
    stream.flush().ok()
}

const PIECE: usize = 64 * 1024;

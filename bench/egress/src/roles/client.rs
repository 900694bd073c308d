//! Measures connections without cryptography: one at a time, many at a time, and one that is long.

use super::{AT_A_TIME, seconds, usage};
use crate::Outcome;
use crate::request::{Wish, request};
use crate::table::quantile;
use crate::target::Dialler;
use belljar_sys::rustix::buffer::spare_capacity;
use belljar_sys::rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use belljar_sys::rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// `latency COUNT`, `rate SECONDS`, `copied BYTES` or `lent BYTES`, then the name and the target.
pub(crate) fn run(words: &[&str]) -> Outcome<()> {
    let &[measure, amount, name, target] = words else { return usage("client") };
    let dialler = Dialler::new(target.parse()?)?;
    match measure {
        "latency" => latency(&dialler, name, amount.parse()?),
        "rate" => rate(&dialler, name, seconds(amount)?),
        "copied" => bulk(&dialler, name, Wish::Copied(amount.parse()?), amount.parse()?),
        "lent" => bulk(&dialler, name, Wish::Lent(amount.parse()?), amount.parse()?),
        _ => usage("client"),
    }
}

/// p50 and p99 of a new connection, in microseconds: dialled, asked, answered.
fn latency(dialler: &Dialler, name: &str, count: usize) -> Outcome<()> {
    let request = request(name, Wish::Byte)?;
    let mut times = Vec::with_capacity(count);
    for round in 0..count + WARM_UP {
        let start = Instant::now();
        let mut stream = dialler.connect()?;
        stream.write_all(&request)?;
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        if round >= WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        until_closed(&mut stream)?;
    }
    let at = |share| quantile(&times, share).unwrap_or(f64::NAN);
    println!("{} {}", at(0.5), at(0.99));
    Ok(())
}

/// Who closes first keeps the connection's port busy for a minute, and a client has fewer ports than it needs here:
/// the server is let close first.
fn until_closed(stream: &mut TcpStream) -> Outcome<()> {
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err("the server said more than it was asked".into()),
        Err(error) => Err(error.into()),
    }
}

/// Connections per second, 32 at a time, and how many of them failed.
fn rate(dialler: &Dialler, name: &str, time: Duration) -> Outcome<()> {
    let request = request(name, Wish::Byte)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut open: Vec<Option<TcpStream>> = Vec::new();
    let start = Instant::now();
    for seat in 0..AT_A_TIME {
        open.push(Some(begin(dialler, &request, &epoll, seat)?));
    }
    let (mut done, mut failed) = (0_u64, 0_u64);
    let mut events = Vec::with_capacity(AT_A_TIME);
    while start.elapsed() < time {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let seat = { event.data }.u64() as usize;
            let Some(mut stream) = open[seat].take() else { continue };
            let mut byte = [0; 16];
            match stream.read(&mut byte) {
                Ok(1) => done += 1,
                _ => failed += 1,
            }
            drop(stream);
            open[seat] = Some(begin(dialler, &request, &epoll, seat)?);
        }
    }
    println!("{} {failed}", done as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

/// Dials and asks. The next that is to know is that the server has closed: what it said is there by then.
fn begin(dialler: &Dialler, request: &[u8], epoll: &OwnedFd, seat: usize) -> Outcome<TcpStream> {
    let mut stream = dialler.connect()?;
    stream.write_all(request)?;
    epoll::add(epoll, &stream, EventData::new_u64(seat as u64), EventFlags::RDHUP)?;
    Ok(stream)
}

/// Megabytes per second of one stream.
fn bulk(dialler: &Dialler, name: &str, wish: Wish, bytes: u64) -> Outcome<()> {
    let request = request(name, wish)?;
    let mut stream = dialler.connect()?;
    let start = Instant::now();
    stream.write_all(&request)?;
    let mut buffer = vec![0; 256 * 1024];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            length => received += length as u64,
        }
    }
    let time = start.elapsed();
    if received != bytes {
        return Err(format!("{received} bytes came instead of {bytes}").into());
    }
    println!("{}", received as f64 / 1e6 / time.as_secs_f64());
    Ok(())
}

const WARM_UP: usize = 50;

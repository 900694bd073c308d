//! Sends an answer, in whatever way it is to arrive.

use super::lock;
use super::reply::Event;
use super::step::Delivery;
use crate::http::write;
use crate::{Request, Response};
use std::io::{self, Read, Write};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What is to be sent, and how.
pub(super) struct Answer {
    pub(super) body: Body,
    pub(super) delivery: Delivery,
    /// So long nothing happens.
    pub(super) delay: Duration,
}

pub(super) enum Body {
    Whole(Response),
    Stream {
        headers: Vec<(String, String)>,
        events: Vec<Event>,
    },
    /// Nothing that anybody understands, said to be what was asked for.
    Garbage {
        streams: bool,
    },
}

/// What follows an answer.
pub(super) enum After {
    /// Perhaps another request.
    Next,
    /// The connection is over.
    Over,
}

impl Answer {
    pub(super) fn plain(body: Body) -> Answer {
        Answer { body, delivery: Delivery::Plain, delay: Duration::ZERO }
    }

    pub(super) fn status(&self) -> u16 {
        match &self.body {
            Body::Whole(response) => response.status,
            Body::Stream { .. } | Body::Garbage { .. } => 200,
        }
    }
}

/// Holds events back until a test lets them go.
#[derive(Default)]
pub(super) struct Gate {
    /// How many may pass; nothing is all.
    open_for: Mutex<Option<usize>>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn hold(&self) {
        *lock(&self.open_for) = Some(0);
    }

    pub(super) fn release(&self, events: usize) {
        if let Some(left) = &mut *lock(&self.open_for) {
            *left += events;
        }
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut open_for = lock(&self.open_for);
        loop {
            match &mut *open_for {
                None => return,
                Some(0) => open_for = self.opened.wait(open_for).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    *left -= 1;
                    return;
                }
            }
        }
    }
}

pub(super) fn deliver(
    out: &mut (impl Read + Write),
    request: &Request,
    answer: Answer,
    gate: &Gate,
) -> io::Result<After> {
    thread::sleep(answer.delay);
    match answer.body {
        Body::Garbage { streams } => {
            let kind = if streams { "text/event-stream; charset=utf-8" } else { "application/json" };
            let headers = vec![("content-type".to_string(), kind.to_string())];
            write(out, request, &Response { headers, ..Response::ok(GARBAGE.repeat(100)) })?;
        }
        Body::Whole(_) if answer.delivery == Delivery::Hang => return hang(out),
        Body::Whole(response) => write(out, request, &response)?,
        Body::Stream { headers, events } => return stream(out, &headers, &events, answer.delivery, gate),
    }
    Ok(After::Next)
}

fn stream(
    out: &mut (impl Read + Write),
    headers: &[(String, String)],
    events: &[Event],
    delivery: Delivery,
    gate: &Gate,
) -> io::Result<After> {
    let mut head = String::from("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n");
    head.push_str("cache-control: no-cache\r\ntransfer-encoding: chunked\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    out.write_all(format!("{head}\r\n").as_bytes())?;
    out.flush()?;
    let (sent, pause) = match delivery {
        Delivery::Hang => return hang(out),
        Delivery::Cut => (&events[..(events.len() / 2).max(1)], None),
        Delivery::Drip(pause) => (events, Some(pause)),
        Delivery::Plain | Delivery::Garbage => (events, None),
    };
    for event in sent {
        gate.pass();
        let text = event.text();
        match pause {
            None => chunk(out, text.as_bytes())?,
            Some(pause) => text.as_bytes().iter().try_for_each(|byte| {
                thread::sleep(pause);
                chunk(out, &[*byte])
            })?,
        }
    }
    if delivery == Delivery::Cut {
        return Ok(After::Over);
    }
    out.write_all(b"0\r\n\r\n")?;
    out.flush()?;
    Ok(After::Next)
}

fn chunk(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())?;
    out.flush()
}

/// Until the other side gives up, or the server is dropped.
fn hang(connection: &mut impl Read) -> io::Result<After> {
    while connection.read(&mut [0; 64])? > 0 {}
    Ok(After::Over)
}

/// No JSON, no event, no text.
const GARBAGE: &[u8] = b"\x00\xff\xfe{]\x1b[2J<!doctype\xc3\x28\n\xf0\x9f";

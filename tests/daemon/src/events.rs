//! Server-sent events, as the HTML standard has them.

use crate::Body;
use serde_json::Value;
use std::io::{BufRead, BufReader};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: String,
}

/// They, until the server has no more, or is gone.
pub struct Events {
    lines: BufReader<Body>,
}

impl Events {
    pub fn new(body: Body) -> Events {
        Events { lines: BufReader::new(body) }
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut event = Event { id: None, name: None, data: String::new() };
        let mut has_data = false;
        loop {
            let mut line = Vec::new();
            self.lines.read_until(b'\n', &mut line).ok().filter(|count| *count > 0)?;
            // An event that breaks off is none.
            line.pop_if(|last| *last == b'\n')?;
            line.pop_if(|last| *last == b'\r');
            let line = String::from_utf8(line).ok()?;
            if line.is_empty() {
                if has_data {
                    return Some(event);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => event.id = Some(value.into()),
                "event" => event.name = Some(value.into()),
                "data" => {
                    if has_data {
                        event.data.push('\n');
                    }
                    has_data = true;
                    event.data.push_str(value);
                }
                // Comments and unknown fields.
                _ => {}
            }
        }
    }
}

impl Event {
    /// The data, which is JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What a command wrote, if that is what it is about.
    pub fn output(&self) -> Option<String> {
        let data = self.json();
        (data["type"] == "output").then(|| data["text"].as_str().unwrap_or_default().to_string())
    }
}

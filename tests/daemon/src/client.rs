//! Requests, one connection each.

use crate::Events;
use crate::wire::{Address, Answer, Body, Connection};
use serde_json::Value;
use std::io;

/// A client of a daemon.
#[derive(Debug, Clone)]
pub struct Client {
    address: Address,
    headers: Vec<(String, String)>,
}

/// A request to be.
pub struct Ask<'c> {
    client: &'c Client,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Client {
    pub fn new(address: Address) -> Client {
        Client { address, headers: Vec::new() }
    }

    /// The same, with a header in every request.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same, with a token.
    #[must_use]
    pub fn token(self, token: &str) -> Client {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What is in every request.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    pub fn ask(&self, method: &str, target: &str) -> Ask<'_> {
        Ask {
            client: self,
            method: method.into(),
            target: target.into(),
            headers: self.headers.clone(),
            body: Vec::new(),
        }
    }

    pub fn get(&self, target: &str) -> Answer {
        self.ask("GET", target).send()
    }

    pub fn delete(&self, target: &str) -> Answer {
        self.ask("DELETE", target).send()
    }

    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.ask("POST", target).json(body).send()
    }

    /// A stream of events.
    pub fn events(&self, target: &str) -> io::Result<Events> {
        let (answer, body) = self.ask("GET", target).with("accept", "text/event-stream").begin()?;
        match answer.status {
            200 => Ok(Events::new(body)),
            other => Err(io::Error::other(format!("{target}: {other}"))),
        }
    }
}

impl Ask<'_> {
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        let text = body.to_string();
        self.with("content-type", "application/json").bytes(text.as_bytes())
    }

    #[must_use]
    pub fn bytes(mut self, body: &[u8]) -> Self {
        self.body = body.into();
        self
    }

    /// The answer, if there is one.
    pub fn try_send(&self) -> io::Result<Answer> {
        let mut connection = Connection::open(&self.client.address)?;
        connection.ask(&self.method, &self.target, &self.headers, &self.body)
    }

    #[track_caller]
    pub fn send(self) -> Answer {
        self.try_send().unwrap_or_else(|error| panic!("{} {}: {error}", self.method, self.target))
    }

    /// How the answer begins, and the rest as it comes.
    pub fn begin(self) -> io::Result<(Answer, Body)> {
        let connection = Connection::open(&self.client.address)?;
        connection.begin(&self.method, &self.target, &self.headers, &self.body)
    }
}

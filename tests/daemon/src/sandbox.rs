//! A sandbox behind the API, and commands in it.

use crate::{Client, Event, Events};
use serde_json::{Value, json};
use std::io;

/// One that was made or found.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub client: Client,
    /// The whole answer.
    pub created: Value,
    pub name: String,
    pub lease: String,
}

/// A command in it.
#[derive(Debug, Clone)]
pub struct Command {
    client: Client,
    path: String,
    pub id: String,
}

impl Sandbox {
    /// Asks for one.
    #[track_caller]
    pub fn create(client: &Client, request: &Value) -> Sandbox {
        let created = client.post("/v1/sandboxes", request).ok();
        Sandbox::of(client, created)
    }

    /// From the answer to such a request.
    pub fn of(client: &Client, created: Value) -> Sandbox {
        let word = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{created:#}")).to_string();
        let (name, lease) = (word(&created["sandbox"]["name"]), word(&created["lease"]["id"]));
        Sandbox { client: client.clone(), created, name, lease }
    }

    /// The name of this life, in the names of its cgroups.
    pub fn id(&self) -> String {
        self.created["sandbox"]["id"].as_str().unwrap_or_default().to_string()
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.name)
    }

    #[track_caller]
    pub fn info(&self) -> Value {
        self.client.get(&self.path("")).ok()
    }

    /// What its leases are called, in order.
    #[track_caller]
    pub fn leases(&self) -> Vec<String> {
        let info = self.info();
        let leases = info["leases"].as_array().unwrap_or_else(|| panic!("{info:#}"));
        let mut ids: Vec<String> =
            leases.iter().map(|lease| lease["id"].as_str().unwrap_or_default().to_string()).collect();
        ids.sort();
        ids
    }

    /// Runs a line of shell to its end: what it wrote to standard output, and its exit code.
    #[track_caller]
    pub fn run(&self, script: &str) -> (String, i64) {
        let done = self.client.post(&self.path("/commands"), &json!({ "shell": script })).ok();
        let result = &done["result"];
        let text = result["stdout"].as_str().unwrap_or_default().to_string();
        (text, result["exit_code"].as_i64().unwrap_or_else(|| panic!("{done:#}")))
    }

    /// Starts a line of shell in the background.
    #[track_caller]
    pub fn start(&self, script: &str) -> Command {
        let body = json!({ "shell": script, "background": true });
        let started = self.client.post(&self.path("/commands"), &body).ok();
        let id = started["id"].as_str().unwrap_or_else(|| panic!("{started:#}")).to_string();
        Command { client: self.client.clone(), path: self.path(&format!("/commands/{id}")), id }
    }

    #[track_caller]
    pub fn delete(&self) {
        self.client.delete(&self.path("")).ok();
    }
}

impl Command {
    #[track_caller]
    pub fn info(&self) -> Value {
        self.client.get(&self.path).ok()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&self) -> Value {
        self.client.post(&format!("{}/wait?timeout_s=60", self.path), &Value::Null).ok()
    }

    /// Its output and end, from a cursor, as it comes.
    pub fn follow(&self, from: &str) -> io::Result<Events> {
        self.client.events(&format!("{}/output?follow=true&from={from}", self.path))
    }

    /// The same, where the last event of another stream is named in a header.
    pub fn follow_after(&self, last: &str) -> io::Result<Events> {
        self.client.clone().with("last-event-id", last).events(&format!("{}/output?follow=true", self.path))
    }

    /// All of its output.
    pub fn output(&self) -> String {
        let events = self.client.events(&format!("{}/output?from=0&follow=false", self.path)).unwrap();
        events.filter_map(|event: Event| event.output()).collect()
    }
}

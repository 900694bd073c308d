//! Which logs there are.

use super::Stop;
use super::sentence::{moment, printable};
use belljar_audit::{AuditError, Event, LogFile, Reader};
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

pub(super) fn list(out: &mut impl Write, all: bool, json: bool) -> Result<u8, Stop> {
    let directory = belljar_audit::directory()?;
    let logs = belljar_audit::list(&directory)?;
    let shown = if all { logs.len() } else { NEWEST.min(logs.len()) };
    // One that cannot be read does not hide the others.
    let rows: Vec<Row> = logs[..shown]
        .iter()
        .map(|log| Row::read(log).unwrap_or_else(|error| Row::damaged(log, &error)))
        .collect();
    if json {
        serde_json::to_writer_pretty(&mut *out, &rows)?;
        writeln!(out)?;
        return Ok(0);
    }
    if rows.is_empty() {
        eprintln!("belljar: there are no audit logs in {}", directory.display());
        return Ok(0);
    }
    writeln!(
        out,
        "{:<16}  {:<23}  {:<7}  {:>4}  {:>6}  {:>7}  {:<24}  COMMAND",
        "SANDBOX", "STARTED", "STATE", "EXIT", "OPENED", "REFUSED", "FOLDER"
    )?;
    for row in &rows {
        let started = row.started.as_deref().map(moment).unwrap_or_default();
        let started = printable(&started);
        let exit = row.exit_code.map_or("-".to_string(), |code| code.to_string());
        let folder = row.folder.as_deref().map_or("-".to_string(), |folder| printable(folder).to_string());
        let Row { sandbox, state, opened, refused, .. } = row;
        writeln!(
            out,
            "{sandbox}  {started:<23}  {state:<7}  {exit:>4}  {opened:>6}  {refused:>7}  {folder:<24}  {}",
            row.command()
        )?;
    }
    if shown < logs.len() {
        eprintln!("belljar: {} older ones are listed with `belljar audit --all`", logs.len() - shown);
    }
    Ok(0)
}

/// A log at a glance.
#[derive(Serialize)]
struct Row {
    sandbox: SandboxId,
    started: Option<String>,
    state: &'static str,
    records: u64,
    opened: u64,
    refused: u64,
    folder: Option<String>,
    name: Option<String>,
    uid: Option<u32>,
    /// The last command that was started in it, and how many there were.
    words: Vec<Printable>,
    commands: u64,
    /// Of the last command that ended.
    exit_code: Option<i32>,
    limit: Option<String>,
    millis: Option<u64>,
}

impl Row {
    fn new(log: &LogFile, state: &'static str) -> Row {
        Row {
            sandbox: log.sandbox,
            started: None,
            state,
            records: 0,
            opened: 0,
            refused: 0,
            folder: None,
            name: None,
            uid: None,
            words: Vec::new(),
            commands: 0,
            exit_code: None,
            limit: None,
            millis: None,
        }
    }

    /// What it did, in a line.
    fn command(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| word.as_str()).collect();
        let words = words.join(" ");
        let shown = match words.char_indices().nth(MAX_COMMAND_CHARS) {
            Some((end, _)) => format!("{}...", &words[..end]),
            None => words,
        };
        let more = match self.commands {
            0 => return "-".into(),
            1 => String::new(),
            commands => format!(" (and {} before)", commands - 1),
        };
        let limit = self.limit.as_ref().map(|limit| format!(", {limit}")).unwrap_or_default();
        format!("{shown}{more}{limit}")
    }

    /// One that cannot be read: listed, with the reason and its path on standard error.
    fn damaged(log: &LogFile, error: &AuditError) -> Row {
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        eprintln!(
            "belljar: the log of {} is damaged: {}",
            log.sandbox,
            printable(&format!("{error}{source}"))
        );
        Row::new(log, "damaged")
    }

    fn read(log: &LogFile) -> Result<Row, AuditError> {
        let mut row = Row::new(log, "killed");
        let live = log.is_live();
        // The same refusal is written now and then, each time with how often so far.
        let (mut refused, mut of_others) = (BTreeMap::new(), 0);
        let mut reader = Reader::open(&log.path)?;
        while let Some(record) = reader.next_record()? {
            row.records += 1;
            row.started = row.started.or(record.time);
            let what = match record.event.known() {
                Some(Event::ConnectionOpened { .. } | Event::Fetched { .. }) => {
                    row.opened += 1;
                    continue;
                }
                Some(Event::ConnectionRefused { destination, port, reason, times, .. }) => {
                    (("connection", destination.to_string(), *port, *reason), *times)
                }
                Some(Event::NameRefused { name, record_type, reason, times }) => {
                    (("name", format!("{name} {record_type}"), None, *reason), *times)
                }
                Some(Event::FetchRefused { destination, port, reason, .. }) => {
                    (("fetch", destination.to_string(), *port, *reason), 1)
                }
                Some(Event::SandboxStarted { folder, name, uid, .. }) => {
                    (row.folder, row.name, row.uid) = (folder.clone(), name.clone(), *uid);
                    continue;
                }
                Some(Event::CommandStarted { words, .. }) => {
                    row.words.clone_from(words);
                    (row.commands, row.exit_code, row.limit) = (row.commands + 1, None, None);
                    continue;
                }
                Some(Event::CommandEnded { exit_code, limit, millis, .. }) => {
                    (row.exit_code, row.limit, row.millis) = (*exit_code, limit.clone(), Some(*millis));
                    continue;
                }
                Some(Event::SandboxEnded {}) => {
                    row.state = "ended";
                    continue;
                }
                // Of another version: its name says what it is.
                None if record.event.other_kind().is_some_and(|kind| kind.ends_with("_refused")) => {
                    of_others += 1;
                    continue;
                }
                Some(_) | None => continue,
            };
            refused.insert(what.0, what.1);
        }
        row.refused = refused.values().sum::<u64>() + of_others;
        if live {
            row.state = "running";
        }
        Ok(row)
    }
}

/// What stands beside the rest in a line of a wide terminal.
const MAX_COMMAND_CHARS: usize = 60;
/// A screenful; each has to be read.
const NEWEST: usize = 20;

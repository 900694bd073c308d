//! `belljar changes list`: what sandboxes changed that is not in their folders yet.

use super::super::print;
use super::beside::Beside;
use super::layers;
use crate::args::LayersArgs;
use crate::failure::FAILED;
use belljar_overlay::{Layer, LayerError, quote};
use belljar_spec::SandboxError;
use belljar_state::damage::Damaged;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) fn list(options: LayersArgs) -> Result<u8, SandboxError> {
    // What of them cannot be read hides nothing of the others.
    let (mut rows, mut unread) = (Vec::new(), Vec::new());
    match layers().and_then(|layers| Ok(layers.list()?)) {
        Ok(layers) => rows.extend(layers.iter().filter_map(Row::of)),
        Err(error) => unread.push(("layer", error)),
    }
    for (kind, beside) in [("managed", Beside::managed_clones()), ("clone", Beside::clones())] {
        match beside {
            Ok(beside) => rows.extend(beside.iter().map(Row::beside)),
            Err(error) => unread.push((kind, error)),
        }
    }
    if options.json {
        // One document, whatever cannot be read.
        rows.extend(unread.iter().map(|(kind, error)| Row::unread(kind, error)));
        let text = serde_json::to_string_pretty(&rows).expect("plain data can be written as JSON");
        let printed = print(format!("{text}\n").as_bytes())?;
        return Ok(if unread.is_empty() { printed } else { FAILED });
    }
    if unread.is_empty() || !rows.is_empty() {
        say(&rows)?;
    }
    let mut unread = unread.into_iter();
    let first = unread.next();
    for (_, other) in unread {
        eprintln!("belljar: {}", other.message);
    }
    first.map_or(Ok(0), |(_, error)| Err(error))
}

fn say(rows: &[Row]) -> Result<u8, SandboxError> {
    if rows.is_empty() {
        eprintln!("belljar: nothing is kept");
        eprintln!(
            "  hint: `belljar run --overlay -- COMMAND` leaves the folder untouched and keeps its changes"
        );
        return Ok(0);
    }
    let printed = print(as_table(rows).as_bytes())?;
    for row in rows {
        if let (Some(why), Some(path)) = (&row.damage, &row.path) {
            eprintln!("belljar: the {} {} is damaged: {why}", row.kind, row.id);
            eprintln!(
                "  hint: its files are in `{path}`: copy what you need from there; `belljar changes discard {}` then removes it",
                row.id
            );
        }
    }
    Ok(printed)
}

/// How many there are; what cannot be read is for `belljar changes list` to say.
pub(crate) fn count() -> usize {
    let layers = layers().and_then(|layers| Ok(layers.list()?.len())).unwrap_or(0);
    let beside = [Beside::managed_clones(), Beside::clones()];
    layers + beside.iter().flatten().map(Vec::len).sum::<usize>()
}

/// One thing that is kept.
#[derive(Serialize)]
struct Row {
    kind: &'static str,
    id: String,
    folder: Option<String>,
    branch: Option<String>,
    age_seconds: Option<u64>,
    /// How many files.
    changed: Option<usize>,
    /// Whether there is a commit that is nowhere else.
    unpushed: Option<bool>,
    /// How many files of a branch were not committed when the last run on it ended.
    uncommitted: Option<u64>,
    /// Where its files are.
    path: Option<String>,
    /// What is wrong with it.
    damage: Option<String>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// A sandbox uses it.
    Running,
    #[serde(rename = "kept")]
    Stored,
    /// It cannot be read.
    Damaged,
}

impl Row {
    fn of(layer: &Result<Layer, LayerError>) -> Option<Row> {
        let layer = match layer {
            Ok(layer) => layer,
            Err(LayerError::Damaged(damaged)) => return Some(Row::damaged("layer", damaged)),
            Err(_) => return None,
        };
        let age = SystemTime::now().duration_since(layer.created).unwrap_or_default();
        Some(Row {
            kind: "layer",
            id: layer.id.to_string(),
            folder: Some(shown(&layer.folder)),
            branch: None,
            age_seconds: Some(age.as_secs()),
            changed: layer.counted().map(|summary| summary.files()),
            unpushed: None,
            uncommitted: None,
            path: Some(shown(&layer.upper)),
            damage: None,
            state: if layer.is_in_use() { State::Running } else { State::Stored },
        })
    }

    fn beside(one: &Beside) -> Row {
        if let Some(damaged) = one.damage() {
            return Row::damaged(one.kind(), damaged);
        }
        Row {
            kind: one.kind(),
            id: one.id(),
            folder: Some(shown(&one.of())),
            branch: one.branch().map(str::to_string),
            age_seconds: None,
            changed: None,
            unpushed: Some(one.has_unpushed()),
            uncommitted: one.uncommitted(),
            path: Some(shown(one.files())),
            damage: None,
            state: if one.is_in_use() { State::Running } else { State::Stored },
        }
    }

    /// All of a kind, which cannot be listed.
    fn unread(kind: &'static str, error: &SandboxError) -> Row {
        let reason = error.message.clone();
        Row {
            path: None,
            ..Row::damaged(kind, &Damaged { id: String::new(), directory: PathBuf::new(), reason })
        }
    }

    fn damaged(kind: &'static str, damaged: &Damaged) -> Row {
        Row {
            kind,
            id: quote::name(damaged.id.as_bytes()),
            folder: None,
            branch: None,
            age_seconds: None,
            changed: None,
            unpushed: None,
            uncommitted: None,
            path: Some(shown(&damaged.directory)),
            damage: Some(quote::name(damaged.reason.as_bytes())),
            state: State::Damaged,
        }
    }
}

fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Stored => "kept",
            State::Damaged => "damaged",
        }
    }
}

fn as_table(rows: &[Row]) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let cells: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            [
                row.kind.into(),
                row.id.clone(),
                or_dash(&row.folder),
                or_dash(&row.branch),
                row.age_seconds.map_or("-".into(), super::super::table::age),
                match (row.changed, row.unpushed, row.uncommitted) {
                    (Some(files), ..) => files.to_string(),
                    (None, Some(true), Some(files @ 1..)) => format!("unpushed, {files} uncommitted"),
                    (None, Some(true), _) => "unpushed".into(),
                    (None, Some(false), Some(files @ 1..)) => format!("{files} uncommitted"),
                    (None, Some(false), Some(0)) => "pushed".into(),
                    // The files were not compared since something ran there.
                    (None, Some(false), None) => "commits pushed".into(),
                    (None, None, _) => "-".into(),
                },
                row.state.word().into(),
            ]
        })
        .collect();
    super::super::table::table(HEAD, &cells)
}

const HEAD: [&str; 7] = ["KIND", "ID", "FOLDER", "BRANCH", "AGE", "CHANGED", "STATE"];

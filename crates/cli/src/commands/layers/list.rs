//! `belljar layers`: what sandboxes changed that is not in their folders yet.

use super::super::print;
use super::beside::Beside;
use super::{damaged, layers};
use crate::args::LayersArgs;
use belljar_engine::layer::{Layer, LayerError, quote};
use belljar_spec::SandboxError;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

pub(crate) fn list(options: LayersArgs) -> Result<u8, SandboxError> {
    let mut rows: Vec<Row> = layers()?.list()?.iter().filter_map(Row::of).collect();
    rows.extend(Beside::all()?.iter().map(Row::beside));
    if options.json {
        let text = serde_json::to_string_pretty(&rows).expect("plain data can be written as JSON");
        return print(format!("{text}\n").as_bytes());
    }
    if rows.is_empty() {
        eprintln!("belljar: nothing is kept");
        eprintln!(
            "  hint: `belljar run --overlay -- COMMAND` leaves the folder untouched and keeps its changes"
        );
        return Ok(0);
    }
    print(as_table(&rows).as_bytes())
}

/// How many there are; what cannot be read is for `belljar layers` to say.
pub(crate) fn count() -> usize {
    let layers = layers().and_then(|layers| Ok(layers.list()?.len())).unwrap_or(0);
    layers + Beside::all().map_or(0, |beside| beside.len())
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
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// A sandbox uses it.
    Running,
    Kept,
    /// It cannot be read.
    Damaged,
}

impl Row {
    fn of(layer: &Result<Layer, LayerError>) -> Option<Row> {
        let layer = match layer {
            Ok(layer) => layer,
            Err(error) => {
                let id = damaged(error)?.to_string();
                let (folder, branch, age_seconds, changed) = (None, None, None, None);
                return Some(Row {
                    kind: "layer",
                    id,
                    folder,
                    branch,
                    age_seconds,
                    changed,
                    unpushed: None,
                    state: State::Damaged,
                });
            }
        };
        let age = SystemTime::now().duration_since(layer.created).unwrap_or_default();
        Some(Row {
            kind: "layer",
            id: layer.id.to_string(),
            folder: Some(quote::name(layer.folder.as_os_str().as_bytes())),
            branch: None,
            age_seconds: Some(age.as_secs()),
            changed: layer.summary().ok().map(|summary| summary.files()),
            unpushed: None,
            state: if layer.is_in_use() { State::Running } else { State::Kept },
        })
    }

    fn beside(one: &Beside) -> Row {
        Row {
            kind: one.kind(),
            id: one.id(),
            folder: Some(quote::name(one.of().as_os_str().as_bytes())),
            branch: Some(one.branch().to_string()),
            age_seconds: None,
            changed: None,
            unpushed: Some(one.has_unpushed()),
            state: if one.is_in_use() { State::Running } else { State::Kept },
        }
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Kept => "kept",
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
                match (row.changed, row.unpushed) {
                    (Some(files), _) => files.to_string(),
                    (None, Some(true)) => "unpushed".into(),
                    (None, Some(false)) => "pushed".into(),
                    (None, None) => "-".into(),
                },
                row.state.word().into(),
            ]
        })
        .collect();
    super::super::table::table(HEAD, &cells)
}

const HEAD: [&str; 7] = ["KIND", "ID", "FOLDER", "BRANCH", "AGE", "CHANGED", "STATE"];

//! `belljar diff`: what a layer would do to its folder.

use super::super::changes::say_executed;
use super::super::print;
use super::paint::Printer;
use super::work::{Branch, Work};
use super::{amount, layers, say_commits, say_left_out};
use crate::args::DiffArgs;
use belljar_engine::commits_of_layer;
use belljar_overlay::{Change, ChangeKind, Changes, Layer, Lines, Patch, Selection, Summary};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_workspace::protect::Executed;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io;

pub(crate) fn diff(options: DiffArgs) -> Result<u8, SandboxError> {
    let layers = layers()?;
    let Work { layer, selection, branch } = Work::pick(&layers, &options.what.words)?;
    if let Some(branch) = &branch {
        branch.say_notes();
    }
    if layer.is_half_applied() {
        eprintln!("belljar: an apply of the layer {} was cut short, or is under way", layer.id);
        eprintln!(
            "  hint: `belljar apply {}` undoes or finishes it first; what is shown may be neither",
            layer.id
        );
    }
    let Changes { mut list, mut left_out } = layer.changes_with_renames()?;
    list.retain(|change| {
        selection.covers(&change.path) || change.from.as_ref().is_some_and(|from| selection.covers(from))
    });
    left_out.retain(|out| selection.covers(&out.path));
    let changes = Changes { list, left_out };
    if options.json {
        let of = branch.as_ref().map(Branch::name);
        return as_json(&layer, of.as_deref(), &changes, &options);
    }
    if changes.list.is_empty() {
        let there = match selection {
            Selection::All => "",
            Selection::Paths(_) => " there",
        };
        match &branch {
            Some(branch) => eprintln!("belljar: {} has no uncommitted work{there}", branch.name()),
            None => eprintln!("belljar: the layer {} changes nothing{there}", layer.id),
        }
    } else if options.names {
        names(&changes)?;
    } else {
        if options.stat {
            stat(&layer, &changes)?;
        }
        if options.patch || !options.stat {
            patch(&layer, &changes)?;
        }
    }
    say_commits(&layer);
    let place = match &branch {
        Some(branch) => format!("changed in {}", branch.name()),
        None => format!("changed in layer {}", layer.id),
    };
    say_executed(&place, &executed(&changes));
    say_left_out(&changes.left_out);
    Ok(0)
}

/// What of the changes commonly runs on the host.
fn executed(changes: &Changes) -> Vec<Executed> {
    let made = changes.list.iter().filter(|change| change.new.is_some() && !change.is_directory());
    super::executed(made.map(|change| &change.path))
}

fn names(changes: &Changes) -> Result<(), SandboxError> {
    let mut printer = Printer::new();
    for change in shown(changes) {
        let note = if change.compared { "" } else { " (not compared)" };
        printer.plain(&format!("{} {}{note}\n", letter(change.kind()), name(change)));
    }
    printer.print()
}

fn stat(layer: &Layer, changes: &Changes) -> Result<(), SandboxError> {
    let patch = Patch::of(layer)?;
    let mut printer = Printer::new();
    let rows: Vec<(String, Option<Lines>)> = shown(changes)
        .map(|change| Ok((name(change), patch.lines(change)?)))
        .collect::<io::Result<_>>()
        .map_err(unreadable)?;
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(WIDEST);
    for (name, lines) in &rows {
        match lines {
            Some(Lines { added: 0, removed: 0 }) => printer.plain(&format!("{name:<width$} | 0\n")),
            Some(Lines { added, removed }) => {
                printer.plain(&format!("{name:<width$} | "));
                printer.added(&format!("+{added}"));
                printer.plain(" ");
                printer.removed(&format!("-{removed}"));
                printer.plain("\n");
            }
            None => printer.plain(&format!("{name:<width$} | binary\n")),
        }
    }
    printer.plain(&format!("{}\n", amount(&Summary::of(changes))));
    printer.print()
}

fn patch(layer: &Layer, changes: &Changes) -> Result<(), SandboxError> {
    let patch = Patch::of(layer)?;
    let mut printer = Printer::new();
    for change in &changes.list {
        let mut text = Vec::new();
        patch.write(change, &mut text).map_err(unreadable)?;
        printer.patch(&text);
        if printer.is_full() && printer.print_some()? == Reader::Gone {
            return Ok(());
        }
    }
    printer.print()
}

/// Whether the output still has a reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reader {
    There,
    Gone,
}

/// All changes but for directories that others lie in.
fn shown(changes: &Changes) -> impl Iterator<Item = &Change> {
    let parents: HashSet<&[u8]> = changes.list.iter().map(|change| change.path.parent()).collect();
    changes.list.iter().filter(move |change| {
        let plain = matches!(change.kind(), ChangeKind::Added | ChangeKind::Deleted);
        !(change.is_directory() && plain && parents.contains(change.path.as_bytes()))
    })
}

fn name(change: &Change) -> String {
    let slash = if change.is_directory() { "/" } else { "" };
    match &change.from {
        Some(from) => format!("{from} -> {}", change.path),
        None => format!("{}{slash}", change.path),
    }
}

fn letter(kind: ChangeKind) -> char {
    match kind {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
        ChangeKind::Renamed => 'R',
        ChangeKind::TypeChanged => 'T',
        ChangeKind::ModeChanged => 'P',
    }
}

fn as_json(
    layer: &Layer,
    branch: Option<&str>,
    changes: &Changes,
    options: &DiffArgs,
) -> Result<u8, SandboxError> {
    let patch = Patch::of(layer)?;
    let mut list = Vec::new();
    let mut text = Vec::new();
    for change in &changes.list {
        let mode = |stat: Option<belljar_overlay::Stat>| stat.map(|stat| format!("{:04o}", stat.mode));
        let mut value = json!({
            "path": change.path,
            "change": change.kind(),
            "from": change.from,
            "kind": change.new.or(change.old).map(|stat| stat.kind),
            "old_kind": change.old.map(|stat| stat.kind),
            "old_mode": mode(change.old),
            "new_mode": mode(change.new),
            "attributes": change.attributes,
            "compared": change.compared,
            "old_size": change.old.map(|stat| stat.size),
            "new_size": change.new.map(|stat| stat.size),
        });
        if options.stat {
            let lines = patch.lines(change).map_err(unreadable)?;
            value["binary"] = Value::from(lines.is_none());
            value["lines"] = json!(lines);
        }
        if options.patch {
            patch.write(change, &mut text).map_err(unreadable)?;
        }
        list.push(value);
    }
    let mut report = json!({
        "layer": layer.id,
        "folder": layer.folder.to_string_lossy(),
        "changes": list,
        "left_out": changes.left_out,
        "runs_on_host": executed(changes),
        "commits": commits_of_layer(layer)
            .iter()
            .map(|(name, commit)| json!({ "ref": name, "commit": commit.as_str() }))
            .collect::<Vec<_>>(),
    });
    if let Some(branch) = branch {
        report["branch"] = Value::from(branch);
    }
    if options.patch {
        report["patch"] = Value::from(String::from_utf8_lossy(&text));
    }
    print(format!("{report:#}\n").as_bytes())
}

fn unreadable(error: io::Error) -> SandboxError {
    ErrorCode::WorkspaceFailed
        .error(format!("the layer or its folder cannot be read: {error}"))
        .caused_by(error)
        .hint("it may be changing right now; call it again")
}

const WIDEST: usize = 60;

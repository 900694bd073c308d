//! `belljar changes discard`: a layer goes, the folder stays as it is.

use super::super::print;
use super::beside::Beside;
use super::{amount, here, mended_layers, named, newest, quoted};
use crate::args::DiscardArgs;
use belljar_engine::discard_layer;
use belljar_overlay::{LayerId, Layers};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;
use serde_json::json;
use std::path::Path;

pub(crate) fn discard(options: DiscardArgs) -> Result<u8, SandboxError> {
    let layers = mended_layers()?;
    if let Some(beside) = options.layer.as_deref().map(Beside::find).transpose()?.flatten() {
        return discard_beside(&beside, &options);
    }
    let layer = match &options.layer {
        None => newest(&layers, &here()?)?,
        Some(word) => match named(&layers, Path::new(word)) {
            Ok(Some(layer)) => layer,
            Ok(None) => {
                let message = format!("there is no layer `{}`", word.escape_debug());
                return Err(ErrorCode::WorkNotFound.error(message).hint(super::there_are(&layers)?));
            }
            Err(error) => return discard_damaged(&layers, word, &options, error),
        },
    };
    let (id, folder) = (layer.id, layer.folder.clone());
    // As counted when the run ended: nothing of what an agent made is walked to throw it away.
    let what = layer.counted().map_or_else(|| "its changes".to_string(), |summary| amount(&summary));
    if !options.yes {
        let question = format!("Discard the layer {id} of `{}`: {what}? [y/N] ", quoted(&folder));
        if !confirmed(&question)? {
            eprintln!("belljar: kept");
            return Ok(NO);
        }
    }
    let notes = discard_layer(&belljar_state::state_directory()?, &layer)?;
    notes.iter().for_each(|note| eprintln!("belljar: warning: {note}"));
    if options.json {
        let report = json!({ "discarded": id, "folder": folder.to_string_lossy() });
        return print(format!("{report:#}\n").as_bytes());
    }
    eprintln!("belljar: discarded the layer {id} of `{}`: {what}", quoted(&folder));
    Ok(0)
}

/// A worktree of a managed clone, or a clone.
fn discard_beside(beside: &Beside, options: &DiscardArgs) -> Result<u8, SandboxError> {
    let (kind, id, of) = (beside.kind(), beside.id(), beside.of());
    let lost = match (beside.has_unpushed(), beside.uncommitted()) {
        _ if beside.is_damaged() => ", which cannot be read",
        (true, Some(1..)) => ", with commits that were not pushed and files that were not committed",
        (true, _) => ", with commits that were not pushed",
        (false, Some(1..)) => ", with files that were not committed",
        (false, _) => "",
    };
    if !options.yes && !confirmed(&format!("Discard the {kind} {id} of `{}`{lost}? [y/N] ", quoted(&of)))? {
        eprintln!("belljar: kept");
        return Ok(NO);
    }
    beside.remove()?;
    if options.json {
        let report = json!({ "discarded": id, "folder": of.to_string_lossy() });
        return print(format!("{report:#}\n").as_bytes());
    }
    eprintln!("belljar: discarded the {kind} {id} of `{}`{lost}", quoted(&of));
    Ok(0)
}

/// What cannot be read can still be removed, by its whole id.
fn discard_damaged(
    layers: &Layers,
    word: &str,
    options: &DiscardArgs,
    error: SandboxError,
) -> Result<u8, SandboxError> {
    // Only by its whole id: the beginning of one is not enough to remove what the user has not seen.
    let damaged = layers.damaged()?.into_iter().find(|damaged| damaged.id == word);
    let Some(id) = damaged.and_then(|damaged| LayerId::parse(&damaged.id)) else { return Err(error) };
    if !options.yes && !confirmed(&format!("Discard the layer {id}, which cannot be read? [y/N] "))? {
        eprintln!("belljar: kept");
        return Ok(NO);
    }
    layers.discard_damaged(id)?;
    if options.json {
        return print(format!("{:#}\n", json!({ "discarded": id, "folder": null })).as_bytes());
    }
    eprintln!("belljar: discarded the layer {id}");
    Ok(0)
}

fn confirmed(question: &str) -> Result<bool, SandboxError> {
    if !isatty(stdin()) {
        return Err(ErrorCode::RequestValue
            .error("cannot prompt: standard input is not a terminal")
            .hint("look at it with `belljar diff` or `belljar changes list`, then say `belljar changes discard --yes`"));
    }
    eprint!("{question}");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| {
        ErrorCode::StreamFailed.error(format!("cannot read the answer: {error}")).caused_by(error)
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The user was asked, and said no.
const NO: u8 = 1;

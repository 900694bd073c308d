//! `belljar apply`: a layer becomes the folder, or a part of it does, or nothing.

use super::super::changes::{say_executed, say_of_git};
use super::super::print;
use super::work::Work;
use super::{executed, mended_layers, quoted, say_commits, say_left_out};
use crate::args::ApplyArgs;
use belljar_engine::{apply_layer, git_report};
use belljar_overlay::{Applied, RelPath};
use belljar_spec::SandboxError;
use belljar_workspace::private_git::Followed;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub(crate) fn apply(options: ApplyArgs) -> Result<u8, SandboxError> {
    let layers = mended_layers()?;
    let Work { layer, selection, branch } = Work::pick(&layers, &options.what.words)?;
    if let Some(branch) = &branch {
        branch.must_fit(&selection)?;
    }
    let (id, folder) = (layer.id, layer.folder.clone());
    let state = belljar_state::state_directory()?;
    let (Applied { paths, left_out, kept }, git) = apply_layer(&state, &layer, &selection)?;
    // What was applied by deleting it runs nowhere.
    let is_file = |path: &&RelPath| !folder.join(OsStr::from_bytes(path.as_bytes())).is_dir();
    let is_there =
        |path: &&RelPath| folder.join(OsStr::from_bytes(path.as_bytes())).symlink_metadata().is_ok();
    let runs = executed(paths.iter().filter(is_file).filter(is_there));
    if options.json {
        let mut report = json!({
            "layer": id,
            "folder": folder.to_string_lossy(),
            "applied": paths,
            "left_out": left_out,
            "runs_on_host": runs,
            "kept": kept,
            "git": git_report(&git),
        });
        if let Some(branch) = &branch {
            report["branch"] = branch.name().into();
        }
        return print(format!("{report:#}\n").as_bytes());
    }
    let changes = match paths.len() {
        1 => "1 change".to_string(),
        more => format!("{more} changes"),
    };
    let rest = match (&branch, kept) {
        (Some(branch), _) => format!("{} still has the files, uncommitted", branch.name()),
        (None, true) => format!("the layer {id} has the rest"),
        (None, false) => format!("the layer {id} is gone"),
    };
    eprintln!("belljar: applied {changes} to `{}`; {rest}", quoted(&folder));
    for Followed { reference, new, .. } in &git.followed {
        match new {
            Some(new) => eprintln!("belljar: {reference} is at {}", &new.as_str()[..10]),
            None => eprintln!("belljar: {reference} is gone, as inside"),
        }
    }
    say_of_git(&git);
    if kept && branch.is_none() {
        say_commits(&layer);
    }
    say_executed("applied", &runs);
    say_left_out(&left_out);
    Ok(0)
}

//! `belljar diff`, `apply`, `discard` and `list`: what sandboxes changed beside their folders.

pub(crate) mod apply;
mod beside;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod list;
mod paint;
mod work;

use super::publish;
use crate::args::ChangesCommand;
use crate::failure::hint_of;
use belljar_engine::commits_of_layer;
use belljar_overlay::{Layer, Layers, LeftOut, RelPath, Selection, Summary, quote};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_workspace::protect::{Executed, runs_on_host};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

pub(crate) fn changes(command: ChangesCommand) -> Result<u8, SandboxError> {
    match command {
        ChangesCommand::List(options) => list::list(options),
        ChangesCommand::Discard(options) => discard::discard(options),
        ChangesCommand::Publish(options) => publish::publish(options),
    }
}

/// Where layers are, for a command that only reads: nothing is swept or mended.
fn layers() -> Result<Layers, SandboxError> {
    Ok(Layers::at(&belljar_state::state_directory()?))
}

/// Where layers are, after what was cut short was mended: for a command that changes them.
fn mended_layers() -> Result<Layers, SandboxError> {
    let layers = layers()?;
    for error in layers.sweep()? {
        let error = SandboxError::from(error);
        eprintln!("belljar: {error}");
        if let Some(hint) = hint_of(&error) {
            eprintln!("  hint: {hint}");
        }
    }
    Ok(layers)
}

/// The layer that is meant, and which of its files.
fn pick(layers: &Layers, words: &[PathBuf]) -> Result<(Layer, Selection), SandboxError> {
    let here = here()?;
    let (layer, paths) = match words.split_first() {
        Some((first, rest)) => match named(layers, first)? {
            Some(layer) => (layer, rest),
            None => (newest(layers, &here)?, words),
        },
        None => (newest(layers, &here)?, words),
    };
    let mut selected = Vec::new();
    for path in paths {
        match below(&layer, &here, path)? {
            Some(path) => selected.push(path),
            None => return Ok((layer, Selection::All)),
        }
    }
    let selection = if selected.is_empty() { Selection::All } else { Selection::Paths(selected) };
    Ok((layer, selection))
}

/// The layer of that id, if it is one and not a file's name.
fn named(layers: &Layers, word: &Path) -> Result<Option<Layer>, SandboxError> {
    let is_id =
        |text: &&str| (4..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(text) = word.to_str().filter(is_id) else { return Ok(None) };
    let mut found = layers.beginning(&text.to_ascii_lowercase())?;
    match (found.pop(), found.len()) {
        (Some(layer), 0) => Ok(Some(layer)),
        (None, _) if text.len() == 16 => {
            Err(ErrorCode::WorkNotFound.error(format!("there is no layer `{text}`")).hint(there_are(layers)?))
        }
        (None, _) => Ok(None),
        (Some(_), more) => {
            let message = format!("{} layers begin with `{text}`", more + 1);
            Err(ErrorCode::RequestValue.error(message).hint(there_are(layers)?))
        }
    }
}

/// The newest layer of the folder we are in, or are somewhere below.
fn newest(layers: &Layers, here: &Path) -> Result<Layer, SandboxError> {
    for folder in here.ancestors() {
        let mut found = layers.of(folder)?;
        if found.is_empty() {
            continue;
        }
        let layer = found.remove(0);
        if !found.is_empty() {
            eprintln!(
                "belljar: this is {}, the newest of {} layers of this folder",
                layer.id,
                found.len() + 1
            );
        }
        return Ok(layer);
    }
    let message = format!("`{}` has no layer: nothing waits to be applied", quoted(here));
    let hint = match uncommitted_branch(here) {
        Some(id) => format!("branch {id} has uncommitted work: name it, as in `belljar diff {id}`"),
        None => there_are(layers)?,
    };
    Err(ErrorCode::WorkNotFound.error(message).hint(hint))
}

/// A branch of the repository around the folder on which files were left uncommitted.
fn uncommitted_branch(here: &Path) -> Option<String> {
    let branches = beside::Beside::managed_clones().ok()?;
    let left = |one: &&beside::Beside| {
        here.starts_with(one.of()) && one.uncommitted().is_some_and(|files| files > 0)
    };
    branches.iter().find(left).map(beside::Beside::id)
}

/// Which layers there are, for a user who named one that does not exist.
fn there_are(layers: &Layers) -> Result<String, SandboxError> {
    let all: Vec<Layer> = layers.list()?.into_iter().filter_map(Result::ok).collect();
    if all.is_empty() && !layers.damaged()?.is_empty() {
        return Ok(
            "there are only layers that are damaged: `belljar changes list` shows where their files are"
                .into(),
        );
    }
    if all.is_empty() {
        return Ok("there are no layers; `belljar run --overlay -- COMMAND` makes one".into());
    }
    let some: Vec<String> =
        all.iter().take(5).map(|layer| format!("{} of `{}`", layer.id, quoted(&layer.folder))).collect();
    let more = if all.len() > some.len() { "; all of them with `belljar changes list`" } else { "" };
    Ok(format!("there are: {}{more}", some.join(", ")))
}

/// A path as the user wrote it, below the layer's folder; none for the folder itself.
fn below(layer: &Layer, here: &Path, path: &Path) -> Result<Option<RelPath>, SandboxError> {
    let inside = plain(&here.join(path)).strip_prefix(&layer.folder).map(Path::to_path_buf);
    match inside {
        Ok(inside) if inside.as_os_str().is_empty() => Ok(None),
        Ok(inside) => Ok(RelPath::understand(&inside)),
        // From elsewhere, paths begin at the folder.
        Err(_) => match RelPath::understand(path) {
            Some(path) if !here.starts_with(&layer.folder) => Ok(Some(path)),
            _ => {
                let message = format!("`{}` is not in `{}`", quoted(path), quoted(&layer.folder));
                Err(ErrorCode::WorkNotFound
                    .error(message)
                    .hint("name files as they are in the folder of the layer"))
            }
        },
    }
}

/// Without `.` and `..`, by the letters: what is meant need not exist.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(component),
        }
    }
    plain
}

fn here() -> Result<PathBuf, SandboxError> {
    std::env::current_dir().and_then(|folder| folder.canonicalize()).map_err(|error| {
        ErrorCode::WorkspaceMissing
            .error(format!("the current folder cannot be used: {error}"))
            .hint("change to a folder that exists, or name a layer; `belljar changes list` shows them")
            .caused_by(error)
    })
}

/// A path for a terminal, which would obey some names instead of showing them.
fn quoted(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

/// What of these paths commonly runs on the host.
fn executed<'p>(paths: impl IntoIterator<Item = &'p RelPath>) -> Vec<Executed> {
    let known = |path: &RelPath| {
        let reason = runs_on_host(path.as_bytes())?;
        Some(Executed { path: OsStr::from_bytes(path.as_bytes()).into(), reason })
    };
    paths.into_iter().filter_map(known).collect()
}

/// Commits that wait for all of the layer to be applied.
fn say_commits(layer: &Layer) {
    for (name, commit) in commits_of_layer(layer).iter().take(MANY) {
        let name = quote::name(name.as_bytes());
        let short = &commit.as_str()[..10];
        match name.strip_prefix("refs/") {
            Some(below) => {
                eprintln!("belljar: {name} inside is at {short}, here as refs/belljar/{}/{below}", layer.id)
            }
            None => eprintln!("belljar: {name} inside is at {short}"),
        }
    }
}

/// What stays where it is.
fn say_left_out(left_out: &[LeftOut]) {
    for LeftOut { path, why } in left_out.iter().take(MANY) {
        eprintln!("belljar: left out: {path} ({})", why.words());
    }
    if left_out.len() > MANY {
        eprintln!("belljar: left out: {} more", left_out.len() - MANY);
    }
}

/// How much changed, in a sentence's end.
fn amount(summary: &Summary) -> String {
    let part = |count: usize, word: &str| (count > 0).then(|| format!("{count} {word}"));
    let parts = [
        part(summary.added, "added"),
        part(summary.modified, "modified"),
        part(summary.deleted, "deleted"),
        part(summary.renamed, "renamed"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match (summary.files(), parts.join(", ")) {
        (0, _) => "no files".into(),
        (1, parts) => format!("1 file ({parts})"),
        (files, parts) => format!("{files} files ({parts})"),
    }
}

/// More lines than this tell a person nothing more.
const MANY: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_does_not_obey_the_name_of_a_folder() {
        // A store that was never made has no layers.
        let layers = Layers::at(Path::new("/nonexistent"));
        let error = newest(&layers, Path::new("/a/\u{1b}]0;evil\u{7}")).expect_err("there is no layer");
        assert!(!error.to_string().contains(['\u{1b}', '\u{7}']), "{error}");
        assert!(!quoted(Path::new("/a/\u{1b}[2J")).contains('\u{1b}'));
    }
}

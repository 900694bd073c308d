//! What the values of arguments can be, from what belljar has and what it keeps on this machine. It only reads: no daemon is started, and
//! what cannot be read is not offered.

use super::walk::Paths;
use belljar_images::Store;
use belljar_overlay::Layers;
use belljar_spec::egress::groups;
use belljar_spec::{Assurance, BackendName};
use belljar_vault::Vault;
use std::fs;
use std::path::{Path, PathBuf};

/// Values of the argument with this id, whose value is called that.
pub(super) fn values(id: &str, name: &str) -> Vec<String> {
    match (id, name) {
        ("backend", _) => {
            ["auto"].into_iter().chain(BackendName::ALL.map(BackendName::as_str)).map(String::from).collect()
        }
        ("runtime", _) => ["runc", "runsc"].map(String::from).into(),
        ("at_least", _) => Assurance::ALL.map(|level| level.as_str().to_string()).into(),
        ("groups", _) => groups().map(|group| group.name().to_string()).collect(),
        ("mode", _) | ("egress", "MODE") => ["none", "strict", "ask", "open"].map(String::from).into(),
        ("secrets", _) => credentials(),
        ("profile" | "profiles", "NAME") => {
            let known = belljar_fleet::known_profiles().unwrap_or_default();
            known.into_iter().map(|profile| profile.name).collect()
        }
        ("branch" | "to" | "base", "NAME" | "BRANCH") => branches().unwrap_or_default(),
        ("agent", _) => ["claude", "codex", "opencode", "pi", "gemini"].map(String::from).into(),
        ("shell", _) => ["bash", "zsh", "fish"].map(String::from).into(),
        (_, "FOLDER|NAME") => sandboxes().unwrap_or_default(),
        (_, "LAYER] [PATH") | ("layer", _) => layers().unwrap_or_default(),
        (_, "IMAGE") => images().unwrap_or_default(),
        ("words", "COMMAND|TOPIC") => {
            crate::commands::help::topics().chain(["topics"]).map(String::from).collect()
        }
        // Of `secrets set` and `secrets rm`.
        ("name" | "names", "NAME") => kept_secrets().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Whether a value of this name is a path.
pub(super) fn paths(name: &str) -> Option<Paths> {
    match name {
        "PATH" | "FILE" | "LAYER] [PATH" | "ROOT" => Some(Paths::Files),
        "DIR" | "FOLDER" | "FOLDER|NAME" => Some(Paths::Folders),
        _ => None,
    }
}

fn state() -> Option<PathBuf> {
    belljar_state::state_directory().ok()
}

fn sandboxes() -> Option<Vec<String>> {
    let folder = crate::commands::daemon::directory().ok()?.join("sandboxes");
    Some(names_in(&folder).into_iter().filter(|name| belljar_fleet::is_name(name)).collect())
}

fn layers() -> Option<Vec<String>> {
    let all = Layers::at(&state()?).list().ok()?;
    Some(all.into_iter().flatten().map(|layer| layer.id.to_string()).collect())
}

fn images() -> Option<Vec<String>> {
    // Opening makes the folder, which a completion must not do.
    let folder = state()?.join("images");
    let store = folder.is_dir().then(|| Store::open(&folder).ok())??;
    Some(store.list().ok()?.into_iter().map(|image| image.name).collect())
}

fn kept_secrets() -> Option<Vec<String>> {
    let kept = Vault::real().ok()?.list().ok()?;
    Some(kept.into_iter().map(|secret| secret.name.to_string()).collect())
}

/// What a run can be given: the built-in credentials, and those of the configuration.
fn credentials() -> Vec<String> {
    let loaded = belljar_config::load(None, belljar_config::EgressFlags::default()).unwrap_or_default();
    loaded.known_credentials().into_iter().map(|credential| credential.name.to_string()).collect()
}

/// Branches of the repository that the current folder lies in, read from its files.
fn branches() -> Option<Vec<String>> {
    let here = std::env::current_dir().ok()?;
    let git = here.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    let git = match git.is_dir() {
        true => git,
        // A linked worktree: its own directory is below `worktrees` of the repository's.
        false => {
            let text = fs::read_to_string(&git).ok()?;
            let own = git.parent()?.join(text.strip_prefix("gitdir: ")?.trim());
            own.parent()?.parent()?.to_path_buf()
        }
    };
    let mut found = Vec::new();
    below(&git.join("refs/heads"), "", 0, &mut found);
    let packed = fs::read_to_string(git.join("packed-refs")).unwrap_or_default();
    found.extend(packed.lines().filter_map(|line| Some(line.split_once(" refs/heads/")?.1.to_string())));
    found.sort();
    found.dedup();
    Some(found)
}

/// Refs in a folder; a name has slashes where it lies deeper.
fn below(folder: &Path, before: &str, depth: usize, found: &mut Vec<String>) {
    for name in names_in(folder).into_iter().take(MAX_NAMES) {
        let path = folder.join(&name);
        match path.symlink_metadata() {
            Ok(entry) if entry.is_dir() && depth < MAX_DEPTH => {
                below(&path, &format!("{before}{name}/"), depth + 1, found);
            }
            Ok(entry) if entry.is_file() => found.push(format!("{before}{name}")),
            Ok(_) | Err(_) => {}
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// More is of no use in a list, and a sandbox may have made them.
const MAX_NAMES: usize = 1000;
const MAX_DEPTH: usize = 8;

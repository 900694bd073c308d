//! What config names below a folder: hooks in another place, config that is included, programs that git runs. The user's own
//! config counts as the repository's does: `core.hooksPath = .githooks` there means every repository's.

use super::shields::Missing;
use crate::settings::{HostFiles, Setting};
use belljar_git::config::Variable;
use std::path::{Path, PathBuf};

/// The paths, real or not there, with what stands for them if they are missing. Not only those below the folder: the
/// caller picks.
pub(super) fn paths(host: &HostFiles, folder: &Path, git_dir: &Path, own: &str) -> Vec<(PathBuf, Missing)> {
    let own_config = git_dir.join(own).join("config.worktree");
    let settings = host.settings(&[git_dir.join("config"), own_config], Some(git_dir));
    let mut paths = Vec::new();
    for setting in &settings {
        for (path, missing) in named(host, setting, folder) {
            // However the folder is spelled in it.
            let real = path.canonicalize().ok().filter(|real| *real != path);
            paths.push((path, missing));
            paths.extend(real.map(|real| (real, missing)));
        }
        if paths.len() > MOST {
            break;
        }
    }
    paths
}

fn named(host: &HostFiles, setting: &Setting, folder: &Path) -> Vec<(PathBuf, Missing)> {
    let Setting { variable, file, .. } = setting;
    let Some(text) = variable.text() else { return Vec::new() };
    let name = variable.name.as_str();
    if name == "core.hookspath" {
        // An empty one turns hooks off: git looks for them in the root of the machine.
        if text.is_empty() {
            return Vec::new();
        }
        // Hooks run at the top of the work tree, and a relative path is meant from there.
        return host.resolve(text, folder).map(|path| (path, Missing::Directory)).into_iter().collect();
    }
    if name == "include.path" || name.starts_with("includeif.") {
        let base = file.parent().unwrap_or(Path::new("/"));
        return host.resolve(text, base).map(|path| (path, Missing::File(""))).into_iter().collect();
    }
    if !is_command(variable) {
        return Vec::new();
    }
    // A line for a shell: any word of it that is a file of the folder, as in `python3 tools/clean.py %f`.
    text.split(|character: char| character.is_whitespace() || "'\"`;|&()<>{}$!=".contains(character))
        .filter(|word| word.contains(['/', '.']) && !word.starts_with('-'))
        .filter_map(|word| host.resolve(word, folder))
        .filter(|path| path.starts_with(folder) && path.symlink_metadata().is_ok_and(|found| !found.is_dir()))
        .map(|path| (path, Missing::Nothing))
        .collect()
}

/// Whether git runs what it says.
fn is_command(variable: &Variable) -> bool {
    let section = variable.name.split('.').next().unwrap_or_default();
    ["alias", "pager"].contains(&section) || COMMANDS.contains(&variable.key())
}

/// The last words of the names of variables whose value is run, or names what chooses what is run: git-config(1).
const COMMANDS: [&str; 22] = [
    "alternaterefscommand",
    "askpass",
    "attributesfile",
    "clean",
    "cmd",
    "command",
    "difffilter",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "helper",
    "packobjectshook",
    "pager",
    "process",
    "program",
    "receivepack",
    "smudge",
    "sshcommand",
    "textconv",
    "uploadpack",
];
/// Each is a look or two.
const MOST: usize = 128;

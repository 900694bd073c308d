//! What config names below a folder: hooks in another place, config that is included, programs that git runs. The user's own
//! config counts as the repository's does: `core.hooksPath = .githooks` there means every repository's.

use super::git_dir::no_text;
use super::shields::Missing;
use super::words::{self, Scene, readings, spelled_out};
use crate::settings::{HostFiles, Setting, path_of, too_many};
use belljar_git::config::Variable;
use belljar_spec::SandboxError;
use std::path::{Path, PathBuf};

/// The paths, real or not there, with what stands for them if they are missing. Not only those below the folder: the
/// caller picks.
pub(super) fn paths(
    host: &HostFiles,
    folder: &Path,
    git_dir: &Path,
    own: &str,
    most_bytes: u64,
) -> Result<Vec<(PathBuf, Missing)>, SandboxError> {
    let own_config = git_dir.join(own).join("config.worktree");
    let settings = host.settings(&[git_dir.join("config"), own_config], Some(git_dir), most_bytes)?;
    let mut paths = Vec::new();
    for setting in &settings {
        let Variable { name, value } = &setting.variable;
        if let Some(value) = value
            && setting.variable.text().is_none()
            && (PLACES.contains(&name.as_str()) || name.starts_with("includeif."))
        {
            return Err(no_text(&folder.join(path_of(value))));
        }
        for (path, missing) in named(host, setting, folder) {
            // However the folder is spelled in it.
            let real = real(&path).filter(|real| *real != path);
            paths.push((path, missing));
            paths.extend(real.map(|real| (real, missing)));
        }
        if paths.len() > MAX_PATHS {
            return Err(too_many("paths in it", MAX_PATHS));
        }
    }
    Ok(paths)
}

fn named(host: &HostFiles, setting: &Setting, folder: &Path) -> Vec<(PathBuf, Missing)> {
    let Setting { variable, file, .. } = setting;
    // An empty one names nothing: it turns hooks off, or a template.
    let Some(text) = variable.text().filter(|text| !text.is_empty()) else { return Vec::new() };
    let name = variable.name.as_str();
    if name == "core.hookspath" {
        // Hooks run at the top of the work tree, and a relative path is meant from there.
        return host.resolve(text, folder).map(|path| (path, Missing::Directory)).into_iter().collect();
    }
    if name == "init.templatedir" {
        // Hooks of every repository to come.
        return host.resolve(text, folder).map(|path| (path, Missing::Directory)).into_iter().collect();
    }
    if name == "core.attributesfile" {
        return host.resolve(text, folder).map(|path| (path, Missing::File(""))).into_iter().collect();
    }
    if name == "include.path" || name.starts_with("includeif.") {
        let base = file.parent().unwrap_or(Path::new("/"));
        return host.resolve(text, base).map(|path| (path, Missing::File(""))).into_iter().collect();
    }
    if !is_command(variable) {
        return Vec::new();
    }
    words_of(host, text, folder)
}

/// What a line for a shell names in the folder: any word of it, as in `python3 tools/clean.py %f`.
fn words_of(host: &HostFiles, line: &str, folder: &Path) -> Vec<(PathBuf, Missing)> {
    let separates = |character: char| character.is_whitespace() || "'\"`;|&()<>{}$!=".contains(character);
    let line = spelled_out(line, folder, folder);
    let mut found = Vec::new();
    for reading in readings(&line) {
        let mut before = None;
        let mut bases = vec![folder.to_path_buf()];
        for word in reading.split(separates).filter(|word| !word.is_empty() && !word.starts_with('-')) {
            let before = before.replace(word);
            if before == Some("cd") && bases.len() < MAX_BASES {
                bases.extend(host.resolve(word, folder));
            }
            for base in &bases {
                found.extend(one_word(host, word, before, base, folder));
            }
        }
    }
    // Read as a script, it also shows which words are run: those may be patterns, or have neither a slash nor a dot.
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|kind| kind.is_file());
    let run = words::of_script(&line, &Scene { host, top: folder, script_dir: folder }).into_iter();
    found.extend(
        run.filter(|word| word.is_run && is_file(&word.path)).map(|word| (word.path, Missing::Nothing)),
    );
    found
}

/// What a word names, meant from `base`.
fn one_word(
    host: &HostFiles,
    word: &str,
    before: Option<&str>,
    base: &Path,
    folder: &Path,
) -> Option<(PathBuf, Missing)> {
    let path = host.resolve(word, base).filter(|path| path.starts_with(folder) && path != folder)?;
    if !word.contains(['/', '.']) {
        return None;
    }
    match path.symlink_metadata() {
        // `black src` works on a directory, and `python3 tools/fmt` runs it.
        Ok(kind) if kind.is_dir() => {
            let is_run = before.is_some_and(runs_directories) || path.join("__main__.py").exists();
            is_run.then_some((path, Missing::Nothing))
        }
        Ok(_) => Some((path, Missing::Nothing)),
        // It may be on another branch only. An empty directory stands for it: no shell runs one, and git does not
        // add one to a commit.
        Err(_) if is_program(word, before) => Some((path, Missing::Directory)),
        Err(_) => None,
    }
}

/// Whether a program runs a directory that is named to it; `run` is for `go run`.
fn runs_directories(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || ["bun", "deno", "node", "nodejs", "pypy3", "run"].contains(&name)
}

/// Whether a word that is no file must be one that is missing: `s/a/b/` and `origin/main` are none.
fn is_program(word: &str, before: Option<&str>) -> bool {
    let is_plain = word.chars().all(|one| one.is_ascii_alphanumeric() || "/._-~+@".contains(one));
    let extension = word.rsplit_once('/').and_then(|(_, name)| name.rsplit_once('.')).map(|(_, end)| end);
    let is_named_so = word.starts_with("./") || extension.is_some_and(|end| SCRIPTS.contains(&end));
    is_plain && word.contains('/') && !word.ends_with('/') && (before.is_none() || is_named_so)
}

/// A path without links, as far as there is something.
fn real(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|parent| {
        let rest = path.strip_prefix(parent).ok()?;
        let real = parent.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
}

/// Whether git runs what it says.
fn is_command(variable: &Variable) -> bool {
    let section = variable.name.split('.').next().unwrap_or_default();
    let is_shell = variable.text().is_some_and(|text| text.trim_start().starts_with('!'));
    match section {
        // Also without `!`: git itself runs what `rebase -x` names.
        "alias" | "instaweb" | "pager" | "sendemail" => true,
        "browser" | "difftool" | "man" | "mergetool" if variable.key() == "path" => true,
        "submodule" if variable.key() == "update" => is_shell,
        // `lfs.customtransfer.NAME.path`.
        "lfs" if variable.key() == "path" => true,
        _ => COMMANDS.contains(&variable.key()),
    }
}

/// Variables whose value is a place that git obeys.
const PLACES: [&str; 4] = ["core.attributesfile", "core.hookspath", "include.path", "init.templatedir"];
/// The last words of the names of variables whose value is run, or names what chooses what is run: git-config(1).
const COMMANDS: [&str; 25] = [
    "alternaterefscommand",
    "askpass",
    "authorsprog",
    "clean",
    "cmd",
    "command",
    "defaultkeycommand",
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
    "recentobjectshook",
    "smudge",
    "sshcommand",
    "textconv",
    "tunnel",
    "uploadpack",
];
const SCRIPTS: [&str; 12] = ["awk", "bash", "cjs", "js", "lua", "mjs", "php", "pl", "py", "rb", "sh", "ts"];
/// Folders that a line goes to with `cd`.
const MAX_BASES: usize = 4;
/// Each is a look or two.
const MAX_PATHS: usize = 1024;

//! Paths below a folder that config names: hooks in another place, included config, programs that git runs. The user's own config
//! counts like the repository's: `core.hooksPath = .githooks` there applies to every repository.

use super::git_dir::no_text;
use super::shields::Missing;
use super::words::{self, Scene, readings, spelled_out};
use crate::settings::{HostFiles, Setting, path_of, too_many};
use belljar_git::config::Variable;
use belljar_spec::SandboxError;
use std::path::{Path, PathBuf};

/// The paths, resolved or missing, with the placeholder for missing ones. Not only those below the folder: the caller picks.
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
            // The folder may be spelled in several ways.
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
    // An empty value names nothing: it turns hooks, or a template, off.
    let Some(text) = variable.text().filter(|text| !text.is_empty()) else { return Vec::new() };
    let name = variable.name.as_str();
    if name == "core.hookspath" {
        // Hooks run at the top of the work tree, and a relative path starts from there.
        return host.resolve(text, folder).map(|path| (path, Missing::Directory)).into_iter().collect();
    }
    if name == "init.templatedir" {
        // Hooks of every new repository.
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

/// Paths in the folder that a shell command names: any word of it, as in `python3 tools/clean.py %f`.
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
    // Parsed as a script, it also shows which words are run: those may be patterns, or have neither a slash nor a dot.
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|kind| kind.is_file());
    let run = words::of_script(&line, &Scene { host, top: folder, script_dir: folder }).into_iter();
    found.extend(
        run.filter(|word| word.is_run && is_file(&word.path)).map(|word| (word.path, Missing::Nothing)),
    );
    found
}

/// The path that a word names, relative to `base`.
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
        // It may exist on another branch only. An empty directory is its placeholder: no shell runs one, and git does not commit
        // one.
        Err(_) if is_program(word, before) => Some((path, Missing::Directory)),
        Err(_) => None,
    }
}

/// Whether a program runs a directory given as an argument; `run` is for `go run`.
fn runs_directories(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || ["bun", "deno", "node", "nodejs", "pypy3", "run"].contains(&name)
}

/// Whether a word that is no existing file must name a missing one: `s/a/b/` and `origin/main` do not.
fn is_program(word: &str, before: Option<&str>) -> bool {
    let is_plain = word.chars().all(|one| one.is_ascii_alphanumeric() || "/._-~+@".contains(one));
    let extension = word.rsplit_once('/').and_then(|(_, name)| name.rsplit_once('.')).map(|(_, end)| end);
    let is_named_so = word.starts_with("./") || extension.is_some_and(|end| SCRIPTS.contains(&end));
    is_plain && word.contains('/') && !word.ends_with('/') && (before.is_none() || is_named_so)
}

/// A path with links resolved, as far as it exists.
fn real(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|parent| {
        let rest = path.strip_prefix(parent).ok()?;
        let real = parent.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
}

/// Whether git runs the value of this variable.
fn is_command(variable: &Variable) -> bool {
    let section = variable.name.split('.').next().unwrap_or_default();
    let is_shell = variable.text().is_some_and(|text| text.trim_start().starts_with('!'));
    match section {
        // Also without `!`: git itself runs the command after `rebase -x`.
        "alias" | "instaweb" | "pager" | "sendemail" => true,
        "browser" | "difftool" | "man" | "mergetool" if variable.key() == "path" => true,
        "submodule" if variable.key() == "update" => is_shell,
        // `lfs.customtransfer.NAME.path`.
        "lfs" if variable.key() == "path" => true,
        _ => COMMANDS.contains(&variable.key()),
    }
}

/// Variables whose value is a path that git obeys.
const PLACES: [&str; 4] = ["core.attributesfile", "core.hookspath", "include.path", "init.templatedir"];
/// The last parts of names of variables whose value is run, or names a file that selects what is run: git-config(1).
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
/// Limit of folders that a line changes to with `cd`.
const MAX_BASES: usize = 4;
/// Each costs a lookup or two.
const MAX_PATHS: usize = 1024;

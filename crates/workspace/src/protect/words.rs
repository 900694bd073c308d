//! Words of shell lines that name files: the programs that a command in config or a hook runs. Guessed, not parsed: a shell can
//! spell a path in any number of ways. Files that are found are protected; others are reported at the end, if they are known to run
//! at all.

use super::glob;
use crate::settings::HostFiles;
use std::path::{Path, PathBuf};

/// The context in which a script's words are resolved.
pub(super) struct Scene<'s> {
    pub(super) host: &'s HostFiles,
    /// The top of the work tree, where git starts hooks and commands.
    pub(super) top: &'s Path,
    /// Where the script lies, for `$(dirname "$0")`.
    pub(super) script_dir: &'s Path,
}

/// A word of a script that may be a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) path: PathBuf,
    /// Whether it is in the position of a program, or an argument of one that runs its argument.
    pub(super) is_run: bool,
}

/// The line with the usual spellings of the work tree's top, the git directory and the script's own folder expanded.
pub(super) fn spelled_out(line: &str, top: &Path, script_dir: &Path) -> String {
    let (top, here) = (top.to_string_lossy(), script_dir.to_string_lossy());
    let mut text = line.to_string();
    for (spelling, meaning) in
        TOPS.iter().map(|one| (one, &top)).chain(SCRIPT_DIRS.iter().map(|one| (one, &here)))
    {
        text = text.replace(spelling, meaning);
    }
    for spelling in GIT_DIRS {
        text = text.replace(spelling, &format!("{top}/.git"));
    }
    text
}

/// A line in two readings: quotes join adjacent text, as in `"$TOP"/x`; or they contain a command of their own.
pub(super) fn readings(line: &str) -> [String; 2] {
    let is_quote = |character: char| "'\"\\".contains(character);
    [line.replace(is_quote, ""), line.replace(is_quote, " ")]
}

/// All words of a shell script that name a path below the top.
pub(super) fn of_script(text: &str, scene: &Scene<'_>) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut bases = vec![scene.top.to_path_buf()];
    let text = text.replace("\\\n", " ");
    for line in text.lines().take(MAX_LINES).filter(|line| !line.trim_start().starts_with('#')) {
        let line = spelled_out(line, scene.top, scene.script_dir);
        let line = variables.iter().rev().fold(line, |line, (name, value)| {
            line.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        });
        if let Some(variable) = assignment(&line) {
            variables.push(variable);
            // Longer names first: `$ROOT` is the beginning of `$ROOT_DIR`.
            variables.sort_by_key(|(name, _)| name.len());
        }
        for reading in readings(&line) {
            for part in reading.split([';', '|', '&', '(', ')', '{', '}', '<', '>', '`']) {
                command(part, scene, &mut bases, &mut found);
            }
        }
        if found.len() > MAX_WORDS {
            break;
        }
    }
    found
}

/// One command of a line.
fn command(part: &str, scene: &Scene<'_>, bases: &mut Vec<PathBuf>, found: &mut Vec<Word>) {
    // Up to the first word that is itself a program.
    let mut may_run = true;
    let mut is_given = false;
    let mut before = "";
    for word in part.split_whitespace() {
        let word = word.trim_start_matches('$');
        if word.is_empty() || word.starts_with('-') {
            continue;
        }
        // `--config=x` was passed over; `X=y` is set before a command.
        let is_set = may_run && word.split_once('=').is_some_and(|(name, _)| is_name(name));
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        for base in bases.iter() {
            let is_path = word.contains(['/', '.']) || is_given;
            let path = scene.host.resolve(value, base).filter(|path| *path != *scene.top);
            if let Some(path) = path.filter(|path| is_path && path.starts_with(scene.top)) {
                let is_run = may_run && !is_set && (word.contains('/') || is_given);
                let fitting = if is_run { glob::files(&path, scene.top) } else { Vec::new() };
                for path in std::iter::once(path).chain(fitting) {
                    let word = Word { path, is_run };
                    if !found.contains(&word) {
                        found.push(word);
                    }
                }
            }
        }
        if before == "cd"
            && bases.len() < MAX_BASES
            && let Some(path) = scene.host.resolve(word, scene.top)
        {
            bases.push(path);
        }
        if may_run && !is_set {
            is_given = runs_its_argument(word);
            may_run = is_given || KEYWORDS.contains(&word);
        }
        before = word;
    }
    // `--config=FILE`: not run, and obeyed.
    for value in part.split_whitespace().filter(|word| word.starts_with('-')) {
        let Some((_, value)) = value.split_once('=') else { continue };
        let path = scene.host.resolve(value, scene.top).filter(|path| *path != *scene.top);
        if let Some(path) = path.filter(|path| value.contains(['/', '.']) && path.starts_with(scene.top)) {
            // The command list of a hook manager counts as a hook; other settings are a part of the work.
            let name = value.rsplit('/').next().unwrap_or_default();
            let is_run = MANAGERS.iter().any(|manager| name.starts_with(manager));
            found.push(Word { path, is_run });
        }
    }
}

/// `NAME=value`, also after `export`.
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line =
        ["export ", "local ", "readonly "].iter().find_map(|word| line.strip_prefix(word)).unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let value = value.replace(['"', '\''], "");
    let value = printed_by_pwd(&value).unwrap_or(&value).to_string();
    let is_plain = !value.is_empty() && !value.contains(char::is_whitespace) && !value.contains('$');
    (is_name(name) && is_plain).then(|| (name.to_string(), value))
}

/// The folder in `$(cd FOLDER && pwd)`, which is how most scripts find their own.
fn printed_by_pwd(value: &str) -> Option<&str> {
    let inside = value.strip_prefix("$(")?.strip_suffix(')')?.trim();
    let (folder, print) = inside.strip_prefix("cd ")?.rsplit_once(['&', ';'])?;
    // `2>/dev/null` may follow.
    let folder = folder.split_whitespace().find(|word| *word != "--" && *word != "-P")?;
    matches!(print.trim(), "pwd" | "pwd -P").then_some(folder)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
}

/// Whether a program runs the file given as its argument.
fn runs_its_argument(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("pypy") || INTERPRETERS.contains(&name)
}

const INTERPRETERS: [&str; 22] = [
    ".", "source", "sh", "bash", "dash", "zsh", "ksh", "fish", "node", "nodejs", "bun", "deno", "tsx",
    "ts-node", "ruby", "perl", "php", "lua", "Rscript", "pwsh", "exec", "run",
];
/// How file names of hook managers begin.
const MANAGERS: [&str; 3] = [".pre-commit-config", "lefthook", ".lefthook"];
/// Words that precede a command.
const KEYWORDS: [&str; 22] = [
    "!", "command", "builtin", "do", "elif", "else", "env", "eval", "exec", "if", "nice", "nohup", "sudo",
    "then", "time", "timeout", "until", "while", "xargs", "uv", "poetry", "npx",
];
const TOPS: [&str; 9] = [
    "$(git rev-parse --show-toplevel 2>/dev/null)",
    "$(git rev-parse --show-toplevel)",
    "`git rev-parse --show-toplevel`",
    "$(pwd -P)",
    "$(pwd)",
    "`pwd`",
    "${PWD}",
    "$PWD",
    "$GIT_WORK_TREE",
];
const GIT_DIRS: [&str; 6] = [
    "$(git rev-parse --git-common-dir)",
    "$(git rev-parse --git-dir)",
    "`git rev-parse --git-dir`",
    "${GIT_DIR:-.git}",
    "${GIT_DIR}",
    "$GIT_DIR",
];
const SCRIPT_DIRS: [&str; 10] = [
    "$(dirname -- \"$0\")",
    "$(dirname \"$0\")",
    "$(dirname -- $0)",
    "$(dirname $0)",
    "`dirname \"$0\"`",
    "`dirname $0`",
    "${0%/*}",
    "$(dirname \"${BASH_SOURCE[0]}\")",
    "$(dirname -- \"${BASH_SOURCE[0]}\")",
    "${BASH_SOURCE%/*}",
];
/// More than any hook has.
const MAX_LINES: usize = 4096;
const MAX_WORDS: usize = 1024;
const MAX_BASES: usize = 4;

//! Words of other programs, Docker's most of all: what to write here instead.

use super::grouped::names;
use belljar_config::nearest;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The same error, with what to write instead where the word is known from elsewhere.
pub(super) fn with_tip(mut error: clap::Error) -> clap::Error {
    // That a flag can be a word of the command inside is seldom what is meant.
    error.remove(ContextKind::TrailingArg);
    match tip_for(&error).or_else(|| of_exec(&error)) {
        Some(tip) => {
            error.remove(ContextKind::SuggestedArg);
            error.remove(ContextKind::SuggestedSubcommand);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        None if error.kind() == ErrorKind::UnknownArgument => {
            error.remove(ContextKind::Suggested);
        }
        None => {
            // clap compares letters at the same place, and knows no two that changed places.
            if let (None, Some(meant)) = (error.get(ContextKind::SuggestedSubcommand), meant(&error)) {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant.into()]));
            }
        }
    }
    error
}

/// The command of belljar itself that a mistyped one is nearest to.
fn meant(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_first = std::env::args_os().nth(1).is_some_and(|first| first == given.as_str());
    nearest(given, &names()).filter(|_| is_first)
}

fn tip_for(error: &clap::Error) -> Option<&'static str> {
    let (kind, table) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, FLAGS),
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, COMMANDS),
        _ => return None,
    };
    let Some(ContextValue::String(given)) = error.get(kind) else { return None };
    let given = given.split('=').next().unwrap_or(given);
    let mut typed = std::env::args().skip(1);
    let command = typed.next().filter(|first| first != given).unwrap_or_else(|| "belljar".into());
    // The prompt of an agent, written as other programs take it.
    if kind == ContextKind::InvalidArg && command == "agent" && !given.starts_with('-') {
        return Some("the prompt is an option: `--prompt TEXT`, or `--prompt-file FILE`");
    }
    let in_command = format!("{command} {given}");
    let tip = |word: &str| table.iter().find(|(words, _)| words.contains(&word)).map(|(_, tip)| *tip);
    tip(&in_command).or_else(|| tip(given))
}

/// `belljar exec ls`: what is meant as the command was taken for the sandbox.
fn of_exec(error: &clap::Error) -> Option<&'static str> {
    let mut words = std::env::args_os().skip(1);
    let is_exec =
        error.kind() == ErrorKind::MissingRequiredArgument && words.next().is_some_and(|word| word == "exec");
    let has_word = words.any(|word| !word.as_encoded_bytes().starts_with(b"-"));
    (is_exec && has_word)
        .then_some("for the sandbox of this folder write `--` before the command: `belljar exec -- COMMAND`")
}

/// Words, and what to write instead. A word that counts below one command only stands behind that command's name.
type Table = &'static [(&'static [&'static str], &'static str)];

const FLAGS: Table = &[
    (&["belljar -v", "belljar -version"], "`belljar --version`"),
    (&["rm --all", "rm -a"], "`belljar rm $(belljar list --quiet)` removes all of them"),
    (
        &["apply --yes", "apply -y"],
        "omit it: nothing is asked, and a file that changed here since is never overwritten",
    ),
    (&["serve --port", "serve -p"], "`--listen 127.0.0.1:PORT`"),
    (
        &["-v", "--volume", "--mount"],
        "`--ro PATH` or `--rw PATH` shows a path of the host at the same place inside; `belljar start --volume NAME` mounts a volume",
    ),
    (
        &["-p", "--publish", "-P"],
        "`belljar run`, `start` and `shell` take `-p 8080:3000`; `belljar forward . 8080:3000` leads there while a sandbox of `belljar start` lives",
    ),
    (
        &["--network", "--net"],
        "`--egress none`, `strict`, `ask` or `open` is the network; `--allow HOST` opens one host",
    ),
    (
        &["--name"],
        "a sandbox is found by its folder: `belljar start FOLDER`, then `belljar exec FOLDER -- COMMAND`",
    ),
    (&["--rm"], "omit it: a sandbox of `belljar run` is always removed when its command ends"),
    (
        &["-d", "--detach"],
        "`belljar start`, then `belljar exec -d -- COMMAND`: its output is in `belljar logs -f`",
    ),
    (&["-u", "--user"], "omit it: a command runs as an ordinary user inside, also when belljar runs as root"),
    (
        &["--privileged", "--cap-add"],
        "no flag gives a sandbox more rights; `--nested` allows user namespaces inside",
    ),
    (&["--entrypoint"], "write the program and its arguments behind `--`"),
    (&["-m"], "`--memory SIZE` limits memory"),
    (&["--tail", "-n"], "`belljar logs NAME | tail -n 20` shows the end"),
    (&["-a", "--attach"], "omit it: standard input and output are always the command's"),
];

const COMMANDS: Table = &[
    (
        &["create"],
        "`belljar start` makes a persistent sandbox of a folder, `belljar run -- COMMAND` a one-shot one",
    ),
    (&["cp"], "the folder is the same inside and outside; `--ro PATH` or `--rw PATH` shows another one"),
    (&["kill"], "`belljar stop` stops a sandbox and everything in it"),
    (&["pull", "import"], "`belljar images pull IMAGE`, `belljar images import FILE NAME:TAG`"),
    (&["status", "info"], "`belljar list` shows sandboxes, `belljar doctor` this machine"),
    (
        &["inspect"],
        "`belljar list --json` shows sandboxes in full, `belljar sandbox plan` what a run would get",
    ),
    (&["top", "stats"], "`belljar sandbox ps` lists the commands of a sandbox"),
    (&["restart"], "`belljar stop`, then `belljar start`: the home and the files stay"),
    (&["unpause"], "`belljar sandbox resume`"),
    (
        &["update", "upgrade", "self-update"],
        "install the new version over this one: a daemon that runs is replaced by the next command",
    ),
    (
        &["claude", "codex", "opencode", "pi", "gemini"],
        "`belljar agent run NAME --prompt TEXT`, or `belljar agent shell NAME` for its own interface",
    ),
    (
        &["daemon start", "daemon restart"],
        "a command that needs the daemon starts it; `belljar serve` runs it in the foreground",
    ),
    (
        &["config path", "config edit", "config get"],
        "`belljar config init` writes your file and says where; `belljar config show` says where each value comes from",
    ),
    (&["ssh", "enter"], "`belljar shell` opens a shell in a folder's sandbox"),
    (&["version"], "`belljar --version`"),
    (&["login"], "`belljar secrets set NAME` keeps a key; `docker login` is for registries"),
    (
        &["set"],
        "`belljar config init` writes a file with all settings to edit; `belljar allow HOST` adds a host to a folder's",
    ),
    (&["secrets get"], "a value is never shown again: `belljar secrets list` shows names"),
];

//! What belljar says of a command's end, and its exit code.

use belljar_spec::{Ended, LimitHit};
use std::time::Duration;

/// Says what belljar has to say of a command's end, and returns the exit code. `timeout`: its time limit, where that is known.
/// `allow_more`: how the limit behind a flag is raised.
pub(super) fn say_end(ended: &Ended, timeout: Option<Duration>, allow_more: fn(&str) -> String) -> u8 {
    if let Some(why) = &ended.not_started {
        eprintln!("belljar: {why}");
        if let Some(hint) = meant_elsewhere(why) {
            eprintln!("  hint: {hint}");
        }
    }
    if ended.timed_out {
        let limit = timeout.map_or("it may".into(), |time| format!("{time:?}"));
        eprintln!("belljar: the command ran longer than {limit} and was ended (timeout)");
        eprintln!("  hint: allow more with `--timeout`");
    } else if let Some(limit) = ended.limit {
        let (what, flag) = explained(limit);
        eprintln!("belljar: {what} ({limit})");
        eprintln!("  hint: {}", allow_more(flag));
    }
    ended.exit_code()
}

/// For the name of an image or an agent where the command is expected.
fn meant_elsewhere(why: &str) -> Option<String> {
    let program = why.strip_prefix('`')?.strip_suffix("` was not found inside the sandbox")?;
    let name = program.split(':').next().unwrap_or(program);
    match () {
        () if AGENTS.contains(&program) => Some(format!(
            "`belljar agent shell {program}` opens that agent in a sandbox, `belljar agent run {program} --prompt TEXT` runs it"
        )),
        () if IMAGES.contains(&name) => {
            Some("the first word is the command; an image is `--image NAME:TAG`".into())
        }
        () => None,
    }
}

const AGENTS: [&str; 5] = ["claude", "codex", "gemini", "opencode", "pi"];
/// Those that examples of Docker begin with, and that are no program as well.
const IMAGES: [&str; 6] = ["alpine", "debian", "fedora", "golang", "postgres", "ubuntu"];

/// What a limit means, and the flag that sets it.
fn explained(limit: LimitHit) -> (&'static str, &'static str) {
    match limit {
        LimitHit::Timeout => ("the command ran too long", "--timeout"),
        LimitHit::OomKilled => ("a process was killed because memory ran out", "--memory"),
        LimitHit::PidsExhausted => ("a fork was refused because there were too many processes", "--pids"),
        LimitHit::DiskFull => ("the private files (home, /tmp) are full", "--disk"),
        LimitHit::OutputTruncated => {
            ("the command wrote more than is kept; the rest was dropped", "--output")
        }
    }
}

//! How a command in a kept sandbox ended: sentences and an exit code.

use crate::commands::exit_code;
use crate::failure::TIMED_OUT;
use belljar_api::CommandResult;

/// Says what belljar has to say of it, and gives the exit code.
pub(super) fn say_end(result: &CommandResult) -> u8 {
    if let Some(error) = &result.error {
        eprintln!("belljar: {}", error.message);
        if let Some(hint) = &error.hint {
            eprintln!("  hint: {hint}");
        }
    } else if let Some(why) = &result.not_started {
        eprintln!("belljar: {why}");
    }
    if result.timed_out {
        eprintln!("belljar: the command ran longer than it may and was ended (timeout)");
        eprintln!("  hint: allow more with `--timeout`");
    } else if let Some(limit) = &result.limit {
        say_limit(limit);
    } else if result.output_truncated {
        say_limit("output_truncated");
    }
    code_of(result)
}

/// Its own exit code, or what stands for how it ended.
pub(super) fn code_of(result: &CommandResult) -> u8 {
    if result.timed_out { TIMED_OUT } else { exit_code(result.exit_code, result.signal.as_deref()) }
}

fn say_limit(limit: &str) {
    let (what, flag) = match limit {
        "oom_killed" => ("a process was killed because memory ran out", Some("--memory")),
        "pids_exhausted" => ("a fork was refused because there were too many processes", Some("--pids")),
        "disk_full" => ("the private files (home, /tmp) are full", Some("--disk")),
        "output_truncated" => ("the command wrote more than is kept; the rest was dropped", Some("--output")),
        _ => ("the command ran into a limit", None),
    };
    eprintln!("belljar: {what} ({limit})");
    if let Some(flag) = flag {
        eprintln!("  hint: `belljar rm` it, then allow more with `belljar start {flag}`");
    }
}

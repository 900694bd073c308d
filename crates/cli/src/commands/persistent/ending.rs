//! How a command in a persistent sandbox ended: what belljar says of it, and the exit code.

use crate::commands::ending;
use crate::terms::for_command_line;
use belljar_api::CommandResult;
use belljar_spec::Ended;

/// Says what belljar has to say of it, and returns the exit code.
pub(super) fn say_end(result: &CommandResult) -> u8 {
    let mut ended = Ended::from(result);
    if let Some(error) = &result.error {
        eprintln!("belljar: {}", error.message);
        if let Some(hint) = &error.hint() {
            eprintln!("  hint: {}", for_command_line(hint));
        }
        // The error says it.
        ended.not_started = None;
    }
    ending::say_end(&ended, None, |flag| {
        format!("`belljar rm` it, then allow more with `belljar start {flag}`")
    })
}

/// The exit code.
pub(super) fn code_of(result: &CommandResult) -> u8 {
    Ended::from(result).exit_code()
}

//! From a request's words to a command.

use super::command::Terms;
use super::course::Start;
use super::text;
use belljar_api::StartCommand;
use belljar_spec::{ByteSize, Command, EnvName, Limits, Origin, SandboxError, Stdin, WindowSize};
use std::time::Duration;

/// What a request means in a sandbox with these limits.
pub(super) fn understand(asked: StartCommand, limits: &Limits) -> Result<(Terms, Start), SandboxError> {
    let argv = match (asked.argv, asked.shell) {
        (argv, None) => argv,
        (argv, Some(line)) if argv.is_empty() => vec!["/bin/sh".into(), "-c".into(), line],
        (_, Some(_)) => return Err(invalid("a command has `argv` or `shell`, not both")),
    };
    let mut command = Command::new(&argv).map_err(|error| invalid(error.to_string()))?;
    if asked.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
        return Err(invalid("`cwd` contains a zero byte"));
    }
    command.cwd = asked.cwd;
    for (name, value) in asked.env {
        let name: EnvName =
            name.parse().map_err(|error: belljar_spec::EnvNameError| invalid(error.to_string()))?;
        if value.contains('\0') {
            return Err(invalid(format!("the variable `{name}` contains a zero byte")));
        }
        command.env.push((name, value.into()));
    }
    command.terminal = match asked.terminal {
        Some(size) if size.rows == 0 || size.cols == 0 => {
            return Err(invalid("a terminal has one row and one column at least"));
        }
        other => other.map(|size| WindowSize { rows: size.rows, cols: size.cols }),
    };
    command.timeout = time("timeout_s", asked.timeout_s)?;
    command.max_output = asked.max_output.map(ByteSize::bytes);
    let stdin = match (asked.stdin, asked.stdin_base64) {
        (Some(_), Some(_)) => return Err(invalid("a command has `stdin` or `stdin_base64`, not both")),
        (Some(text), None) => text.into_bytes(),
        (None, Some(base64)) => text::bytes(&base64).ok_or_else(|| invalid("`stdin_base64` is no base64"))?,
        (None, None) => Vec::new(),
    };
    command.stdin = Stdin::Stream;
    let limit = limits.output.value.as_u64();
    let usual = if limits.output.origin == Origin::Asked { limit } else { COLLECTED.min(limit) };
    let terms = Terms {
        argv,
        terminal: command.terminal.is_some(),
        stdin_open: asked.stdin_open,
        // Nobody keeps more than the sandbox may write.
        kept: asked.max_output.unwrap_or(limit).min(limit),
        collected: asked.max_output.unwrap_or(usual).min(limit),
        alone: time("alone_s", asked.alone_s)?,
    };
    Ok((terms, Start { command, stdin, stdin_open: asked.stdin_open }))
}

fn time(field: &str, seconds: Option<u64>) -> Result<Option<Duration>, SandboxError> {
    match seconds {
        Some(seconds @ 1..=A_YEAR) => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => Err(invalid(format!("`{field}` must be from 1 to {A_YEAR}"))),
        None => Ok(None),
    }
}

fn invalid(message: impl Into<String>) -> SandboxError {
    SandboxError::policy("command_invalid", message)
}

const A_YEAR: u64 = 31_536_000;
/// What an answer has of each stream unless somebody says otherwise. All of it can be followed.
const COLLECTED: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::Terminal;
    use belljar_spec::{LimitsRequest, Machine};

    fn limits() -> Limits {
        let machine = Machine { memory: ByteSize::mebibytes(1024), cpus: 2 };
        Limits::understand(&LimitsRequest::default(), machine)
    }

    #[test]
    fn words_that_make_no_sense_are_refused() {
        let argv = || vec!["true".to_string()];
        let zero = Terminal { rows: 0, cols: 80 };
        let cases = [
            ("nothing", StartCommand::default()),
            ("both", StartCommand { argv: argv(), shell: Some("x".into()), ..Default::default() }),
            ("empty program", StartCommand { argv: vec![String::new()], ..Default::default() }),
            ("zero byte", StartCommand { argv: vec!["a\0".into()], ..Default::default() }),
            ("zero byte in cwd", StartCommand { argv: argv(), cwd: Some("\0".into()), ..Default::default() }),
            (
                "name",
                StartCommand { argv: argv(), env: [("A=B".into(), "".into())].into(), ..Default::default() },
            ),
            (
                "value",
                StartCommand { argv: argv(), env: [("A".into(), "\0".into())].into(), ..Default::default() },
            ),
            ("rows", StartCommand { argv: argv(), terminal: Some(zero), ..Default::default() }),
            ("no time", StartCommand { argv: argv(), timeout_s: Some(0), ..Default::default() }),
            ("alone for no time", StartCommand { argv: argv(), alone_s: Some(0), ..Default::default() }),
            ("much time", StartCommand { argv: argv(), timeout_s: Some(u64::MAX), ..Default::default() }),
            ("base64", StartCommand { argv: argv(), stdin_base64: Some("%".into()), ..Default::default() }),
        ];
        for (name, asked) in cases {
            let error = understand(asked, &limits()).err().unwrap_or_else(|| panic!("{name} was understood"));
            assert_eq!(error.code, "command_invalid", "{name}");
        }
    }

    #[test]
    fn a_line_is_for_a_shell() {
        let asked = StartCommand { shell: Some("a | b".into()), ..Default::default() };
        let (terms, start) = understand(asked, &limits()).expect("a command");
        assert_eq!(terms.argv, ["/bin/sh", "-c", "a | b"]);
        assert_eq!(start.command.argv(), ["/bin/sh", "-c", "a | b"]);
    }
}

//! From a request of the API to a command.

use super::command::Terms;
use crate::command_request::{command, time};
use belljar_api::StartCommand;
use belljar_spec::{Command, Limits, Origin, SandboxError, Stdin};

/// What a request means in a sandbox with these limits.
pub(super) fn understand(start: StartCommand, limits: &Limits) -> Result<(Terms, Command), SandboxError> {
    let StartCommand { stdin_open, max_output, alone_s, .. } = start;
    let alone = time("alone_s", alone_s)?;
    let (mut command, stdin) = command(start)?;
    command.stdin = Stdin::Stream;
    let limit = limits.output.value.as_u64();
    let usual = if limits.output.origin == Origin::Requested { limit } else { COLLECTED.min(limit) };
    let terms = Terms {
        argv: command.argv().iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        terminal: command.terminal.is_some(),
        stdin: stdin.unwrap_or_default(),
        stdin_open,
        // No more is kept than the sandbox may write.
        retained: max_output.unwrap_or(limit).min(limit),
        collected: max_output.unwrap_or(usual).min(limit),
        alone,
    };
    Ok((terms, command))
}

/// What an answer has of each stream unless the request says otherwise. All of it can be followed.
const COLLECTED: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::Terminal;
    use belljar_spec::ErrorCode;
    use belljar_spec::{ByteSize, LimitsRequest, Machine, OsText};

    fn limits() -> Limits {
        let machine = Machine { memory: ByteSize::mebibytes(1024), cpus: 2 };
        Limits::understand(&LimitsRequest::default(), machine)
    }

    #[test]
    fn words_that_make_no_sense_are_refused() {
        let argv = || vec![OsText::from("true")];
        let zero = Terminal { rows: 0, cols: 80 };
        let cases = [
            ("nothing", StartCommand::default()),
            ("both", StartCommand { argv: argv(), shell: Some("x".into()), ..Default::default() }),
            ("empty program", StartCommand { argv: vec!["".into()], ..Default::default() }),
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
        for (name, start) in cases {
            let error = understand(start, &limits()).err().unwrap_or_else(|| panic!("{name} was understood"));
            assert_eq!(error.code, ErrorCode::RequestValue, "{name}");
        }
    }

    #[test]
    fn a_line_is_for_a_shell() {
        let start = StartCommand { shell: Some("a | b".into()), ..Default::default() };
        let (terms, command) = understand(start, &limits()).expect("a command");
        assert_eq!(terms.argv, ["/bin/sh", "-c", "a | b"]);
        assert_eq!(command.argv(), ["/bin/sh", "-c", "a | b"]);
    }
}

//! From a request's body to a command: for one in a sandbox that stays, and for one with a sandbox of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_api::StartCommand;
use belljar_spec::{ByteSize, Command, EnvName, ErrorCode, OsText, SandboxError, WindowSize};
use std::time::Duration;

/// The command that a request means, and what it says of standard input.
pub(crate) fn command(request: StartCommand) -> Result<(Command, Option<Vec<u8>>), SandboxError> {
    let argv: Vec<OsText> = match (request.argv, request.shell) {
        (argv, None) => argv,
        (argv, Some(line)) if argv.is_empty() => vec!["/bin/sh".into(), "-c".into(), line.into()],
        (_, Some(_)) => return Err(invalid("a command has `argv` or `shell`, not both")),
    };
    let mut command = Command::new(&argv).map_err(|error| invalid(error.to_string()))?;
    if request.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
        return Err(invalid("`cwd` contains a zero byte"));
    }
    command.cwd = request.cwd;
    for (name, value) in request.env {
        let name: EnvName =
            name.parse().map_err(|error: belljar_spec::EnvNameError| invalid(error.to_string()))?;
        if value.as_bytes().contains(&0) {
            return Err(invalid(format!("the variable `{name}` contains a zero byte")));
        }
        command.env.push((name, value.into_os_string()));
    }
    command.terminal = match request.terminal {
        Some(size) if size.rows == 0 || size.cols == 0 => {
            return Err(invalid("a terminal has one row and one column at least"));
        }
        other => other.map(|size| WindowSize { rows: size.rows, cols: size.cols }),
    };
    command.timeout = time("timeout_s", request.timeout_s)?;
    command.max_output = request.max_output.map(ByteSize::bytes);
    let stdin = text_or_base64("stdin", request.stdin, request.stdin_base64)?;
    Ok((command, stdin))
}

/// The bytes of a field that is given as text, or in base64 as `FIELD_base64`.
pub(crate) fn text_or_base64(
    field: &str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Vec<u8>>, SandboxError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(invalid(format!("write `{field}` or `{field}_base64`, not both"))),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => {
            let bytes = STANDARD.decode(base64);
            bytes.map(Some).map_err(|_| invalid(format!("`{field}_base64` is not base64")))
        }
        (None, None) => Ok(None),
    }
}

/// A length of time in seconds.
pub(crate) fn time(field: &str, seconds: Option<u64>) -> Result<Option<Duration>, SandboxError> {
    match seconds {
        Some(seconds @ 1..=MAX_SECONDS) => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => Err(invalid(format!("`{field}` must be from 1 to {MAX_SECONDS}"))),
        None => Ok(None),
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> SandboxError {
    ErrorCode::RequestValue.error(message)
}

/// A year.
const MAX_SECONDS: u64 = 31_536_000;

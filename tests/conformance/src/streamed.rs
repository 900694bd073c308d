//! Reading from a running command.

use crate::text;
use belljar_engine::{Output, Running};
use belljar_spec::{Ended, SandboxError};

/// What a command says next, other than that it started.
pub async fn next(running: &mut Running) -> Result<Output, SandboxError> {
    loop {
        match running.events.next().await {
            Ok(Output::Started(_)) => {}
            other => return other,
        }
    }
}

/// Reads until the command's output holds `expected`; returns all of it so far.
pub async fn read_until(running: &mut Running, expected: &str) -> String {
    let mut seen = Vec::new();
    while !text(&seen).contains(expected) {
        match running.events.next().await {
            Ok(Output::Stdout(bytes) | Output::Stderr(bytes)) => seen.extend(bytes),
            Ok(Output::Started(_) | Output::Stopped) => {}
            Ok(Output::Ended(ended)) => panic!("no `{expected}` in `{}` before {ended:?}", text(&seen)),
            Err(error) => panic!("no `{expected}` in `{}` before {error}", text(&seen)),
        }
    }
    text(&seen)
}

/// Reads to the end: standard output, standard error, and how it ended.
pub async fn drain(running: &mut Running) -> (Vec<u8>, Vec<u8>, Ended) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match running.events.next().await {
            Ok(Output::Stdout(bytes)) => stdout.extend(bytes),
            Ok(Output::Stderr(bytes)) => stderr.extend(bytes),
            Ok(Output::Started(_) | Output::Stopped) => {}
            Ok(Output::Ended(ended)) => return (stdout, stderr, ended),
            Err(error) => panic!("{error} ({}) after `{}`", error.code, text(&stdout)),
        }
    }
}

/// How a command ended, whatever it wrote.
pub async fn end(running: &mut Running) -> Ended {
    drain(running).await.2
}

//! `belljar logs`: what a command wrote.

use super::daemon::client;
use super::ps::commands;
use super::target::Target;
use crate::args::{LogsArgs, WhichArgs};
use crate::commands::{block_on, print};
use crate::failure::of_client;
use crate::host_stream::HostStream;
use belljar_api::{CommandEvent, StreamName};
use belljar_spec::{ErrorCode, SandboxError};

/// A word alone that can only be a command means one of the current folder's sandbox: `belljar logs cmd_2`.
fn command_first(mut which: WhichArgs, command: Option<String>) -> (WhichArgs, Option<String>) {
    let is_command = |word: &String| word.strip_prefix("cmd_").is_some_and(|id| id.parse::<u64>().is_ok());
    match (command, which.target.take_if(|word| is_command(word))) {
        (None, Some(alone)) => (which, Some(alone)),
        (command, target) => {
            which.target = target.or(which.target);
            (which, command)
        }
    }
}

pub(crate) fn logs(options: LogsArgs) -> Result<u8, SandboxError> {
    let (which, command) = command_first(options.which, options.command);
    let target = Target::of(which)?;
    block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        let sandbox = client.sandbox(&info.name);
        let command = match command {
            Some(command) => command,
            None => commands(&client, &info).await?.pop().map(|newest| newest.id).ok_or_else(|| {
                ErrorCode::WorkNotFound
                    .error(format!("nothing ran in {} since it was started", info.name))
                    .hint("`belljar exec -d -- COMMAND` starts one")
            })?,
        };
        let events = match options.follow {
            true => sandbox.follow(&command, 0).await,
            false => sandbox.output(&command, 0).await,
        };
        let mut events = events.map_err(of_client)?;
        let (stdout, stderr) = (HostStream::stdout(), HostStream::stderr());
        while let Some(event) = events.next().await.map_err(of_client)? {
            if options.json {
                let line = serde_json::to_string(&event).expect("plain data can be written as JSON");
                print(format!("{line}\n").as_bytes())?;
                continue;
            }
            if let CommandEvent::Output { stream, text, base64 } = event {
                let bytes = belljar_api::client::output_bytes(text, base64).map_err(of_client)?;
                let to = match stream {
                    StreamName::Stdout => &stdout,
                    StreamName::Stderr => &stderr,
                };
                match to.write_all(&bytes).await {
                    Ok(()) => {}
                    // A reader that went away, as `head` does, has what it wanted.
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(0),
                    Err(error) => {
                        return Err(ErrorCode::StreamFailed.error(format!("cannot write: {error}")));
                    }
                }
            }
        }
        Ok(0)
    })
}

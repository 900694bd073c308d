//! `belljar sandbox attach`: a command that runs, joined.

use super::daemon::client;
use super::ending::say_end;
use super::foreground::{Leaving, attend};
use super::target::Target;
use crate::args::AttachArgs;
use crate::commands::block_on;
use crate::failure::of_client;
use crate::foreground::terminal_size;
use belljar_api::Terminal;
use belljar_spec::SandboxError;

pub(crate) fn attach(options: AttachArgs) -> Result<u8, SandboxError> {
    let target = Target::word(options.target, options.branch)?;
    block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        let sandbox = client.sandbox(&info.name);
        let command = sandbox.command(&options.command).await.map_err(of_client)?;
        let size = terminal_size().filter(|_| command.terminal);
        if let Some(size) = size {
            // It looks as our terminal does from now on. One that just ended needs no size.
            let _ = sandbox.resize(&command.id, Terminal { rows: size.rows, cols: size.cols }).await;
        }
        match attend(&sandbox, &command.id, size.is_some(), Leaving::ByKeys).await? {
            Some(result) => Ok(say_end(&result)),
            None => {
                eprintln!(
                    "belljar: {} keeps running; `belljar sandbox attach {} {}` attaches again",
                    command.id, info.name, command.id
                );
                Ok(0)
            }
        }
    })
}

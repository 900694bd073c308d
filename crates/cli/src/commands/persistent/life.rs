//! `belljar sandbox pause`, `resume`, `stop`: where a sandbox is in its life.

use super::daemon::client;
use super::print_json;
use super::target::Target;
use crate::args::TargetArgs;
use crate::commands::block_on;
use crate::failure::of_client;
use belljar_api::client::{ClientError, Sandbox};
use belljar_api::{SandboxInfo, State};
use belljar_spec::SandboxError;

pub(crate) fn pause(options: TargetArgs) -> Result<u8, SandboxError> {
    change(
        options,
        State::Paused,
        async |sandbox| sandbox.pause().await,
        "is paused until `belljar sandbox resume`",
    )
}

pub(crate) fn resume(options: TargetArgs) -> Result<u8, SandboxError> {
    change(options, State::Live, async |sandbox| sandbox.resume().await, "resumed")
}

pub(crate) fn stop(options: TargetArgs) -> Result<u8, SandboxError> {
    change(options, State::Stopped, async |sandbox| sandbox.stop().await, "stopped; its files are kept")
}

fn change(
    options: TargetArgs,
    end_state: State,
    ask: impl AsyncFn(Sandbox) -> Result<SandboxInfo, ClientError>,
    done: &str,
) -> Result<u8, SandboxError> {
    let target = Target::of(options.which)?;
    let (was, info) = block_on(async {
        let client = client();
        let before = target.find(&client).await?;
        if before.state == end_state {
            return Ok((true, before));
        }
        let info = ask(client.sandbox(&before.name)).await.map_err(of_client)?;
        Ok((false, info))
    })?;
    if options.json {
        return print_json(&info);
    }
    match was {
        true => eprintln!("belljar: {} is {} already", info.name, super::list::word(end_state)),
        false => eprintln!("belljar: {} {done}", info.name),
    }
    Ok(0)
}

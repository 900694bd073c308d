//! `belljar sandbox ps`: the commands of a sandbox.

use super::daemon::client;
use super::print_json;
use super::target::Target;
use crate::args::PsArgs;
use crate::commands::table::{age, since, table};
use crate::commands::{block_on, print};
use crate::failure::of_client;
use belljar_api::client::Client;
use belljar_api::{CommandInfo, CommandState, SandboxInfo, State};
use belljar_spec::SandboxError;

pub(crate) fn ps(options: PsArgs) -> Result<u8, SandboxError> {
    let target = Target::of(options.which)?;
    let (info, mut commands) = block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        let commands = commands(&client, &info).await?;
        Ok((info, commands))
    })?;
    let ended = commands.iter().filter(|one| one.state == CommandState::Ended).count();
    if !options.all {
        commands.retain(|one| one.state == CommandState::Running);
    }
    if options.json {
        return print_json(&commands);
    }
    if commands.is_empty() {
        eprintln!("belljar: nothing runs in {}", info.name);
        if ended > 0 && !options.all {
            eprintln!("  hint: `belljar sandbox ps --all` also shows what ended");
        }
        return Ok(0);
    }
    let rows: Vec<[String; 4]> = commands.iter().map(row).collect();
    print(table(["ID", "STATE", "AGE", "COMMAND"], &rows).as_bytes())
}

/// Those of a sandbox; one that is not alive has none.
pub(super) async fn commands(client: &Client, info: &SandboxInfo) -> Result<Vec<CommandInfo>, SandboxError> {
    match info.state {
        State::Stopped | State::Stopping | State::Starting => Ok(Vec::new()),
        State::Live | State::Paused => client.sandbox(&info.name).commands().await.map_err(of_client),
    }
}

fn row(command: &CommandInfo) -> [String; 4] {
    [command.id.clone(), state(command), age(since(command.started_ms)), shown(&command.argv)]
}

fn state(command: &CommandInfo) -> String {
    match (&command.state, &command.result) {
        (CommandState::Running, _) => "running".into(),
        (CommandState::Ended, Some(result)) => match (result.exit_code, &result.signal) {
            (Some(code), _) => format!("ended ({code})"),
            (None, Some(signal)) => format!("ended ({signal})"),
            (None, None) => "ended".into(),
        },
        (CommandState::Ended, None) => "ended".into(),
    }
}

/// As one line that cannot move the cursor.
fn shown(argv: &[String]) -> String {
    let line: String = argv.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

const MAX_SHOWN_CHARS: usize = 100;

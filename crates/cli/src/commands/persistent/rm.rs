//! `belljar rm`: removes sandboxes.

use super::daemon::client;
use super::print_json;
use super::target::Target;
use super::work::Work;
use crate::args::RmArgs;
use crate::commands::block_on;
use crate::failure::of_client;
use belljar_api::{SandboxInfo, State};
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::json;

pub(crate) fn rm(options: RmArgs) -> Result<u8, SandboxError> {
    let branch = &options.branch;
    let targets: Vec<Target> = options
        .targets
        .into_iter()
        .map(|word| Target::word(word, branch.clone()))
        .collect::<Result<_, _>>()?;
    let removed = block_on(async {
        let client = client();
        // All are found before one is touched.
        let mut found: Vec<(SandboxInfo, Work)> = Vec::new();
        for target in &targets {
            let info = target.find(&client).await?;
            if found.iter().any(|(other, _)| other.name == info.name) {
                continue;
            }
            let work = Work::of(&info)?;
            if !options.force {
                if let Some(lost) = &work.lost {
                    return Err(lost.refusal(&info.name));
                }
                if info.state != State::Stopped {
                    let message = format!("{} is {}", info.name, super::list::word(info.state));
                    return Err(ErrorCode::WorkUnsaved
                        .error(message)
                        .hint("`belljar stop` it first, or say `--force`"));
                }
            }
            found.push((info, work));
        }
        for (info, work) in &found {
            let sandbox = client.sandbox(&info.name);
            let gone = if options.force { sandbox.delete_anyway().await } else { sandbox.delete().await };
            gone.map_err(of_client)?;
            if !options.json {
                say(info, work);
            }
        }
        Ok(found)
    })?;
    if options.json {
        let names: Vec<&str> = removed.iter().map(|(info, _)| info.name.as_str()).collect();
        return print_json(&json!({ "removed": names }));
    }
    Ok(0)
}

fn say(info: &SandboxInfo, work: &Work) {
    match &work.lost {
        Some(lost) => eprintln!("belljar: {} is gone, and with it {}", info.name, lost.words()),
        None => eprintln!("belljar: {} is gone", info.name),
    }
    if work.stays {
        eprintln!(
            "belljar: commits on its branch that were never pushed stay: `belljar changes list` shows them"
        );
    }
}

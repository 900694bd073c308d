//! `belljar rm`: sandboxes taken away.

use super::daemon::client;
use super::print_json;
use super::target::Target;
use crate::args::RmArgs;
use crate::commands::block_on;
use crate::failure::of_client;
use belljar_api::{SandboxInfo, State};
use belljar_spec::SandboxError;
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
        let mut found: Vec<SandboxInfo> = Vec::new();
        for target in &targets {
            let info = target.find(&client).await?;
            if info.state != State::Stopped && !options.force {
                let message = format!("{} is {}", info.name, super::list::word(info.state));
                return Err(SandboxError::policy("sandbox_in_use", message)
                    .hint("`belljar stop` it first, or say `--force`"));
            }
            found.push(info);
        }
        found.dedup_by(|a, b| a.name == b.name);
        for info in &found {
            client.sandbox(&info.name).delete().await.map_err(of_client)?;
            if !options.json {
                eprintln!("belljar: {} is gone", info.name);
            }
        }
        Ok(found)
    })?;
    if options.json {
        let names: Vec<&str> = removed.iter().map(|info| info.name.as_str()).collect();
        return print_json(&json!({ "removed": names }));
    }
    Ok(0)
}

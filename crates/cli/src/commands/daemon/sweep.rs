//! `belljar daemon sweep`: asked of the daemon where one runs, since it knows what lives; else done here, under its lock.

use super::{directory, print_json};
use crate::args::SweepArgs;
use crate::commands::table::table;
use crate::commands::{block_on, print};
use crate::failure::of_client;
use belljar_api::Sweep;
use belljar_api::client::{Client, ClientError};
use belljar_fleet::sweep_alone;
use belljar_spec::SandboxError;

/// Sweeps, or says what a sweep would remove.
pub(crate) async fn swept(dry_run: bool) -> Result<Sweep, SandboxError> {
    match Client::local_if_running().sweep(dry_run).await {
        Err(ClientError::NoDaemon { .. }) => sweep_alone(&directory()?, dry_run).await,
        outcome => outcome.map_err(of_client),
    }
}

pub(crate) fn sweep(options: &SweepArgs) -> Result<u8, SandboxError> {
    let swept = block_on(swept(options.dry_run))?;
    if options.json {
        return print_json(&swept);
    }
    if swept.swept.is_empty() {
        eprintln!("belljar: nothing to sweep");
        return Ok(0);
    }
    let done = if swept.dry_run { "WOULD BE" } else { "WAS" };
    let rows: Vec<[String; 4]> =
        swept.swept.into_iter().map(|one| [one.name, one.key, one.action, one.reason]).collect();
    print(table(["NAME", "KEY", done, "BECAUSE"], &rows).as_bytes())
}

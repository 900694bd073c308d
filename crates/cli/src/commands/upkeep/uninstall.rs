//! `belljar uninstall`: the daemon, its service, and the state directory. What a package or a person put elsewhere is named and stays.

use super::daemon_stop::{daemon, end_daemon};
use super::du::measured;
use super::{DECLINED, confirmed};
use crate::args::UninstallArgs;
use crate::commands::daemon::{directory, service};
use crate::commands::print;
use crate::commands::table::{size, table};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Lock, remove_set_aside, set_aside, state_directory};
use std::io::ErrorKind;
use std::path::Path;

pub(super) fn uninstall(options: &UninstallArgs) -> Result<u8, SandboxError> {
    let state = state_directory()?;
    refuse_while_used()?;
    let is_empty = list(&state)?;
    if options.dry_run {
        say_what_stays();
        return Ok(0);
    }
    if !is_empty && !options.yes && !confirmed("Remove all of this?", "belljar uninstall")? {
        eprintln!("belljar: nothing was removed");
        return Ok(DECLINED);
    }
    service::remove_here()?;
    end_daemon()?;
    // A sandbox may have been started while the person read; from here on no daemon can be.
    let _no_daemon = keep_daemons_away()?;
    refuse_while_used()?;
    if state.exists() {
        let removed = set_aside(&state).and_then(|gone| remove_set_aside(&gone));
        removed.map_err(|error| {
            ErrorCode::StateFailed
                .error(format!("cannot remove `{}`: {error}", state.display()))
                .hint("look what keeps it, and call `belljar uninstall` again")
                .caused_by(error)
        })?;
        eprintln!("belljar: removed {}", state.display());
    }
    say_what_stays();
    Ok(0)
}

/// Says what goes; whether that is nothing.
fn list(state: &Path) -> Result<bool, SandboxError> {
    let stores = measured(state);
    let rows: Vec<[String; 4]> = stores
        .iter()
        .map(|store| {
            [size(store.usage.bytes), store.entries.to_string(), store.name.clone(), store.what.to_string()]
        })
        .collect();
    if !rows.is_empty() {
        print(table(["SIZE", "NUMBER", "STORE", "WHAT"], &rows).as_bytes())?;
        eprintln!("belljar: {} goes, with all of this", state.display());
    }
    let has = |names: &[&str]| {
        stores.iter().any(|store| names.contains(&store.name.as_str()) && holds_work(state, &store.name))
    };
    if has(&["layers", "clones", "shelf"]) {
        eprintln!(
            "belljar: work that was not applied, pushed or committed may be among it: `belljar changes list` lists it"
        );
    }
    if has(&["fleet/sandboxes", "fleet/volumes"]) {
        eprintln!(
            "belljar: homes or volumes of persistent sandboxes are among it: `belljar list` lists them"
        );
    }
    let daemon = daemon()?;
    if let Some(process) = daemon {
        eprintln!("belljar: the daemon (process {process}) ends");
    }
    let units = service::installed();
    units.iter().for_each(|unit| eprintln!("belljar: the unit {} goes", unit.display()));
    Ok(rows.is_empty() && daemon.is_none() && units.is_empty())
}

/// Locks and the like lie in these directories without any work.
fn holds_work(state: &Path, store: &str) -> bool {
    let entries = std::fs::read_dir(state.join(store)).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().is_dir())
}

/// The lock that a daemon needs, where there was ever one.
fn keep_daemons_away() -> Result<Option<Lock>, SandboxError> {
    let path = directory()?.join("daemon.lock");
    match Lock::try_existing(&path) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Ok(None) => Err(ErrorCode::InUse
            .error("another daemon was started meanwhile")
            .hint("call `belljar uninstall` again")),
        Err(error) => Err(ErrorCode::StateFailed
            .error(format!("cannot use `{}`: {error}", path.display()))
            .hint("it must be a file that belongs to you")
            .caused_by(error)),
    }
}

/// Every sandbox writes an audit log as long as it lives.
fn refuse_while_used() -> Result<(), SandboxError> {
    let logs = belljar_audit::list(&belljar_audit::directory()?)?;
    let living = logs.iter().filter(|log| log.is_live()).count();
    if living == 0 {
        return Ok(());
    }
    let (sandboxes, verb) = if living == 1 { ("sandbox", "runs") } else { ("sandboxes", "run") };
    Err(ErrorCode::InUse
        .error(format!("{living} {sandboxes} {verb}, and nothing is removed while that is so"))
        .hint("`belljar list` shows persistent ones, `belljar rm --force NAME` ends one; others end with their command"))
}

fn say_what_stays() {
    let config = belljar_config::ConfigPaths::real().user;
    if let Some(config) = config.filter(|file| file.exists()) {
        eprintln!("belljar: your configuration stays: {}", config.display());
    }
    eprintln!("belljar: the folders that you worked in stay, with what is in their .belljar");
    if let Ok(program) = std::env::current_exe() {
        eprintln!(
            "belljar: the executable stays: {}; remove it as it was installed: `apt remove belljar`, `dnf remove belljar`, \
             `sh install.sh --uninstall`",
            program.display()
        );
    }
}

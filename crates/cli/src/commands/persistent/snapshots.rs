//! `belljar snapshot`, `snapshots`, `fork`, `restore`, `undo`: the files of sandboxes, kept, shared and brought back.

use super::daemon::client;
use super::print_json;
use super::target::Target;
use crate::args::{
    ForkArgs, HowArg, RestoreArgs, SnapshotArgs, SnapshotsArgs, SnapshotsCommand, UndoArgs, WhichArgs,
};
use crate::commands::table::{age, since, size, table};
use crate::commands::{block_on, print};
use crate::failure::of_client;
use belljar_api::client::Client;
use belljar_api::{
    AutomaticSnapshot, ForkSandbox, RestoreSandbox, Restored, SnapshotInfo, SnapshotMethod, SnapshotPart,
    TakeSnapshot,
};
use belljar_spec::git::BranchName;
use belljar_spec::{SandboxError, SnapshotName};

pub(crate) fn snapshot(options: SnapshotArgs) -> Result<u8, SandboxError> {
    let target = target(options.target, options.branch)?;
    let taken = block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        let take = TakeSnapshot { name: options.name, how: method(options.how), checkpoint: false };
        client.sandbox(&info.name).snapshot(&take).await.map_err(of_client)
    })?;
    if options.json {
        return print_json(&taken);
    }
    let parts: Vec<&str> = taken.parts.iter().copied().map(part).collect();
    eprintln!(
        "belljar: the snapshot `{}` has the {} of {}; {}",
        taken.name,
        listed(&parts),
        taken.sandbox,
        way(taken.how, taken.held_ms.unwrap_or_default())
    );
    for left_out in &taken.left_out {
        eprintln!("belljar: not in it: {left_out}");
    }
    print(format!("{}\n", taken.name).as_bytes())
}

pub(crate) fn snapshots(options: SnapshotsArgs) -> Result<u8, SandboxError> {
    match options.command {
        Some(SnapshotsCommand::Rm(options)) => remove(&options.names),
        None => list(options.all, options.json),
    }
}

fn remove(names: &[SnapshotName]) -> Result<u8, SandboxError> {
    block_on(async {
        let client = client();
        // All are found before one is removed.
        for name in names {
            client.snapshot(name.as_str()).await.map_err(of_client)?;
        }
        for name in names {
            client.remove_snapshot(name.as_str()).await.map_err(of_client)?;
            eprintln!("belljar: the snapshot `{name}` is gone");
        }
        Ok(0)
    })
}

fn list(all: bool, json: bool) -> Result<u8, SandboxError> {
    let found = block_on(async {
        let client = client();
        let mut found = client.snapshots().await.map_err(of_client)?;
        found.retain(|one| all || one.automatic.is_none());
        for one in &mut found {
            // One that was removed meanwhile has no size any more.
            one.bytes = client.snapshot(one.id.as_str()).await.ok().and_then(|one| one.bytes);
        }
        Ok::<_, SandboxError>(found)
    })?;
    if json {
        return print_json(&found);
    }
    if found.is_empty() {
        eprintln!("belljar: there is no snapshot");
        eprintln!("  hint: `belljar snapshot` takes one of the current folder's sandbox");
        return Ok(0);
    }
    let rows: Vec<[String; 6]> = found.iter().map(row).collect();
    print(table(["NAME", "SANDBOX", "HOLDS", "SIZE", "AGE", "USED BY"], &rows).as_bytes())
}

fn row(one: &SnapshotInfo) -> [String; 6] {
    let parts: Vec<&str> = one.parts.iter().copied().map(part).collect();
    let name = match one.automatic {
        None => one.name.to_string(),
        Some(AutomaticSnapshot::Checkpoint) => format!("{} (checkpoint)", one.name),
        Some(AutomaticSnapshot::Restore) => format!("{} (before a restore)", one.name),
        Some(AutomaticSnapshot::Fork) => format!("{} (of a fork)", one.name),
    };
    [
        name,
        one.sandbox.clone(),
        parts.join(", "),
        one.bytes.map_or_else(|| "-".into(), size),
        age(since(one.created_ms)),
        if one.used_by.is_empty() { "-".into() } else { one.used_by.join(", ") },
    ]
}

pub(crate) fn fork(options: ForkArgs) -> Result<u8, SandboxError> {
    let target = Target::of(options.which)?;
    let count = match (options.count, options.keys.len()) {
        (Some(count), _) => count,
        (None, keys) => u32::try_from(keys.max(1)).unwrap_or(u32::MAX),
    };
    let made = block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        let request = ForkSandbox {
            count,
            keys: options.keys.clone(),
            how: method(options.how),
            snapshot: options.snapshot.clone(),
            ..ForkSandbox::default()
        };
        client.sandbox(&info.name).fork(&request).await.map_err(of_client)
    })?;
    if options.json {
        return print_json(&made);
    }
    if options.snapshot.is_none() {
        eprintln!("belljar: {}", way(made.how, made.held_ms));
    }
    for left_out in &made.left_out {
        eprintln!("belljar: not in the forks: {left_out}");
    }
    let names: String = made.sandboxes.iter().map(|one| format!("{}\n", one.sandbox.name)).collect();
    print(names.as_bytes())
}

pub(crate) fn restore(options: RestoreArgs) -> Result<u8, SandboxError> {
    let target = Target::word(options.target, options.branch)?;
    let restored = block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        let request = RestoreSandbox { snapshot: options.snapshot.clone(), force: options.force };
        client.sandbox(&info.name).restore(&request).await.map_err(of_client)
    })?;
    print_restored(&restored, &format!("has the files of `{}`", options.snapshot), options.json)
}

pub(crate) fn undo(options: UndoArgs) -> Result<u8, SandboxError> {
    let target = target(options.target, options.branch)?;
    let restored = block_on(async {
        let client = client();
        let info = target.find(&client).await?;
        client.sandbox(&info.name).undo(options.steps).await.map_err(of_client)
    })?;
    let undone = match options.steps {
        1 => "is what it was before its last command with `--checkpoint`".to_string(),
        more => format!("is what it was before its last {more} commands with `--checkpoint`"),
    };
    print_restored(&restored, &undone, options.json)
}

fn print_restored(restored: &Restored, done: &str, json: bool) -> Result<u8, SandboxError> {
    if json {
        return print_json(restored);
    }
    eprintln!("belljar: {} {done}", restored.sandbox.name);
    if let Some(saved) = &restored.saved {
        eprintln!("belljar: its files until now are kept as `{}`", saved.name);
    }
    Ok(0)
}

/// Takes a checkpoint before a command: the daemon keeps it with the others of the sandbox.
pub(super) async fn checkpoint(client: &Client, name: &str) -> Result<(), SandboxError> {
    let take = TakeSnapshot { name: None, how: SnapshotMethod::Auto, checkpoint: true };
    client.sandbox(name).snapshot(&take).await.map(drop).map_err(of_client)
}

fn target(word: Option<String>, branch: Option<BranchName>) -> Result<Target, SandboxError> {
    Target::of(WhichArgs { target: word, branch })
}

fn method(how: HowArg) -> SnapshotMethod {
    match how {
        HowArg::Auto => SnapshotMethod::Auto,
        HowArg::Layered => SnapshotMethod::Layered,
        HowArg::Copied => SnapshotMethod::Copied,
    }
}

fn part(part: SnapshotPart) -> &'static str {
    match part {
        SnapshotPart::Root => "root",
        SnapshotPart::Home => "home",
        SnapshotPart::Workspace => "workspace",
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [] => "nothing".into(),
        [one] => (*one).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// How a snapshot was made, and how long the sandbox stood still.
fn way(how: SnapshotMethod, held_ms: u64) -> String {
    match how {
        SnapshotMethod::Layered => format!("nothing was copied, and the sandbox was away for {held_ms} ms"),
        SnapshotMethod::Copied => {
            format!("its files were copied, and its processes were paused for {held_ms} ms")
        }
        SnapshotMethod::Auto => format!("the sandbox stood still for {held_ms} ms"),
    }
}

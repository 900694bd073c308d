//! `belljar daemon grants`: asked of the daemon where one runs, so that it counts at once; else written where the next one reads it.

use super::{directory, print_json};
use crate::args::{GrantArgs, GrantsCommand, ListingArgs, RevokeArgs};
use crate::commands::table::{age, since, table};
use crate::commands::{block_on, print};
use crate::failure::of_client;
use belljar_api::client::{Client, ClientError};
use belljar_api::{GrantInfo, NewGrant};
use belljar_fleet::LoneGrants;
use belljar_spec::request::{GrantRules, HostPath, LimitsRequest};
use belljar_spec::{ErrorCode, SandboxError};
use std::future::Future;

pub(crate) fn grants(command: GrantsCommand) -> Result<u8, SandboxError> {
    match command {
        GrantsCommand::Create(options) => create(*options),
        GrantsCommand::List(options) => list(&options),
        GrantsCommand::Revoke(options) => revoke(&options),
    }
}

fn create(options: GrantArgs) -> Result<u8, SandboxError> {
    let (json, e2b) = (options.json, options.e2b);
    let new = parsed(options)?;
    let mut made = ask(async |client| client.grant(&new).await, |grants| grants.create(new.clone()))?;
    if let Some(key) = belljar_e2b::key_of_token(&made.token).filter(|_| e2b) {
        made.token = key;
    }
    if json {
        return print_json(&made);
    }
    eprintln!(
        "belljar: made the grant {} ({}); its {} is shown this once:",
        made.grant.id,
        made.grant.name,
        if e2b { "API key" } else { "token" }
    );
    print(format!("{}\n", made.token).as_bytes())
}

fn list(options: &ListingArgs) -> Result<u8, SandboxError> {
    let all = ask(async |client| client.grants().await, |grants| grants.list())?;
    if options.json {
        return print_json(&all);
    }
    if all.is_empty() {
        eprintln!("belljar: there is no grant: the API cannot be used over the network");
        eprintln!("  hint: `belljar daemon grants create NAME` makes one");
        return Ok(0);
    }
    let rows: Vec<[String; 5]> = all.iter().map(row).collect();
    print(table(["ID", "NAME", "AGE", "LAST USED", "ALLOWS"], &rows).as_bytes())
}

fn revoke(options: &RevokeArgs) -> Result<u8, SandboxError> {
    let id = &options.id;
    ask(async |client| client.revoke(id).await, |grants| grants.revoke(id).map(drop))?;
    if options.json {
        return print_json(&serde_json::json!({ "revoked": id }));
    }
    eprintln!("belljar: {id} is revoked");
    Ok(0)
}

/// Asks the daemon; where none runs, does it in the file.
fn ask<T>(
    daemon: impl AsyncFn(Client) -> Result<T, ClientError>,
    alone: impl Fn(&LoneGrants) -> Result<T, SandboxError>,
) -> Result<T, SandboxError> {
    let outcome: Result<T, ClientError> = block_on(in_event_loop(daemon(Client::local_if_running())))?;
    match outcome {
        Err(ClientError::NoDaemon { .. }) => alone(&LoneGrants::open(&directory()?)?),
        outcome => outcome.map_err(of_client),
    }
}

async fn in_event_loop<T>(work: impl Future<Output = T>) -> Result<T, SandboxError> {
    Ok(work.await)
}

fn parsed(options: GrantArgs) -> Result<NewGrant, SandboxError> {
    let folder = |path: &std::path::PathBuf| {
        let real = path.canonicalize().map_err(|error| {
            ErrorCode::PathInvalid.error(format!("{}: {error}", path.display())).caused_by(error)
        })?;
        HostPath::try_from(real)
            .map_err(|error| ErrorCode::PathInvalid.error(error.to_string()).caused_by(error))
    };
    let rules = GrantRules {
        allow_sandbox: !options.no_sandboxes,
        allow_agents: options.agents,
        allow_metrics: options.metrics,
        allow_llm: options.llm,
        profiles: options.profiles,
        egress: options.egress,
        hosts: options.hosts,
        keys: options.keys,
        own_keys: options.own_keys,
        folders: options.folders.iter().map(folder).collect::<Result<_, _>>()?,
        secrets: options.secrets,
        volumes: options.volumes,
        images: options.images,
        limits: LimitsRequest {
            memory: options.memory,
            cpus: options.cpus,
            pids: options.pids,
            open_files: options.open_files,
            disk: options.disk,
            timeout: options.timeout,
            output: options.output,
            ready: options.ready_timeout,
        },
        sandboxes: options.sandboxes,
        snapshots: options.snapshots,
        rate: options.rate,
    };
    Ok(NewGrant { name: options.name, rules, valid_s: options.valid.map(|valid| valid.as_secs().max(1)) })
}

fn row(grant: &GrantInfo) -> [String; 5] {
    let used = grant.last_used_ms.map_or_else(|| "never".into(), |used| format!("{} ago", age(since(used))));
    [grant.id.clone(), grant.name.clone(), age(since(grant.created_ms)), used, allows(&grant.rules)]
}

fn allows(rules: &GrantRules) -> String {
    let mut words = vec![match rules.sandboxes {
        _ if !rules.allow_sandbox => "no sandboxes".into(),
        Some(most) => format!("{most} sandboxes"),
        None => "sandboxes".into(),
    }];
    if rules.allow_metrics {
        words.push("metrics".into());
    }
    if !rules.allow_sandbox {
        return words.join(", ");
    }
    if rules.allow_agents {
        words.push("agents".into());
    }
    if rules.allow_llm {
        words.push("the model".into());
    }
    for (what, list) in [
        ("profiles", rules.profiles.join(" ")),
        ("egress", joined(&rules.egress)),
        ("hosts", joined(&rules.hosts)),
        ("keys", rules.keys.join(" ")),
        ("own keys", rules.own_keys.join(" ")),
        ("folders", joined(&rules.folders)),
        ("secrets", rules.secrets.join(" ")),
        ("volumes", rules.volumes.join(" ")),
        ("images", rules.images.join(" ")),
    ] {
        if !list.is_empty() {
            words.push(format!("{what} {list}"));
        }
    }
    words.join(", ")
}

fn joined<T: ToString>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

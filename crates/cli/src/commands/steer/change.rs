//! `belljar allow` and `belljar deny`: at once in sandboxes that live, and in a file for those that start later.

use super::{called, chosen, of_folder, print_json, state, who};
use crate::args::{AllowArgs, DenyArgs};
use crate::commands::persistent;
use belljar_config::{self as config, RuleFile, RuleList};
use belljar_engine::{Order, Reply, Steered, steered};
use belljar_spec::egress::{RuleEffect, RuleLasting};
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) fn allow(options: AllowArgs) -> Result<u8, SandboxError> {
    let AllowArgs { host, folder, sandbox, for_time, once, always, user, json } = options;
    change(PolicyChange {
        effect: RuleEffect::Allow,
        host,
        folder,
        sandbox,
        for_time,
        once,
        always,
        user,
        json,
    })
}

pub(crate) fn deny(options: DenyArgs) -> Result<u8, SandboxError> {
    let DenyArgs { host, folder, sandbox, for_time, always, user, json } = options;
    let once = false;
    change(PolicyChange {
        effect: RuleEffect::Deny,
        host,
        folder,
        sandbox,
        for_time,
        once,
        always,
        user,
        json,
    })
}

struct PolicyChange {
    effect: RuleEffect,
    host: String,
    folder: Option<PathBuf>,
    sandbox: Option<String>,
    for_time: Option<Duration>,
    once: bool,
    always: bool,
    user: bool,
    json: bool,
}

/// The file that the rule goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Nowhere,
    Folder,
    User,
}

fn change(change: PolicyChange) -> Result<u8, SandboxError> {
    let state = state()?;
    let lasting = match change.for_time {
        Some(time) => RuleLasting::Seconds(time.as_secs().max(1)),
        None if change.once => RuleLasting::Once,
        None => RuleLasting::Life,
    };
    let destination = match lasting {
        _ if change.user => Destination::User,
        RuleLasting::Life if change.always || change.sandbox.is_none() => Destination::Folder,
        RuleLasting::Life | RuleLasting::Once | RuleLasting::Seconds(_) => Destination::Nowhere,
    };
    let named = change.sandbox.as_deref().map(|word| chosen(&state, word)).transpose()?;
    let folder = match &named {
        Some(one) => one.folder.clone().map(PathBuf::from),
        None => Some(persistent::folder_to_allow(change.folder.as_deref())?),
    };
    // Before anything is changed: one rule that is wrong changes nothing.
    let written = match (destination, &folder) {
        (Destination::Nowhere, _) => None,
        (Destination::User, _) => Some(config::add_rule(RuleFile::User, list(change.effect), &change.host)?),
        (Destination::Folder, Some(folder)) => {
            Some(config::add_rule(RuleFile::Repository(folder), list(change.effect), &change.host)?)
        }
        (Destination::Folder, None) => {
            let message = "the sandbox works on no folder, whose configuration could be changed";
            return Err(ErrorCode::RequestConflict
                .error(message)
                .hint("`--user` changes your own configuration"));
        }
    };
    let living = match (named, destination, &folder) {
        (Some(one), ..) => vec![one],
        (None, Destination::User, _) => steered(&state),
        (None, _, Some(folder)) => of_folder(&state, folder),
        (None, _, None) => Vec::new(),
    };
    if destination == Destination::Nowhere && living.is_empty() {
        return Err(ErrorCode::SandboxNotFound
            .error("no sandbox of this folder lives that takes orders")
            .hint("`--in SANDBOX` names another one; without `--for` and `--once` the folder's configuration is changed"));
    }
    let order = Order::Change { effect: change.effect, rule: change.host.clone(), lasting, by: who() };
    let outcomes: Vec<(Steered, Result<Reply, SandboxError>)> =
        living.into_iter().map(|one| (one.clone(), one.order(&state, &order))).collect();
    if change.json {
        let reports: Vec<Value> = outcomes.iter().map(|(one, outcome)| as_json(one, outcome)).collect();
        print_json(&json!({
            "rule": change.host,
            "effect": change.effect,
            "folder": folder,
            "config": written.as_ref().map(|written| &written.file),
            "changed": written.as_ref().is_some_and(|written| written.is_new),
            "sandboxes": reports,
        }))?;
    } else {
        say(&change, lasting, written.as_ref(), &outcomes);
    }
    // What was written stays; that a sandbox that lives took it not is the failure of the command.
    match outcomes.into_iter().find_map(|(_, outcome)| outcome.err()) {
        Some(error) => Err(error),
        None => Ok(0),
    }
}

fn list(effect: RuleEffect) -> RuleList {
    match effect {
        RuleEffect::Allow => RuleList::Allow,
        RuleEffect::Deny => RuleList::Deny,
    }
}

fn as_json(one: &Steered, outcome: &Result<Reply, SandboxError>) -> Value {
    match outcome {
        Ok(Reply::Changed { policy, version, ended }) => {
            json!({ "sandbox": called(one), "id": one.id, "policy": policy, "version": version, "ended": ended })
        }
        Ok(_) => json!({ "sandbox": called(one), "id": one.id }),
        Err(error) => {
            json!({ "sandbox": called(one), "id": one.id, "error": { "code": error.code, "message": error.message } })
        }
    }
}

fn say(
    change: &PolicyChange,
    lasting: RuleLasting,
    written: Option<&config::Allowed>,
    outcomes: &[(Steered, Result<Reply, SandboxError>)],
) {
    let (host, done) = match change.effect {
        RuleEffect::Allow => (&change.host, "allowed"),
        RuleEffect::Deny => (&change.host, "denied"),
    };
    if let Some(written) = written {
        let whose = if change.user { "your sandboxes" } else { "sandboxes of this folder" };
        let file = written.file.display();
        match written.is_new {
            true => eprintln!("belljar: {host} is {done} for {whose} ({file})"),
            false => eprintln!("belljar: {host} was {done} already ({file})"),
        }
    }
    let time = match lasting {
        RuleLasting::Life => String::new(),
        RuleLasting::Once => ", for one connection".into(),
        RuleLasting::Seconds(seconds) => format!(", for {seconds} s"),
    };
    for (one, outcome) in outcomes {
        match outcome {
            Ok(Reply::Changed { policy, ended, .. }) => {
                let ended = match ended {
                    0 => String::new(),
                    1 => "; 1 connection was ended".into(),
                    more => format!("; {more} connections were ended"),
                };
                eprintln!("belljar: {host} is {done} in {} now{time} (policy {policy}{ended})", called(one));
            }
            Ok(_) => {}
            Err(error) => eprintln!("belljar: {} did not take it: {}", called(one), error),
        }
    }
}

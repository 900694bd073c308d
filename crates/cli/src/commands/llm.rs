//! `belljar audit spend`: what was used of a model, and whether the upstream's books say the same.

use super::model::counted;
use super::{block_on, print};
use crate::args::LlmSpendArgs;
use belljar_config::{self as config, EgressFlags};
use belljar_engine::Comparison;
use belljar_spec::{Printable, SandboxError, SandboxId};
use belljar_vault::HostSecrets;
use serde_json::json;
use std::fmt::Write;

pub(super) fn spend(options: &LlmSpendArgs) -> Result<u8, SandboxError> {
    let loaded = config::load(None, EgressFlags::default())?;
    let records = belljar_audit::directory()?;
    let secrets = HostSecrets::open();
    let spend = belljar_engine::spend(&records, options.sandbox.as_deref(), &loaded, &secrets);
    let (sandbox, comparison) = block_on(spend)?;
    match options.json {
        true => print(format!("{:#}\n", as_json(sandbox, &comparison)).as_bytes())?,
        false => print(as_text(sandbox, &comparison).as_bytes())?,
    };
    Ok(if comparison.agrees() { 0 } else { DIFFERS })
}

fn as_text(sandbox: SandboxId, comparison: &Comparison) -> String {
    let (here, there) = comparison.costs();
    let mut text = format!("sandbox {sandbox}\n");
    let known = |model: &Option<String>| Printable::from(model.as_deref().unwrap_or("no model"));
    let _ = writeln!(
        text,
        "matched     {}: {here} USD here, {there} USD at LiteLLM",
        counted(comparison.matched.len() as u64, "call")
    );
    for only in &comparison.only_here {
        let ids = Printable::from(only.ids.join(" ").as_str());
        let _ =
            writeln!(text, "only here   #{} {} {} {ids}", only.call, known(&only.model), cost(only.cost_usd));
    }
    for only in &comparison.only_there {
        let ids = Printable::from(only.ids.join(" ").as_str());
        let _ = writeln!(text, "only there  {} {} {ids}", known(&only.model), cost(Some(only.cost_usd)));
    }
    text.push_str(if comparison.agrees() { "both say the same\n" } else { "they differ\n" });
    text
}

fn cost(cost: Option<belljar_spec::llm::Usd>) -> String {
    cost.map_or("cost not known".into(), |cost| format!("{cost} USD"))
}

fn as_json(sandbox: SandboxId, comparison: &Comparison) -> serde_json::Value {
    let (here, there) = comparison.costs();
    json!({
        "sandbox": sandbox,
        "agrees": comparison.agrees(),
        "cost_usd": { "here": here, "there": there },
        "matched": comparison.matched,
        "only_here": comparison.only_here,
        "only_there": comparison.only_there,
    })
}

/// As `diff` has it.
const DIFFERS: u8 = 1;

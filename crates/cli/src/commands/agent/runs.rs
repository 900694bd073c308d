//! `belljar agent runs`: which runs there are, and how they ended.

use super::super::audit::{moment, printable};
use super::super::print;
use super::sentence::seconds;
use super::state;
use crate::args::AgentRunsArgs;
use belljar_agent::read::{self, Glance, Run, State};
use belljar_spec::{SandboxError, SandboxId};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

pub(super) fn runs(options: &AgentRunsArgs) -> Result<u8, SandboxError> {
    let state = state()?;
    let all = read::list(&state)?;
    let shown = if options.all { all.len() } else { NEWEST.min(all.len()) };
    let rows = all[..shown].iter().map(Row::of).collect::<Result<Vec<_>, _>>()?;
    if options.json {
        let text = serde_json::to_string_pretty(&rows).expect("plain data can be written as JSON");
        return print(format!("{text}\n").as_bytes());
    }
    if rows.is_empty() {
        eprintln!("belljar: there are no runs in {}", read::runs(&state).display());
        eprintln!("  hint: `belljar agent run` makes one");
        return Ok(0);
    }
    print(table(&rows).as_bytes())?;
    if shown < all.len() {
        eprintln!("belljar: {} older ones are listed with `belljar agent runs --all`", all.len() - shown);
    }
    Ok(0)
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<16}  {:<19}  {:<10}  {:<15}  {:>5}  {:>10}  {:>11}  MODEL",
        "RUN", "STARTED", "AGENT", "ENDED", "TURNS", "USD", "TOOK"
    );
    for row in rows {
        let started: String = moment(row.started.as_deref().unwrap_or_default()).chars().take(19).collect();
        let started = printable(&started);
        let agent = printable(row.agent.as_deref().unwrap_or("-"));
        let model = printable(row.model.as_deref().unwrap_or(""));
        let turns = row.turns.map_or("-".into(), |turns| turns.to_string());
        let cost = row.cost_usd.map_or("-".into(), |cost| cost.to_string());
        let took = row.duration_ms.map_or("-".into(), seconds);
        let line = format!(
            "{}  {started:<19}  {agent:<10}  {:<15}  {turns:>5}  {cost:>10}  {took:>11}  {model}",
            row.run_id, row.state
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A run at a glance.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    run_id: SandboxId,
    started: Option<String>,
    agent: Option<String>,
    model: Option<String>,
    /// `running`, `killed`, or the stop reason.
    state: &'static str,
    turns: Option<u64>,
    cost_usd: Option<f64>,
    duration_ms: Option<u64>,
    directory: String,
}

impl Row {
    fn of(run: &Run) -> Result<Row, SandboxError> {
        let Glance { began, agent, model, state } = run.glance()?;
        // Of a run that has ended; one in progress has none yet.
        let result: Value = std::fs::read(run.directory.join("result.json"))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let text = |name: &str| result[name].as_str().map(str::to_string);
        Ok(Row {
            run_id: run.id,
            started: began,
            agent: agent.or_else(|| text("agent")),
            model: model.or_else(|| text("model")),
            state: match state {
                State::Running => "running",
                State::Dead => "killed",
                State::Ended(reason) => reason.as_str(),
            },
            turns: result["turns"].as_u64(),
            cost_usd: result["costUsd"].as_f64(),
            duration_ms: result["durationMs"].as_u64(),
            directory: run.directory.display().to_string(),
        })
    }
}

/// A screenful.
const NEWEST: usize = 20;

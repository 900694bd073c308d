//! `belljar agent phases`: several agents in sequence over one folder.

use super::super::run::say_loosened;
use super::attend::{Shared, attended};
use super::screen::Screen;
use super::sentence::seconds;
use super::{ending, request, state};
use crate::args::{AgentPhasesArgs, PlaceArgs};
use crate::commands::model::counted;
use crate::commands::refused;
use crate::failure::say_notes;
use belljar_agent::entry::Line;
use belljar_agent::phases::{self, Audience, Phase, PhasesResult};
use belljar_agent::run::RunResult;
use belljar_engine::Engine;
use belljar_engine::config::{EgressFlags, Note};
use belljar_spec::egress::Mode;
use belljar_spec::{SandboxError, SandboxSpec};
use serde_json::{Value, json};

pub(super) fn phases(options: AgentPhasesArgs) -> Result<u8, SandboxError> {
    let AgentPhasesArgs { file, json: as_lines, place } = options;
    let mut notes: Vec<Note> = Vec::new();
    // All of them before the first: what is wrong with the last one is said before anything is paid for.
    let mut made: Vec<(Phase, SandboxSpec)> = Vec::new();
    for phase in phases::read(&file)? {
        let (spec, said) = spec(&place, &phase)?;
        notes.extend(said);
        made.push((phase, spec));
    }
    notes.sort_by(|one, other| one.message.cmp(&other.message));
    notes.dedup();
    say_notes(&notes);
    made.iter().take(1).for_each(|(_, spec)| say_loosened(spec));
    let (state, path) = (state()?, request::search_path());
    let screen = if as_lines { Screen::for_programs() } else { Screen::for_people() };
    let result = attended(screen, |screen, stop| async move {
        let mut teller = Teller { screen, last: None };
        phases::run_phases(&Engine::new(), made, &path, &state, &mut teller, stop.wait()).await
    })?;
    let last = result.phases.last().map(|phase| &phase.result);
    if !as_lines {
        if let Some(last) = last {
            ending::answer(last)?;
            ending::say(last);
        }
        say(&result);
    } else {
        super::super::print(format!("{}\n", object(&result)).as_bytes())?;
    }
    Ok(last.map_or(0, ending::exit_code))
}

/// Where a phase runs: as flags say, and within that as the phase says.
fn spec(place: &PlaceArgs, phase: &Phase) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
    let mut wanted = place.wanted()?;
    if wanted.egress.mode == Some(Mode::Open) {
        let message = "`--egress open` would open every phase";
        return Err(SandboxError::policy("phases_all_open", message)
            .hint("write `egress = \"open\"` below the `[[phase]]` that needs it"));
    }
    let EgressFlags { mode, allow, groups } = phase.egress.clone();
    wanted.egress.mode = mode.or(wanted.egress.mode).or(place.unopened_mode()?);
    wanted.egress.allow.extend(allow);
    wanted.egress.groups.extend(groups);
    // What a phase says of these is all that counts for it.
    wanted.secrets.web_search.clone_from(&phase.web_search);
    wanted.secrets.github = phase.github.clone().or(wanted.secrets.github);
    request::spec(place.clone(), wanted, &phase.agent, phase.model.as_ref(), phase.budget)
}

/// Tells whoever looks.
struct Teller {
    screen: Shared,
    last: Option<usize>,
}

impl Audience for Teller {
    fn begins(&mut self, phase: &Phase, number: usize, all: usize) {
        let mut screen = self.screen.lock();
        screen.announce(&format!("phase {number} of {all}: {}", phase.name));
        screen.object(
            &json!({ "type": "phase", "phase": phase.name, "number": number, "of": all, "state": "started" }),
        );
        screen.expect_answer(number == all);
        self.last = Some(number);
    }

    fn line(&mut self, line: &Line, text: &str) {
        self.screen.lock().line(line, text);
    }

    fn ended(&mut self, phase: &Phase, result: &RunResult) {
        let (mut screen, number) = (self.screen.lock(), self.last.unwrap_or_default());
        let state = if result.success { "done" } else { "failed" };
        if let Some(line) = refused::line(&result.run_id, &result.refused) {
            screen.announce(line.strip_prefix("belljar: ").unwrap_or(&line));
        }
        screen.object(&json!({ "type": "phase", "phase": phase.name, "number": number, "state": state, "runId": result.run_id }));
    }
}

fn object(result: &PhasesResult) -> Value {
    let mut value = serde_json::to_value(result).unwrap_or_default();
    value["type"] = "phases_result".into();
    value
}

fn say(result: &PhasesResult) {
    for phase in &result.phases {
        let PhaseLine { state, turns, cost, long } = PhaseLine::of(&phase.result);
        eprintln!(
            "belljar: phase {}: {state}, {turns}, {cost}, {long} (run {})",
            phase.phase, phase.result.run_id
        );
    }
    if !result.skipped.is_empty() {
        eprintln!("belljar: not run: {}", result.skipped.join(", "));
    }
    let cost = result.cost_usd.map_or("cost not known".into(), |cost| format!("{cost} USD"));
    eprintln!(
        "belljar: all together: {}, {cost}, {}",
        counted(result.turns, "turn"),
        seconds(result.duration_ms)
    );
}

struct PhaseLine {
    state: String,
    turns: String,
    cost: String,
    long: String,
}

impl PhaseLine {
    fn of(result: &RunResult) -> PhaseLine {
        PhaseLine {
            state: result.stop_reason.to_string(),
            turns: counted(result.turns, "turn"),
            cost: result.cost_usd.map_or("cost not known".into(), |cost| format!("{cost} USD")),
            long: seconds(result.duration_ms),
        }
    }
}

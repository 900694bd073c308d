//! `belljar agent phases`: several agents in sequence over one folder.

use super::super::run::say_loosened;
use super::attend::{Shared, attended};
use super::screen::{Screen, say_patiently};
use super::sentence::seconds;
use super::{ending, request, state};
use crate::args::{AgentPhasesArgs, SandboxOptions};
use crate::commands::model::counted;
use crate::commands::refused;
use crate::failure::say_notes;
use belljar_agent::entry::Line;
use belljar_agent::phases::{self, Audience, Phase, PhasesResult};
use belljar_agent::run::RunResult;
use belljar_config::Note;
use belljar_engine::Engine;
use belljar_overlay::quote;
use belljar_spec::egress::Mode;
use belljar_spec::request::{EgressRequest, WebSearch};
use belljar_spec::workspace::ProtectedPath;
use belljar_spec::{ErrorCode, SandboxError, SandboxSpec};
use serde_json::{Value, json};
use std::path::{Component, Path};

pub(super) fn phases(options: AgentPhasesArgs) -> Result<u8, SandboxError> {
    let AgentPhasesArgs { file, json: as_lines, sandbox_options } = options;
    let mut notes: Vec<Note> = Vec::new();
    // All of them before the first: what is wrong with the last one is said before anything is paid for.
    let mut made: Vec<(Phase, SandboxSpec)> = Vec::new();
    for phase in phases::read(&file)? {
        let (mut spec, more) = spec(&sandbox_options, &phase)?;
        if let Some(folder) = &spec.workspace {
            spec.protected.extend(held(&file, folder)?);
        }
        notes.extend(more);
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
        }
        let result = result.clone();
        say_patiently(move || {
            result.phases.last().iter().for_each(|last| ending::say(&last.result));
            say(&result);
        });
    } else {
        super::super::print(format!("{}\n", object(&result)).as_bytes())?;
    }
    Ok(last.map_or(0, ending::exit_code))
}

/// Where a phase runs: as flags say, and within that as the phase says.
fn spec(sandbox_options: &SandboxOptions, phase: &Phase) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
    let (mut request, mut surroundings) = sandbox_options.clone().into_request()?;
    if request.egress.mode == Some(Mode::Open) {
        let message = "`--egress open` would open every phase";
        return Err(ErrorCode::RequestConflict
            .error(message)
            .hint("write `egress = \"open\"` below the `[[phase]]` that needs it"));
    }
    let EgressRequest { mode, allow, deny, groups, host_ports, inspect } = phase.egress.clone();
    request.egress.mode = mode.or(request.egress.mode).or(sandbox_options.unopened_mode()?);
    request.egress.allow.extend(allow);
    request.egress.deny.extend(deny);
    request.egress.groups.extend(groups);
    request.egress.host_ports.extend(host_ports);
    request.egress.inspect |= inspect;
    // What a phase says of these is all that counts for it.
    request.web_search.clone_from(&phase.web_search);
    if let Some(github) = &phase.github {
        request.github = Some(github.clone());
        surroundings.danger_forward_app_key = false;
    }
    request::spec(request, surroundings, &phase.agent, phase.model.as_ref(), phase.budget)
}

/// The file itself, if it lies in the folder that agents work in: one of them could write into it what the next call reads and
/// opens. Every spelling of it counts; a link among them is refused later on.
fn held(file: &Path, workspace: &Path) -> Result<Vec<ProtectedPath>, SandboxError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let spellings = [
        std::path::absolute(file).ok(),
        folder.canonicalize().ok().zip(file.file_name()).map(|(folder, name)| folder.join(name)),
        file.canonicalize().ok(),
    ];
    let roots = [workspace.canonicalize().ok(), std::path::absolute(workspace).ok()];
    let mut held = Vec::new();
    for path in spellings.iter().flatten() {
        for below in roots.iter().flatten().filter_map(|root| path.strip_prefix(root).ok()) {
            // The same place has another spelling.
            if below.components().any(|part| part == Component::ParentDir) {
                continue;
            }
            let text = below.to_str().unwrap_or("\0");
            held.push(text.parse::<ProtectedPath>().map_err(|error| {
                ErrorCode::RequestValue
                    .error(error.to_string())
                    .hint("give the file of phases a name in UTF-8, or keep it outside of the workspace")
                    .caused_by(error)
            })?);
        }
    }
    held.sort();
    held.dedup();
    Ok(held)
}

/// What a phase opens by itself, if anything.
fn opened(phase: &Phase) -> Option<String> {
    fn list<T: ToString>(what: &str, all: &[T]) -> Option<String> {
        let all: Vec<String> = all.iter().map(T::to_string).collect();
        (!all.is_empty()).then(|| format!("{what}{}", all.join(", ")))
    }
    // A phase opens no port of this machine by itself.
    let EgressRequest { mode, allow, deny: _, groups, host_ports: _, inspect: _ } = &phase.egress;
    let search = phase.web_search.as_ref().map(|search| match search {
        WebSearch::Named(name) => format!("web search by {name}"),
        WebSearch::Detect | WebSearch::IfStored => "web search".to_string(),
    });
    let github = phase.github.as_ref().map(|github| {
        let repositories = list(" for ", &github.repositories).unwrap_or_default();
        format!("GitHub {}{repositories}", github.profile)
    });
    let open = (*mode == Some(Mode::Open)).then(|| "egress to every public host".to_string());
    let parts = [open, github, search, list("groups ", groups), list("egress to ", allow)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| quote::visible(parts.join("; ").as_bytes()))
}

/// Shows the phases to the user.
struct Teller {
    screen: Shared,
    last: Option<usize>,
}

impl Audience for Teller {
    fn begins(&mut self, phase: &Phase, number: usize, all: usize) {
        let mut screen = self.screen.lock();
        let opened = opened(phase);
        screen.announce(&format!("phase {number} of {all}: {}", phase.name));
        if let Some(opened) = &opened {
            screen.announce(&format!("phase {} opens {opened}", phase.name));
        }
        screen.object(&json!({
            "type": "phase", "phase": phase.name, "number": number, "of": all, "state": "started", "opens": opened,
        }));
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

//! `belljar agent run`: a prompt and a folder in; an answer, changes and a bill out.

use super::super::run::say_loosened;
use super::attend::attended;
use super::conversation::{Usually, prepared};
use super::screen::{Screen, say_patiently};
use super::{ending, own, request, state};
use crate::args::AgentRunArgs;
use crate::failure::say_notes;
use belljar_agent::log::Watcher;
use belljar_agent::run;
use belljar_engine::Engine;
use belljar_spec::SandboxError;

pub(super) fn run(mut options: AgentRunArgs) -> Result<u8, SandboxError> {
    let as_lines = options.json;
    let (conversation, own) = (std::mem::take(&mut options.conversation), std::mem::take(&mut options.own));
    let (mut request, notes) = request::of_run(options)?;
    say_notes(&notes);
    say_loosened(&request.sandbox);
    own::tell(own, &mut request)?;
    let state = state()?;
    let _home = prepared(&conversation, Usually::Fresh, &mut request, &state)?;
    let screen = if as_lines { Screen::for_programs() } else { Screen::for_people() };
    let result = attended(screen, |screen, stop| async move {
        let watcher: Watcher<'_> = Box::new(move |line, text| screen.lock().line(line, text));
        run::run(&Engine::new(), request, &state, Some(watcher), stop.wait()).await
    })?;
    if !as_lines {
        ending::answer(&result)?;
        let result = result.clone();
        say_patiently(move || ending::say(&result));
    }
    Ok(ending::exit_code(&result))
}

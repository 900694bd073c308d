//! `belljar agent shell`: an agent's own terminal interface, with everything set up.

use super::super::block_on;
use super::super::run::{in_sandbox, say_loosened};
use super::conversation::{Usually, prepared};
use super::{own, request, state};
use crate::args::AgentShellArgs;
use crate::failure::say_notes;
use crate::foreground::terminal_size;
use belljar_agent::input;
use belljar_agent::run::{Agent, open};
use belljar_engine::Engine;
use belljar_spec::{ErrorCode, SandboxError};
use std::os::unix::ffi::OsStringExt;

pub(super) fn shell(options: AgentShellArgs) -> Result<u8, SandboxError> {
    let AgentShellArgs { agent, prompt, wish, conversation, sandbox_options, own } = options;
    let agent = Agent::named(&agent)?;
    if let Agent::Program(path) = &agent {
        let message = format!(
            "`{}` is a program of yours, and has no interface that belljar could open",
            path.display()
        );
        return Err(ErrorCode::RequestValue
            .error(message)
            .hint("`belljar agent run` runs it; `belljar run -- PROGRAM` gives it your terminal"));
    }
    let Some(size) = terminal_size() else {
        return Err(ErrorCode::RequestValue
            .error("an agent's interface needs a terminal, and there is none")
            .hint("`belljar agent run` needs none"));
    };
    let prompt = match prompt {
        Some(prompt) => input::prompt(prompt.into_vec(), "`--prompt`")?,
        None => String::new(),
    };
    let timeout = sandbox_options.timeout();
    let (mut request, notes) = request::request(agent, prompt, wish, sandbox_options, true)?;
    say_notes(&notes);
    say_loosened(&request.sandbox);
    own::tell(own, &mut request)?;
    // Another one of the same folder begins with a fresh home, unless a conversation is to go on.
    let is_chosen = conversation.latest || conversation.resume.is_some() || conversation.keep_home;
    let _home = match prepared(&conversation, Usually::Persistent, &mut request, &state()?) {
        Err(error) if error.code == ErrorCode::InUse && !is_chosen => {
            eprintln!("belljar: {}: this one has a fresh home, which is not kept", error.message);
            None
        }
        prepared => prepared?,
    };
    let timeout = request.time.or(timeout);
    let (sandbox, command) = block_on(open(&Engine::new(), &request))?;
    in_sandbox(&sandbox, command, size, timeout)
}

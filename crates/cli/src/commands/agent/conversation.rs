//! Which conversation a prompt belongs to, and the home that it is in.

use crate::args::ConversationArgs;
use belljar_agent::home::PersistentHome;
use belljar_agent::read;
use belljar_agent::run::{Conversation, RunRequest};
use belljar_spec::{ErrorCode, SandboxError};
use std::path::Path;

/// Whether a home is kept where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usually {
    Persistent,
    Fresh,
}

/// Prepares the request for its conversation. What is returned holds the home, until the run has ended.
pub(super) fn prepared(
    options: &ConversationArgs,
    usually: Usually,
    request: &mut RunRequest,
    state: &Path,
) -> Result<Option<PersistentHome>, SandboxError> {
    let is_chosen = options.latest || options.resume.is_some() || options.keep_home;
    if options.fresh_home || !is_chosen && usually == Usually::Fresh {
        return Ok(None);
    }
    let Some(folder) = request.sandbox.workspace.clone() else {
        if !is_chosen {
            return Ok(None);
        }
        return Err(ErrorCode::RequestConflict
            .error("a home is kept for a folder, and a clone that the host makes is none")
            .hint("clone the repository yourself, and work in it"));
    };
    let home = PersistentHome::take(state, &request.agent, &folder)?;
    request.conversation = match &options.resume {
        Some(run) => home.conversation(&read::find(state, Some(run))?.directory.join("result.json"))?,
        None if options.latest => Conversation::Latest,
        None => Conversation::New,
    };
    home.give(request)?;
    Ok(Some(home))
}

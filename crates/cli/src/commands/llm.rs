//! `belljar llm`: what was used of a model, and whether the upstream's books say the same.

use crate::args::LlmCommand;
use belljar_spec::SandboxError;

pub(crate) fn llm(command: LlmCommand) -> Result<u8, SandboxError> {
    match command {
        LlmCommand::Spend(_) => Ok(0),
    }
}

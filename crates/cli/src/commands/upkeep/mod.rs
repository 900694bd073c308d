//! `belljar du`, `prune`, `daemon stop`, `uninstall`: what belljar keeps on this machine, and how it goes. Each store is measured and
//! emptied by the crate that owns it, under the locks of those who use it.

mod daemon_stop;
mod du;
mod prune;
mod uninstall;

pub(super) use daemon_stop::stop as stop_daemon;
pub(super) use prune::apply_retention;

use crate::args::UpkeepCommand;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;

pub(crate) fn upkeep(command: UpkeepCommand) -> Result<u8, SandboxError> {
    match command {
        UpkeepCommand::Du(options) => du::du(&options),
        UpkeepCommand::Prune(options) => prune::prune(&options),
        UpkeepCommand::Uninstall(options) => uninstall::uninstall(&options),
    }
}

/// Asks the person at the terminal.
fn confirmed(question: &str, command: &str) -> Result<bool, SandboxError> {
    if !isatty(stdin()) {
        return Err(ErrorCode::RequestValue
            .error("cannot prompt: standard input is not a terminal")
            .hint(format!("`{command} --dry-run` lists what goes, `{command} --yes` removes it")));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| {
        ErrorCode::StreamFailed.error(format!("cannot read the answer: {error}")).caused_by(error)
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The person was asked, and said no.
const DECLINED: u8 = 1;

//! `belljar completions`: scripts that complete commands and flags in a shell.

use super::print;
use crate::args::command;
use belljar_spec::SandboxError;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<u8, SandboxError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "belljar", &mut script);
    print(&script)
}

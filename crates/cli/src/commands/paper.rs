//! What goes to paper: completions and the manual page, made from the words themselves.

use super::print;
use crate::args::Args;
use belljar_spec::{ErrorCode, SandboxError};
use clap::CommandFactory;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<u8, SandboxError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "belljar", &mut script);
    print(&script)
}

pub(crate) fn man() -> Result<u8, SandboxError> {
    let mut page = Vec::new();
    let command = Args::command();
    let render = |command: clap::Command, page: &mut Vec<u8>| clap_mangen::Man::new(command).render(page);
    render(command.clone(), &mut page).map_err(failed)?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        // Their options, as sections of the same page.
        let name = format!("BELLJAR {}", part.get_name().to_uppercase());
        page.extend_from_slice(format!(".SH \"{name}\"\n").as_bytes());
        let man = clap_mangen::Man::new(part.clone());
        man.render_description_section(&mut page).map_err(failed)?;
        man.render_options_section(&mut page).map_err(failed)?;
    }
    print(&page)
}

fn failed(error: std::io::Error) -> SandboxError {
    ErrorCode::Internal.error(format!("cannot make the page: {error}")).caused_by(error)
}

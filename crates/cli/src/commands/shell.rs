//! `belljar shell`: a shell in a sandbox.

use super::build::with_own_image;
use super::print;
use super::run::{Notes, in_foreground, say_loosened, warn_of_weak_isolation};
use super::standing::Standing;
use super::{persistent, roots};
use crate::args::{ForwardedArgs, SandboxOptions, ShellArgs};
use crate::failure::say_notes;
use crate::foreground::terminal_size;
use belljar_spec::egress::{EgressPolicy, Mode};
use belljar_spec::{Command, ErrorCode, Root, SandboxError};

/// Joins the folder's sandbox if it has one and nothing else was said; else opens one of its own.
pub(crate) fn shell(options: ShellArgs) -> Result<u8, SandboxError> {
    let ShellArgs { folder, once, forward, image, sandbox_options } = options;
    let sandbox_options = with_own_image(
        sandbox_options.on(folder),
        &image,
        |sandbox_options| persistent::folder(sandbox_options.folder()),
        false,
    )?;
    if !once
        && forward.ports.is_empty()
        && sandbox_options.is_silent()
        && let Some(join) =
            persistent::shell::joins(sandbox_options.folder().as_deref(), sandbox_options.branch())
    {
        return join();
    }
    alone(sandbox_options, forward)
}

/// `belljar` and nothing else: at a terminal a shell, else what there is to say.
pub(crate) fn without_words() -> Result<u8, SandboxError> {
    if terminal_size().is_some() {
        return shell(ShellArgs::default());
    }
    let help = crate::args::command().render_help().to_string();
    print(help.as_bytes())
}

fn alone(sandbox_options: SandboxOptions, forward: ForwardedArgs) -> Result<u8, SandboxError> {
    let Standing { sandbox_options, below } = Standing::of(sandbox_options, true)?;
    let timeout = sandbox_options.timeout();
    let (mut spec, notes) = sandbox_options.spec()?;
    spec.forward_ports.extend(forward.ports);
    say_notes(&notes);
    say_loosened(&spec);
    roots::make_ready(&spec)?;
    let size = terminal_size();
    let words: &[&str] = match (&spec.root, size) {
        (Root::Host, Some(_)) => &[belljar_engine::host_shell(), "-i"],
        // Commands from a pipe need no prompt.
        (Root::Host, None) => &[belljar_engine::host_shell()],
        // Which shell such a root has, its environment says.
        (_, Some(_)) => &["/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\" -i"],
        (_, None) => &["/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\""],
    };
    let mut command =
        Command::new(words).map_err(|error| ErrorCode::Internal.error(error.to_string()).caused_by(error))?;
    command.cwd = below;
    let reach = reach(spec.egress.as_ref());
    in_foreground(&spec, command, size, Notes::Shown, |sandbox| {
        warn_of_weak_isolation(sandbox);
        if size.is_some() {
            eprintln!(
                "belljar: you are inside ({}, {}); this folder is {}, {reach}; exit with ctrl-D",
                sandbox.backend(),
                sandbox.assurance(),
                sandbox.workspace()
            );
        }
        timeout
    })
}

/// What can be reached, in a word.
fn reach(policy: Option<&EgressPolicy>) -> &'static str {
    match policy {
        Some(EgressPolicy { mode: Mode::Open, .. }) => "every public name can be reached",
        Some(EgressPolicy { mode: Mode::Ask, .. }) => "of any other name you are asked (`belljar approve`)",
        Some(EgressPolicy { mode: Mode::Strict, allow, .. }) if !allow.is_empty() => {
            "/etc/belljar/network.txt says what can be reached"
        }
        Some(_) | None => "there is no network",
    }
}

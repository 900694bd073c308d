//! The program under test, and the others that are asked to do the same.

use crate::Outcome;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) struct Belljar {
    program: PathBuf,
    /// Its change sets, managed clones and audit logs: on the same filesystem as what it works on, and gone afterwards.
    state: PathBuf,
}

impl Belljar {
    /// The binary that was built beside us.
    pub(crate) fn find(folder: &Path) -> Outcome<Belljar> {
        let program = std::env::current_exe()?.with_file_name("belljar");
        if !program.exists() {
            let missing = program.display();
            return Err(format!("there is no {missing}: run `cargo build --release` first").into());
        }
        let state = folder.join("state");
        fs::create_dir(&state)?;
        Ok(Belljar { program, state })
    }

    /// `belljar run FLAGS -- COMMAND` on a folder.
    pub(crate) fn run(&self, workspace: &Path, flags: &[&str], command: &[&str]) -> Command {
        let mut run = self.word("run", workspace);
        run.args(flags).arg("--").args(command);
        run
    }

    /// Another word of belljar's about a folder.
    pub(crate) fn word(&self, word: &str, workspace: &Path) -> Command {
        let mut command = quiet(&self.program);
        command.arg(word).current_dir(workspace).env("XDG_STATE_HOME", &self.state);
        command
    }

    /// Whether a layer works here: what is written into it must not be in the folder.
    pub(crate) fn has_layers(&self, workspace: &Path) -> bool {
        let written = self.run(workspace, &["--overlay"], &["sh", "-c", "> probe"]).status();
        let untouched = !workspace.join("probe").exists();
        let works = written.is_ok_and(|status| status.success()) && untouched;
        if !works {
            println!("belljar run --overlay: does not work here");
        }
        works
    }

    /// Whether this belljar knows of it, here; said, if not.
    pub(crate) fn can(&self, workspace: &Path, flags: &[&str]) -> bool {
        let output = self.run(workspace, flags, &["true"]).stderr(Stdio::piped()).output();
        match output {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                let reason = String::from_utf8_lossy(&output.stderr);
                println!("belljar run {}: {}", flags.join(" "), reason.lines().next().unwrap_or("fails"));
                false
            }
            Err(_) => false,
        }
    }
}

/// A program with no input, and whose output is dropped.
pub(crate) fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs it, and wants it to succeed.
pub(crate) fn must(command: &mut Command) -> Outcome<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Whether a program is here at all; said, if not.
pub(crate) fn is_here(program: &str) -> bool {
    let here = quiet(program).arg("--version").status().is_ok();
    if !here {
        println!("{program}: not here");
    }
    here
}

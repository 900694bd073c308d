//! `belljar tool-shell`: the shell of an agent that runs outside. Each command of its model is one process of this, and runs in the
//! sandbox of the folder that the agent works in; where there is none, it does not run.
//!
//! Claude Code remembers the directory of its shell by a file that each command writes at its end: the command writes it inside, and it
//! is copied out.

use super::daemon::client;
use super::exec::{in_foreground, standing};
use super::hold::{Held, paused, say_notes};
use super::living::Living;
use super::repository::Repository;
use super::target::Target;
use crate::commands::block_on;
use belljar_api::client::Sandbox;
use belljar_api::{RefusedInfo, StartCommand};
use belljar_spec::{ErrorCode, OsText, SandboxError};
use belljar_sys::rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(crate) fn tool_shell(words: Vec<OsString>) -> Result<u8, SandboxError> {
    let repository = Repository::here(None)?;
    if !repository.is_ready() {
        let message = format!(
            "`{}` is in no folder that has a sandbox: the command was not run",
            repository.folder.display()
        );
        return Err(ErrorCode::SandboxNotFound.error(message).hint(HOW_TO_MAKE));
    }
    let line = Line::of(words)?;
    let folder = repository.folder.clone();
    let target = Target::Folder(repository);
    block_on(async {
        if let Some(living) = Living::find(&target).await {
            say_notes(&living.notes);
            match run(&living.sandbox, &line, living.below.as_deref(), &folder).await {
                // It was being stopped, and nothing was started: the daemon can start it again.
                Err(error) if error.code == ErrorCode::SandboxNotAlive => {}
                outcome => return ended(outcome, living.sandbox.name()),
            }
        }
        let client = client();
        // One that is gone is not made here: it would lack what protects the agent's settings.
        target.find(&client).await.map_err(|error| error.hint(HOW_TO_MAKE))?;
        let held = Held::take(&client, &target).await?;
        let outcome = run(&held.sandbox, &line, held.below.as_deref(), &folder).await;
        let outcome = ended(outcome, held.sandbox.name());
        held.release().await;
        outcome
    })
}

fn ended(outcome: Result<u8, SandboxError>, name: &str) -> Result<u8, SandboxError> {
    outcome.map_err(|error| match error.code {
        ErrorCode::SandboxPaused => paused(name),
        _ => error,
    })
}

async fn run(
    sandbox: &Sandbox,
    line: &Line,
    below: Option<&Path>,
    folder: &Path,
) -> Result<u8, SandboxError> {
    // A shim of an older belljar counts none.
    let before = sandbox.refusals().await.unwrap_or_default();
    let command = StartCommand {
        argv: line.argv.clone(),
        cwd: standing(below),
        env: PASSED_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).into(), std::env::var(name).ok()?.into())))
            .collect(),
        alone_s: Some(ALONE_S),
        ..StartCommand::default()
    };
    let code = in_foreground(sandbox, command, None).await?;
    if let Some(remembered) = &line.remembered {
        remembered.copy(sandbox, folder).await;
    }
    let now = sandbox.refusals().await.unwrap_or_default();
    say_refused(&before, &now);
    Ok(code)
}

/// For the model, behind the command's own output: what it tried is not broken, and only the user can change that.
fn say_refused(before: &[RefusedInfo], now: &[RefusedInfo]) {
    for refused in RefusedInfo::since(before, now).take(MAX_SHOWN) {
        match refused.rule() {
            Some(rule) => eprintln!(
                "belljar: refused {}; the user can allow it: `belljar allow {rule}`, then `belljar stop`",
                refused.sentence
            ),
            None => eprintln!("belljar: refused {}", refused.sentence),
        }
    }
}

/// What is run.
#[derive(Debug)]
struct Line {
    argv: Vec<OsText>,
    remembered: Option<Remembered>,
}

impl Line {
    /// As a shell is started (`bash -c LINE`), or as Claude Code starts its prefix, with the line alone.
    fn of(words: Vec<OsString>) -> Result<Line, SandboxError> {
        let bash = std::iter::once(OsText::from("bash"));
        match words.as_slice() {
            [line] if line.to_str().is_some_and(|line| !line.starts_with('-')) => {
                let (line, remembered) = Remembered::of(&line.to_string_lossy());
                let argv = bash.chain(["-c".into(), line.as_str().into()]).collect();
                Ok(Line { argv, remembered })
            }
            [first, _, ..] if first.to_str().is_some_and(|first| first.starts_with('-')) => {
                Ok(Line { argv: bash.chain(words.into_iter().map(OsText::from)).collect(), remembered: None })
            }
            _ => Err(ErrorCode::RequestInvalid
                .error("this is the shell of an agent, and runs one line: `-c LINE`")
                .hint("`belljar shell` opens a shell, `belljar exec -- COMMAND` runs a command")),
        }
    }
}

/// A file outside in which an agent finds the directory that its last command ended in.
#[derive(Debug, PartialEq, Eq)]
struct Remembered {
    outside: PathBuf,
    inside: String,
}

impl Remembered {
    /// A line, and the file that its end writes. Inside it has another name, in a folder that is there.
    fn of(line: &str) -> (String, Option<Remembered>) {
        let known = line.rsplit_once(WRITES).and_then(|(start, file)| {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
            let name = file.rsplit_once('/').map(|(_, name)| name)?;
            let is_ours = file.starts_with('/') && file.chars().all(is_plain);
            (is_ours && name.starts_with("claude-") && name.ends_with("-cwd")).then_some((start, file, name))
        });
        let Some((start, file, name)) = known else { return (line.to_string(), None) };
        let inside = format!("/tmp/{name}");
        (format!("{start}{WRITES}{inside}"), Some(Remembered { outside: file.into(), inside }))
    }

    /// What cannot be copied leaves the agent where it was.
    async fn copy(&self, sandbox: &Sandbox, folder: &Path) {
        let Ok(bytes) = sandbox.file(&self.inside, MAX_PATH_BYTES).await else { return };
        let _ = sandbox.remove_file(&self.inside, false).await;
        let Some(outside) =
            std::str::from_utf8(&bytes).ok().and_then(|text| of_host(text.trim_end_matches('\n'), folder))
        else {
            return;
        };
        let options = OFlags::NOFOLLOW.bits().cast_signed();
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(options)
            .open(&self.outside);
        let written = opened.and_then(|mut file| file.write_all(outside.as_os_str().as_encoded_bytes()));
        match written {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                eprintln!("belljar: the directory is not remembered: {}: {error}", self.outside.display());
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// A directory of the workspace, as the host calls it; nothing for any other, and where the host has none there.
fn of_host(inside: &str, folder: &Path) -> Option<PathBuf> {
    let inside = Path::new(inside);
    let below = inside.strip_prefix(folder).or_else(|_| inside.strip_prefix("/workspace")).ok()?;
    let outside = folder.join(below);
    // Links are the sandbox's to make, and lead elsewhere here.
    (outside.canonicalize().ok()? == outside && outside.is_dir()).then_some(outside)
}

const HOW_TO_MAKE: &str = "`belljar integrate AGENT --write` in the folder makes its sandbox; the agent's commands run nowhere else";
/// How Claude Code ends each line.
const WRITES: &str = " && pwd -P >| ";
/// Variables of an agent that programs of its model may see: none of them is confidential.
const PASSED_VARIABLES: [&str; 6] =
    ["AI_AGENT", "CLAUDECODE", "GIT_EDITOR", "GIT_PAGER", "NO_COLOR", "PAGER"];
/// How long a command continues when its agent kills this process: not at all, but for a connection that is lost for a moment.
const ALONE_S: u64 = 5;
/// Of one command.
const MAX_SHOWN: usize = 5;
/// PATH_MAX of Linux.
const MAX_PATH_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_run_by_bash_as_the_agent_started_it() {
        let argv = |words: &[&str]| -> Option<Vec<String>> {
            let line = Line::of(words.iter().map(OsString::from).collect()).ok()?;
            Some(line.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect())
        };
        let words = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(argv(&["ls -l"]), words(&["bash", "-c", "ls -l"]));
        assert_eq!(argv(&["-c", "ls"]), words(&["bash", "-c", "ls"]));
        assert_eq!(argv(&["-l", "-c", "ls", "zero"]), words(&["bash", "-l", "-c", "ls", "zero"]));
        for wrong in [&[][..], &["-c"], &["-i"], &["ls", "-l"]] {
            assert_eq!(argv(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_file_of_the_directory_is_the_end_of_the_line_alone() {
        let (line, remembered) = Remembered::of("eval 'cd a' && pwd -P >| /var/x/claude-1a2b-cwd");
        assert_eq!(line, "eval 'cd a' && pwd -P >| /tmp/claude-1a2b-cwd");
        let expected =
            Remembered { outside: "/var/x/claude-1a2b-cwd".into(), inside: "/tmp/claude-1a2b-cwd".into() };
        assert_eq!(remembered, Some(expected));
        for other in [
            "eval 'x && pwd -P >| /tmp/claude-1-cwd'",
            "eval 'x' && pwd -P >| /home/ada/.bashrc",
            "eval 'x' && pwd -P >| claude-1-cwd",
            "eval 'x' && pwd -P >| '/tmp/claude-1-cwd'",
            "eval 'x' && pwd -P >| /tmp/claude-1-cwd; true",
            "ls",
        ] {
            assert_eq!(Remembered::of(other), (other.to_string(), None));
        }
    }

    #[test]
    fn only_a_directory_of_the_folder_is_remembered() {
        let top = tempfile::tempdir().expect("a folder");
        let folder = top.path().canonicalize().expect("a folder").join("web");
        std::fs::create_dir_all(folder.join("sub")).expect("a folder");
        std::fs::write(folder.join("file"), "").expect("a file");
        std::os::unix::fs::symlink("/etc", folder.join("link")).expect("a link");
        let text = |name: &str| folder.join(name).to_str().expect("text").to_string();
        assert_eq!(of_host(&text("sub"), &folder), Some(folder.join("sub")));
        assert_eq!(of_host("/workspace/sub", &folder), Some(folder.join("sub")));
        for other in
            [&text("file"), &text("link"), &text("gone"), &text("sub/../.."), "/etc", "/workspace/..", "sub"]
        {
            assert_eq!(of_host(other, &folder), None, "{other}");
        }
    }
}

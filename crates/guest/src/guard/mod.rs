//! The program called as `git`: it explains what an agent should not try, and is git for everything else.
//!
//! It protects nothing: the real git is one path away. What must hold is held by mounts, by the relay and by the gateway;
//! this is where an agent reads, at the prompt, why, and what to do instead. It changes no word and no variable, and
//! is replaced by git when it is done.

mod arguments;
mod grammar;
mod judge;

use belljar_sys::exec;
use belljar_sys::rustix::io::Errno;
use judge::judge;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Whether this program was called as git.
pub(crate) fn is_wanted() -> bool {
    let name = env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name() == Some(OsStr::new("git"))
}

/// Refuses, or becomes git.
pub(crate) fn run() -> ExitCode {
    let words: Vec<Vec<u8>> = env::args_os().skip(1).map(OsString::into_vec).collect();
    let variable = |name: &str| env::var_os(name).map(OsString::into_vec);
    match judge(&words, &variable) {
        Some(refusal) => {
            say(&refusal.to_string());
            ExitCode::from(REFUSED)
        }
        None => become_git(),
    }
}

/// The next git on PATH that is not this program. Comes back only if there is none.
fn become_git() -> ExitCode {
    let c_string = |text: OsString| CString::new(text.into_vec()).ok();
    // The kernel's own strings have no zero byte.
    let words: Vec<CString> = env::args_os().filter_map(c_string).collect();
    let mut refused = None;
    for program in candidates().filter_map(|path| c_string(path.into())) {
        match exec::replace(&program, &words) {
            Errno::NOENT | Errno::NOTDIR => {}
            errno => refused = Some((program, errno)),
        }
    }
    match refused {
        Some((program, errno)) => {
            say(&format!("git: cannot run {}: {errno}\n", program.to_string_lossy()));
            ExitCode::from(CANNOT_RUN)
        }
        None => {
            say("git: command not found\n");
            ExitCode::from(NOT_FOUND)
        }
    }
}

fn candidates() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let own = identity(Path::new("/proc/self/exe"));
    let directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories
        .into_iter()
        // An empty entry means here: environ(7).
        .map(|directory| if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory })
        .map(|directory| directory.join("git"))
        .filter(move |program| matches!(identity(program), Some(found) if Some(found) != own))
}

/// What a file is, under whatever name.
fn identity(program: &Path) -> Option<(u64, u64)> {
    let found = program.metadata().ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}

/// Nobody reads it if it cannot be written.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Bytes that go into a message: short, on one line, whatever they are.
fn printable(bytes: &[u8]) -> String {
    let text: String = OsStr::from_bytes(bytes).to_string_lossy().chars().take(LONGEST).collect();
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// As git's own failures.
const REFUSED: u8 = 1;
// As a shell has it.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const LONGEST: usize = 100;

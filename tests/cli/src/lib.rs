//! What a person sees: the real binary, its words, its exit codes. One file a subject under `tests/`.

mod foreground;
mod home;
pub mod left;
mod person;

pub use foreground::{Foreground, Piped};
pub use home::Home;
pub use person::Person;

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The binary under test: `BELLJAR_BIN`, or the one that was built beside this test.
pub fn belljar() -> PathBuf {
    if let Some(path) = std::env::var_os("BELLJAR_BIN") {
        return PathBuf::from(path);
    }
    let here = std::env::current_exe().expect("a test knows where it is");
    // target/[TRIPLE/]PROFILE/deps/test-...
    let profile = here.parent().and_then(|deps| deps.parent()).expect("tests lie in a profile's deps folder");
    let binary = profile.join("belljar");
    assert!(binary.exists(), "{} is missing: `cargo build` first", binary.display());
    binary
}

/// A run of belljar and what came of it.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs belljar in `folder` with `args`.
pub fn run<S: AsRef<OsStr>>(folder: &std::path::Path, args: impl IntoIterator<Item = S>) -> Run {
    run_with_input(folder, args, b"")
}

/// The same, with something on standard input.
pub fn run_with_input<S: AsRef<OsStr>>(
    folder: &std::path::Path,
    args: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Run {
    let mut child = Command::new(belljar())
        .args(args)
        .current_dir(folder)
        .env_remove("CI")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("belljar starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        // A command that does not read is no error here.
        let _ = stdin.write_all(&input);
    });
    let Output { status, stdout, stderr } = child.wait_with_output().expect("belljar ends");
    let _ = feeding.join();
    Run {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

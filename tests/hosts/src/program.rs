//! Real programs: whether they are here, and a running one that ends with its test.

use std::env;
use std::process::{self, Command};

/// Whether every one of these programs is here, on PATH or at its own path. Says which is not; in CI that is a failure.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
pub fn have<const N: usize>(programs: [&str; N]) -> bool {
    let missing = programs.into_iter().find(|program| !is_here(program));
    let Some(missing) = missing else { return true };
    assert!(env::var("CI").as_deref() != Ok("true"), "there is no `{missing}` here, and CI must have it");
    eprintln!("skipped: no `{missing}` here");
    false
}

fn is_here(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // An absolute path joined to a directory is itself.
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A program that is killed when this is dropped.
pub struct Child(process::Child);

impl Child {
    /// Starts it.
    pub fn start(command: &mut Command) -> Child {
        Child(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! The list of sweeps. A crate that can be killed while it has something on this machine that nothing else would remove declares
//! here what that is and how it is removed; a start and a sweep of sandboxes run the list, in its order.
//!
//! A sweep takes nothing from running processes: it removes only what no process has locked ([`crate::Lock`]). What it cannot
//! remove now is left to the next sweep, so there is no error to report.
//!
//! Not in the list, since each needs more than the state directory, or another time than the start of a sandbox:
//! - quarantines of commits (`workspace/quarantine`): before each import and each relay, because what a killed import left may hold the
//!   index of the host's repository that is written next; it reports what it cannot undo
//! - managed clones and clones: by the next process that takes the lock of that managed clone, or of all clones
//! - change sets (`overlay`): an unfinished apply writes in the user's folder, which only commands that change one may do
//! - prepared roots (`backend/native/prepared`): with each new one, so that a start that finds its root looks at nothing else
//! - the golden root: below the lock of a build, since each build is held against the current one
//! - the ledger of the audit log: with each new log, below the ledger's lock
//! - sandboxes (`fleet`): by the daemon, which alone knows which shims live

use std::path::Path;

/// One kind of leftover, and how it is removed.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// What is removed, for messages.
    pub of: &'static str,
    run: Run,
}

#[derive(Debug, Clone, Copy)]
enum Run {
    Machine(fn()),
    State(fn(&Path)),
}

impl Sweep {
    /// A sweep of leftovers outside of the state directory.
    pub const fn of_machine(of: &'static str, run: fn()) -> Sweep {
        Sweep { of, run: Run::Machine(run) }
    }

    /// A sweep of leftovers in the state directory.
    pub const fn of_state(of: &'static str, run: fn(&Path)) -> Sweep {
        Sweep { of, run: Run::State(run) }
    }
}

/// Sweeps in the order in which they are run.
#[derive(Debug, Clone, Default)]
pub struct Sweeps(Vec<Sweep>);

impl Sweeps {
    /// Adds the sweeps of a crate.
    pub fn with(mut self, sweeps: &[Sweep]) -> Sweeps {
        self.0.extend_from_slice(sweeps);
        self
    }

    /// Runs all of them; without a state directory, those that need none.
    pub fn run(&self, state: Option<&Path>) {
        for sweep in &self.0 {
            match (sweep.run, state) {
                (Run::Machine(run), _) => run(),
                (Run::State(run), Some(state)) => run(state),
                (Run::State(_), None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SWEEPS: [Sweep; 2] = [
        Sweep::of_state("first", |state| drop(fs::remove_file(state.join("first")))),
        // Fails if the one before did not run.
        Sweep::of_state("directory", |state| drop(fs::remove_dir(state))),
    ];

    #[test]
    fn sweeps_are_run_in_their_order_and_without_a_state_directory_only_those_that_need_none() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::write(state.join("first"), "").unwrap();
        let sweeps = Sweeps::default().with(&SWEEPS).with(&[Sweep::of_machine("machine", || {})]);
        sweeps.run(None);
        assert!(state.join("first").exists());
        sweeps.run(Some(&state));
        assert!(!state.exists());
    }
}

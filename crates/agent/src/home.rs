//! The home of an agent in a folder, where that is kept: the agent's conversations are in it, and go on in a later run. Below the state
//! directory, one for each folder and agent:
//!
//! ```text
//! agents/<agent>-<folder>/lock     held by the run that uses it
//! agents/<agent>-<folder>/home/    mounted as the home
//! ```
//! Whatever an agent wrote there is read by its next run, and by nothing else.

use crate::run::{Agent, Conversation, RunRequest};
use belljar_engine::persistent_work_id;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{create_private, disk_usage, lock_open_file, remove_whole};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A home that is kept, used by one run at a time: by the one that has this.
#[derive(Debug)]
pub struct PersistentHome {
    name: String,
    directory: PathBuf,
    _lock: File,
}

impl PersistentHome {
    /// Of this agent in this folder; made if it is not there.
    pub fn take(state: &Path, agent: &Agent, folder: &Path) -> Result<PersistentHome, SandboxError> {
        let Agent::Known(adapter) = agent else {
            let message = format!(
                "`{}` is a program of yours, whose conversations belljar does not know",
                agent.name()
            );
            return Err(ErrorCode::RequestConflict.error(message).hint("it gets each prompt alone"));
        };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let name = format!("{}-{}", adapter.name, persistent_work_id(&folder.to_string_lossy()));
        let directory = homes(state).join(&name);
        let failed = |error: io::Error| {
            ErrorCode::StateFailed
                .error(format!("cannot keep a home in {}: {error}", directory.display()))
                .caused_by(error)
        };
        create_private(&directory).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false).mode(0o600);
        let lock = options.open(directory.join("lock")).map_err(failed)?;
        if !lock_open_file(&lock, Duration::ZERO).map_err(failed)? {
            let message =
                format!("another run of {} in this folder uses the home that is kept for it", adapter.title);
            return Err(ErrorCode::InUse.error(message).hint("wait for its end, or begin with a fresh home"));
        }
        // When it was last used.
        let _ = lock.set_modified(SystemTime::now());
        Ok(PersistentHome { name, directory, _lock: lock })
    }

    /// The request works in it. Refuses to continue what is not there.
    pub fn give(&self, request: &mut RunRequest) -> Result<(), SandboxError> {
        let home = self.directory.join("home");
        if request.conversation != Conversation::New && !home.exists() {
            let message =
                format!("there is no earlier conversation with {} in this folder", request.agent.name());
            return Err(ErrorCode::WorkNotFound
                .error(message)
                .hint("a run can be continued if its home was kept"));
        }
        request.sandbox.home = Some(home);
        Ok(())
    }

    /// The conversation of an earlier run, which must have been in this home.
    pub fn conversation(&self, result: &Path) -> Result<Conversation, SandboxError> {
        let no = |why: &str, hint: &str| Err(ErrorCode::WorkNotFound.error(why).hint(hint));
        let Some(result) = fs::read(result).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        else {
            return no("the run has no result yet", "the list of runs says which have ended");
        };
        match (result["keptHome"].as_str(), result["claims"]["sessionId"].as_str()) {
            (None, _) => no(
                "the run's home was not kept, and its conversation went with it",
                "begin the run with its home kept",
            ),
            (Some(home), _) if home != self.name => no(
                "the run was of another agent or in another folder",
                "resume it with its agent, in its folder",
            ),
            (Some(_), Some(session)) if is_plain(session) => Ok(Conversation::Named(session.to_string())),
            (Some(_), _) => {
                no("the agent did not name its conversation", "`--continue` goes on with the last one")
            }
        }
    }
}

/// A name that an agent gave, which stands on a command line again.
fn is_plain(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    !name.starts_with('-') && (1..=100).contains(&name.len()) && name.chars().all(plain)
}

/// What a result calls the home that a run had.
pub(crate) fn name_of(home: &Path) -> Option<String> {
    home.parent()?.file_name()?.to_str().map(String::from)
}

/// Removes homes that were last used before a moment; `dry_run` only counts them.
pub(crate) fn prune(state: &Path, before: SystemTime, dry_run: bool) -> io::Result<belljar_state::DiskUsage> {
    let mut pruned = belljar_state::DiskUsage::default();
    let entries = match fs::read_dir(homes(state)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(pruned),
        Err(error) => return Err(error),
    };
    for directory in entries.flatten().map(|entry| entry.path()) {
        let Ok(lock) = File::open(directory.join("lock")) else { continue };
        let is_old = lock.metadata().and_then(|found| found.modified()).is_ok_and(|used| used < before);
        // A run that uses it holds the lock.
        if !is_old || !lock_open_file(&lock, Duration::ZERO)? {
            continue;
        }
        let usage = disk_usage(&directory);
        if !dry_run {
            remove_whole(&directory)?;
        }
        pruned.bytes += usage.bytes;
        pruned.entries += 1;
    }
    Ok(pruned)
}

fn homes(state: &Path) -> PathBuf {
    state.join("agents")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_belongs_to_one_run_of_one_agent_in_one_folder() {
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let agent = |name: &str| Agent::named(name).unwrap();
        let take = |name: &str, folder: &Path| PersistentHome::take(state.path(), &agent(name), folder);
        let held = take("claude", one.path()).unwrap();
        assert_eq!(take("claude", one.path()).unwrap_err().code, ErrorCode::InUse);
        assert_ne!(take("claude", other.path()).unwrap().name, held.name);
        assert_ne!(take("codex", one.path()).unwrap().name, held.name);
        assert_eq!(take("./mine", one.path()).unwrap_err().code, ErrorCode::RequestConflict);
        let name = held.name.clone();
        drop(held);
        assert_eq!(take("claude", one.path()).unwrap().name, name, "the same home again");
    }

    #[test]
    fn only_a_conversation_of_this_home_is_continued() {
        let state = tempfile::tempdir().unwrap();
        let home =
            PersistentHome::take(state.path(), &Agent::named("claude").unwrap(), state.path()).unwrap();
        let file = state.path().join("result.json");
        let of = |text: &str| {
            fs::write(&file, text).unwrap();
            home.conversation(&file).map_err(|error| error.code)
        };
        let kept = format!(r#""keptHome":"{}""#, home.name);
        let session = r#""claims":{"sessionId":"0b5e-1"}"#;
        assert_eq!(of(&format!("{{{kept},{session}}}")), Ok(Conversation::Named("0b5e-1".into())));
        for text in [
            String::new(),
            format!("{{{session}}}"),
            format!(r#"{{"keptHome":"codex-1",{session}}}"#),
            format!(r#"{{{kept},"claims":{{"sessionId":null}}}}"#),
            format!(r#"{{{kept},"claims":{{"sessionId":"--model"}}}}"#),
            format!(r#"{{{kept},"claims":{{"sessionId":"a b"}}}}"#),
        ] {
            assert_eq!(of(&text), Err(ErrorCode::WorkNotFound), "{text}");
        }
    }

    #[test]
    fn homes_that_nobody_uses_any_more_are_pruned() {
        let state = tempfile::tempdir().unwrap();
        let agent = |name: &str| Agent::named(name).unwrap();
        let old = PersistentHome::take(state.path(), &agent("claude"), state.path()).unwrap();
        let held = PersistentHome::take(state.path(), &agent("codex"), state.path()).unwrap();
        let now = SystemTime::now();
        for home in [&old, &held] {
            File::open(home.directory.join("lock"))
                .unwrap()
                .set_modified(now - Duration::from_secs(7200))
                .unwrap();
        }
        let directory = old.directory.clone();
        drop(old);
        let before = now - Duration::from_secs(3600);
        assert_eq!(prune(state.path(), before, true).unwrap().entries, 1);
        assert!(directory.exists(), "only counted");
        assert_eq!(prune(state.path(), before, false).unwrap().entries, 1);
        assert!(!directory.exists() && held.directory.exists());
    }
}

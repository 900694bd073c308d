//! One call, one run: a sandbox that is made for one command and gone with it, and one result, whatever happened. What a run of
//! `belljar run --json` and of the API's `/v1/run-once` is; docs/one-shot.md has the table of its error codes.

use crate::engine::unwanted;
use crate::held::GuestProcess;
use crate::{Changes, Engine, ExecResult, RefusedReport, Sandbox};
use belljar_spec::llm::LlmTotals;
use belljar_spec::{
    BackendName, Command, ErrorCode, ErrorKind, LimitHit, SandboxError, SandboxId, SandboxSpec,
};
use belljar_state::new_id;
use std::fmt;
use std::future::{Future, pending};
use std::time::{Duration, Instant};

/// A run that is over, and its sandbox with it.
#[derive(Debug)]
pub struct Run {
    /// Made here, for this run alone. Its audit log and its bill have the same.
    pub id: SandboxId,
    /// The backend that it had; nothing where no sandbox could be built.
    pub backend: Option<BackendName>,
    /// How the command ended, or why nothing is known of that.
    pub result: Result<ExecResult, SandboxError>,
    /// From the moment when the sandbox was there.
    pub time: Duration,
    /// What it could not reach.
    pub refused: Vec<RefusedReport>,
    /// The digest of its policy at the end.
    pub policy: Option<String>,
    /// What it used of a model.
    pub llm: Option<LlmTotals>,
    /// What became of the workspace.
    pub changes: Option<Changes>,
    /// What a person should know of the workspace.
    pub warning: Option<String>,
    /// What the kernel says it ran into, be it that the sandbox itself died of it.
    counted: Option<LimitHit>,
}

/// Why a run is not what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunError {
    /// It ran into this limit.
    Limit(LimitHit),
    /// There is no such program or folder inside, or it cannot be executed.
    NotStarted,
    /// The caller cancelled it.
    Aborted,
    /// Policy says no, or the words make no sense; nothing was started.
    Refused,
    /// The sandbox could not be made, or was lost.
    SandboxFailed,
    /// belljar itself.
    Internal,
}

impl Engine {
    /// Makes a sandbox, runs one command in it and removes it again. The run's id is made here: one in `spec` does not count.
    /// Dropping the future ends the run, and removes the sandbox too. Fails only where no id can be made.
    pub async fn run_once(&self, spec: SandboxSpec, command: &Command) -> Result<Run, SandboxError> {
        self.run_once_until(spec, command, pending()).await
    }

    /// The same, until `abort` is ready. A sandbox that is just being made then is removed by the thread that makes it,
    /// without this waiting for it.
    pub async fn run_once_until(
        &self,
        mut spec: SandboxSpec,
        command: &Command,
        abort: impl Future<Output = ()>,
    ) -> Result<Run, SandboxError> {
        let id = new_id()?;
        spec.id = Some(id);
        let mut abort = std::pin::pin!(abort);
        let made = tokio::select! {
            biased;
            () = &mut abort => Err(unwanted()),
            made = self.create(spec) => made,
        };
        let sandbox = match made {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(Run::without_sandbox(id, error)),
        };
        let start = Instant::now();
        let result = sandbox.exec_until(command, abort).await;
        let time = start.elapsed();
        // Nothing else ran in it.
        let counters = sandbox.guest().counters();
        let out_of_memory = (counters.oom_kills > 0).then_some(LimitHit::OomKilled);
        let counted = out_of_memory.or((counters.forks_refused > 0).then_some(LimitHit::PidsExhausted));
        let warning = sandbox.warning();
        // Everything that was on its way is counted then.
        sandbox.dispose().await;
        Ok(Run::over(&sandbox, result, time, warning, counted))
    }
}

impl Run {
    /// A run that could not even begin, so that the caller gets a result all the same.
    pub fn not_begun(error: SandboxError) -> Result<Run, SandboxError> {
        Ok(Run::without_sandbox(new_id()?, error))
    }

    fn without_sandbox(id: SandboxId, error: SandboxError) -> Run {
        Run {
            id,
            backend: None,
            result: Err(error),
            time: Duration::ZERO,
            refused: Vec::new(),
            policy: None,
            llm: None,
            changes: None,
            warning: None,
            counted: None,
        }
    }

    fn over(
        sandbox: &Sandbox,
        result: Result<ExecResult, SandboxError>,
        time: Duration,
        warning: Option<String>,
        counted: Option<LimitHit>,
    ) -> Run {
        // Work that cannot be found again is no success.
        let (changes, lost) = match sandbox.changes() {
            Some(Ok(changes)) => (Some(changes), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Run {
            id: sandbox.id(),
            backend: Some(sandbox.backend()),
            result: lost.map_or(result, Err),
            time,
            refused: sandbox.refused_report(),
            policy: sandbox.policy().map(|policy| policy.policy),
            llm: sandbox.llm(),
            changes,
            warning,
            counted,
        }
    }

    /// Whether the command ended by itself with 0, ran into nothing, and all it wrote is there.
    pub fn is_ok(&self) -> bool {
        self.exit_code() == 0 && self.error().is_none()
    }

    /// Why it is not what was wanted. A command that ended by itself with another code than 0 is none of this: the code says it.
    pub fn error(&self) -> Option<RunError> {
        match &self.result {
            Ok(result) if result.timed_out => {
                Some(RunError::Limit(result.limit.unwrap_or(LimitHit::Timeout)))
            }
            Ok(result) if result.aborted => Some(RunError::Aborted),
            Ok(result) if result.not_started.is_some() => Some(RunError::NotStarted),
            Ok(result) => result.limit.map(RunError::Limit),
            Err(error) => Some(self.error_of(error)),
        }
    }

    fn error_of(&self, error: &SandboxError) -> RunError {
        match (error.code, self.counted) {
            // A sandbox that has ended, or does not answer.
            (ErrorCode::GuestGone | ErrorCode::GuestUnresponsive | ErrorCode::GuestStream, Some(limit)) => {
                RunError::Limit(limit)
            }
            (ErrorCode::Aborted, _) => RunError::Aborted,
            (ErrorCode::PidsExhausted, _) => RunError::Limit(LimitHit::PidsExhausted),
            // Of the folder that the command was to start in.
            (ErrorCode::NotFound | ErrorCode::FileOperation, _) if self.backend.is_some() => {
                RunError::NotStarted
            }
            // On the host's side: it says nothing of the sandbox.
            (ErrorCode::StateFailed | ErrorCode::Internal, _) => RunError::Internal,
            (code, _) if code.kind() == ErrorKind::Policy => RunError::Refused,
            _ => RunError::SandboxFailed,
        }
    }

    /// The exit code of `belljar run`: that of the command, or that of the error.
    pub fn exit_code(&self) -> u8 {
        match &self.result {
            Ok(result) => result.exit_code(),
            Err(error) => error.code.exit_code(),
        }
    }
}

impl RunError {
    /// As it stands in results.
    pub fn as_str(self) -> &'static str {
        match self {
            RunError::Limit(limit) => limit.as_str(),
            RunError::NotStarted => "not_started",
            RunError::Aborted => "aborted",
            RunError::Refused => "refused",
            RunError::SandboxFailed => "sandbox_failed",
            RunError::Internal => "internal",
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::Ended;

    fn run(result: Result<ExecResult, SandboxError>) -> Run {
        let mut run =
            Run::without_sandbox(SandboxId::from_random([1; 8]), ErrorCode::Internal.error("replaced below"));
        run.result = result;
        run
    }

    fn ended(change: impl FnOnce(&mut Ended)) -> Result<ExecResult, SandboxError> {
        let mut result = ExecResult {
            ended: Ended { exit_code: Some(0), ..Ended::default() },
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        change(&mut result.ended);
        Ok(result)
    }

    #[test]
    fn every_end_has_one_code() {
        let signaled = |name: &str, limit: Option<LimitHit>| {
            ended(|result| {
                (result.exit_code, result.signal, result.limit) = (None, Some(name.into()), limit);
            })
        };
        let limited = |limit: LimitHit| ended(|result| result.limit = Some(limit));
        let table = [
            (ended(|_| {}), 0, None),
            (ended(|result| result.exit_code = Some(3)), 3, None),
            (signaled("SIGTERM", None), 143, None),
            (signaled("SIGKILL", Some(LimitHit::OomKilled)), 137, Some("oom_killed")),
            (ended(|result| (result.timed_out, result.exit_code) = (true, None)), 124, Some("timeout")),
            (ended(|result| (result.aborted, result.exit_code) = (true, None)), 125, Some("aborted")),
            (limited(LimitHit::DiskFull), 0, Some("disk_full")),
            (limited(LimitHit::PidsExhausted), 0, Some("pids_exhausted")),
            (limited(LimitHit::OutputTruncated), 0, Some("output_truncated")),
            (
                ended(|result| (result.exit_code, result.not_started) = (Some(127), Some("no".into()))),
                127,
                Some("not_started"),
            ),
            (Err(ErrorCode::PathRefused.error("no")), 126, Some("refused")),
            (Err(ErrorCode::BackendUnavailable.error("no")), 125, Some("sandbox_failed")),
            (Err(ErrorCode::NotReady.error("no")), 125, Some("sandbox_failed")),
            (Err(ErrorCode::PidsExhausted.error("no")), 125, Some("pids_exhausted")),
            (Err(ErrorCode::StateFailed.error("no")), 125, Some("internal")),
            (Err(unwanted()), 125, Some("aborted")),
        ];
        for (result, code, error) in table {
            let run = run(result);
            assert_eq!((run.exit_code(), run.error().map(RunError::as_str)), (code, error), "{run:?}");
            assert_eq!(run.is_ok(), code == 0 && error.is_none(), "{run:?}");
        }
    }

    #[test]
    fn a_sandbox_that_died_of_a_limit_ran_into_that_limit() {
        let mut run = run(Err(ErrorCode::GuestGone.error("gone")));
        assert_eq!(run.error(), Some(RunError::SandboxFailed));
        for limit in [LimitHit::OomKilled, LimitHit::PidsExhausted] {
            run.counted = Some(limit);
            assert_eq!(run.error(), Some(RunError::Limit(limit)));
        }
        run.result = Err(ErrorCode::StateFailed.error("another matter"));
        assert_eq!(run.error(), Some(RunError::Internal));
    }

    #[tokio::test]
    async fn what_is_aborted_while_its_sandbox_is_made_is_not_waited_for() {
        let home = tempfile::tempdir().expect("a folder");
        let (reached, at) = std::sync::mpsc::channel();
        let (resume, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        // A making that hangs.
        let watcher = move |stage| {
            let _ = reached.send(stage);
            let _ = wait.lock().map(|wait| wait.recv());
        };
        let engine = Engine::new()
            .with_records(home.path().join("records"))
            .with_state(home.path().join("state"))
            .watched(std::sync::Arc::new(watcher));
        let spec = SandboxSpec::default();
        let command = Command::new(["true"]).expect("a command");
        let abort = async {
            // The first stage has begun.
            while at.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let run = engine.run_once_until(spec, &command, abort).await.expect("a run");
        assert_eq!((run.error(), run.exit_code()), (Some(RunError::Aborted), 125));
        assert!(run.backend.is_none());
        drop((resume, engine));
        // The run was cancelled: the stages that would follow are not begun.
        while let Ok(stage) = at.recv() {
            assert_eq!(stage, crate::Stage::Credentials);
        }
    }
}

//! A run in progress: its log, the step it is in, and the result as far as it is known.

use super::{RunRequest, RunResult, Stopped};
use crate::claims::Claims;
use crate::entry::{Entry, Step, StepState, System, UserContent, UserMessage};
use crate::event::AgentEvent;
use crate::log::Log;
use crate::stop::StopReason;
use belljar_engine::{Changes, RefusedReport};
use belljar_spec::llm::{LlmOutcomes, LlmTotals};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_state::{Survives, write_atomic};
use belljar_workspace::touched::Compared;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

pub(super) struct Course<'w> {
    log: Log<'w>,
    since: Instant,
    step: Option<(Step, Instant)>,
    pub(super) result: RunResult,
}

impl<'w> Course<'w> {
    /// The first line is the prompt.
    pub(super) fn new(log: Log<'w>, id: SandboxId, request: &RunRequest) -> Course<'w> {
        let now = Instant::now();
        let result = RunResult {
            run_id: id.to_string(),
            agent: request.agent.name(),
            model: request.model.as_ref().map(ToString::to_string),
            models_used: Vec::new(),
            kept_home: None,
            success: false,
            stop_reason: StopReason::ErrorSandbox,
            output: String::new(),
            error: None,
            hint: None,
            step: None,
            turns: 0,
            duration_ms: 0,
            agent_duration_ms: 0,
            api_duration_ms: 0,
            session_id: id.to_string(),
            cost_usd: Some(0.0),
            cost_unknown: None,
            input_tokens: 0,
            output_tokens: 0,
            cache_read_input_tokens: 0,
            cache_creation_input_tokens: 0,
            exit_code: None,
            signal: None,
            limit: None,
            backend: None,
            llm: None,
            calls: None,
            refused: Vec::new(),
            workspace: None,
            changes: None,
            touched: None,
            kind: None,
            claims: Claims::default(),
            stderr: String::new(),
            not_kept: None,
        };
        let mut course = Course { log, since: now, step: None, result };
        let content = UserContent::Prompt(request.prompt.clone());
        course.write(Entry::User { message: UserMessage { role: "user".into(), content } });
        course
    }

    pub(super) fn write(&mut self, entry: Entry) {
        self.log.write(entry);
    }

    pub(super) fn event(&mut self, event: &AgentEvent) {
        self.log.event(event);
    }

    /// A step begins; the one before it is done. The same step again is the same one.
    pub(super) fn begin(&mut self, step: Step) {
        if self.step.is_some_and(|(current, _)| current == step) {
            return;
        }
        self.done();
        self.step = Some((step, Instant::now()));
        self.say(step, StepState::Started, None, None);
    }

    /// The step is done.
    pub(super) fn done(&mut self) {
        if let Some((step, since)) = self.step.take() {
            self.say(step, StepState::Done, Some(since.elapsed().as_millis() as u64), None);
        }
    }

    /// The step went wrong. What went wrong first is what is told.
    pub(super) fn fail(&mut self, stopped: Stopped) {
        let Stopped { reason, error } = stopped;
        let step = self.step.take().map(|(step, since)| {
            let elapsed = since.elapsed().as_millis() as u64;
            self.say(step, StepState::Failed, Some(elapsed), Some(error.message.clone()));
            step
        });
        if self.result.error.is_none() {
            self.result.kind = Some(error.kind());
            self.result.success = false;
            self.result.stop_reason = reason;
            self.result.step = step;
            self.result.error = Some(error.message);
            self.result.hint = error.hint;
        }
    }

    pub(super) fn collect(
        &mut self,
        totals: Option<LlmTotals>,
        calls: Option<LlmOutcomes>,
        refused: Vec<RefusedReport>,
    ) {
        if let Some(totals) = totals {
            self.result.count(totals);
        }
        self.result.calls = calls;
        self.result.refused = refused;
    }

    /// What became of the workspace: where changes are, and what was touched in a folder itself.
    pub(super) fn changed(&mut self, changes: Changes, touched: Option<Compared>) {
        let kept = changes.report();
        (self.result.changes, self.result.touched) = (Some(changes), touched.clone());
        let touched = touched.and_then(|touched| serde_json::to_value(touched).ok());
        self.result.workspace = match (kept, touched) {
            (Some(Value::Object(mut kept)), Some(touched)) => {
                kept.insert("folder".into(), touched);
                Some(Value::Object(kept))
            }
            (None, Some(touched)) => Some(json!({ "folder": touched })),
            (kept, _) => kept,
        };
    }

    /// Writes the last line, and the result beside the log.
    pub(super) fn finish(mut self, directory: &Path) -> RunResult {
        self.done();
        self.result.duration_ms = self.since.elapsed().as_millis() as u64;
        self.write(Entry::Result(Box::new(self.result.summary())));
        // The work is done, and its account is what the caller gets: where it cannot be kept, that is said beside it.
        let kept = keep(directory, &self.result).err().map(|error| error.message);
        let log = self.log.failure().map(|failure| format!("the log is not whole: {failure}"));
        self.result.not_kept = kept.or(log);
        self.result
    }

    fn say(&mut self, step: Step, state: StepState, duration_ms: Option<u64>, error: Option<String>) {
        self.write(Entry::System(System::Step { step, state, duration_ms, error }));
    }
}

/// The result, as a file that is whole or not there.
fn keep(directory: &Path, result: &RunResult) -> Result<(), SandboxError> {
    let text = serde_json::to_string_pretty(result).map_err(|error| {
        ErrorCode::Internal.error(format!("cannot write the result: {error}")).caused_by(error)
    })?;
    let file = directory.join("result.json");
    let written = write_atomic(&file, (text + "\n").as_bytes(), Survives::Kill);
    written.map_err(|error| {
        let message = format!("cannot write the result to {}: {error}", file.display());
        ErrorCode::StateFailed
            .error(message)
            .hint("the log beside it has the same as its last line")
            .caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::clock;
    use crate::run::{Agent, Conversation};
    use belljar_spec::SandboxSpec;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn request() -> RunRequest {
        RunRequest {
            agent: Agent::Program("./agent".into()),
            prompt: "do it".into(),
            messages: Default::default(),
            model: None,
            effort: None,
            web_search: false,
            context: Vec::new(),
            attached: Vec::new(),
            cwd: None,
            time: None,
            conversation: Conversation::New,
            own_arguments: Vec::new(),
            path: "".into(),
            sandbox: SandboxSpec::default(),
        }
    }

    #[test]
    fn a_result_that_cannot_be_kept_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let id = SandboxId::from_random([7; 8]);
        let course = Course::new(Log::create(&run, id, clock()).unwrap(), id, &request());
        std::fs::create_dir(run.join("result.json")).unwrap();
        let result = course.finish(&run);
        assert!(result.not_kept.unwrap().contains("result.json"));
        assert_eq!(result.agent, "./agent");
    }

    #[test]
    fn a_result_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (run, mine) = (folder.path().join("run"), folder.path().join("mine"));
        std::fs::write(&mine, "mine").unwrap();
        let id = SandboxId::from_random([7; 8]);
        let course = Course::new(Log::create(&run, id, clock()).unwrap(), id, &request());
        for name in ["result.json", ".result.json.new"] {
            symlink(&mine, run.join(name)).unwrap();
        }
        assert_eq!(course.finish(&run).not_kept, None);
        assert_eq!(std::fs::read_to_string(mine).unwrap(), "mine");
        assert!(std::fs::symlink_metadata(run.join("result.json")).unwrap().is_file());
    }

    #[test]
    fn no_run_is_kept_where_others_can_write() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let id = SandboxId::from_random([7; 8]);
        assert!(Log::create(&folder.path().join("run"), id, clock()).is_err());
    }
}

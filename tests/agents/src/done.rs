//! What came of a run, and whether everything that speaks of it says the same.

use crate::job::{Job, KEY};
use belljar_agent::entry::{Block, Entry, Line, Summary, UserContent};
use belljar_agent::stop::StopReason;
use belljar_tests_cli::left::{cgroups, eventually, of_run};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// What came of a run.
#[derive(Debug)]
pub struct Done {
    /// Belljar's own.
    pub code: i32,
    /// The log.
    pub lines: Vec<Line>,
    /// Its last line.
    pub summary: Summary,
    /// result.json.
    pub result: Value,
    pub stderr: String,
}

impl Done {
    pub(crate) fn of(job: &Job, status: ExitStatus) -> Done {
        let (stdout, stderr) = (job.output_text("stdout"), job.output_text("stderr"));
        let line = |text: &str| -> Line {
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in a line of the log: {text}"))
        };
        let lines: Vec<Line> = stdout.lines().map(line).collect();
        let Some(Line { entry: Entry::Result(summary), session_id, .. }) = lines.last().cloned() else {
            panic!("no result at the end ({status}): {stdout}{stderr}")
        };
        let folder = job.state().join("belljar/runs").join(&session_id);
        let log = fs::read_to_string(folder.join("log.jsonl")).unwrap();
        assert!(log == stdout, "what was printed is not what was kept:\n{stdout}\n{log}");
        let result: Value = serde_json::from_slice(&fs::read(folder.join("result.json")).unwrap()).unwrap();
        let done = Done {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            lines,
            summary: *summary,
            result,
            stderr,
        };
        done.says_one_thing(&session_id);
        done.gives_no_key_away(job);
        done.leaves_nothing(job);
        done
    }

    /// Why it is over.
    pub fn stop(&self) -> StopReason {
        self.summary.subtype
    }

    /// All text of the model.
    pub fn output_text(&self) -> String {
        self.blocks()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                Block::Thinking { .. } | Block::ToolUse { .. } => None,
            })
            .collect()
    }

    /// Every part of what the model said.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let messages = self.lines.iter().filter_map(|line| match &line.entry {
            Entry::Assistant(assistant) => assistant.message.as_ref(),
            Entry::User { .. } | Entry::System(_) | Entry::Result(_) => None,
        });
        messages.flat_map(|message| &message.content)
    }

    /// What its tools gave.
    pub fn tool_results(&self) -> Vec<&str> {
        let mut results = Vec::new();
        for line in &self.lines {
            if let Entry::User { message } = &line.entry
                && let UserContent::Results(given) = &message.content
            {
                results.extend(given.iter().map(|result| result.content.as_str()));
            }
        }
        results
    }

    /// Fresh input, output, read from a cache, written to one.
    pub fn tokens(&self) -> [u64; 4] {
        ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"]
            .map(|name| self.result[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.result)))
    }

    /// The last line and result.json agree, and every line knows its run.
    fn says_one_thing(&self, id: &str) {
        assert!(self.lines.iter().all(|line| line.session_id == id), "lines of several runs");
        let (summary, result) = (&self.summary, &self.result);
        assert_eq!((&result["runId"], &result["sessionId"]), (&id.into(), &id.into()));
        assert_eq!(result["stopReason"], summary.subtype.as_str(), "{result}");
        assert_eq!(result["success"], summary.subtype == StopReason::Success, "{result}");
        assert_eq!(
            (&result["success"], &result["output"]),
            (&(!summary.is_error).into(), &summary.result[..].into())
        );
        assert_eq!(result["error"].as_str(), summary.error.as_deref(), "{result}");
        assert_eq!(result["turns"], summary.num_turns, "{result}");
        let tokens = [
            summary.total_input_tokens,
            summary.total_output_tokens,
            summary.total_cache_read_input_tokens,
            summary.total_cache_creation_input_tokens,
        ];
        assert_eq!(self.tokens(), tokens, "{result}");
        assert_eq!(summary.is_error, summary.error.is_some(), "a run that failed says how: {result}");
    }

    fn gives_no_key_away(&self, job: &Job) {
        for folder in ["state", "work", "stdout", "stderr"] {
            let place = job.home().join(folder);
            assert!(!holds_key(&place), "the key of the model stands in {}", place.display());
        }
    }

    fn leaves_nothing(&self, job: &Job) {
        let (mark, id) = (job.mark(), self.result["runId"].as_str().unwrap_or_default());
        let processes = || of_run(&mark, Some(id));
        assert!(eventually(|| processes().is_empty()), "processes are left: {:?}", processes());
        assert!(eventually(|| cgroups(id).is_empty()), "cgroups are left: {:?}", cgroups(id));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&mark), "mounts are left: {mounts}");
        let temporary: Vec<_> = fs::read_dir(job.home().join("tmp")).unwrap().flatten().collect();
        assert!(temporary.is_empty(), "files are left: {temporary:?}");
    }
}

fn holds_key(place: &Path) -> bool {
    // A link is read and not followed: those of a prepared root lead to our own standard streams.
    if let Ok(target) = fs::read_link(place) {
        return target.to_string_lossy().contains(KEY.trim_start_matches("sk-"));
    }
    if place.is_dir() {
        return fs::read_dir(place).unwrap().flatten().any(|entry| holds_key(&entry.path()));
    }
    let bytes = fs::read(place).unwrap_or_default();
    // Of either kind.
    let mark = KEY.trim_start_matches("sk-").as_bytes();
    bytes.windows(mark.len()).any(|window| window == mark)
}

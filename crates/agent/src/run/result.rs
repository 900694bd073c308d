//! The account of a run. What stands at its top comes from the host: the gateway's count, the kernel's word, the workspace
//! itself; what the agent says of the same is below `claims`.

use crate::claims::Claims;
use crate::entry::{Step, Summary};
use crate::stop::StopReason;
use belljar_engine::{Changes, RefusedReport};
use belljar_spec::llm::{CostUnknown, LlmOutcomes, LlmTotals};
use belljar_spec::{ErrorKind, Hint, LimitHit};
use belljar_workspace::touched::Compared;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// How a run ended, and what it came to.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// Made by the host; the sandbox, its audit log and the bill have the same.
    pub run_id: String,
    pub agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The models that answered, as the model's server calls them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models_used: Vec<String>,
    pub success: bool,
    pub stop_reason: StopReason,
    /// The agent's answer.
    pub output: String,
    /// What went wrong, for a person.
    pub error: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub hint: Option<Hint>,
    /// The step that went wrong.
    pub step: Option<Step>,
    /// Answers of the model.
    pub turns: u64,
    /// From the first step to the last.
    pub duration_ms: u64,
    /// How long the agent itself ran.
    pub agent_duration_ms: u64,
    /// How long calls to the model took, all together.
    pub api_duration_ms: u64,
    /// The run's id, under the name that readers of transcripts know.
    pub session_id: String,
    /// In dollars; `null` when the cost of a call is not known.
    pub cost_usd: Option<f64>,
    /// Why it is not known.
    pub cost_unknown: Option<CostUnknown>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub limit: Option<LimitHit>,
    pub backend: Option<String>,
    /// The home that it had, if that is kept: the conversation can be continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_home: Option<String>,
    /// All that the gateway counted.
    pub llm: Option<LlmTotals>,
    /// What became of the calls to the model.
    pub calls: Option<LlmOutcomes>,
    /// What was refused at the gateway.
    pub refused: Vec<RefusedReport>,
    /// What changed, or where the changes are.
    pub workspace: Option<Value>,
    /// The same, for callers that show it to people.
    #[serde(skip)]
    pub changes: Option<Changes>,
    /// What was touched in a folder that was worked in itself.
    #[serde(skip)]
    pub touched: Option<Compared>,
    /// Whose fault it is, where belljar itself could not continue.
    #[serde(skip)]
    pub kind: Option<ErrorKind>,
    /// What the agent says of itself.
    pub claims: Claims,
    /// What it wrote to standard error: the end of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Why the log or the result beside it is not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

/// In words of the API: a log is read by every front.
fn as_text<S: Serializer>(hint: &Option<Hint>, serializer: S) -> Result<S::Ok, S::Error> {
    hint.as_ref().map(Hint::to_string).serialize(serializer)
}

impl RunResult {
    /// The last line of the log.
    pub fn summary(&self) -> Summary {
        Summary {
            subtype: self.stop_reason,
            is_error: !self.success,
            result: self.output.clone(),
            error: self.error.clone(),
            num_turns: self.turns,
            total_cost_usd: self.cost_usd,
            total_input_tokens: self.input_tokens,
            total_output_tokens: self.output_tokens,
            total_cache_read_input_tokens: self.cache_read_input_tokens,
            total_cache_creation_input_tokens: self.cache_creation_input_tokens,
            duration_ms: self.duration_ms,
            claims: self.claims.clone(),
            more: self.more(),
        }
    }

    /// What the last line has under no name of its own.
    fn more(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(mut all)) => {
                IN_SUMMARY.iter().for_each(|name| drop(all.remove(*name)));
                all
            }
            Ok(_) | Err(_) => Map::new(),
        }
    }

    /// Takes over what the gateway counted.
    pub(super) fn count(&mut self, totals: LlmTotals) {
        self.turns = totals.turns;
        self.api_duration_ms = totals.millis;
        self.input_tokens = totals.input_tokens;
        self.output_tokens = totals.output_tokens;
        self.cache_read_input_tokens = totals.cache_read;
        self.cache_creation_input_tokens = totals.cache_write;
        let is_known = totals.calls_without_cost == 0;
        self.cost_usd = is_known.then(|| totals.cost_usd.as_micros() as f64 / 1e6);
        self.cost_unknown = totals.cost_unknown;
        self.llm = Some(totals);
    }
}

/// What both shapes call by the same name.
const IN_SUMMARY: [&str; 3] = ["error", "claims", "sessionId"];

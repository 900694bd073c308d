//! The table of what is counted in shims. A family has a fixed number of values: one for each combination of its labels, or one for each
//! bucket of a histogram and its sum.

use belljar_spec::egress::Reason;
use belljar_spec::{BackendName, ErrorKind};
use std::ops::Range;
use std::sync::OnceLock;

/// Something that is counted, by labels whose words are known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Starts,
    StartFailures,
    StartDuration,
    Execs,
    ExecDuration,
    EgressConnections,
    EgressBytes,
    EgressRefusals,
    LlmCalls,
    LlmTokens,
    LlmCost,
    Snapshots,
}

/// A label and its words.
pub(super) type Label = (&'static str, Vec<&'static str>);

impl Family {
    pub(super) const ALL: [Family; 12] = [
        Family::Starts,
        Family::StartFailures,
        Family::StartDuration,
        Family::Execs,
        Family::ExecDuration,
        Family::EgressConnections,
        Family::EgressBytes,
        Family::EgressRefusals,
        Family::LlmCalls,
        Family::LlmTokens,
        Family::LlmCost,
        Family::Snapshots,
    ];

    /// Its name, its unit and what it is.
    pub(super) fn about(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Family::Starts => ("belljar_starts", "", "Sandboxes that were started."),
            Family::StartFailures => ("belljar_start_failures", "", "Sandboxes that could not be started."),
            Family::StartDuration => {
                ("belljar_start_duration_seconds", "seconds", "From a request to a sandbox that is ready.")
            }
            Family::Execs => ("belljar_execs", "", "Commands that ended."),
            Family::ExecDuration => {
                ("belljar_exec_duration_seconds", "seconds", "From the start of a command to its end.")
            }
            Family::EgressConnections => ("belljar_egress_connections", "", "Connections that were allowed."),
            Family::EgressBytes => {
                ("belljar_egress_bytes", "bytes", "Bytes of connections, counted when they are closed.")
            }
            Family::EgressRefusals => {
                ("belljar_egress_refusals", "", "Names, connections, requests and calls that were refused.")
            }
            Family::LlmCalls => ("belljar_llm_calls", "", "Calls to a model that ended."),
            Family::LlmTokens => ("belljar_llm_tokens", "", "Tokens of calls to a model."),
            Family::LlmCost => ("belljar_llm_cost_usd", "usd", "Cost of calls to a model."),
            Family::Snapshots => ("belljar_snapshots", "", "Snapshots of living sandboxes, forks included."),
        }
    }

    pub(super) fn labels(self) -> &'static [Label] {
        &table()[self as usize].labels
    }

    fn made_labels(self) -> Vec<Label> {
        match self {
            Family::Starts => vec![("backend", BackendName::ALL.map(BackendName::as_str).to_vec())],
            Family::StartFailures => vec![("kind", ERROR_KINDS.map(kind).to_vec())],
            Family::Execs => vec![("outcome", EXEC_OUTCOMES.to_vec())],
            Family::EgressBytes => vec![("direction", vec!["sent", "received"])],
            Family::EgressRefusals => vec![("reason", Reason::ALL.map(Reason::code).to_vec())],
            Family::Snapshots => vec![("how", vec!["layered", "copied"])],
            Family::LlmTokens => vec![("kind", vec!["input", "output", "cache_read", "cache_write"])],
            Family::StartDuration
            | Family::ExecDuration
            | Family::EgressConnections
            | Family::LlmCalls
            | Family::LlmCost => Vec::new(),
        }
    }

    pub(super) fn is_histogram(self) -> bool {
        matches!(self, Family::StartDuration | Family::ExecDuration)
    }

    /// How many of what is counted make one of its unit: time and money are counted in millionths.
    pub(super) fn per_unit(self) -> u64 {
        match self {
            Family::StartDuration | Family::ExecDuration | Family::LlmCost => 1_000_000,
            _ => 1,
        }
    }

    /// Where its values are among those of all.
    pub(super) fn values(self) -> Range<usize> {
        table()[self as usize].values.clone()
    }
}

struct Row {
    labels: Vec<Label>,
    values: Range<usize>,
}

/// Made once: something is counted at every refusal.
fn table() -> &'static [Row] {
    static TABLE: OnceLock<Vec<Row>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut begin = 0;
        let row = |family: Family| {
            let labels = family.made_labels();
            let size = match family.is_histogram() {
                // One for what is longer than every bucket, and the sum.
                true => BUCKETS_US.len() + 2,
                false => labels.iter().map(|(_, words)| words.len()).product(),
            };
            let values = begin..begin + size;
            begin = values.end;
            Row { labels, values }
        };
        Family::ALL.into_iter().map(row).collect()
    })
}

/// How many values there are.
pub(super) fn size() -> usize {
    table().last().map_or(0, |row| row.values.end)
}

/// As errors name it.
pub(super) fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Policy => "policy",
        ErrorKind::Runtime => "runtime",
        ErrorKind::Unavailable => "unavailable",
    }
}

const ERROR_KINDS: [ErrorKind; 3] = [ErrorKind::Policy, ErrorKind::Runtime, ErrorKind::Unavailable];
/// How a command ended: with 0, with another code, by a signal, at its time limit, by its caller, without having started, with its
/// sandbox.
pub(super) const EXEC_OUTCOMES: [&str; 7] =
    ["ok", "failed", "signaled", "timed_out", "aborted", "not_started", "lost"];
/// Upper bounds, in microseconds: a start takes milliseconds or, with an image to fetch, minutes; a command anything.
pub(super) const BUCKETS_US: [u64; 12] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    2_500_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
];

//! What a sandbox called, held against what LiteLLM billed.

use belljar_audit::{CostSource, Event, Logged, Reader, Stamp, find, verify};
use belljar_config::Loaded;
use belljar_gateway::llm::spend::{Books, Entry, SpendError};
use belljar_spec::llm::Usd;
use belljar_spec::request::LlmRequest;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, SandboxId, hint};
use belljar_vault::SecretStore;
use serde::Serialize;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// A call as the record knows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    pub call: u64,
    pub ids: Vec<String>,
    pub model: Option<String>,
    pub tokens: u64,
    pub estimated: bool,
    pub cost_usd: Option<Usd>,
}

/// What both say.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Comparison {
    pub matched: Vec<Matched>,
    /// In the record and not in the books.
    pub only_here: Vec<Recorded>,
    /// In the books and not in the record.
    pub only_there: Vec<Entry>,
}

/// A call that both know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Matched {
    pub here: Recorded,
    pub there: Entry,
}

impl Comparison {
    /// Takes both apart. Each entry belongs to one call at most.
    pub fn of(recorded: Vec<Recorded>, mut entries: Vec<Entry>) -> Comparison {
        let mut comparison = Comparison::default();
        for here in recorded {
            let same = |there: &Entry| there.ids.iter().any(|id| here.ids.contains(id));
            match entries.iter().position(same) {
                Some(at) => comparison.matched.push(Matched { there: entries.swap_remove(at), here }),
                None => comparison.only_here.push(here),
            }
        }
        comparison.only_there = entries;
        comparison
    }

    /// What the matched calls cost here and there, of those whose cost both know.
    pub fn costs(&self) -> (Usd, Usd) {
        let known = self.matched.iter().filter(|matched| !matched.here.estimated);
        known
            .filter_map(|matched| Some((matched.here.cost_usd?, matched.there.cost_usd)))
            .fold((Usd::default(), Usd::default()), |(here, there), (one, other)| {
                (here.plus(one), there.plus(other))
            })
    }

    /// Whether both say the same. Each cost was rounded up to a millionth on its own.
    pub fn agrees(&self) -> bool {
        let (here, there) = self.costs();
        let apart = here.as_micros().abs_diff(there.as_micros());
        self.only_here.is_empty() && self.only_there.is_empty() && apart <= self.matched.len() as u64
    }
}

/// Compares the record of a sandbox in this directory with the books of the LiteLLM that the configuration names.
pub async fn spend(
    records: &Path,
    sandbox: Option<&str>,
    config: &Loaded,
    secrets: &dyn SecretStore,
) -> Result<(SandboxId, Comparison), SandboxError> {
    let Some(llm) = config.llm.route(&LlmRequest::default())? else {
        return Err(not_set("the configuration names no LiteLLM", "url"));
    };
    let Some(admin_key) = &llm.admin_key else {
        return Err(not_set("nothing opens LiteLLM's books", "admin_key"));
    };
    let log = find(records, sandbox)?;
    let report = verify(records, Some(log.sandbox), None, |_| {})?;
    if !report.is_fine() {
        let message = format!("the record of {} is not as it was written", log.sandbox);
        return Err(ErrorCode::StateFailed
            .error(message)
            .hint(hint!("{} says more", CommandLine::AuditVerify.of(log.sandbox))));
    }
    let mut events = Vec::new();
    let mut reader = Reader::open(&log.path)?;
    while let Some(record) = reader.next_record()? {
        if record.event.other_kind() == Some("model_called") {
            let message = format!(
                "line {} of the record of {} is a call to a model that this version cannot read",
                record.line, log.sandbox
            );
            return Err(ErrorCode::StateFailed.error(message).hint("use the belljar that wrote it"));
        }
        if let Logged::Known(event) = record.event {
            events.push(*event);
        }
    }
    let account = events.iter().find_map(|event| match event {
        Event::RouteOpened { account, .. } => Some(account),
        _ => None,
    });
    let Some(account) = account else {
        let message = format!("the sandbox {} had no route to a model", log.sandbox);
        return Err(ErrorCode::WorkNotFound
            .error(message)
            .hint(hint!("name another sandbox; {} lists them", CommandLine::Audit)));
    };
    let begun = log.created.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let day = |second: u64| Stamp::at(second).to_string().chars().take(10).collect::<String>();
    let books = Books {
        upstream: &llm.route.upstream,
        trust: &llm.route.trust,
        admin_key,
        end_user: account,
        // A day more at both ends: clocks differ, and so do ideas of when a day ends.
        from: day(begun.saturating_sub(DAY)),
        until: day(Stamp::now().second() + DAY),
    };
    let entries = books.read(log.sandbox, secrets).await.map_err(unread)?;
    Ok((log.sandbox, Comparison::of(events.iter().filter_map(recorded).collect(), entries)))
}

/// A call that was billed, if it was.
fn recorded(event: &Event) -> Option<Recorded> {
    let Event::ModelCalled {
        call,
        model,
        upstream_id,
        message_id,
        input_tokens,
        output_tokens,
        cache_read,
        cache_write,
        estimated,
        cost_usd,
        cost_source,
        ..
    } = event
    else {
        return None;
    };
    if *cost_source == Some(CostSource::Free) {
        return None;
    }
    Some(Recorded {
        call: *call,
        ids: [upstream_id, message_id].into_iter().flatten().map(|id| id.to_string()).collect(),
        model: model.as_ref().map(|model| model.to_string()),
        tokens: [*input_tokens, *output_tokens, *cache_read, *cache_write]
            .into_iter()
            .fold(0, u64::saturating_add),
        estimated: *estimated,
        cost_usd: *cost_usd,
    })
}

fn not_set(what: &str, key: &str) -> SandboxError {
    ErrorCode::ConfigInvalid.error(what).hint(format!("set `{key}` in `[llm]` of your belljar.toml"))
}

fn unread(error: SpendError) -> SandboxError {
    let hint = match error {
        SpendError::Key(_) => "see `admin_key` in `[llm]` of your belljar.toml",
        SpendError::Call(_) => "see `url` in `[llm]` of your belljar.toml",
        SpendError::Status(_) => "LiteLLM needs a database for its books, and `admin_key` has to open them",
        SpendError::Answer(_) => "is it a LiteLLM?",
    };
    ErrorCode::RegistryFailed.error(error.to_string()).hint(hint).caused_by(error)
}

const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(call: u64, id: &str, cost: u64) -> Recorded {
        let ids = vec![id.to_string()];
        let cost_usd = Some(Usd::micros(cost));
        Recorded { call, ids, model: None, tokens: 1, estimated: false, cost_usd }
    }

    #[test]
    fn what_only_one_side_knows_is_found() {
        let billed = |id: &str, cost| Entry {
            ids: vec![id.into()],
            model: None,
            tokens: 1,
            cost_usd: Usd::micros(cost),
        };
        let entry = |cost| billed("a", cost);
        let books = vec![entry(1000), billed("x", 500_000)];
        let both = Comparison::of(vec![recorded(1, "a", 1000), recorded(2, "b", 7)], books);
        assert_eq!((both.matched.len(), both.only_here[0].call), (1, 2));
        assert_eq!(both.only_there[0].ids, ["x"]);
        assert!(!both.agrees());
        assert!(Comparison::of(vec![recorded(1, "a", 1000)], vec![entry(999)]).agrees());
        assert!(!Comparison::of(vec![recorded(1, "a", 1000)], vec![entry(900)]).agrees());
        // One entry pays for one call.
        assert!(!Comparison::of(vec![recorded(1, "a", 1), recorded(2, "a", 1)], vec![entry(1)]).agrees());
    }
}

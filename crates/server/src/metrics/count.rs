//! In a shim: counts what happens.

use super::family::{BUCKETS_US, EXEC_OUTCOMES, Family, kind};
use super::{Values, file, zeros};
use belljar_audit::Event;
use belljar_engine::{Observed, Observer};
use belljar_fleet::SandboxDir;
use belljar_spec::Ended;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Counts what a sandbox of this place does, for the daemon that made the file. Where there is none, nothing is counted.
pub(crate) fn observer(place: &SandboxDir) -> Option<Observer> {
    let file = File::options().write(true).open(place.counters()).ok()?;
    let values = Mutex::new(zeros());
    Some(Arc::new(move |observed| {
        let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
        if count(&mut values, observed) {
            // A full disk takes the next ones, which are all of them.
            let _ = file::write(&file, &values);
        }
    }))
}

/// Whether there was something to count.
pub(super) fn count(values: &mut Values, observed: &Observed<'_>) -> bool {
    match observed {
        Observed::Start { outcome: Ok(backend), took } => {
            add(values, Family::Starts, &[backend.as_str()], 1);
            observe(values, Family::StartDuration, *took);
        }
        Observed::Start { outcome: Err(code), .. } => {
            add(values, Family::StartFailures, &[kind(code.kind())], 1);
        }
        Observed::Command { outcome, took } => {
            add(values, Family::Execs, &[outcome.map_or("lost", word)], 1);
            observe(values, Family::ExecDuration, *took);
        }
        Observed::Refused(reason) => {
            add(values, Family::EgressRefusals, &[reason.code()], 1);
        }
        Observed::Recorded(event) => return count_event(values, event),
    }
    true
}

fn count_event(values: &mut Values, event: &Event) -> bool {
    match event {
        Event::ConnectionOpened { .. } => add(values, Family::EgressConnections, &[], 1),
        Event::ConnectionClosed { sent, received, .. } => {
            add(values, Family::EgressBytes, &["sent"], *sent);
            add(values, Family::EgressBytes, &["received"], *received);
        }
        Event::ModelCalled { input_tokens, output_tokens, cache_read, cache_write, cost_usd, .. } => {
            add(values, Family::LlmCalls, &[], 1);
            for (word, tokens) in [
                ("input", input_tokens),
                ("output", output_tokens),
                ("cache_read", cache_read),
                ("cache_write", cache_write),
            ] {
                add(values, Family::LlmTokens, &[word], *tokens);
            }
            add(values, Family::LlmCost, &[], cost_usd.map_or(0, |cost| cost.as_micros()));
        }
        Event::SnapshotTaken { copied, .. } => {
            add(values, Family::Snapshots, &[if *copied { "copied" } else { "layered" }], 1);
        }
        // Refusals are counted as they come: not each of them is written.
        _ => return false,
    }
    true
}

/// As it is called in [`EXEC_OUTCOMES`].
fn word(ended: &Ended) -> &'static str {
    match ended.exit_code {
        _ if ended.timed_out => EXEC_OUTCOMES[3],
        _ if ended.aborted => EXEC_OUTCOMES[4],
        _ if ended.not_started.is_some() => EXEC_OUTCOMES[5],
        Some(0) => EXEC_OUTCOMES[0],
        Some(_) => EXEC_OUTCOMES[1],
        None => EXEC_OUTCOMES[2],
    }
}

fn add(values: &mut Values, family: Family, words: &[&str], number: u64) {
    let mut at = 0;
    for ((_, known), word) in family.labels().iter().zip(words) {
        let Some(place) = known.iter().position(|known| known == word) else { return };
        at = at * known.len() + place;
    }
    let value = &mut values[family.values().start + at];
    *value = value.saturating_add(number);
}

fn observe(values: &mut Values, family: Family, took: Duration) {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let bucket = BUCKETS_US.iter().position(|most| micros <= *most).unwrap_or(BUCKETS_US.len());
    let values = &mut values[family.values()];
    values[bucket] += 1;
    let sum = &mut values[BUCKETS_US.len() + 1];
    *sum = sum.saturating_add(micros);
}

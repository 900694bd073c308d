//! What becomes of every decision: a line in the audit log, and a summary for whoever runs the sandbox.
//!
//! A program that knocks a million times does not fill the host's disk: the same refusal is written the first time,
//! the tenth, the hundredth and so on, and a log has only so many lines.

use crate::decide::Permit;
use crate::relay::Counts;
use belljar_audit::{Ending, Event, Log};
use belljar_spec::egress::{Destination, HostName, Printable, Reason, Refusal};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Keeps the record of one sandbox.
pub struct Recorder {
    log: Option<Log>,
    refusals: Mutex<Refusals>,
    /// How often each request to a model, or each push, was refused.
    requests: Mutex<BTreeMap<String, u64>>,
    next_connection: AtomicU64,
    /// For each of [`Many`].
    lines: [AtomicU64; 4],
    suppressed: AtomicU64,
    ended: AtomicBool,
}

/// Something that was refused, so many times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub refusal: Refusal,
    pub times: u64,
}

/// Of what there may be very many. Each has lines of its own: who knocks until there are no more hides nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Many {
    Refusals,
    Uses,
    Incidents,
    Relayed,
}

/// A ref that was not pushed.
pub(crate) struct PushRefused {
    pub(crate) name: HostName,
    pub(crate) port: u16,
    pub(crate) repository: Printable,
    pub(crate) reference: Printable,
    pub(crate) reason: &'static str,
    pub(crate) detail: Printable,
}

#[derive(Default)]
struct Refusals {
    seen: BTreeMap<String, Refused>,
    /// In the order in which they came.
    order: Vec<String>,
}

impl Recorder {
    /// Writes to this log; without one it only remembers refusals.
    pub fn new(log: Option<Log>) -> Recorder {
        Recorder {
            log,
            refusals: Mutex::default(),
            requests: Mutex::default(),
            next_connection: AtomicU64::new(1),
            lines: Default::default(),
            suppressed: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Whatever else is worth a line.
    pub fn write(&self, event: &Event) -> Result<(), NotRecorded> {
        match &self.log {
            Some(log) => log.append(event).map_err(|_| NotRecorded),
            None => Ok(()),
        }
    }

    /// What happened at a route that is not the gateway's, of which there may be very many.
    pub fn write_relayed(&self, event: &Event) {
        self.write_some(Many::Relayed, 1, || event.clone());
    }

    /// The last line. Doing it twice is fine.
    pub fn end(&self) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let suppressed = self.suppressed.load(Ordering::Relaxed);
        if suppressed > 0 {
            let _ = self.write(&Event::RecordsSuppressed { count: suppressed });
        }
        if let Some(log) = &self.log {
            // Without it the log says by itself that its writer went away.
            let _ = log.end(&Event::SandboxEnded {});
        }
    }

    /// What was refused so far, in the order in which it came.
    pub fn refused(&self) -> Vec<Refused> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.order.iter().filter_map(|key| refusals.seen.get(key)).cloned().collect()
    }

    pub(crate) fn connection_refused(&self, refusal: &Refusal) {
        let times = self.remember(refusal);
        self.write_some(Many::Refusals, times, || Event::refused(refusal, times));
    }

    pub(crate) fn name_refused(&self, destination: Destination, record_type: &str, reason: Reason) {
        let refusal = Refusal::new(destination, None, reason);
        let times = self.remember(&refusal);
        self.write_some(Many::Refusals, times, || Event::NameRefused {
            name: refusal.destination.clone(),
            record_type: record_type.into(),
            reason,
            times,
        });
    }

    pub(crate) fn fetch_refused(&self, refusal: &Refusal, method: &str) {
        let times = self.remember(refusal);
        self.write_some(Many::Refusals, times, || Event::fetch_refused(refusal, method));
    }

    pub(crate) fn model_refused(
        &self,
        model: Option<Printable>,
        path: Printable,
        reason: Reason,
        detail: &str,
    ) {
        let times = self.count(format!("model {model:?} {path} {}", reason.code()));
        let detail = (!detail.is_empty()).then(|| detail.into());
        self.write_some(Many::Refusals, times, || Event::ModelRefused { model, path, reason, detail, times });
    }

    /// A push that did not leave: said once in the summary, and of each ref why.
    pub(crate) fn push_refused(&self, refusal: &Refusal, events: Vec<PushRefused>) {
        self.remember(refusal);
        for PushRefused { name, port, repository, reference, reason, detail } in events {
            let times = self.count(format!("push {name}:{port} {repository} {reference} {reason}"));
            let reason = reason.into();
            self.write_some(Many::Refusals, times, || Event::PushRefused {
                name,
                port,
                repository,
                reference,
                reason,
                detail,
                times,
            });
        }
    }

    /// A connection that is about to be used. What cannot be recorded is not let out.
    pub(crate) fn opened(
        self: &Arc<Recorder>,
        permit: &Permit,
        address: IpAddr,
    ) -> Result<OpenRecord, NotRecorded> {
        let connection = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.write(&Event::ConnectionOpened {
            connection,
            name: permit.name().clone(),
            port: permit.port(),
            protocol: permit.protocol(),
            rule: permit.rule().clone(),
            address,
        })?;
        Ok(OpenRecord {
            recorder: Arc::clone(self),
            connection,
            since: Instant::now(),
            counts: Arc::default(),
            ending: Ending::SandboxEnded,
        })
    }

    fn remember(&self, refusal: &Refusal) -> u64 {
        let Refusal { destination, port, reason, request, .. } = refusal;
        let request = request.as_ref().map(|request| (&request.method, &request.path));
        let key = format!("{destination:?} {port:?} {} {request:?}", reason.code());
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = refusals.seen.get_mut(&key) {
            known.times += 1;
            return known.times;
        }
        if refusals.order.len() < REMEMBERED {
            refusals.order.push(key.clone());
            refusals.seen.insert(key, Refused { refusal: refusal.clone(), times: 1 });
        }
        1
    }

    /// How often this was counted, with this time.
    fn count(&self, key: String) -> u64 {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() >= REMEMBERED && !requests.contains_key(&key) {
            return 1;
        }
        let times = requests.entry(key).or_default();
        *times += 1;
        *times
    }

    /// Writes an event of which there may be very many.
    pub(crate) fn write_some(&self, of: Many, times: u64, event: impl FnOnce() -> Event) {
        let lines = &self.lines[of as usize];
        let worth_a_line = is_power_of_ten(times) && lines.load(Ordering::Relaxed) < LINES;
        if worth_a_line && self.write(&event()).is_ok() {
            lines.fetch_add(1, Ordering::Relaxed);
        } else {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The audit log takes no more lines, so nothing more is let out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRecorded;

/// The record of a connection that is open; dropped, it says how much passed.
pub(crate) struct OpenRecord {
    recorder: Arc<Recorder>,
    connection: u64,
    since: Instant,
    pub(crate) counts: Arc<Counts>,
    pub(crate) ending: Ending,
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let _ = self.recorder.write(&Event::ConnectionClosed {
            connection: self.connection,
            sent: self.counts.sent.load(Ordering::Relaxed),
            received: self.counts.received.load(Ordering::Relaxed),
            millis: self.since.elapsed().as_millis() as u64,
            ending: self.ending,
        });
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number > 1 && number.is_multiple_of(10) {
        number /= 10;
    }
    number == 1
}

/// Different refusals that are told apart.
const REMEMBERED: usize = 1000;
/// Lines about each of [`Many`] in one log.
const LINES: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> Refusal {
        let name: HostName = name.parse().expect("a name");
        Refusal::new(name, Some(443), Reason::NameNotAllowed)
    }

    #[test]
    fn the_same_refusal_is_counted_and_not_repeated() {
        let recorder = Recorder::new(None);
        for _ in 0..5 {
            recorder.connection_refused(&refusal("a.example"));
        }
        recorder.connection_refused(&refusal("b.example"));
        let times: Vec<u64> = recorder.refused().iter().map(|refused| refused.times).collect();
        assert_eq!(times, [5, 1]);
    }

    #[test]
    fn a_million_different_refusals_take_bounded_memory() {
        let recorder = Recorder::new(None);
        for number in 0..2000 {
            recorder.connection_refused(&refusal(&format!("n{number}.example")));
        }
        assert_eq!(recorder.refused().len(), REMEMBERED);
    }

    #[test]
    fn a_flood_of_refusals_hides_no_secret_that_was_used() {
        let recorder = Recorder::new(None);
        for number in 0..2 * LINES {
            recorder.connection_refused(&refusal(&format!("n{number}.example")));
        }
        for (of, expected) in [(Many::Refusals, 0), (Many::Uses, 1), (Many::Incidents, 1)] {
            let mut written = 0;
            recorder.write_some(of, 1, || {
                written += 1;
                Event::SandboxEnded {}
            });
            assert_eq!(written, expected, "{of:?}");
        }
    }
}

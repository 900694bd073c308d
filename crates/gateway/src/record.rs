//! What becomes of every decision: a line in the audit log, and a summary for the user who runs the sandbox.
//!
//! A program that tries a million times does not fill the host's disk: the same refusal is written the first time, the
//! tenth, the hundredth and so on, and a log has only so many lines of each kind. That there are no more of one is a line
//! as well, written at that moment: killing belljar afterwards does not hide it.

use crate::decide::Permit;
use crate::dial::Way;
use crate::relay::Counts;
use crate::tally::{Many, Summary, Tally, is_power_of_ten, key};
use belljar_audit::{Ending, Event, Log};
use belljar_spec::egress::{Destination, HostName, Printable, Reason, Refusal, Refused};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::debug;

/// Something that counts, beside what the log and the summary have of it.
#[derive(Debug, Clone, Copy)]
pub enum Counted<'c> {
    /// It was written to the log.
    Recorded(&'c Event),
    /// Something was refused, be it written or not.
    Refused(Reason),
}

/// Who counts.
pub type Counter = Arc<dyn Fn(Counted<'_>) + Send + Sync>;

/// Keeps the record of one sandbox.
pub struct Recorder {
    log: Option<Log>,
    counter: Option<Counter>,
    summary: Mutex<Summary>,
    /// For each of [`Many`].
    tallies: [Mutex<Tally>; Many::ALL.len()],
    next_connection: AtomicU64,
    suppressed: AtomicU64,
    /// The last line could not be written.
    is_stuck: AtomicBool,
    ended: AtomicBool,
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

impl Recorder {
    /// Writes to this log; without one it only remembers refusals.
    pub fn new(log: Option<Log>) -> Recorder {
        Recorder {
            log,
            counter: None,
            summary: Mutex::default(),
            tallies: Default::default(),
            next_connection: AtomicU64::new(1),
            suppressed: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The same, and tells this counter of all that counts.
    #[must_use]
    pub fn counted(mut self, counter: Option<Counter>) -> Recorder {
        self.counter = counter;
        self
    }

    /// Whatever else is worth a line.
    pub fn write(&self, event: &Event) -> Result<(), NotRecorded> {
        let Some(log) = &self.log else { return Ok(()) };
        let written = log.append(event).map_err(|_| NotRecorded);
        if let (Ok(()), Some(counter)) = (written, &self.counter) {
            counter(Counted::Recorded(event));
        }
        self.is_stuck.store(written.is_err(), Ordering::Relaxed);
        written
    }

    /// Whether one more connection that is refused would be written. Where the last line could not be, it is tried whether that
    /// has changed.
    pub(crate) fn takes_refusals(&self) -> bool {
        if self.is_stuck.load(Ordering::Relaxed) {
            let is_stuck = self.log.as_ref().is_none_or(|log| log.catch_up().is_err());
            self.is_stuck.store(is_stuck, Ordering::Relaxed);
            if is_stuck {
                return false;
            }
        }
        self.tally(Many::Connections).has_room()
    }

    /// A person is asked whether a name may be reached.
    pub(crate) fn approval_requested(
        &self,
        question: u64,
        name: &HostName,
        port: u16,
        why: Option<&Printable>,
    ) {
        self.write_some(Many::Questions, &format!("{name}:{port}"), |times| Event::ApprovalRequested {
            question,
            name: name.clone(),
            port,
            times,
            why: why.cloned(),
        });
    }

    /// What became of such a question, which nobody answered.
    pub(crate) fn approval_unanswered(&self, event: &Event) {
        self.write_line(Many::Questions, &mut self.tally(Many::Questions), event);
    }

    /// What happened at a route that is not the gateway's, of which there may be very many.
    pub fn write_relayed(&self, event: &Event) {
        self.write_line(Many::Relayed, &mut self.tally(Many::Relayed), event);
    }

    /// A command that began or ended, of which there may be very many in a long life.
    pub fn write_command(&self, event: &Event) {
        self.write_line(Many::Commands, &mut self.tally(Many::Commands), event);
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
        self.summary().all().to_vec()
    }

    pub(crate) fn connection_refused(&self, refusal: &Refusal) {
        self.note_refusal(&refusal.destination, refusal.port, refusal.reason);
        let of = Many::of(refusal);
        self.summary().remember(of, refusal);
        self.write_some(of, &key(refusal), |times| Event::refused(refusal, times));
    }

    pub(crate) fn name_refused(&self, destination: Destination, record_type: &str, reason: Reason) {
        self.note_refusal(&destination, None, reason);
        let refusal = Refusal::new(destination, None, reason);
        self.summary().remember(Many::Names, &refusal);
        self.write_some(Many::Names, &key(&refusal), |times| Event::NameRefused {
            name: refusal.destination.clone(),
            record_type: record_type.into(),
            reason,
            times,
        });
    }

    pub(crate) fn fetch_refused(&self, refusal: &Refusal, method: &str) {
        self.note_refusal(&refusal.destination, refusal.port, refusal.reason);
        self.summary().remember(Many::Fetches, refusal);
        self.write_some(Many::Fetches, &key(refusal), |_| Event::fetch_refused(refusal, method));
    }

    pub(crate) fn model_refused(
        &self,
        model: Option<Printable>,
        path: Printable,
        reason: Reason,
        detail: &str,
    ) {
        self.count_refusal(reason);
        debug!(egress.reason = reason.code(), "a call to the model is refused");
        let detail = (!detail.is_empty()).then(|| detail.into());
        let key = format!("{model:?} {path} {}", reason.code());
        self.write_some(Many::Models, &key, |times| Event::ModelRefused {
            model,
            path,
            reason,
            detail,
            times,
        });
    }

    /// A push that did not leave: said once in the summary, and of each ref why.
    pub(crate) fn push_refused(&self, refusal: &Refusal, events: Vec<PushRefused>) {
        self.note_refusal(&refusal.destination, refusal.port, refusal.reason);
        self.summary().remember(Many::Pushes, refusal);
        for PushRefused { name, port, repository, reference, reason, detail } in events {
            let key = format!("{name}:{port} {repository} {reference} {reason}");
            let reason = reason.into();
            self.write_some(Many::Pushes, &key, |times| Event::PushRefused {
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

    /// A connection that is about to be dialled, at this address first. What cannot be recorded is not let out.
    pub(crate) fn opened(
        self: &Arc<Recorder>,
        permit: &Permit,
        way: &Way<'_>,
        revoked: &Arc<AtomicBool>,
    ) -> Result<OpenRecord, NotRecorded> {
        let connection = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.write(&Event::ConnectionOpened {
            connection,
            name: permit.name().clone(),
            port: permit.port(),
            protocol: permit.protocol(),
            rule: permit.rule().to_string(),
            address: way.address,
            proxy: way.proxy.map(ToString::to_string),
        })?;
        Ok(OpenRecord {
            recorder: Arc::clone(self),
            connection,
            since: Instant::now(),
            counts: Arc::default(),
            answered: None,
            revoked: Arc::clone(revoked),
            ending: Ending::SandboxEnded,
        })
    }

    /// Counts something of which there may be very many, and writes it where it is worth a line. `key` tells it from others.
    pub(crate) fn write_some(&self, of: Many, key: &str, event: impl FnOnce(u64) -> Event) {
        let mut tally = self.tally(of);
        match tally.count(key) {
            Some(times) if is_power_of_ten(times) => self.write_line(of, &mut tally, &event(times)),
            Some(_) => drop(self.suppressed.fetch_add(1, Ordering::Relaxed)),
            None => self.suppress(of, &mut tally),
        }
    }

    fn write_line(&self, of: Many, tally: &mut Tally, event: &Event) {
        if !tally.has_room() {
            return self.suppress(of, tally);
        }
        match self.write(event) {
            Ok(()) => tally.lines += 1,
            Err(NotRecorded) => drop(self.suppressed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// There are no more lines. The log says so once.
    fn suppress(&self, of: Many, tally: &mut Tally) {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        if !tally.stopped {
            tally.stopped = self.write(&Event::RecordsStopped { of: of.word().into() }).is_ok();
        }
    }

    fn note_refusal(&self, destination: &Destination, port: Option<u16>, reason: Reason) {
        self.count_refusal(reason);
        debug!(egress.host = %destination, egress.port = port, egress.reason = reason.code(), "refused");
    }

    fn count_refusal(&self, reason: Reason) {
        if let Some(counter) = &self.counter {
            counter(Counted::Refused(reason));
        }
    }

    fn tally(&self, of: Many) -> MutexGuard<'_, Tally> {
        self.tallies[of as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summary(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The address that answered, if it is not the one that was dialled first.
    pub(crate) answered: Option<IpAddr>,
    /// Set when the policy no longer allows it: that ends it then.
    revoked: Arc<AtomicBool>,
    pub(crate) ending: Ending,
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let _ = self.recorder.write(&Event::ConnectionClosed {
            connection: self.connection,
            sent: self.counts.sent.load(Ordering::Relaxed),
            received: self.counts.received.load(Ordering::Relaxed),
            millis: self.since.elapsed().as_millis() as u64,
            address: self.answered,
            ending: match self.ending {
                Ending::Finished => Ending::Finished,
                _ if self.revoked.load(Ordering::Relaxed) => Ending::PolicyChanged,
                ending => ending,
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{LINES, REMEMBERED};
    use belljar_spec::SandboxId;

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

    /// What a recorder writes, line by line, while it has not ended.
    fn written(work: impl FnOnce(&Recorder)) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a directory");
        let log = Log::create(folder.path(), SandboxId::from_random([7; 8])).expect("a log");
        let path = log.path().to_path_buf();
        let recorder = Recorder::new(Some(log));
        work(&recorder);
        let text = std::fs::read_to_string(path).expect("the log");
        text.lines().map(str::to_string).collect()
    }

    fn name_refused(recorder: &Recorder, number: u64) {
        let name: HostName = format!("n{number}.example").parse().expect("a name");
        recorder.name_refused(name.into(), "A", Reason::NameNotAllowed);
    }

    fn dialled(recorder: &Recorder, address: [u8; 4], port: u16) {
        let refusal = Refusal::new(IpAddr::from(address), Some(port), Reason::DirectAddress);
        recorder.connection_refused(&refusal);
    }

    #[test]
    fn a_flood_of_refused_names_hides_no_refused_connection() {
        let mut refused = Vec::new();
        let lines = written(|recorder| {
            (0..=LINES).for_each(|number| name_refused(recorder, number));
            dialled(recorder, [192, 0, 2, 1], 80);
            refused = recorder.refused();
        });
        let last = lines.last().expect("a line");
        assert!(last.contains("connection_refused") && last.contains("192.0.2.1"), "{last}");
        let last = &refused.last().expect("a refusal").refusal;
        assert_eq!(last.destination, Destination::Address(IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn a_flood_of_dialled_addresses_hides_no_dialled_metadata() {
        let lines = written(|recorder| {
            (0..=LINES).for_each(|number| dialled(recorder, [10, 0, 0, 1], number as u16));
            dialled(recorder, [169, 254, 169, 254], 80);
        });
        let last = lines.last().expect("a line");
        assert!(last.contains("169.254.169.254"), "{last}");
    }

    #[test]
    fn that_lines_are_left_out_is_written_when_it_begins() {
        let lines = written(|recorder| (0..LINES + 10).for_each(|number| name_refused(recorder, number)));
        assert_eq!(lines.len() as u64, LINES + 1);
        assert!(
            lines[LINES as usize].contains(r#"{"kind":"records_stopped","of":"names"}"#),
            "{:?}",
            lines.last()
        );
    }

    #[test]
    fn names_are_not_asked_for_where_a_refusal_would_leave_no_line() {
        written(|recorder| {
            for number in 0..LINES {
                assert!(recorder.takes_refusals(), "{number}");
                recorder.connection_refused(&refusal(&format!("n{number}.example")));
            }
            assert!(!recorder.takes_refusals());
        });
        let recorder = Recorder::new(None);
        recorder.is_stuck.store(true, Ordering::Relaxed);
        assert!(!recorder.takes_refusals(), "the last line could not be written");
    }

    #[test]
    fn the_same_refusal_is_counted_after_thousands_of_others() {
        let lines = written(|recorder| {
            (0..3000).for_each(|number| name_refused(recorder, number));
            (0..99).for_each(|_| name_refused(recorder, 2999));
        });
        assert_eq!(lines.len(), 3002);
        assert!(lines[3001].contains(r#""times":100"#), "{}", lines[3001]);
    }

    #[test]
    fn a_flood_of_refusals_hides_no_secret_that_was_used() {
        let recorder = Recorder::new(None);
        for number in 0..2 * LINES {
            recorder.connection_refused(&refusal(&format!("n{number}.example")));
        }
        for (of, expected) in [(Many::Connections, 0), (Many::Uses, 1), (Many::Incidents, 1)] {
            let mut written = 0;
            recorder.write_some(of, "something", |_| {
                written += 1;
                Event::SandboxEnded {}
            });
            assert_eq!(written, expected, "{of:?}");
        }
    }
}

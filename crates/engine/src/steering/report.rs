//! What the gateway knows of a living policy, as it is told to those outside.

use belljar_gateway::{LiveEvent, LivePolicy, LiveRule, LiveState, PolicyDigest, Question, Until};
use belljar_spec::egress::{EgressPolicy, LiveNotice, PolicyReport, QuestionReport, RuleReport};
use std::collections::VecDeque;
use std::time::{Instant, UNIX_EPOCH};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// What happens in a sandbox from now on; first, the questions that wait already.
pub struct Notices {
    known: VecDeque<LiveNotice>,
    events: Receiver<LiveEvent>,
}

/// The report of a policy that no sandbox has yet.
pub fn policy_report(policy: &EgressPolicy) -> PolicyReport {
    PolicyReport::of(policy, PolicyDigest::of(policy).as_str())
}

/// The report of the policy that a sandbox has now.
pub(crate) fn live_report(state: &LiveState) -> PolicyReport {
    let mut report = PolicyReport::of(&state.version, state.version.digest().as_str());
    // Those that came later are told with their time, and once.
    report.rules.retain(|rule| !rule.live);
    report.rules.extend(state.rules.iter().map(live_rule));
    PolicyReport {
        version: state.version.number(),
        questions: state.questions.iter().map(question_report).collect(),
        connections: state.connections as u64,
        ..report
    }
}

fn live_rule(live: &LiveRule) -> RuleReport {
    let ends_s = match live.until {
        Until::Time(time) => Some(time.saturating_duration_since(Instant::now()).as_secs()),
        Until::End | Until::Used => None,
    };
    RuleReport {
        live: true,
        once: live.until == Until::Used,
        ends_s,
        ..RuleReport::of(live.effect, &live.rule)
    }
}

fn question_report(question: &Question) -> QuestionReport {
    let Question { id, name, port, since, waiting, why } = question;
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    QuestionReport {
        id: *id,
        name: name.to_string(),
        port: *port,
        rule: question.rule(),
        since_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        waiting: *waiting as u64,
        why: why.as_ref().map(ToString::to_string),
    }
}

impl Notices {
    pub(crate) fn of(policy: &LivePolicy) -> Notices {
        // In this order: what comes between the two is told twice, and not lost.
        let events = policy.watch();
        let state = policy.state();
        let digest = state.version.digest().to_string();
        let changed = LiveNotice::Changed { policy: digest, version: state.version.number() };
        let open =
            state.questions.iter().map(|question| LiveNotice::Opened { question: question_report(question) });
        Notices { known: std::iter::once(changed).chain(open).collect(), events }
    }

    /// The next one; nothing when the sandbox is no longer served. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<LiveNotice> {
        if let Some(known) = self.known.pop_front() {
            return Some(known);
        }
        match self.events.recv().await {
            Ok(LiveEvent::Opened(question)) => {
                Some(LiveNotice::Opened { question: question_report(&question) })
            }
            Ok(LiveEvent::Answered { question, answer }) => {
                Some(LiveNotice::Answered { question: question_report(&question), verdict: answer })
            }
            Ok(LiveEvent::Changed { number, digest }) => {
                Some(LiveNotice::Changed { policy: digest.to_string(), version: number })
            }
            Err(RecvError::Lagged(count)) => Some(LiveNotice::Missed { count }),
            Err(RecvError::Closed) => None,
        }
    }
}

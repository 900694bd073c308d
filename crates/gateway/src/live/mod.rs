//! The policy of a sandbox that lives: its versions, the connections that they allowed, and the questions that wait for a person.
//!
//! ```text
//!  a person outside ── change, answer ──> LivePolicy ── version 0, 1, 2 … (immutable)
//!                                            │  each change ends the connections that it does not allow
//!  a connection ── admit ────────────────────┘  and has one version for all of its decisions
//! ```
//!
//! Called by the gateway for each connection, and by the engine for those outside who may change it. Who may is theirs to judge;
//! what no change may do is [`change`]'s: reserved ranges, limits and the rules that forbid stay as the sandbox was started.

mod change;
mod questions;
mod version;

pub use change::{Change, ChangeRefused, LiveRule, Until};
pub use questions::{ANSWER_TIMEOUT, Question};
pub use version::{PolicyDigest, PolicyVersion};

use crate::decide::{self, Allowed};
use crate::serving::Serving;
use belljar_audit::{Approval, Event, PolicyChange};
use belljar_spec::egress::{
    EgressPolicy, HostName, Mode, Printable, Reason, Rule, RuleEffect, RuleError, RuleLasting, RuleSource,
    Verdict,
};
use change::Layers;
use questions::Questions;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::timeout;

/// The policy of one sandbox, and its changes.
pub struct LivePolicy {
    state: Mutex<State>,
    /// Tells watchers what happens; one that is too slow misses some.
    events: broadcast::Sender<LiveEvent>,
    /// A rule with a time came: the task that takes it back looks again.
    timed: Notify,
}

struct State {
    layers: Layers,
    /// Cloned for each connection.
    current: Arc<Serving>,
    connections: HashMap<u64, Connection>,
    last_connection: u64,
    questions: Questions,
}

/// A connection that a version allowed.
struct Connection {
    name: HostName,
    port: u16,
    version: Arc<PolicyVersion>,
    stop: Arc<Stop>,
}

/// Ends a connection that is not allowed any more.
#[derive(Debug, Default)]
struct Stop {
    notify: Notify,
    is_revoked: Arc<AtomicBool>,
}

/// What watchers are told.
#[derive(Debug, Clone)]
pub enum LiveEvent {
    /// A person is asked.
    Opened(Question),
    /// The question is over.
    Answered { question: Question, answer: Option<Verdict> },
    /// The policy changed.
    Changed { number: u64, digest: PolicyDigest },
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub number: u64,
    pub digest: PolicyDigest,
    /// How many connections it ended.
    pub ended: usize,
}

/// The policy and all that belongs to it, at one moment.
#[derive(Debug, Clone)]
pub struct LiveState {
    pub version: Arc<PolicyVersion>,
    /// The rules that came after the start.
    pub rules: Vec<LiveRule>,
    pub questions: Vec<Question>,
    /// Connections that are open.
    pub connections: usize,
}

/// A connection that may be made, or waits to be.
pub(crate) enum Admission {
    Allowed(Admitted),
    Refused(Arc<Serving>, Reason),
    /// A person is asked.
    Waits(Waiting),
}

/// What became of a program's wish for a name.
pub(crate) enum Requested {
    Allowed,
    /// No answer could open it, and why.
    Refused(String),
    /// A person is asked.
    Waits(Waiting),
}

/// A connection that may be made: everything about it is decided by one version.
pub(crate) struct Admitted {
    pub(crate) serving: Arc<Serving>,
    pub(crate) allowed: Allowed,
    registered: Registered,
}

/// Taken from the list of connections when it is dropped.
struct Registered {
    live: Arc<LivePolicy>,
    number: u64,
    stop: Arc<Stop>,
}

/// A connection that waits for the answer of a person.
pub(crate) struct Waiting {
    live: Arc<LivePolicy>,
    name: HostName,
    port: u16,
    id: u64,
    answer: watch::Receiver<Option<Verdict>>,
    is_over: bool,
}

impl LivePolicy {
    /// The policy that a sandbox starts with, and rules that it had before its processes were replaced. `ports` are those that its
    /// kernel leads to the gateway, where these are not all.
    pub(crate) fn new(serving: Serving, rules: Vec<LiveRule>, ports: Option<Vec<u16>>) -> Arc<LivePolicy> {
        let base = (**serving.policy).clone();
        let layers = Layers { base, rules, ports };
        let policy = Arc::new(layers.version(0));
        let current = Arc::new(serving.under(policy, Arc::default()));
        let state = State {
            layers,
            current,
            connections: HashMap::new(),
            last_connection: 0,
            questions: Questions::default(),
        };
        let events = broadcast::Sender::new(EVENT_BACKLOG);
        Arc::new(LivePolicy { state: Mutex::new(state), events, timed: Notify::new() })
    }

    /// What is served now: one version, whatever changes afterwards.
    pub(crate) fn now(&self) -> Arc<Serving> {
        let mut state = self.lock();
        self.expire(&mut state);
        Arc::clone(&state.current)
    }

    /// May this connection be made? The version that says so decides all about it; where it later says no more than it did, the
    /// connection ends.
    pub(crate) fn admit(self: &Arc<LivePolicy>, name: &HostName, port: u16) -> Admission {
        let mut state = self.lock();
        self.expire(&mut state);
        let current = Arc::clone(&state.current);
        let reason = match decide::opening(&current.policy, name, port) {
            Ok(allowed) => {
                let version = Arc::clone(&current.policy);
                return Admission::Allowed(self.register(&mut state, version, name, port, allowed));
            }
            Err(reason) => reason,
        };
        let once = state.layers.once().find_map(|(at, rule)| {
            let policy = EgressPolicy::clone(&current.policy).allow(rule.clone());
            let allowed = decide::opening(&policy, name, port).ok()?;
            Some((at, policy, allowed))
        });
        if let Some((at, policy, allowed)) = once {
            let used = state.layers.rules.remove(at);
            self.record(&state, PolicyChange::Removed, &used.rule, "it was used", "belljar", 0);
            let version = Arc::new(PolicyVersion::new(policy, current.policy.number()));
            return Admission::Allowed(self.register(&mut state, version, name, port, allowed));
        }
        if !decide::needs_approval(&current.policy, reason) {
            return Admission::Refused(current, reason);
        }
        match self.ask(&mut state, name, port, None) {
            Some(waiting) => Admission::Waits(waiting),
            None => Admission::Refused(current, Reason::NotApproved),
        }
    }

    /// A program asks for a name, whatever the mode is: nothing is opened, and a person is asked where an answer could open it.
    pub(crate) fn request(
        self: &Arc<LivePolicy>,
        name: &HostName,
        port: u16,
        why: Option<Printable>,
    ) -> Requested {
        if crate::dns::is_localhost(name) {
            return Requested::Refused("inside, this name is the sandbox itself".into());
        }
        let mut state = self.lock();
        self.expire(&mut state);
        match decide::opening(&state.current.policy, name, port) {
            Ok(_) => return Requested::Allowed,
            Err(Reason::NameNotAllowed | Reason::PortNotAllowed) => {}
            Err(reason) => return Requested::Refused(reason.to_string()),
        }
        // A name that no answer could open is no question.
        let by: Arc<str> = "approval".into();
        let rule = match rule_for(name, port, RuleEffect::Allow, &by) {
            Ok(rule) => rule,
            Err(error) => return Requested::Refused(error.to_string()),
        };
        let change = Change { effect: RuleEffect::Allow, rule, lasting: RuleLasting::Life, by };
        if let Err(refused) = state.layers.clone().change(&change, Instant::now()) {
            return Requested::Refused(refused.to_string());
        }
        match self.ask(&mut state, name, port, why) {
            Some(waiting) => Requested::Waits(waiting),
            None => Requested::Refused("too many questions wait already".into()),
        }
    }

    fn ask(
        self: &Arc<LivePolicy>,
        state: &mut State,
        name: &HostName,
        port: u16,
        why: Option<Printable>,
    ) -> Option<Waiting> {
        if !state.current.recorder.takes_refusals() {
            return None;
        }
        let opened = state.questions.ask(name, port, why.clone(), SystemTime::now())?;
        if opened.is_new {
            state.current.recorder.approval_requested(opened.id, name, port, why.as_ref());
            if let Some(question) = state.questions.get(opened.id) {
                let _ = self.events.send(LiveEvent::Opened(question.clone()));
            }
        }
        let (live, name) = (Arc::clone(self), name.clone());
        Some(Waiting { live, name, port, id: opened.id, answer: opened.answer, is_over: false })
    }

    fn register(
        self: &Arc<LivePolicy>,
        state: &mut State,
        version: Arc<PolicyVersion>,
        name: &HostName,
        port: u16,
        allowed: Allowed,
    ) -> Admitted {
        let stop = Arc::new(Stop::default());
        let serving = state.current.under(Arc::clone(&version), Arc::clone(&stop.is_revoked));
        state.last_connection += 1;
        let number = state.last_connection;
        let connection = Connection { name: name.clone(), port, version, stop: Arc::clone(&stop) };
        state.connections.insert(number, connection);
        let registered = Registered { live: Arc::clone(self), number, stop };
        Admitted { serving: Arc::new(serving), allowed, registered }
    }

    /// Changes the policy. In force when this returns: no connection that comes later is decided by an older version, and those that
    /// the new one does not allow are being ended.
    pub fn change(&self, change: &Change) -> Result<Changed, ChangeRefused> {
        let mut state = self.lock();
        self.expire(&mut state);
        self.change_locked(&mut state, change)
    }

    fn change_locked(&self, state: &mut State, change: &Change) -> Result<Changed, ChangeRefused> {
        if state.layers.base.mode == Mode::None {
            return Err(ChangeRefused::EgressOff);
        }
        if change.effect == RuleEffect::Allow && !state.current.recorder.takes_refusals() {
            return Err(ChangeRefused::NotRecorded);
        }
        let before = state.layers.clone();
        let taken = state.layers.change(change, Instant::now())?;
        let number = state.current.policy.number() + 1;
        let version = Arc::new(state.layers.version(number));
        let ended = state.connections_without(&version).count();
        // Written before it is in force. What forbids is in force whatever becomes of the log.
        let words = change.lasting.words();
        let digest = version.digest();
        for rule in taken {
            state.write(PolicyChange::Removed, &rule.rule, "its opposite came", &change.by, digest, 0);
        }
        let recorded =
            state.write(change::recorded(change.effect), &change.rule, &words, &change.by, digest, ended);
        if !recorded && change.effect == RuleEffect::Allow {
            state.layers = before;
            return Err(ChangeRefused::NotRecorded);
        }
        let ended = self.install(state, version);
        if matches!(change.lasting, RuleLasting::Seconds(_)) {
            self.timed.notify_one();
        }
        match recorded {
            true => Ok(ended),
            false => Err(ChangeRefused::NotRecorded),
        }
    }

    /// Answers a question: the one of this number, if it is about this rule ([`Question::rule`]). The caller has seen the rule, and may
    /// have been judged by it.
    pub fn answer(
        &self,
        id: u64,
        rule: &str,
        answer: Verdict,
        by: &Arc<str>,
    ) -> Result<Changed, ChangeRefused> {
        let mut state = self.lock();
        self.expire(&mut state);
        let Some(question) = state.questions.get(id).filter(|open| open.rule() == rule).cloned() else {
            return Err(ChangeRefused::NoQuestion(id));
        };
        let changed = match answer {
            Verdict::Once => {
                // Judged as a rule for the sandbox would be.
                let rule = rule_for(&question.name, question.port, RuleEffect::Allow, by);
                let rule = rule.map_err(|_| ChangeRefused::NoQuestion(id))?;
                let change = Change {
                    effect: RuleEffect::Allow,
                    rule,
                    lasting: RuleLasting::Once,
                    by: Arc::clone(by),
                };
                state.layers.clone().change(&change, Instant::now())?;
                let digest = state.current.policy.digest().clone();
                Changed { number: state.current.policy.number(), digest, ended: 0 }
            }
            Verdict::Sandbox | Verdict::Deny => {
                let effect = if answer == Verdict::Deny { RuleEffect::Deny } else { RuleEffect::Allow };
                let rule = rule_for(&question.name, question.port, effect, by);
                let rule = rule.map_err(|_| ChangeRefused::NoQuestion(id))?;
                let change = Change { effect, rule, lasting: RuleLasting::Life, by: Arc::clone(by) };
                self.change_locked(&mut state, &change)?
            }
        };
        let approval = match answer {
            Verdict::Once => Approval::Once,
            Verdict::Sandbox => Approval::Sandbox,
            Verdict::Deny => Approval::Denied,
        };
        let event = answered(&question, approval, by);
        if state.current.recorder.write(&event).is_err() && answer != Verdict::Deny {
            return Err(ChangeRefused::NotRecorded);
        }
        if let Some(question) = state.questions.answer(id, answer) {
            let _ = self.events.send(LiveEvent::Answered { question, answer: Some(answer) });
        }
        Ok(changed)
    }

    /// The policy and what belongs to it, now.
    pub fn state(&self) -> LiveState {
        let mut state = self.lock();
        self.expire(&mut state);
        LiveState {
            version: Arc::clone(&state.current.policy),
            rules: state.layers.rules.clone(),
            questions: state.questions.all().cloned().collect(),
            connections: state.connections.len(),
        }
    }

    /// Tells of what happens from now on.
    pub fn watch(&self) -> broadcast::Receiver<LiveEvent> {
        self.events.subscribe()
    }

    /// Takes back rules that have had their time, for as long as the sandbox is served.
    pub(crate) async fn keep_time(self: Arc<LivePolicy>) {
        loop {
            let next = {
                let mut state = self.lock();
                self.expire(&mut state);
                state.layers.next_expiry()
            };
            match next {
                Some(time) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(time.into()) => {}
                        () = self.timed.notified() => {}
                    }
                }
                None => self.timed.notified().await,
            }
        }
    }

    /// Takes back rules that have had their time. Each decision does so first: no rule counts longer because a task was late.
    fn expire(&self, state: &mut State) {
        if state.layers.next_expiry().is_none_or(|time| time > Instant::now()) {
            return;
        }
        let over = state.layers.expire(Instant::now());
        let version = state.layers.version(state.current.policy.number() + 1);
        for live in over {
            state.write(
                PolicyChange::Removed,
                &live.rule,
                "its time was over",
                "belljar",
                version.digest(),
                0,
            );
        }
        self.install(state, Arc::new(version));
    }

    fn install(&self, state: &mut State, version: Arc<PolicyVersion>) -> Changed {
        let mut ended = 0;
        for connection in state.connections_without(&version) {
            connection.stop.is_revoked.store(true, Ordering::Relaxed);
            connection.stop.notify.notify_one();
            ended += 1;
        }
        let (number, digest) = (version.number(), version.digest().clone());
        state.current = Arc::new(state.current.under(version, Arc::default()));
        let _ = self.events.send(LiveEvent::Changed { number, digest: digest.clone() });
        Changed { number, digest, ended }
    }

    fn record(
        &self,
        state: &State,
        change: PolicyChange,
        rule: &Rule,
        lasting: &str,
        by: &str,
        ended: usize,
    ) {
        state.write(change, rule, lasting, by, state.current.policy.digest(), ended);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The connections that another version allowed and this one would not.
    fn connections_without(&self, version: &PolicyVersion) -> impl Iterator<Item = &Connection> {
        self.connections.values().filter(|connection| {
            !connection.stop.is_revoked.load(Ordering::Relaxed)
                && !decide::keeps(&connection.version, version, &connection.name, connection.port)
        })
    }

    fn write(
        &self,
        change: PolicyChange,
        rule: &Rule,
        lasting: &str,
        by: &str,
        digest: &PolicyDigest,
        ended: usize,
    ) -> bool {
        let event = Event::PolicyChanged {
            change,
            rule: rule.to_string(),
            lasting: lasting.into(),
            by: by.into(),
            policy: digest.to_string(),
            ended: ended as u64,
        };
        self.current.recorder.write(&event).is_ok()
    }
}

impl Admitted {
    /// Ready when the policy no longer allows it.
    pub(crate) async fn revoked(&self) {
        self.registered.stop.notify.notified().await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.live.lock().connections.remove(&self.number);
    }
}

impl Waiting {
    /// Waits for the answer, and asks the policy again. A refusal comes with the version that says it.
    pub(crate) async fn answer(mut self) -> Result<Admitted, (Arc<Serving>, Reason)> {
        let answer = match timeout(ANSWER_TIMEOUT, self.answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => *answer,
            Ok(Err(_)) | Err(_) => None,
        };
        let live = Arc::clone(&self.live);
        let mut state = live.lock();
        live.expire(&mut state);
        let current = Arc::clone(&state.current);
        if answer.is_none() {
            self.leave(&mut state);
        }
        self.is_over = true;
        let policy = match answer {
            Some(Verdict::Sandbox) => None,
            Some(Verdict::Once) => rule_for(&self.name, self.port, RuleEffect::Allow, &"approval".into())
                .ok()
                .map(|rule| EgressPolicy::clone(&current.policy).allow(rule)),
            Some(Verdict::Deny) => return Err((current, Reason::NotApproved)),
            None => None,
        };
        let version = match policy {
            Some(policy) => Arc::new(PolicyVersion::new(policy, current.policy.number())),
            None => Arc::clone(&current.policy),
        };
        match decide::opening(&version, &self.name, self.port) {
            Ok(allowed) => Ok(live.register(&mut state, version, &self.name, self.port, allowed)),
            Err(_) => Err((current, Reason::NotApproved)),
        }
    }

    /// Waits for the answer to a program's wish, which is no connection yet; nothing where nobody answered in time. "Once" is for the next one.
    pub(crate) async fn verdict(mut self) -> Option<Verdict> {
        let answer = match timeout(ANSWER_TIMEOUT, self.answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => *answer,
            Ok(Err(_)) | Err(_) => None,
        };
        let live = Arc::clone(&self.live);
        let mut state = live.lock();
        live.expire(&mut state);
        if answer.is_none() {
            self.leave(&mut state);
        }
        self.is_over = true;
        if answer == Some(Verdict::Once) {
            let by: Arc<str> = "approval".into();
            let rule = rule_for(&self.name, self.port, RuleEffect::Allow, &by).ok()?;
            let change = Change { effect: RuleEffect::Allow, rule, lasting: RuleLasting::Once, by };
            live.change_locked(&mut state, &change).ok()?;
        }
        answer
    }

    fn leave(&mut self, state: &mut State) {
        let Some(question) = state.questions.leave(self.id) else { return };
        let event = answered(&question, Approval::Unanswered, "no person");
        state.current.recorder.approval_unanswered(&event);
        let _ = self.live.events.send(LiveEvent::Answered { question, answer: None });
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_over {
            let live = Arc::clone(&self.live);
            self.leave(&mut live.lock());
        }
    }
}

/// The rule that an answer is: this name alone, at this port, with what is usual there.
fn rule_for(name: &HostName, port: u16, effect: RuleEffect, by: &Arc<str>) -> Result<Rule, RuleError> {
    let source = RuleSource::Live(Arc::clone(by));
    let text = match (effect, port) {
        (RuleEffect::Allow, 443 | 80) => format!("={name}"),
        (RuleEffect::Allow | RuleEffect::Deny, _) => format!("={name}:{port}"),
    };
    match effect {
        RuleEffect::Allow => Rule::allow(&text, source),
        RuleEffect::Deny => Rule::deny(&text, source),
    }
}

fn answered(question: &Question, answer: Approval, by: &str) -> Event {
    let Question { id, name, port, .. } = question;
    Event::ApprovalAnswered { question: *id, name: name.clone(), port: *port, answer, by: by.into() }
}

/// A watcher that is further behind misses what was said before.
const EVENT_BACKLOG: usize = 256;

#[cfg(test)]
mod tests;

//! Versions under load, and questions with their answers.

use super::*;
use crate::connection_limits::{Arrival, DescriptorBudget};
use crate::credentials::Credentials;
use crate::gateway::Terms;
use crate::names::Addresses;
use crate::record::Recorder;
use belljar_audit::Log;
use belljar_spec::SandboxId;
use proptest::prelude::*;
use std::thread;

fn live(policy: EgressPolicy, recorder: Recorder) -> Arc<LivePolicy> {
    let terms = Terms {
        policy,
        recorder: Arc::new(recorder),
        llm: None,
        credentials: Arc::new(Credentials::none()),
        authority: None,
        pushes: None,
        proxy: None,
        rules: Vec::new(),
        ports: None,
    };
    let places = Arc::new(DescriptorBudget::here());
    LivePolicy::new(Serving::new(&places, terms, Addresses::Ipv4, Arrival::Accepted), Vec::new(), None)
}

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

fn change(effect: RuleEffect, text: &str, lasting: RuleLasting) -> Change {
    let by: Arc<str> = "alice".into();
    let source = RuleSource::Live(Arc::clone(&by));
    let rule = match effect {
        RuleEffect::Allow => Rule::allow(text, source),
        RuleEffect::Deny => Rule::deny(text, source),
    };
    Change { effect, rule: rule.unwrap(), lasting, by }
}

fn admitted(live: &Arc<LivePolicy>, host: &str, port: u16) -> Result<Admitted, Reason> {
    match live.admit(&name(host), port) {
        Admission::Allowed(admitted) => Ok(admitted),
        Admission::Refused(_, reason) => Err(reason),
        Admission::Waits(_) => panic!("no person is asked"),
    }
}

fn is_ended(admitted: &Admitted) -> bool {
    admitted.serving.revoked.load(Ordering::Relaxed)
}

#[test]
fn a_change_counts_for_the_next_connection_and_ends_what_it_does_not_allow() {
    let live = live(EgressPolicy::strict().allow("a.test".parse().unwrap()), Recorder::new(None));
    let first = admitted(&live, "a.test", 443).ok().unwrap();
    assert_eq!(admitted(&live, "b.test", 443).err(), Some(Reason::NameNotAllowed));
    live.change(&change(RuleEffect::Allow, "b.test", RuleLasting::Life)).unwrap();
    let second = admitted(&live, "b.test", 443).ok().unwrap();
    let changed = live.change(&change(RuleEffect::Deny, "a.test", RuleLasting::Life)).unwrap();
    assert_eq!((changed.ended, is_ended(&first), is_ended(&second)), (1, true, false));
    assert_eq!(admitted(&live, "a.test", 443).err(), Some(Reason::NameDenied));
    // What it was decided by is what it was.
    assert!(decide::opening(&first.serving.policy, &name("a.test"), 443).is_ok());
    let changed = live.change(&change(RuleEffect::Allow, "a.test", RuleLasting::Life)).unwrap();
    assert_eq!((changed.number, changed.ended), (3, 0));
    assert!(admitted(&live, "a.test", 443).is_ok());
    drop(first);
    assert_eq!(live.state().connections, 1);
}

#[test]
fn the_policy_that_means_the_same_has_the_same_digest() {
    let live = live(EgressPolicy::strict(), Recorder::new(None));
    let before = live.state().version.digest().clone();
    let allowed = live.change(&change(RuleEffect::Allow, "a.test", RuleLasting::Life)).unwrap();
    assert_ne!(allowed.digest, before);
    assert_eq!(allowed.digest, PolicyDigest::of(&EgressPolicy::strict().allow("a.test".parse().unwrap())));
}

#[test]
fn a_rule_for_one_connection_is_for_one() {
    let live = live(EgressPolicy::strict(), Recorder::new(None));
    live.change(&change(RuleEffect::Allow, "a.test", RuleLasting::Once)).unwrap();
    let number = live.state().version.number();
    assert_eq!(admitted(&live, "a.test", 22).err(), Some(Reason::NameNotAllowed), "not at that port");
    let one = admitted(&live, "a.test", 443).ok().unwrap();
    assert_eq!(admitted(&live, "a.test", 443).err(), Some(Reason::NameNotAllowed));
    // A change of something else lets it go on or ends it; it may not outlive what forbids it.
    assert_eq!(one.serving.policy.number(), number);
    live.change(&change(RuleEffect::Deny, "a.test", RuleLasting::Life)).unwrap();
    assert!(is_ended(&one));
}

#[tokio::test(start_paused = true)]
async fn a_rule_ends_with_its_time_though_no_task_looks() {
    let live = live(EgressPolicy::strict(), Recorder::new(None));
    live.change(&change(RuleEffect::Allow, "a.test", RuleLasting::Seconds(0))).unwrap();
    assert_eq!(admitted(&live, "a.test", 443).err(), Some(Reason::NameNotAllowed));
    live.change(&change(RuleEffect::Allow, "a.test", RuleLasting::Seconds(600))).unwrap();
    let connection = admitted(&live, "a.test", 443).ok().unwrap();
    assert!(!is_ended(&connection));
    // As if its time were over.
    live.lock().layers.rules.iter_mut().for_each(|rule| rule.until = Until::Time(Instant::now()));
    let task = tokio::spawn(Arc::clone(&live).keep_time());
    connection.revoked().await;
    assert!(is_ended(&connection));
    task.abort();
}

fn ask() -> EgressPolicy {
    EgressPolicy { mode: Mode::Ask, ..EgressPolicy::strict() }
}

fn waiting(live: &Arc<LivePolicy>, host: &str) -> Waiting {
    match live.admit(&name(host), 443) {
        Admission::Waits(waiting) => waiting,
        Admission::Allowed(_) | Admission::Refused(..) => panic!("a person is asked"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_for_all_that_wait_and_no_answer_is_no() {
    let live = live(ask(), Recorder::new(None));
    let by: Arc<str> = "alice".into();
    let mut watched = live.watch();
    let (one, two) = (waiting(&live, "a.test"), waiting(&live, "a.test"));
    let Ok(LiveEvent::Opened(question)) = watched.recv().await else { panic!("it is told") };
    live.answer(question.id, "=a.test", Verdict::Once, &by).unwrap();
    let (one, two) = (one.answer().await.ok().unwrap(), two.answer().await.ok().unwrap());
    assert!(!is_ended(&one) && !is_ended(&two));
    // Once is for those that waited.
    let third = waiting(&live, "a.test");
    assert_eq!(third.answer().await.err().map(|(_, reason)| reason), Some(Reason::NotApproved));
    assert!(live.state().questions.is_empty(), "its time was over");
    let fourth = waiting(&live, "a.test");
    let id = live.state().questions[0].id;
    // What was judged is what is answered: a number alone may mean another question.
    for other in ["=b.test", "a.test", "=a.test:8443", ""] {
        assert_eq!(
            live.answer(id, other, Verdict::Sandbox, &by),
            Err(ChangeRefused::NoQuestion(id)),
            "{other}"
        );
    }
    live.answer(id, "=a.test", Verdict::Sandbox, &by).unwrap();
    assert!(fourth.answer().await.is_ok() && admitted(&live, "a.test", 443).is_ok());
    assert_eq!(live.answer(id, "=a.test", Verdict::Deny, &by), Err(ChangeRefused::NoQuestion(id)));
    let fifth = waiting(&live, "b.test");
    live.answer(live.state().questions[0].id, "=b.test", Verdict::Deny, &by).unwrap();
    assert_eq!(fifth.answer().await.err().map(|(_, reason)| reason), Some(Reason::NotApproved));
    assert_eq!(admitted(&live, "b.test", 443).err(), Some(Reason::NameDenied), "it is not asked again");
}

#[test]
fn a_question_does_not_open_what_the_start_forbids() {
    let mut policy = ask().deny(Rule::deny("a.test", RuleSource::Flag).unwrap());
    policy.only = Some(vec!["b.test".parse().unwrap()]);
    let live = live(policy, Recorder::new(None));
    assert_eq!(admitted(&live, "a.test", 443).err(), Some(Reason::NameDenied), "no person is asked");
    let _waiting = waiting(&live, "c.test");
    let id = live.state().questions[0].id;
    for answer in [Verdict::Once, Verdict::Sandbox] {
        let refused = live.answer(id, "=c.test", answer, &"alice".into());
        assert!(matches!(refused, Err(ChangeRefused::NotByOperator(_))), "{refused:?}");
    }
    live.answer(id, "=c.test", Verdict::Deny, &"alice".into()).unwrap();
}

/// Names that the two halves of the test's policies are about; a version allows either all of them by one rule's text, or none.
fn policy_text(number: u64) -> String {
    format!("a.test:{}", 10_000 + number % 2)
}

#[test]
fn no_connection_is_decided_by_two_versions_while_the_policy_changes_a_thousand_times() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(folder.path(), SandboxId::from_random([9; 8])).unwrap();
    let path = log.path().to_path_buf();
    let live = live(EgressPolicy::strict(), Recorder::new(Some(log)));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for port in [10_000, 10_001] {
                        let Ok(admitted) = admitted(&live, "a.test", port) else { continue };
                        // Every later decision of the connection is asked of its own version, and says the same.
                        let serving = &admitted.serving;
                        let again = decide::opening(&serving.policy, &name("a.test"), port).unwrap();
                        assert_eq!(again, admitted.allowed);
                        let other = decide::opening(&serving.policy, &name("a.test"), 20_001 - port);
                        assert!(other.is_err(), "one version allows one of the two");
                        assert_eq!(*serving.policy.digest(), PolicyDigest::of(&serving.policy));
                    }
                }
            });
        }
        for number in 0..500 {
            let now = change(RuleEffect::Allow, &policy_text(number), RuleLasting::Life);
            // One allowed after the other was denied: never both.
            live.change(&change(RuleEffect::Deny, &policy_text(number + 1), RuleLasting::Life)).unwrap();
            live.change(&now).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(live.state().version.number(), 1000);
    let text = std::fs::read_to_string(path).unwrap();
    let changes =
        |what: &str| text.lines().filter(|line| line.contains(&format!("\"change\":\"{what}\""))).count();
    assert_eq!((changes("allowed"), changes("denied")), (500, 500), "the record is complete");
}

proptest! {
    /// After any changes, a connection that goes on is one that would be allowed now.
    #[test]
    fn what_goes_on_would_be_allowed_again(
        steps in prop::collection::vec((any::<bool>(), 0_usize..4, any::<bool>()), 1..20)
    ) {
        const HOSTS: [&str; 4] = ["a.test", "=a.test:443", "b.a.test", "a.test:80"];
        let live = live(EgressPolicy::strict().allow("b.a.test".parse().unwrap()), Recorder::new(None));
        let mut open = Vec::new();
        for (allows, host, connects) in steps {
            let effect = if allows { RuleEffect::Allow } else { RuleEffect::Deny };
            let _ = live.change(&change(effect, HOSTS[host], RuleLasting::Life));
            if connects {
                for host in ["a.test", "b.a.test"] {
                    open.extend([443, 80].into_iter().filter_map(|port| Some((host, port, admitted(&live, host, port).ok()?))));
                }
            }
            let now = live.now();
            for (host, port, admitted) in &open {
                let is_allowed = decide::opening(&now.policy, &name(host), *port).is_ok();
                prop_assert!(is_allowed || is_ended(admitted), "{host}:{port}");
            }
        }
    }
}

/// A program's wish, in the mode `strict`: the name is asked for before it is dialled.
#[tokio::test(start_paused = true)]
async fn a_program_asks_for_a_name_and_the_answer_is_in_force() {
    let live = live(EgressPolicy::strict().allow("known.test".parse().unwrap()), Recorder::new(None));
    let request = |name: &str| live.request(&name.parse().unwrap(), 443, Some("to test".into()));
    assert!(matches!(request("known.test"), Requested::Allowed));
    assert!(matches!(request("host.belljar.internal"), Requested::Refused(_)));
    for verdict in [Verdict::Once, Verdict::Sandbox, Verdict::Deny] {
        let name = format!("{verdict:?}.test").to_lowercase();
        let Requested::Waits(waiting) = request(&name) else { panic!("{name}: it is asked") };
        let question = live.state().questions.remove(0);
        assert_eq!(question.why.as_ref().map(|why| why.as_str()), Some("to test"));
        live.answer(question.id, &question.rule(), verdict, &"a person".into()).unwrap();
        assert_eq!(waiting.verdict().await, Some(verdict));
        let admitted = |name: &str| matches!(live.admit(&name.parse().unwrap(), 443), Admission::Allowed(_));
        assert_eq!(admitted(&name), verdict != Verdict::Deny, "{name}");
        assert_eq!(admitted(&name), verdict == Verdict::Sandbox, "{name}: once");
    }
    let Requested::Waits(waiting) = request("silence.test") else { panic!("it is asked") };
    assert_eq!(waiting.verdict().await, None);
    assert!(live.state().questions.is_empty());
}

//! Questions that wait for a person outside: which name, at which port. Bounded, and the same question is asked once. Without
//! I/O: who waits, and for how long, is the caller's.
//!
//! No program inside can answer: it can only connect, which adds a question, and close.

use super::rule_for;
use belljar_spec::egress::{HostName, Printable, RuleEffect, Verdict};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: u64,
    pub name: HostName,
    pub port: u16,
    /// When it was asked first.
    pub since: SystemTime,
    /// How many connections wait for the answer.
    pub waiting: usize,
    /// What a program says that it is for.
    pub why: Option<Printable>,
}

impl Question {
    /// The rule that an answer adds.
    pub fn rule(&self) -> String {
        let rule = rule_for(&self.name, self.port, RuleEffect::Allow, &"".into());
        rule.map_or_else(|_| format!("={}", self.name), |rule| rule.to_string())
    }
}

/// The questions of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Vec<Open>,
    last: u64,
}

#[derive(Debug)]
struct Open {
    question: Question,
    answer: watch::Sender<Option<Verdict>>,
}

/// A connection's part in a question.
#[derive(Debug)]
pub(crate) struct OpenedQuestion {
    pub(crate) id: u64,
    pub(crate) answer: watch::Receiver<Option<Verdict>>,
    /// Nobody asked this before.
    pub(crate) is_new: bool,
}

impl Questions {
    /// Asks, or joins those who asked the same; nothing where too many other questions wait.
    pub(crate) fn ask(
        &mut self,
        name: &HostName,
        port: u16,
        why: Option<Printable>,
        now: SystemTime,
    ) -> Option<OpenedQuestion> {
        let same = |open: &&mut Open| open.question.name == *name && open.question.port == port;
        if let Some(open) = self.open.iter_mut().find(same) {
            open.question.waiting += 1;
            return Some(OpenedQuestion {
                id: open.question.id,
                answer: open.answer.subscribe(),
                is_new: false,
            });
        }
        if self.open.len() >= MAX_QUESTIONS {
            return None;
        }
        self.last += 1;
        let question = Question { id: self.last, name: name.clone(), port, since: now, waiting: 1, why };
        let (answer, receiver) = watch::channel(None);
        self.open.push(Open { question, answer });
        Some(OpenedQuestion { id: self.last, answer: receiver, is_new: true })
    }

    /// The question of this number, if it still waits.
    pub(crate) fn get(&self, id: u64) -> Option<&Question> {
        self.all().find(|question| question.id == id)
    }

    /// Answers a question, which is gone then.
    pub(crate) fn answer(&mut self, id: u64, answer: Verdict) -> Option<Question> {
        let at = self.open.iter().position(|open| open.question.id == id)?;
        let open = self.open.swap_remove(at);
        open.answer.send_replace(Some(answer));
        Some(open.question)
    }

    /// A connection waits no longer. The question is returned when it was the last one: nobody answered it.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Question> {
        let at = self.open.iter().position(|open| open.question.id == id)?;
        let question = &mut self.open[at].question;
        question.waiting -= 1;
        (question.waiting == 0).then(|| self.open.swap_remove(at).question)
    }

    /// All that wait for an answer.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Question> {
        self.open.iter().map(|open| &open.question)
    }
}

/// How long a connection waits for a person.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// More than a person answers in that time; few enough that a program that asks for everything fills neither memory nor a screen.
pub(crate) const MAX_QUESTIONS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn the_same_question_is_asked_once_and_answered_for_all() {
        let (mut questions, now) = (Questions::default(), SystemTime::now());
        let first = questions.ask(&name("a.test"), 443, None, now).unwrap();
        let second = questions.ask(&name("a.test"), 443, None, now).unwrap();
        let other = questions.ask(&name("a.test"), 80, None, now).unwrap();
        assert_eq!((first.id == second.id, first.id == other.id), (true, false));
        assert_eq!((first.is_new, second.is_new), (true, false));
        assert_eq!(questions.get(first.id).unwrap().waiting, 2);
        questions.answer(first.id, Verdict::Once).unwrap();
        for opened in [first, second] {
            assert_eq!(*opened.answer.borrow(), Some(Verdict::Once));
            assert_eq!(questions.answer(opened.id, Verdict::Deny), None, "it is answered");
        }
        assert_eq!(*other.answer.borrow(), None);
    }

    #[test]
    fn a_question_ends_with_the_last_connection_that_waits() {
        let (mut questions, now) = (Questions::default(), SystemTime::now());
        let first = questions.ask(&name("a.test"), 443, None, now).unwrap();
        questions.ask(&name("a.test"), 443, None, now).unwrap();
        assert_eq!(questions.leave(first.id), None);
        assert_eq!(questions.leave(first.id).map(|question| question.id), Some(first.id));
        assert_eq!(questions.all().count(), 0);
        assert!(
            questions.ask(&name("a.test"), 443, None, now).unwrap().id > first.id,
            "no number is used twice"
        );
    }

    #[test]
    fn a_program_that_asks_for_everything_fills_nothing() {
        let (mut questions, now) = (Questions::default(), SystemTime::now());
        for number in 0..10_000 {
            let opened = questions.ask(&name(&format!("n{number}.test")), 443, None, now);
            assert_eq!(opened.is_some(), number < MAX_QUESTIONS);
        }
        assert!(questions.ask(&name("n0.test"), 443, None, now).is_some(), "one that waits can be joined");
    }
}

//! `belljar approve`: the questions of sandboxes that live, and their answers.

use super::{called, print_json, state, who};
use crate::args::ApproveArgs;
use crate::commands::print;
use crate::commands::table::{age, since, table};
use belljar_config::{self as config, RuleFile, RuleList};
use belljar_engine::{Order, Steered, steered};
use belljar_spec::egress::{LiveNotice, QuestionReport, Verdict};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::BufRead;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

pub(crate) fn approve(options: ApproveArgs) -> Result<u8, SandboxError> {
    let state = state()?;
    if options.watch {
        return watch(&state);
    }
    let answer = Answer::of(&options);
    if options.question.is_none() && answer.is_none() {
        return list(&state, options.json);
    }
    let (one, question) = find(&state, options.question.as_deref())?;
    let answer = answer.unwrap_or(Answer::Sandbox);
    let outcome = carry_out(&state, &one, &question, answer)?;
    if options.json {
        return print_json(&outcome);
    }
    eprintln!("belljar: {}:{} is {} ({})", question.name, question.port, answer.words(), called(&one));
    if let Some(file) = outcome["config"].as_str() {
        eprintln!("belljar: {} is allowed in {file}", question.rule);
    }
    Ok(0)
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Once,
    Sandbox,
    Folder,
    Always,
    Deny,
}

impl Answer {
    fn of(options: &ApproveArgs) -> Option<Answer> {
        let choices = [
            (options.once, Answer::Once),
            (options.sandbox, Answer::Sandbox),
            (options.folder, Answer::Folder),
            (options.always, Answer::Always),
            (options.deny, Answer::Deny),
        ];
        choices.into_iter().find_map(|(is_chosen, answer)| is_chosen.then_some(answer))
    }

    /// As it is typed.
    fn typed(text: &str) -> Option<Answer> {
        match text.trim() {
            "o" | "once" => Some(Answer::Once),
            "s" | "sandbox" => Some(Answer::Sandbox),
            "f" | "folder" => Some(Answer::Folder),
            "a" | "always" => Some(Answer::Always),
            "d" | "deny" => Some(Answer::Deny),
            _ => None,
        }
    }

    fn verdict(self) -> Verdict {
        match self {
            Answer::Once => Verdict::Once,
            Answer::Sandbox | Answer::Folder | Answer::Always => Verdict::Sandbox,
            Answer::Deny => Verdict::Deny,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Answer::Once => "allowed once",
            Answer::Sandbox => "allowed as long as the sandbox lives",
            Answer::Folder => "allowed for the folder",
            Answer::Always => "allowed for all your sandboxes",
            Answer::Deny => "denied as long as the sandbox lives",
        }
    }
}

fn carry_out(
    state: &Path,
    one: &Steered,
    question: &QuestionReport,
    answer: Answer,
) -> Result<Value, SandboxError> {
    let folder = one.folder.as_deref().map(Path::new);
    // The sandbox first: what it may not take is written nowhere.
    let order = Order::Answer {
        question: question.id,
        rule: question.rule.clone(),
        verdict: answer.verdict(),
        by: who(),
    };
    one.order(state, &order)?;
    let written = match (answer, folder) {
        (Answer::Once | Answer::Sandbox | Answer::Deny, _) => None,
        (Answer::Folder, Some(folder)) => {
            Some(config::add_rule(RuleFile::Repository(folder), RuleList::Allow, &question.rule)?)
        }
        (Answer::Folder, None) => {
            let message =
                "it is allowed in the sandbox, which works on no folder whose configuration could be changed";
            return Err(ErrorCode::RequestConflict
                .error(message)
                .hint("`belljar allow --user` changes yours"));
        }
        (Answer::Always, _) => Some(config::add_rule(RuleFile::User, RuleList::Allow, &question.rule)?),
    };
    Ok(json!({
        "question": name(one, question),
        "sandbox": called(one),
        "name": question.name,
        "port": question.port,
        "verdict": answer.verdict(),
        "rule": question.rule,
        "config": written.map(|written| written.file),
    }))
}

/// How people name a question: the beginning of the sandbox's id, and a number.
fn name(one: &Steered, question: &QuestionReport) -> String {
    name_of(&one.id, question)
}

/// The same, of the sandbox with this id.
pub(in crate::commands) fn name_of(id: &str, question: &QuestionReport) -> String {
    format!("{}-{}", id.get(..SHOWN_ID).unwrap_or(id), question.id)
}

fn all(state: &Path) -> Vec<(Steered, QuestionReport)> {
    // One that ended meanwhile asks nothing.
    let questions = |one: Steered| {
        let open = one.policy(state).map(|policy| policy.questions).unwrap_or_default();
        open.into_iter().map(move |question| (one.clone(), question))
    };
    steered(state).into_iter().filter(|one| one.asks).flat_map(questions).collect()
}

fn find(state: &Path, named: Option<&str>) -> Result<(Steered, QuestionReport), SandboxError> {
    let mut all = all(state);
    if let Some(named) = named {
        all.retain(|(one, question)| {
            let number = named.rsplit_once('-');
            number.is_some_and(|(id, number)| {
                id.len() >= SHOWN_ID && one.id.starts_with(id) && number == question.id.to_string()
            })
        });
    }
    match (all.len(), named) {
        (1, _) => Ok(all.remove(0)),
        (0, Some(named)) => Err(ErrorCode::NameUnknown
            .error(format!("there is no question `{named}`: it was answered, or its time was over"))
            .hint("`belljar approve` lists those that wait")),
        (0, None) => Err(ErrorCode::NameUnknown.error("no question waits for an answer")),
        (_, _) => Err(ErrorCode::RequestValue
            .error("several questions wait")
            .hint("name one of those that `belljar approve` lists")),
    }
}

fn list(state: &Path, as_json: bool) -> Result<u8, SandboxError> {
    let all = all(state);
    if as_json {
        let listed: Vec<Value> = all
            .iter()
            .map(|(one, question)| {
                json!({
                    "question": name(one, question),
                    "sandbox": called(one),
                    "id": one.id,
                    "folder": one.folder,
                    "name": question.name,
                    "port": question.port,
                    "rule": question.rule,
                    "since_ms": question.since_ms,
                    "waiting": question.waiting,
                    "why": question.why,
                })
            })
            .collect();
        return print_json(&listed);
    }
    if all.is_empty() {
        eprintln!("belljar: no question waits for an answer");
        return Ok(0);
    }
    let row = |(one, question): &(Steered, QuestionReport)| {
        [
            name(one, question),
            format!("{}:{}", question.name, question.port),
            called(one).to_string(),
            one.folder.clone().unwrap_or_else(|| "-".into()),
            age(since(question.since_ms)),
        ]
    };
    let rows: Vec<[String; 5]> = all.iter().map(row).collect();
    print(table(["QUESTION", "HOST", "SANDBOX", "FOLDER", "AGE"], &rows).as_bytes())?;
    eprintln!(
        "  hint: `belljar approve {}` allows it; `--once`, `--folder`, `--always`, `--deny`",
        rows[0][0]
    );
    Ok(0)
}

/// Answers questions as they come, until ctrl-C.
fn watch(state: &Path) -> Result<u8, SandboxError> {
    if !isatty(stdin()) {
        let message = "`belljar approve --watch` asks a person, and standard input is no terminal";
        return Err(ErrorCode::RequestConflict
            .error(message)
            .hint("`belljar approve --json` lists what waits; `belljar approve QUESTION` answers"));
    }
    let (sender, questions) = channel();
    let lines = lines();
    let mut watched = HashSet::new();
    eprintln!("belljar: waiting for questions; ctrl-C ends it");
    loop {
        for one in steered(state).into_iter().filter(|one| one.asks && watched.insert(one.id.clone())) {
            follow(state, one, sender.clone());
        }
        match questions.recv_timeout(BETWEEN_LOOKS) {
            Ok((one, question)) => ask(state, &one, &question, &lines),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(0),
        }
    }
}

fn follow(state: &Path, one: Steered, sender: Sender<(Steered, QuestionReport)>) {
    let Ok(watching) = one.watch(state) else { return };
    thread::spawn(move || {
        for notice in watching {
            if let LiveNotice::Opened { question } = notice
                && sender.send((one.clone(), question)).is_err()
            {
                return;
            }
        }
    });
}

fn lines() -> Receiver<String> {
    let (typed, lines) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if typed.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn ask(state: &Path, one: &Steered, question: &QuestionReport, lines: &Receiver<String>) {
    // What was typed before the question is not its answer.
    while lines.try_recv().is_ok() {}
    loop {
        if let Some(why) = &question.why {
            eprintln!("belljar: a program in {} says: \"{why}\"", called(one));
        }
        eprint!(
            "belljar: may {} reach {}:{}? [o]nce, [s]andbox, [f]older, [a]lways, [d]eny: ",
            called(one),
            question.name,
            question.port
        );
        let answer = loop {
            match lines.recv_timeout(BETWEEN_LOOKS) {
                Ok(line) => break Answer::typed(&line),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let open = one.policy(state).map(|policy| policy.questions).unwrap_or_default();
                    if !open.iter().any(|open| open.id == question.id) {
                        eprintln!("\nbelljar: the question is over");
                        return;
                    }
                }
            }
        };
        let Some(answer) = answer else { continue };
        match carry_out(state, one, question, answer) {
            Ok(_) => eprintln!("belljar: {}:{} is {}", question.name, question.port, answer.words()),
            Err(error) => {
                crate::failure::say(&error);
            }
        }
        return;
    }
}

/// Enough to tell a few sandboxes apart, and short enough to be typed.
const SHOWN_ID: usize = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

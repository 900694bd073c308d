//! A person who stops a run, and a belljar that dies: the work so far is kept, the log is whole, nothing runs on.

use belljar_agent::entry::Line;
use belljar_agent::stop::StopReason;
use belljar_sys::rustix::process::Signal;
use belljar_tests_agents::{Job, eventually, for_agents, of_run};
use belljar_tests_hosts::{Delivery, Step};
use std::fs;

for_agents! {
    ctrl_c_ends_a_run_in_the_middle_of_a_command: claude codex opencode pi gemini;
    ctrl_c_ends_a_run_in_the_middle_of_an_answer: claude codex pi;
    a_belljar_that_is_killed_leaves_nothing_running: claude codex pi;
}

/// The agent writes a file, and then a command runs without end, with a child that has left its session. (Claude refuses to
/// just sleep, and Gemini what has a `$(`.)
fn busy(agent: &str) -> Job {
    let command = "setsid sleep 1000 & echo kept > work.txt; while sleep 1; do true; done";
    Job::script(agent, [Step::run(command)])
}

fn has_worked(job: &Job) -> bool {
    job.file("work.txt").as_deref() == Some("kept\n")
}

fn ctrl_c_ends_a_run_in_the_middle_of_a_command(agent: &str) {
    let job = busy(agent);
    let mut started = job.start();
    started.until("its command runs", has_worked);
    started.signal(Signal::INT);
    let done = started.wait();
    assert_eq!(done.stop(), StopReason::ErrorCancelled, "{:#}", done.result);
    assert_eq!((done.code, job.file("work.txt").as_deref()), (130, Some("kept\n")));
    // What was used by then is on the bill, whatever the agent could still say.
    let answered = job.model.calls().iter().filter(|call| call.usage.is_some()).count();
    assert_eq!((done.summary.num_turns, done.summary.total_output_tokens > 0), (answered as u64, true));
}

fn ctrl_c_ends_a_run_in_the_middle_of_an_answer(agent: &str) {
    let silence = Step::say("never").delivery(Delivery::Hang);
    let job = Job::script(agent, [Step::run("echo kept > work.txt"), silence]);
    let mut started = job.start();
    started.until("its model is silent", |job| job.model.calls().iter().any(|call| call.step == 1));
    started.signal(Signal::INT);
    let done = started.wait();
    assert_eq!(done.stop(), StopReason::ErrorCancelled, "{:#}", done.result);
    assert_eq!(job.file("work.txt").as_deref(), Some("kept\n"));
}

fn a_belljar_that_is_killed_leaves_nothing_running(agent: &str) {
    let job = busy(agent);
    let mut started = job.start();
    started.until("its command runs", has_worked);
    let left = || of_run(&job.mark(), None);
    assert!(left().len() > 3, "belljar, its guest, the agent and its command are seen: {:?}", left());
    started.signal(Signal::KILL);
    started.ended();
    assert!(eventually(|| left().is_empty()), "{:?}", left());
    assert_eq!(job.file("work.txt").as_deref(), Some("kept\n"));
    // Every line but the last one, which may be half written, is a line.
    let runs = fs::read_dir(job.state().join("belljar/runs")).unwrap().flatten();
    let logs: Vec<String> =
        runs.map(|run| fs::read_to_string(run.path().join("log.jsonl")).unwrap()).collect();
    assert_eq!(logs.len(), 1);
    let whole = logs[0].rsplit_once('\n').map_or("", |(whole, _)| whole);
    assert!(whole.lines().count() > 3);
    for line in whole.lines() {
        serde_json::from_str::<Line>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

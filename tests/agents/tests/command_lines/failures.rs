//! Whatever goes wrong: the right reason, the work so far in the workspace, and nothing left running (which every [`Job`]
//! looks at).

use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Done, Job, for_agents};
use belljar_tests_hosts::{Delivery, Step};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

for_agents! {
    an_agent_that_is_killed_leaves_its_work: claude codex pi;
    a_key_that_is_not_taken: claude codex pi;
    a_model_with_no_more_for_us: claude codex;
    a_model_that_breaks: claude pi;
    a_model_that_talks_nonsense: claude codex pi;
    a_model_that_hangs_up: codex;
    a_model_that_cuts_its_answer_short: codex pi gemini;
    a_model_that_declines: claude codex pi gemini;
    a_model_that_drips_is_waited_for: claude codex;
    a_model_that_drips_for_too_long: codex;
    a_model_that_never_answers: codex;
    a_model_that_is_not_there: claude codex;
    a_host_that_may_not_be_reached: claude codex pi;
    an_agent_that_is_not_there: codex;
}

fn an_agent_that_is_killed_leaves_its_work(agent: &str) {
    // The tool's parent is the agent; some have a launcher above it, which goes too.
    let job = Job::script(agent, [Step::run(format!("{WORK}; kill -9 $PPID; sleep 1; kill -9 -1"))]);
    failed(&job, &job.run(), StopReason::ErrorKilled);
}

fn a_key_that_is_not_taken(agent: &str) {
    let job = after_work(agent, Step::fail(401, "no such key"));
    let done = job.run();
    failed(&job, &done, StopReason::ErrorAuth);
    counted(&job, &done);
}

fn a_model_with_no_more_for_us(agent: &str) {
    let job = after_work(agent, Step::fail(429, "too much"));
    failed(&job, &job.run(), StopReason::ErrorQuota);
}

fn a_model_that_breaks(agent: &str) {
    let job = after_work(agent, Step::fail(500, "broken"));
    failed(&job, &job.run(), StopReason::ErrorModel);
}

fn a_model_that_talks_nonsense(agent: &str) {
    let job = after_work(agent, Step::say("nobody hears it").delivery(Delivery::Garbage));
    let done = job.run();
    failed(&job, &done, StopReason::ErrorModel);
    assert_eq!(done.summary.num_turns, 1, "{:#}", done.result);
    // The cost of an unreadable answer is unknown: it is estimated, and marked as an estimate.
    assert_ne!(done.result["llm"]["calls_estimated"], 0, "{:#}", done.result);
}

fn a_model_that_hangs_up(agent: &str) {
    let job = after_work(agent, Step::say("half of this is heard").delivery(Delivery::Cut));
    failed(&job, &job.run(), StopReason::ErrorModel);
}

fn a_model_that_cuts_its_answer_short(agent: &str) {
    failed_at(&Job::new(agent, "length"), StopReason::ErrorLength);
}

fn a_model_that_declines(agent: &str) {
    failed_at(&Job::new(agent, "refusal"), StopReason::ErrorRefusal);
}

fn a_model_that_drips_is_waited_for(agent: &str) {
    let drip = Delivery::Drip(Duration::from_micros(500));
    let job = after_work(agent, Step::say("done at last").delivery(drip));
    let done = job.run();
    assert_eq!(done.stop(), StopReason::Success, "{:#}", done.result);
    assert_eq!((done.summary.result.as_str(), job.file("work.txt").is_some()), ("done at last", true));
}

fn a_model_that_drips_for_too_long(agent: &str) {
    let drip = Delivery::Drip(Duration::from_millis(200));
    let job = after_work(agent, Step::say("never done").delivery(drip)).args(["--budget", "time=15s"]);
    failed(&job, &job.run(), StopReason::ErrorTimeout);
}

fn a_model_that_never_answers(agent: &str) {
    let job = after_work(agent, Step::say("never").delivery(Delivery::Hang)).args(["--budget", "time=15s"]);
    failed(&job, &job.run(), StopReason::ErrorTimeout);
}

fn a_model_that_is_not_there(agent: &str) {
    // A port that was in use a moment ago.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let job = Job::new(agent, "hello").elsewhere(&format!("http://127.0.0.1:{port}"));
    let done = failed_at(&job, StopReason::ErrorNetwork);
    assert_eq!((done.summary.num_turns, done.tokens()), (0, [0; 4]));
}

fn a_host_that_may_not_be_reached(agent: &str) {
    let dial = "curl -sS -m 20 https://secret.example.com/ || echo refused";
    let job = Job::script(agent, [Step::run(format!("{WORK}; {dial}")), Step::say("It cannot be reached.")]);
    let done = job.run();
    // Being refused something is no failure of the run, and is told.
    assert_eq!((done.stop(), done.code), (StopReason::Success, 0), "{:#}", done.result);
    assert!(job.model.calls().iter().any(|call| call.tool_results.concat().contains("refused")));
    let refused = done.result["refused"].as_array().unwrap();
    assert!(refused.iter().any(|one| one.to_string().contains("secret.example.com")), "{refused:?}");
}

fn an_agent_that_is_not_there(_: &str) {
    let job = Job::new("./no-such-agent", "hello");
    failed_at(&job, StopReason::ErrorStart);
    assert!(job.model.calls().is_empty());
}

/// A model that has something done, and then this.
fn after_work(agent: &str, then: Step) -> Job {
    Job::script(agent, [Step::run(WORK), then])
}

/// It failed for this reason, and what it had done is there.
fn failed(job: &Job, done: &Done, reason: StopReason) {
    assert_eq!(done.stop(), reason, "{:#}\n{}", done.result, done.stderr);
    assert_ne!(done.code, 0);
    assert_eq!(job.file("work.txt").as_deref(), Some("kept\n"));
    assert_eq!(job.git(&["status", "--porcelain"]), "?? work.txt\n");
}

fn failed_at(job: &Job, reason: StopReason) -> Done {
    let done = job.run();
    assert_eq!(done.stop(), reason, "{:#}\n{}", done.result, done.stderr);
    assert_ne!(done.code, 0);
    done
}

/// What was answered is counted, and what was not is not.
fn counted(job: &Job, done: &Done) {
    let used = job.model.used();
    assert_eq!(
        done.tokens(),
        [used.input, used.output, used.cache_read, used.cache_write],
        "{:#}",
        done.result
    );
    let answers = job.model.calls().iter().filter(|call| call.usage.is_some()).count();
    assert_eq!(done.result["turns"], answers, "{:#}", done.result);
}

const WORK: &str = "echo kept > work.txt";

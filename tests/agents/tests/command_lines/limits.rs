//! A run that may use no more: of its model, of time, of memory, of disk. It ends with the right reason, and what it had
//! done by then is in the workspace.

use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Done, Job, for_agents};
use belljar_tests_hosts::Step;

for_agents! {
    turns_run_out: claude codex pi gemini;
    calls_run_out: codex;
    tokens_run_out: codex pi;
    money_runs_out: claude codex;
    time_runs_out: claude codex pi;
    memory_runs_out: claude codex pi;
    a_command_that_takes_all_memory_is_not_the_end: codex pi;
    disk_runs_out: opencode;
    a_disk_that_is_too_small_to_start_with: codex;
    a_command_that_fills_the_disk_is_not_the_end: codex pi;
}

/// It continues for ever, and counts.
fn endless(agent: &str) -> Job {
    Job::script(agent, [Step::run("echo again >> count.txt")])
}

fn turns_run_out(agent: &str) {
    let job = endless(agent).args(["--budget", "turns=3"]);
    let done = ended(&job, StopReason::ErrorBudget);
    assert_eq!(done.summary.num_turns, 3);
    // Gemini asks a small model first which one to ask: that is a turn too.
    let calls = job.model.calls();
    let called = calls.iter().filter(|call| call.usage.is_some() && !call.side).count();
    assert_eq!(job.file("count.txt"), Some("again\n".repeat(called)));
    assert_eq!(done.tokens()[2], job.model.used().cache_read);
}

fn calls_run_out(agent: &str) {
    let job = endless(agent).args(["--budget", "calls=2"]);
    let done = ended(&job, StopReason::ErrorBudget);
    assert_eq!((done.summary.num_turns, job.model.calls().len()), (2, 2));
}

fn tokens_run_out(agent: &str) {
    // Three turns: 2130, 2182 and 2234 tokens.
    let job = endless(agent).args(["--budget", "tokens=5k"]);
    let done = ended(&job, StopReason::ErrorBudget);
    assert_eq!((done.summary.num_turns, done.tokens().iter().sum()), (3, 6546_u64));
}

fn money_runs_out(agent: &str) {
    let job = endless(agent).args(["--budget", "usd=0.25"]).config(PRICES);
    let done = ended(&job, StopReason::ErrorBudget);
    // Dollars for a thousand tokens: 0.100 + 0.030 the first turn, 0.101 + 0.031 the second.
    assert_eq!((done.summary.num_turns, done.summary.total_cost_usd), (2, Some(0.262)), "{:#}", done.result);
    assert_eq!(done.result["costUsd"], 0.262);
}

fn time_runs_out(agent: &str) {
    let long = Step::run("echo again >> count.txt; sleep 1000");
    let job = Job::script(agent, [long]).args(["--budget", "time=15s"]);
    let done = ended(&job, StopReason::ErrorTimeout);
    // Codex goes back to its model when a command takes long.
    assert!(done.summary.num_turns >= 1, "{:#}", done.result);
}

fn memory_runs_out(agent: &str) {
    // Files of /tmp are memory that no killed command gives back: the process that needs some next is killed, and that is the agent.
    let fill = "echo again >> count.txt; head -c 4G /dev/zero > /tmp/file";
    let job = Job::script(agent, [Step::run(fill)]).args(["--memory", "600M", "--disk", "8G"]);
    if can_hold_memory() {
        ended(&job, StopReason::ErrorMemory);
    }
}

fn a_command_that_takes_all_memory_is_not_the_end(agent: &str) {
    let take = "echo again >> count.txt; head -c 3G /dev/zero | tail -c 2G | wc -c";
    let job = Job::script(agent, [Step::run(take), Step::say("That was too much.")]).args(["--memory", "1G"]);
    if can_hold_memory() {
        let done = job.run();
        assert_eq!(done.stop(), StopReason::Success, "{:#}", done.result);
    }
}

fn disk_runs_out(agent: &str) {
    // What the command leaves behind takes the room that the agent needs for its own files.
    let fill = "echo again >> count.txt; head -c 1G /dev/zero > /tmp/file";
    let job = Job::script(agent, [Step::run(fill)]).args(["--disk", "64M"]);
    ended(&job, StopReason::ErrorDisk);
}

fn a_disk_that_is_too_small_to_start_with(agent: &str) {
    let job = endless(agent).args(["--disk", "1M"]);
    let done = job.run();
    assert_eq!(done.stop(), StopReason::ErrorDisk, "{:#}", done.result);
    assert!(job.model.calls().is_empty());
}

fn a_command_that_fills_the_disk_is_not_the_end(agent: &str) {
    let fill = "echo again >> count.txt; head -c 1G /dev/zero > /tmp/file; rm /tmp/file";
    let job = Job::script(agent, [Step::run(fill), Step::say("That was too much.")]).args(["--disk", "64M"]);
    let done = job.run();
    assert_eq!(done.stop(), StopReason::Success, "{:#}", done.result);
    assert_eq!(job.file("count.txt").as_deref(), Some("again\n"));
}

fn ended(job: &Job, reason: StopReason) -> Done {
    let done = job.run();
    assert_eq!(done.stop(), reason, "{:#}\n{}", done.result, done.stderr);
    assert_ne!(done.code, 0);
    assert!(job.file("count.txt").is_some_and(|text| text.starts_with("again\n")), "its work is gone");
    assert_eq!(job.git(&["status", "--porcelain"]), "?? count.txt\n");
    done
}

/// Whether a cgroup could be made here, found out by making one.
fn can_hold_memory() -> bool {
    let name = format!("belljar-tests-agents-{}", std::process::id());
    ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].iter().any(|home| {
        let place = format!("{home}/{name}");
        std::fs::create_dir(&place).and_then(|()| std::fs::remove_dir(&place)).is_ok()
    })
}

/// What is written to a cache or read from it is free.
const PRICES: &str =
    "[llm.price.\"*\"]\ninput = 1000.0\noutput = 1000.0\ncache_read = 0.0\ncache_write = 0.0\n";

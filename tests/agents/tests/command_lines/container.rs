//! The same agent, the same task, with the `docker` backend: the result is the same as with `native`.

use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Job, KEY, for_agents};
use belljar_tests_hosts::have_docker;

for_agents! {
    a_task_is_done_in_a_container_as_it_is_without: claude codex pi;
    a_command_of_an_agent_in_a_container_sees_no_key: claude;
}

/// What a task comes to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    stop: StopReason,
    output: String,
    file: Option<String>,
    changed: String,
    turns: u64,
    tokens: [u64; 4],
    keys: Vec<Option<String>>,
}

fn a_task_is_done_in_a_container_as_it_is_without(agent: &str) {
    if !have_docker() {
        return;
    }
    let [contained, native] = ["docker", "native"].map(|backend| outcome(agent, backend));
    assert_eq!((contained.stop, contained.output.as_str()), (StopReason::Success, DONE));
    assert_eq!(contained.file.as_deref(), Some("hello from the mock\n"));
    assert!(contained.keys.iter().all(|key| key.as_deref() == Some(KEY)), "{contained:?}");
    assert_eq!(contained, native);
}

fn outcome(agent: &str, backend: &str) -> Outcome {
    let job = Job::new(agent, "hello").behind(backend);
    let done = job.run();
    assert_eq!(done.result["refused"].as_array().map(Vec::len), Some(0), "{backend}: {:#}", done.result);
    let calls = job.model.calls();
    Outcome {
        stop: done.stop(),
        output: done.summary.result.clone(),
        file: job.file("hello.txt"),
        changed: job.git(&["status", "--porcelain"]),
        turns: done.result["turns"].as_u64().unwrap(),
        // How many words of its own an agent sends may depend on the machine that it sees, and on the date.
        tokens: [0, done.tokens()[1], 0, 0],
        keys: calls.iter().filter(|call| call.usage.is_some()).map(|call| call.key.clone()).collect(),
    }
}

fn a_command_of_an_agent_in_a_container_sees_no_key(agent: &str) {
    if !have_docker() {
        return;
    }
    let job = Job::new(agent, "env").behind("docker");
    let done = job.run();
    assert_eq!(done.stop(), StopReason::Success, "{:#}\n{}", done.result, done.stderr);
    // What a command sees is what comes back to the model.
    let seen = job.model.calls().iter().flat_map(|call| call.tool_results.clone()).collect::<String>();
    assert!(seen.contains("PATH=") && seen.contains("_API_KEY="), "{seen}");
    assert!(!seen.contains(KEY) && !seen.contains("THE_KEY"), "{seen}");
}

const DONE: &str = "Done. hello.txt says: hello from the mock";

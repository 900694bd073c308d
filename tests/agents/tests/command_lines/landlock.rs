//! The same agent, the same task, without namespaces: on a branch of the repository, since its folder cannot be protected there.

use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Job, KEY, for_agents};
use std::fs;

for_agents! {
    a_task_is_done_on_a_branch_without_namespaces: claude codex gemini opencode pi;
    a_command_without_namespaces_sees_no_key: claude;
}

fn a_task_is_done_on_a_branch_without_namespaces(agent: &str) {
    let job = Job::new(agent, "hello").behind("landlock").args(["--branch", "made"]);
    let done = job.run();
    assert_eq!(done.stop(), StopReason::Success, "{:#}\n{}", done.result, done.stderr);
    assert_eq!(done.summary.result, "Done. hello.txt says: hello from the mock");
    assert_eq!(job.file("hello.txt"), None, "the folder itself is as it was");
    let clones = fs::read_dir(job.state().join("belljar/shelf")).unwrap().flatten();
    let made: Vec<String> = clones
        .filter_map(|clone| fs::read_to_string(clone.path().join("trees/made/hello.txt")).ok())
        .collect();
    assert_eq!(made, ["hello from the mock\n"]);
    let calls = job.model.calls();
    let mut keys = calls.iter().filter(|call| call.usage.is_some()).map(|call| call.key.as_deref());
    assert!(keys.all(|key| key == Some(KEY)), "the key is put in outside");
}

fn a_command_without_namespaces_sees_no_key(agent: &str) {
    let job = Job::new(agent, "env").behind("landlock").args(["--branch", "made"]);
    let done = job.run();
    assert_eq!(done.stop(), StopReason::Success, "{:#}\n{}", done.result, done.stderr);
    let seen = job.model.calls().iter().flat_map(|call| call.tool_results.clone()).collect::<String>();
    assert!(seen.contains("PATH=") && seen.contains("_API_KEY="), "{seen}");
    assert!(!seen.contains(KEY) && !seen.contains("THE_KEY"), "{seen}");
}

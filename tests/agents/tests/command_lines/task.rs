//! The main job: each agent, unmodified, does a task inside with a placeholder for a key, and what is told of it is what
//! the model saw.

use belljar_agent::entry::{Block, Entry, Step, StepState, System};
use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Done, Job, KEY, for_agents, words};
use belljar_tests_hosts::{Api, Step as ModelStep};

for_agents! {
    a_task_of_two_turns_is_done: claude codex opencode pi gemini;
    a_task_of_three_turns_is_done: claude codex pi;
    what_was_thought_is_in_the_log: claude codex pi;
    a_command_that_fails_is_no_failed_run: claude codex pi;
    a_command_of_the_agent_sees_no_key: claude codex opencode pi gemini;
    a_model_that_is_busy_once_is_asked_again: claude codex pi;
    a_commit_in_the_folder_is_the_hosts: claude codex opencode pi gemini;
    what_is_not_committed_on_a_branch_is_told: codex;
    a_file_that_is_attached_is_read: claude gemini;
}

fn a_task_of_two_turns_is_done(agent: &str) {
    let job = Job::new(agent, "hello");
    let done = job.run();
    succeeded(&done);
    assert_eq!(job.file("hello.txt").as_deref(), Some("hello from the mock\n"));
    assert_eq!(job.git(&["status", "--porcelain"]), "?? hello.txt\n", "nothing else is changed");
    assert_eq!(done.summary.result, "Done. hello.txt says: hello from the mock");
    counted(&job, &done, 2);

    // The log, from the prompt over the tool to the answer.
    let Entry::User { message } = &done.lines[0].entry else { panic!("{:?}", done.lines[0]) };
    assert!(serde_json::to_string(message).unwrap().contains("Do the task."));
    let calls = done.blocks().filter(|block| matches!(block, Block::ToolUse { .. })).count();
    assert_eq!((calls, done.tool_results().len()), (1, 1), "{:?}", done.lines);
    assert!(done.tool_results()[0].contains("hello from the mock"), "{:?}", done.tool_results());
    assert!(done.output_text().contains("I will write the file."), "{}", done.output_text());
    let steps: Vec<Step> = done
        .lines
        .iter()
        .filter_map(|line| match &line.entry {
            Entry::System(System::Step { step, state: StepState::Done, .. }) => Some(*step),
            _ => None,
        })
        .collect();
    for step in [Step::Policy, Step::Credentials, Step::Workspace, Step::Sandbox, Step::Context, Step::Agent]
    {
        assert!(steps.contains(&step), "{step:?} is not in {steps:?}");
    }
}

/// As if the user had made it: branch, index, author.
fn a_commit_in_the_folder_is_the_hosts(agent: &str) {
    let commit =
        "echo work > work.txt && git add work.txt && git commit -q -m 'by the agent' && echo committed";
    let job = Job::script(agent, [ModelStep::run(commit), ModelStep::say("It is committed.")]);
    job.git(&["config", "user.name", "Ada"]);
    job.git(&["config", "user.email", "ada@example.org"]);
    let done = job.run();
    succeeded(&done);
    assert!(done.tool_results()[0].contains("committed"), "{:?}", done.tool_results());
    let log = job.git(&["log", "-1", "--format=%an <%ae> %cn: %s", "main"]);
    assert_eq!(log, "Ada <ada@example.org> Ada: by the agent\n");
    assert_eq!(job.git(&["status", "--porcelain", "--branch"]), "## main\n");
    assert_eq!(job.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
    job.git(&["fsck", "--strict"]);
}

/// Any bytes, beside the workspace.
fn a_file_that_is_attached_is_read(agent: &str) {
    let read = "cat ~/attached/notes.txt; od -An -tx1 ~/attached/pixel.png; ls";
    let job = Job::script(agent, [ModelStep::run(read), ModelStep::say("It is a pixel.")]);
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("notes.txt"), "of the user\n").unwrap();
    std::fs::write(path("pixel.png"), b"\x89PNG\0\xff").unwrap();
    let done = job.args(["--attach", &path("notes.txt"), "--attach", &path("pixel.png")]).run();
    succeeded(&done);
    let result = &done.tool_results()[0];
    assert!(result.contains("of the user") && result.contains("89 50 4e 47 00 ff"), "{result}");
    let Entry::User { message } = &done.lines[0].entry else { panic!("{:?}", done.lines[0]) };
    assert!(!serde_json::to_string(message).unwrap().contains(files.path().to_str().unwrap()));
}

/// Only commits come to the branch here; the rest stays where the agent worked.
fn what_is_not_committed_on_a_branch_is_told(agent: &str) {
    let job = Job::new(agent, "hello").args(["--branch", "agent/x"]);
    let done = job.run();
    succeeded(&done);
    assert_eq!(job.file("hello.txt"), None);
    let folder = &done.summary.more["workspace"]["folder"]["touched"];
    assert_eq!(folder["paths"][0]["path"], "hello.txt", "{:?}", done.summary.more);
}

fn a_task_of_three_turns_is_done(agent: &str) {
    let job = Job::new(agent, "three");
    let done = job.run();
    succeeded(&done);
    assert_eq!((job.file("one.txt"), job.file("two.txt")), (Some("one\n".into()), Some("two\n".into())));
    assert_eq!(done.summary.result, "Both files are written.");
    counted(&job, &done, 3);
}

fn what_was_thought_is_in_the_log(agent: &str) {
    let job = Job::new(agent, "thinking");
    let done = job.run();
    succeeded(&done);
    counted(&job, &done, 2);
    let thoughts = done.blocks().filter_map(|block| match block {
        Block::Thinking { thinking } => Some(thinking.as_str()),
        Block::Text { .. } | Block::ToolUse { .. } => None,
    });
    assert_eq!(thoughts.collect::<String>(), "The user wants a file.", "{:?}", done.lines);
}

fn a_command_that_fails_is_no_failed_run(agent: &str) {
    let job = Job::new(agent, "toolfail");
    let done = job.run();
    succeeded(&done);
    counted(&job, &done, 2);
    assert_eq!(done.summary.result, "The command failed with status 3.");
    assert!(done.tool_results()[0].contains("broken"), "{:?}", done.tool_results());
}

fn a_command_of_the_agent_sees_no_key(agent: &str) {
    let job = Job::new(agent, "env");
    let done = job.run();
    succeeded(&done);
    // What a command sees is what comes back to the model.
    let seen = job.model.calls().iter().flat_map(|call| call.tool_results.clone()).collect::<String>();
    assert!(seen.contains("PATH=") && seen.contains("_API_KEY="), "{seen}");
    assert!(!seen.contains(KEY) && !seen.contains("THE_KEY"), "{seen}");
}

fn a_model_that_is_busy_once_is_asked_again(agent: &str) {
    let job = Job::new(agent, "retry429");
    let done = job.run();
    succeeded(&done);
    assert_eq!(job.file("retried.txt").as_deref(), Some("retried\n"));
    counted(&job, &done, 2);
    assert_eq!(job.model.calls().iter().filter(|call| call.status == 429).count(), 1);
}

fn succeeded(done: &Done) {
    assert_eq!((done.stop(), done.code), (StopReason::Success, 0), "{:#}\n{}", done.result, done.stderr);
    assert_eq!(done.result["refused"].as_array().map(Vec::len), Some(0), "{:#}", done.result);
}

/// The result counts what the model said that it used, and the agent claims no other figures.
fn counted(job: &Job, done: &Done, turns: usize) {
    let calls = job.model.calls();
    let answered: Vec<_> = calls.iter().filter(|call| call.usage.is_some()).collect();
    assert_eq!(answered.iter().filter(|call| !call.side).count(), turns, "turns of the task");
    assert_eq!(done.result["turns"], answered.len(), "{:#}", done.result);
    assert!(
        answered.iter().all(|call| call.api == words(&done_agent(done)) && call.key.as_deref() == Some(KEY))
    );
    let used = job.model.used();
    let expected = match words(&done_agent(done)) {
        // Google does not tell what was written to a cache from what was not, and counts thoughts apart.
        Api::Gemini => [used.input + used.cache_write, used.output + used.reasoning, used.cache_read, 0],
        _ => [used.input, used.output, used.cache_read, used.cache_write],
    };
    assert_eq!(done.tokens(), expected, "{:#}", done.result);
    if let Some(claimed) = done.summary.claims.turns {
        assert_eq!(claimed as usize, turns, "{:?}", done.summary.claims);
    }
}

fn done_agent(done: &Done) -> String {
    done.result["agent"].as_str().unwrap().to_string()
}

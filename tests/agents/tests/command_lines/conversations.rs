//! Conversations that go on, and how they are paid.

use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Done, Job, PLAN_TOKEN, for_agents};
use belljar_tests_hosts::Step;

for_agents! {
    a_conversation_goes_on: claude codex pi gemini;
    a_conversation_that_was_not_kept_does_not_go_on: claude;
    a_plan_pays_by_a_token_that_stays_outside: claude;
    output_larger_than_a_pipe_is_whole: gemini;
    arguments_of_the_agents_own_and_names_for_the_bill_are_passed_on: claude;
}

fn a_conversation_goes_on(agent: &str) {
    let job = Job::new(agent, "text").args(["--keep-home"]);
    let first = succeeded(job.run());
    let id = first.result["runId"].as_str().unwrap().to_string();
    assert!(
        first.result["keptHome"].as_str().is_some_and(|home| home.starts_with(agent)),
        "{:#}",
        first.result
    );
    let seen = job.model.calls().len();
    let job = job.args(["--continue"]);
    succeeded(job.run());
    let seen = remembers(&job, seen);
    // The same by the run's id, and with a home that another run took meanwhile.
    let job = job.without(1).args(["--resume", &id]);
    succeeded(job.run());
    remembers(&job, seen);
}

/// The model was told what it had said in the first run. Returns how many requests there were.
fn remembers(job: &Job, before: usize) -> usize {
    let calls = job.model.calls();
    let reported = calls[before..]
        .iter()
        .any(|call| String::from_utf8_lossy(&call.request.body).contains("Hello from the mock model."));
    assert!(reported, "the earlier answer is in none of {} requests", calls.len() - before);
    calls.len()
}

fn a_conversation_that_was_not_kept_does_not_go_on(agent: &str) {
    let job = Job::new(agent, "text");
    let first = succeeded(job.run());
    let id = first.result["runId"].as_str().unwrap().to_string();
    for (words, expected) in
        [(&["--continue"][..], "there is no earlier conversation"), (&["--resume", &id], "home was not kept")]
    {
        let output = job.command("run").args(words).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(expected), "{printed}");
    }
    assert_eq!(job.model.calls().len(), 1, "no model was asked");
}

/// As a Claude plan wants it, and never as an API key.
fn a_plan_pays_by_a_token_that_stays_outside(agent: &str) {
    let steps = [Step::run("env; cat ~/.claude/* ~/.claude.json 2>/dev/null; true"), Step::say("Done.")];
    let job = Job::script(agent, steps).key(PLAN_TOKEN).args(["--llm-kind", "anthropic"]);
    let done = succeeded(job.run());
    assert!(!done.tool_results().concat().contains("sk-ant-oat01-real"), "{:?}", done.tool_results());
    for call in job.model.calls() {
        let header = |name: &str| call.request.header(name).unwrap_or_default().to_string();
        assert_eq!(header("authorization"), format!("Bearer {PLAN_TOKEN}"));
        assert_eq!(header("x-api-key"), "", "the placeholder left");
        assert!(header("anthropic-beta").contains("oauth-2025-04-20"), "{}", header("anthropic-beta"));
    }
}

/// The agent exits before its reader has taken everything.
fn output_larger_than_a_pipe_is_whole(agent: &str) {
    let much = "head -c 600000 /dev/zero | tr '\\0' x | fold -w 100";
    let done = succeeded(Job::script(agent, [Step::run(much), Step::say("All of it.")]).run());
    assert_eq!(done.summary.result, "All of it.");
    let whole: usize = done.tool_results().iter().map(|result| result.len()).sum();
    assert!(whole > 8000, "{whole}");
}

fn arguments_of_the_agents_own_and_names_for_the_bill_are_passed_on(agent: &str) {
    let own = [
        "--llm-kind",
        "litellm",
        "--bill",
        "end_user=ann,session_id=s-1",
        "--",
        "--append-system-prompt",
        "Say it in French.",
    ];
    let job = Job::new(agent, "text").args(own);
    // The model is told, and LiteLLM is told who pays.
    let output = job.command("run").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = job.model.calls();
    let call = calls.iter().find(|call| !call.side && call.usage.is_some()).unwrap();
    assert!(String::from_utf8_lossy(&call.request.body).contains("Say it in French."));
    assert_eq!(call.request.header("x-litellm-end-user-id"), Some("ann"));
    let metadata = call.request.header("x-litellm-spend-logs-metadata").unwrap_or_default();
    assert!(metadata.contains(r#""session_id":"s-1""#), "{metadata}");
}

fn succeeded(done: Done) -> Done {
    assert_eq!((done.stop(), done.code), (StopReason::Success, 0), "{:#}\n{}", done.result, done.stderr);
    assert!(
        done.result["modelsUsed"].as_array().is_some_and(|models| !models.is_empty()),
        "{:#}",
        done.result
    );
    done
}

//! An agent as a function: `cargo run -p belljar-agent --example run -- AGENT MODEL-URL FOLDER PROMPT`. The key of the model is
//! taken from the variable `KEY`. Prints the lines of the log as they come, and the result.

#![expect(clippy::print_stdout, reason = "an example shows what it gets")]

use belljar_agent::adapter;
use belljar_agent::run::{Agent, Conversation, RunRequest, run};
use belljar_engine::Engine;
use belljar_spec::SandboxSpec;
use belljar_spec::egress::EgressPolicy;
use belljar_spec::llm::LlmRoute;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [agent, url, folder, prompt] = words.as_slice() else {
        return Err("AGENT MODEL-URL FOLDER PROMPT".into());
    };
    let mut route = LlmRoute::to(url.parse()?);
    route.key = Some("env:KEY".parse()?);
    let request = RunRequest {
        agent: Agent::Known(adapter::named(agent)?),
        prompt: prompt.clone(),
        messages: Default::default(),
        model: None,
        effort: None,
        web_search: false,
        context: Vec::new(),
        attached: Vec::new(),
        cwd: None,
        time: None,
        conversation: Conversation::New,
        own_arguments: Vec::new(),
        path: std::env::var_os("PATH").unwrap_or_default(),
        sandbox: SandboxSpec {
            workspace: Some(folder.into()),
            egress: Some(EgressPolicy::strict()),
            llm: Some(route),
            ..SandboxSpec::default()
        },
    };
    let state = belljar_state::state_directory()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().enable_io().build()?;
    let watch = Box::new(|_: &_, line: &str| println!("{line}"));
    let result =
        runtime.block_on(run(&Engine::new(), request, &state, Some(watch), std::future::pending()))?;
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

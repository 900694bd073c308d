//! Codex. It asks in OpenAI's own words, and heeds only its own configuration: a provider of ours, so that it opens no web
//! socket first and looks for no account.

use super::{Adapter, Effort, KEY, Setup, Task};
use crate::parse;
use belljar_spec::llm::UpstreamKind;
use std::fmt::Write;

pub(super) static CODEX: Adapter = Adapter {
    name: "codex",
    title: "Codex",
    package: "@openai/codex",
    version: "0.166.0",
    program: "codex",
    // What the package puts on PATH is a launcher for node, and needs a tenth of a second more.
    native: &["@openai/codex-linux-CPU/vendor/ARCH-unknown-linux-musl/bin/codex"],
    // Without it, tools of its default model fail in silence.
    beside: &["codex-code-mode-host"],
    node: None,
    speaks: &[UpstreamKind::OpenAi, UpstreamKind::LiteLlm],
    efforts: &Effort::ALL,
    headless,
    interactive,
    parser: parse::codex::parser,
    context: ".codex/AGENTS.md",
    folder_file: "AGENTS.md",
};

fn headless(task: &Task) -> Setup {
    let arguments = ["exec", "--json", "--skip-git-repo-check", WITHOUT_ASKING];
    with_model(Setup::new(task, &arguments), task)
        .args(["-"])
        .file(".codex/config.toml", config(task))
        .reads_prompt(task)
}

fn interactive(task: &Task) -> Setup {
    // What it would ask a person first.
    let trust = format!("\n[projects.{}]\ntrust_level = \"trusted\"\n", quoted(task.workspace));
    with_model(Setup::new(task, &[WITHOUT_ASKING]), task)
        .file(".codex/config.toml", config(task) + &trust)
        .takes_prompt(task)
}

fn with_model(setup: Setup, task: &Task) -> Setup {
    let setup = setup.env("OPENAI_API_KEY", KEY);
    match task.model {
        Some(model) => setup.args(["-m", &model.model]),
        None => setup,
    }
}

fn config(task: &Task) -> String {
    let mut config = String::from("model_provider = \"belljar\"\ncheck_for_update_on_startup = false\n");
    let search = if task.web_search { "live" } else { "disabled" };
    let _ = writeln!(config, "web_search = \"{search}\"");
    if let Some(effort) = task.effort {
        let _ = writeln!(config, "model_reasoning_effort = \"{}\"", effort.or_none());
    }
    let _ = write!(
        config,
        "\n[model_providers.belljar]\n\
         name = \"belljar\"\n\
         base_url = \"{}/v1\"\n\
         env_key = \"OPENAI_API_KEY\"\n\
         wire_api = \"responses\"\n\
         supports_websockets = false\n\
         request_max_retries = 3\n\
         stream_max_retries = 3\n\
         \n[analytics]\n\
         enabled = false\n\
         \n[features]\n\
         plugins = false\n\
         unbounded_connection_retries = false\n",
        task.route
    );
    config
}

/// A string of TOML: as one of JSON, but for what a path of the host hardly has.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

const WITHOUT_ASKING: &str = "--dangerously-bypass-approvals-and-sandbox";

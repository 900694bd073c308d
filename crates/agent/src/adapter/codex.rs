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
};

fn headless(task: &Task) -> Setup {
    let setup = Setup::new(task, &["exec"]).args(resumed(task));
    with_model(setup.args(["--json", "--skip-git-repo-check", WITHOUT_ASKING]), task)
        .args(["-"])
        .file(".codex/config.toml", config(task))
        .reads_prompt(task)
}

fn interactive(task: &Task) -> Setup {
    // What it would ask a person first.
    let trust = format!("\n[projects.{}]\ntrust_level = \"trusted\"\n", quoted(task.workspace));
    with_model(Setup::new(task, &[]).args(resumed(task)).args([WITHOUT_ASKING]), task)
        .file(".codex/config.toml", config(task) + &trust)
        .takes_prompt(task)
}

/// A command of its own, before all flags.
fn resumed<'t>(task: &Task<'t>) -> Vec<&'t str> {
    task.resume.words(&["resume", "--last"], "resume")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::pinned::{model, shown, task};

    #[test]
    fn a_run_has_a_provider_of_its_own() {
        let model = model("openai/gpt-5");
        let task = Task { effort: Some(Effort::Off), ..task(UpstreamKind::OpenAi, Some(&model)) };
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m gpt-5 -
OPENAI_API_KEY=KEY
~/.codex/config.toml: model_provider = "belljar"
  check_for_update_on_startup = false
  web_search = "disabled"
  model_reasoning_effort = "none"

  [model_providers.belljar]
  name = "belljar"
  base_url = "ROUTE/v1"
  env_key = "OPENAI_API_KEY"
  wire_api = "responses"
  supports_websockets = false
  request_max_retries = 3
  stream_max_retries = 3

  [analytics]
  enabled = false

  [features]
  plugins = false
  unbounded_connection_retries = false
<<< - fix it
"#
        );
    }

    #[test]
    fn a_terminal_comes_up_ready() {
        let task =
            Task { web_search: true, workspace: "/home/ann/a \"b\"", ..task(UpstreamKind::LiteLlm, None) };
        assert_eq!(
            shown(&interactive(&task)),
            r#"/opt/agent --dangerously-bypass-approvals-and-sandbox -- - fix it
OPENAI_API_KEY=KEY
~/.codex/config.toml: model_provider = "belljar"
  check_for_update_on_startup = false
  web_search = "live"

  [model_providers.belljar]
  name = "belljar"
  base_url = "ROUTE/v1"
  env_key = "OPENAI_API_KEY"
  wire_api = "responses"
  supports_websockets = false
  request_max_retries = 3
  stream_max_retries = 3

  [analytics]
  enabled = false

  [features]
  plugins = false
  unbounded_connection_retries = false

  [projects."/home/ann/a \"b\""]
  trust_level = "trusted"
"#
        );
    }
}

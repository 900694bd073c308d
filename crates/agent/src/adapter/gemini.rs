//! Gemini CLI. It asks in Google's words. How much it thinks is not to be said from outside.

use super::{Adapter, KEY, Setup, Task};
use crate::parse;
use belljar_spec::llm::UpstreamKind;
use serde_json::json;

pub(super) static GEMINI: Adapter = Adapter {
    name: "gemini",
    title: "Gemini CLI",
    package: "@google/gemini-cli",
    version: "0.61.0",
    program: "gemini",
    native: &[],
    beside: &[],
    node: Some((20, 0)),
    speaks: &[UpstreamKind::Gemini, UpstreamKind::LiteLlm],
    efforts: &[],
    headless,
    interactive,
    parser: parse::gemini::parser,
    context: ".gemini/GEMINI.md",
};

fn headless(task: &Task) -> Setup {
    let setup = Setup::new(task, &["--output-format", "stream-json"]);
    with_settings(setup, task)
        // It would start itself again for a larger heap, and needs two seconds for that.
        .env("GEMINI_CLI_NO_RELAUNCH", "true")
        // It exits before a pipe has taken all that it wrote: what is larger than the pipe is lost.
        .file(WAITS_FILE, WAITS)
        .env("NODE_OPTIONS", format!("--require={}/{WAITS_FILE}", task.home))
        .reads_prompt(task)
}

fn interactive(task: &Task) -> Setup {
    let setup = with_settings(Setup::new(task, &[]), task);
    match task.prompt {
        Some(prompt) => setup.args([format!("--prompt-interactive={prompt}")]),
        None => setup,
    }
}

fn with_settings(setup: Setup, task: &Task) -> Setup {
    // Without trust it asks before each tool, whatever else it is told.
    let setup =
        setup.args(["--yolo", "--skip-trust"]).args(task.resume.words(&["--resume", "latest"], "--resume"));
    let setup = match task.model {
        Some(model) => setup.args(["-m", &model.model]),
        None => setup,
    };
    let mut settings = json!({
        // Without it, it takes no key that comes with another base.
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "privacy": { "usageStatisticsEnabled": false },
        "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 3 },
        // Its own name for the file, and the one that all agents share.
        "context": { "fileName": ["GEMINI.md", "AGENTS.md"] },
    });
    if let Some(attached) = &task.attached {
        // Its own tools read no other folder beside the workspace.
        settings["context"]["includeDirectories"] = json!([attached]);
    }
    let setup = setup
        .env("GEMINI_API_KEY", KEY)
        .env("GOOGLE_GEMINI_BASE_URL", task.route)
        .file(".gemini/settings.json", settings.to_string());
    match task.web_search {
        true => setup,
        false => setup.file(".gemini/policies/belljar.toml", NO_WEB),
    }
}

/// Has node wait until its output was taken. Programs that the agent starts do not read it.
const WAITS_FILE: &str = ".gemini/belljar.cjs";
const WAITS: &str = "\
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
delete process.env.NODE_OPTIONS;
";

/// A tool that is denied is not even shown to the model.
const NO_WEB: &str =
    "[[rule]]\ntoolName = [\"google_web_search\", \"web_fetch\"]\ndecision = \"deny\"\npriority = 999\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::pinned::{model, shown, task};

    #[test]
    fn a_run_has_no_web_unless_it_may() {
        let model = model("google/gemini-2.5-flash");
        let task = task(UpstreamKind::Gemini, Some(&model));
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent --output-format stream-json --yolo --skip-trust -m gemini-2.5-flash
GEMINI_API_KEY=KEY
GOOGLE_GEMINI_BASE_URL=ROUTE
GEMINI_CLI_NO_RELAUNCH=true
NODE_OPTIONS=--require=/home/agent/.gemini/belljar.cjs
~/.gemini/settings.json: {"context":{"fileName":["GEMINI.md","AGENTS.md"]},"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false,"maxAttempts":3},"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}}}
~/.gemini/policies/belljar.toml: [[rule]]
  toolName = ["google_web_search", "web_fetch"]
  decision = "deny"
  priority = 999
~/.gemini/belljar.cjs: for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
  delete process.env.NODE_OPTIONS;
<<< - fix it
"#
        );
        let files = headless(&Task { web_search: true, ..task }).files;
        assert_eq!(files.len(), 2);
    }

    #[test]
    fn a_terminal_comes_up_ready() {
        assert_eq!(
            shown(&interactive(&task(UpstreamKind::LiteLlm, None))),
            r#"/opt/agent --yolo --skip-trust --prompt-interactive=- fix it
GEMINI_API_KEY=KEY
GOOGLE_GEMINI_BASE_URL=ROUTE
~/.gemini/settings.json: {"context":{"fileName":["GEMINI.md","AGENTS.md"]},"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false,"maxAttempts":3},"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}}}
~/.gemini/policies/belljar.toml: [[rule]]
  toolName = ["google_web_search", "web_fetch"]
  decision = "deny"
  priority = 999
"#
        );
    }
}

//! Claude Code. It asks in Anthropic's words, of whatever answers them.

use super::{Adapter, Effort, KEY, Setup, Task};
use crate::parse;
use belljar_spec::llm::UpstreamKind;
use serde_json::json;

pub(super) static CLAUDE: Adapter = Adapter {
    name: "claude",
    title: "Claude Code",
    package: "@anthropic-ai/claude-code",
    version: "2.1.325",
    program: "claude",
    native: &[
        "@anthropic-ai/claude-code-linux-CPU/claude",
        "@anthropic-ai/claude-code-linux-CPU-musl/claude",
    ],
    beside: &[],
    node: None,
    speaks: &[UpstreamKind::Anthropic, UpstreamKind::LiteLlm],
    efforts: &[Effort::Off, Effort::Low, Effort::Medium, Effort::High, Effort::Xhigh],
    headless,
    interactive,
    parser: parse::claude::parser,
    context: ".claude/CLAUDE.md",
};

fn headless(task: &Task) -> Setup {
    let arguments = ["-p", "--output-format", "stream-json", "--verbose"];
    with_settings(Setup::new(task, &arguments), task).reads_prompt(task)
}

fn interactive(task: &Task) -> Setup {
    // What it would ask a person first: its colours, whether the key is meant, whether the folder is trusted, and whether
    // to continue without asking.
    let answers = json!({
        "hasCompletedOnboarding": true,
        "theme": "dark",
        // It knows a key by its end.
        "customApiKeyResponses": { "approved": [&KEY[KEY.len() - 20..]], "rejected": [] },
        "projects": { task.workspace: { "hasTrustDialogAccepted": true } },
    });
    with_settings(Setup::new(task, &[]), task).file(".claude.json", answers.to_string()).takes_prompt(task)
}

fn with_settings(setup: Setup, task: &Task) -> Setup {
    let mut setup = setup
        .args(["--dangerously-skip-permissions"])
        .args(task.resume.words(&["--continue"], "--resume"))
        .env("ANTHROPIC_BASE_URL", task.route)
        .env("ANTHROPIC_API_KEY", KEY)
        // Without it root may not skip permissions.
        .env("IS_SANDBOX", "1")
        // Updates, statistics, and whatever else it would tell its makers.
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        // Nine seconds; ten tries, its own choice, take three minutes, for a wrong key too.
        .env("CLAUDE_CODE_MAX_RETRIES", "4");
    if let Some(model) = task.model {
        setup = setup.args(["--model", &model.model]);
        if model.provider != "anthropic" {
            // Others do not know what it tries out with its makers.
            setup = setup.env("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1");
            // Its helpers ask for models of Anthropic by name, which are not there.
            for name in HELPERS {
                setup = setup.env(name, &model.model);
            }
        }
    }
    setup = match task.effort {
        None => setup,
        Some(Effort::Off) => setup.env("CLAUDE_CODE_DISABLE_THINKING", "1"),
        Some(effort) => setup.args(["--effort", effort.as_str()]),
    };
    if !task.web_search {
        setup = setup.args(["--disallowedTools", "WebSearch,WebFetch"]);
    }
    // A folder's settings may name another model's server, and count for more than the environment; these count for more.
    let route = json!({ "env": { "ANTHROPIC_BASE_URL": task.route, "ANTHROPIC_API_KEY": KEY } });
    setup = setup.args(["--settings", &route.to_string()]);
    let settings = json!({
        "skipDangerousModePermissionPrompt": true,
        // Its makers are asked before each page otherwise.
        "skipWebFetchPreflight": true,
    });
    setup.file(".claude/settings.json", settings.to_string())
}

/// Which models its helpers ask for.
const HELPERS: [&str; 4] = [
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::pinned::{model, shown, task};

    #[test]
    fn a_run_reads_its_prompt_and_asks_no_questions() {
        let model = model("anthropic/claude-sonnet-4-5");
        let task = Task { effort: Some(Effort::High), ..task(UpstreamKind::Anthropic, Some(&model)) };
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent -p --output-format stream-json --verbose --dangerously-skip-permissions --model claude-sonnet-4-5 --effort high --disallowedTools WebSearch,WebFetch --settings {"env":{"ANTHROPIC_API_KEY":"KEY","ANTHROPIC_BASE_URL":"ROUTE"}}
ANTHROPIC_BASE_URL=ROUTE
ANTHROPIC_API_KEY=KEY
IS_SANDBOX=1
CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
CLAUDE_CODE_MAX_RETRIES=4
~/.claude/settings.json: {"skipDangerousModePermissionPrompt":true,"skipWebFetchPreflight":true}
<<< - fix it
"#
        );
    }

    #[test]
    fn models_of_others_are_helpers_too() {
        let model = model("openai/gpt-5");
        let task = Task {
            effort: Some(Effort::Off),
            web_search: true,
            prompt: None,
            ..task(UpstreamKind::LiteLlm, Some(&model))
        };
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent -p --output-format stream-json --verbose --dangerously-skip-permissions --model gpt-5 --settings {"env":{"ANTHROPIC_API_KEY":"KEY","ANTHROPIC_BASE_URL":"ROUTE"}}
ANTHROPIC_BASE_URL=ROUTE
ANTHROPIC_API_KEY=KEY
IS_SANDBOX=1
CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
CLAUDE_CODE_MAX_RETRIES=4
CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1
ANTHROPIC_DEFAULT_OPUS_MODEL=gpt-5
ANTHROPIC_DEFAULT_SONNET_MODEL=gpt-5
ANTHROPIC_DEFAULT_HAIKU_MODEL=gpt-5
CLAUDE_CODE_SUBAGENT_MODEL=gpt-5
CLAUDE_CODE_DISABLE_THINKING=1
~/.claude/settings.json: {"skipDangerousModePermissionPrompt":true,"skipWebFetchPreflight":true}
"#
        );
    }

    #[test]
    fn a_terminal_comes_up_ready() {
        assert_eq!(
            shown(&interactive(&task(UpstreamKind::Anthropic, None))),
            r#"/opt/agent --dangerously-skip-permissions --disallowedTools WebSearch,WebFetch --settings {"env":{"ANTHROPIC_API_KEY":"KEY","ANTHROPIC_BASE_URL":"ROUTE"}} -- - fix it
ANTHROPIC_BASE_URL=ROUTE
ANTHROPIC_API_KEY=KEY
IS_SANDBOX=1
CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
CLAUDE_CODE_MAX_RETRIES=4
~/.claude/settings.json: {"skipDangerousModePermissionPrompt":true,"skipWebFetchPreflight":true}
~/.claude.json: {"customApiKeyResponses":{"approved":["-real-key-in-outside"],"rejected":[]},"hasCompletedOnboarding":true,"projects":{"/workspace":{"hasTrustDialogAccepted":true}},"theme":"dark"}
"#
        );
    }
}

//! opencode. It knows most providers, and looks in its environment for keys: which one it may use is said in its
//! configuration, in the one place that goes before a folder's own.

use super::dialect::{Dialect, Way};
use super::{Adapter, Effort, KEY, Setup, Task};
use crate::parse;
use belljar_spec::llm::UpstreamKind;
use serde_json::json;

pub(super) static OPENCODE: Adapter = Adapter {
    name: "opencode",
    title: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    program: "opencode",
    native: &["opencode-linux-CPU/bin/opencode"],
    beside: &[],
    node: None,
    speaks: &UpstreamKind::ALL,
    // As far as the model has a variant of that name; without one it thinks as it always does.
    efforts: &Effort::ALL,
    headless,
    interactive,
    parser: parse::opencode::parser,
    context: ".config/opencode/AGENTS.md",
};

fn headless(task: &Task) -> Setup {
    // Without a title it asks a small model for one, and does not report that call.
    let arguments = ["run", "--format", "json", "--auto", "--thinking", "--title", "belljar"];
    let setup = with_settings(Setup::new(task, &arguments), task);
    match task.effort {
        Some(effort) => setup.args(["--variant", effort.or_none()]),
        None => setup,
    }
    .reads_prompt(task)
}

fn interactive(task: &Task) -> Setup {
    let setup = with_settings(Setup::new(task, &["--auto"]), task);
    match task.prompt {
        Some(prompt) => setup.args([format!("--prompt={prompt}")]),
        None => setup,
    }
}

fn with_settings(setup: Setup, task: &Task) -> Setup {
    let way = Way::of(task);
    let setup = match way.full_name() {
        Some(name) => setup.args(["-m", &name]),
        None => setup,
    };
    let setup = setup.args(task.resume.words(&["--continue"], "--session"));
    let setup = match task.web_search {
        true => setup.env("OPENCODE_ENABLE_EXA", "1"),
        false => setup,
    };
    setup
        .env("OPENCODE_CONFIG_CONTENT", config(way, task))
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        // Its list of models is built in.
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        // It fetches what authors of plugins need into every new home, unless this looks as if it had.
        .file(".config/opencode/node_modules/.package-lock.json", "{}")
        .file(".config/opencode/package-lock.json", FETCHED)
}

fn config(way: Way, task: &Task) -> String {
    let (version, package) = match way.dialect {
        Dialect::Messages => ("v1", "@ai-sdk/anthropic"),
        Dialect::Responses => ("v1", "@ai-sdk/openai"),
        Dialect::Completions => ("v1", "@ai-sdk/openai-compatible"),
        Dialect::Generate => ("v1beta", "@ai-sdk/google"),
    };
    let mut provider =
        json!({ "options": { "baseURL": format!("{}/{version}", task.route), "apiKey": KEY } });
    // It has its own way with OpenRouter.
    if !way.is_native() && way.provider != "openrouter" {
        provider["npm"] = package.into();
    }
    if let Some(model) = way.model {
        // What it knows of the model stays; one that it does not know is there as well, and can be asked to think.
        let mut known = json!({});
        if let Some(effort) = task.effort.filter(|_| way.dialect == Dialect::Completions) {
            known["variants"] = json!({ effort.or_none(): { "reasoningEffort": effort.or_none() } });
        }
        provider["models"] = json!({ model: known });
    }
    let web = task.web_search;
    json!({
        "autoupdate": false,
        "share": "disabled",
        "enabled_providers": [way.provider],
        "provider": { way.provider: provider },
        "tools": { "webfetch": web, "websearch": web },
    })
    .to_string()
}

const FETCHED: &str = r#"{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::pinned::{model, short, shown, task};

    #[test]
    fn a_run_knows_one_provider() {
        let model = model("anthropic/claude-sonnet-4-5");
        let task = Task { effort: Some(Effort::Off), ..task(UpstreamKind::Anthropic, Some(&model)) };
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent run --format json --auto --thinking --title belljar -m anthropic/claude-sonnet-4-5 --variant none
OPENCODE_CONFIG_CONTENT={"autoupdate":false,"enabled_providers":["anthropic"],"provider":{"anthropic":{"models":{"claude-sonnet-4-5":{}},"options":{"apiKey":"KEY","baseURL":"ROUTE/v1"}}},"share":"disabled","tools":{"webfetch":false,"websearch":false}}
OPENCODE_DISABLE_AUTOUPDATE=1
OPENCODE_DISABLE_LSP_DOWNLOAD=1
OPENCODE_DISABLE_MODELS_FETCH=1
~/.config/opencode/node_modules/.package-lock.json: {}
~/.config/opencode/package-lock.json: {"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}
<<< - fix it
"#
        );
    }

    #[test]
    fn providers_are_asked_in_the_servers_words() {
        let config = |kind, name: Option<&str>| {
            let model = name.map(model);
            let task = Task { effort: Some(Effort::High), ..task(kind, model.as_ref()) };
            let config: serde_json::Value =
                serde_json::from_str(&super::config(Way::of(&task), &task)).unwrap();
            (config["enabled_providers"][0].to_string(), config["provider"].to_string())
        };
        let settled = [
            config(UpstreamKind::LiteLlm, None),
            config(UpstreamKind::OpenAi, Some("openrouter/anthropic/claude-3")),
            config(UpstreamKind::LiteLlm, Some("groq/openai/gpt-oss")),
            config(UpstreamKind::Gemini, Some("gemini/gemini-2.5-flash")),
            config(UpstreamKind::Anthropic, Some("mine/claude-x")),
        ];
        let settled = settled.map(|(name, settings)| format!("{name} {settings}\n")).concat();
        assert_eq!(
            short(&settled),
            r#""anthropic" {"anthropic":{"options":{"apiKey":"KEY","baseURL":"ROUTE/v1"}}}
"openrouter" {"openrouter":{"models":{"anthropic/claude-3":{"variants":{"high":{"reasoningEffort":"high"}}}},"options":{"apiKey":"KEY","baseURL":"ROUTE/v1"}}}
"groq" {"groq":{"models":{"openai/gpt-oss":{"variants":{"high":{"reasoningEffort":"high"}}}},"npm":"@ai-sdk/openai-compatible","options":{"apiKey":"KEY","baseURL":"ROUTE/v1"}}}
"google" {"google":{"models":{"gemini-2.5-flash":{}},"options":{"apiKey":"KEY","baseURL":"ROUTE/v1beta"}}}
"mine" {"mine":{"models":{"claude-x":{}},"npm":"@ai-sdk/anthropic","options":{"apiKey":"KEY","baseURL":"ROUTE/v1"}}}
"#
        );
    }

    #[test]
    fn a_terminal_takes_a_prompt_that_looks_like_an_option() {
        let task = Task { web_search: true, ..task(UpstreamKind::OpenAi, None) };
        assert_eq!(
            shown(&interactive(&task)),
            r#"/opt/agent --auto --prompt=- fix it
OPENCODE_ENABLE_EXA=1
OPENCODE_CONFIG_CONTENT={"autoupdate":false,"enabled_providers":["openai"],"provider":{"openai":{"options":{"apiKey":"KEY","baseURL":"ROUTE/v1"}}},"share":"disabled","tools":{"webfetch":true,"websearch":true}}
OPENCODE_DISABLE_AUTOUPDATE=1
OPENCODE_DISABLE_LSP_DOWNLOAD=1
OPENCODE_DISABLE_MODELS_FETCH=1
~/.config/opencode/node_modules/.package-lock.json: {}
~/.config/opencode/package-lock.json: {"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}
"#
        );
    }
}

//! pi. It knows most providers, and asks without permission: there is nothing to switch off. It has no tools for the web.

use super::dialect::{Dialect, Way};
use super::{Adapter, Effort, KEY, Setup, Task};
use crate::parse;
use belljar_spec::llm::UpstreamKind;
use serde_json::json;

pub(super) static PI: Adapter = Adapter {
    name: "pi",
    title: "pi",
    package: "@earendil-works/pi-coding-agent",
    version: "0.87.1",
    program: "pi",
    native: &[],
    beside: &[],
    node: Some((22, 19)),
    speaks: &UpstreamKind::ALL,
    efforts: &Effort::ALL,
    headless,
    interactive,
    parser: parse::pi::parser,
    context: ".pi/agent/AGENTS.md",
};

fn headless(task: &Task) -> Setup {
    with_settings(Setup::new(task, &["--mode", "json", "-p"]), task, json!({})).reads_prompt(task)
}

fn interactive(task: &Task) -> Setup {
    // What it would ask a person first.
    with_settings(Setup::new(task, &[]), task, json!({ "defaultProjectTrust": "always" })).takes_prompt(task)
}

fn with_settings(mut setup: Setup, task: &Task, mut settings: serde_json::Value) -> Setup {
    let way = Way::of(task);
    if let Some(name) = way.full_name() {
        setup = setup.args(["--model", &name]);
    }
    setup = setup.args(task.resume.words(&["--continue"], "--session"));
    if let Some(effort) = task.effort {
        setup = setup.args(["--thinking", effort.as_str()]);
    }
    // A key is what it chooses a provider by, and the sandbox has one for each.
    for (name, dialect) in KEYS {
        setup = setup.env(name, if dialect == way.dialect { KEY } else { "" });
    }
    // Eight seconds in all. A cache that is kept warm costs calls that the user did not ask for.
    settings["retry"] = json!({ "maxRetries": 3, "baseDelayMs": 1000 });
    settings["cacheWarming"] = "off".into();
    settings["enableInstallTelemetry"] = false.into();
    setup
        .env("PI_OFFLINE", "1")
        .file(".pi/agent/models.json", models(way, task))
        .file(".pi/agent/settings.json", settings.to_string())
}

fn models(way: Way, task: &Task) -> String {
    let (path, api) = match way.dialect {
        Dialect::Messages => ("", "anthropic-messages"),
        Dialect::Responses => ("/v1", "openai-responses"),
        Dialect::Completions => ("/v1", "openai-completions"),
        Dialect::Generate => ("/v1beta", "google-generative-ai"),
    };
    let mut provider = json!({ "baseUrl": format!("{}{path}", task.route), "apiKey": KEY });
    // What it knows of a provider's own models stays. Others it would ask in a dialect of its own choice.
    if let Some(model) = way.model.filter(|_| !way.is_native()) {
        provider["api"] = api.into();
        provider["models"] =
            json!([{ "id": model, "reasoning": task.effort.is_some_and(|effort| effort > Effort::Off) }]);
    }
    json!({ "providers": { way.provider: provider } }).to_string()
}

const KEYS: [(&str, Dialect); 3] = [
    ("ANTHROPIC_API_KEY", Dialect::Messages),
    ("OPENAI_API_KEY", Dialect::Responses),
    ("GEMINI_API_KEY", Dialect::Generate),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::pinned::{model, short, shown, task};

    #[test]
    fn a_run_has_one_key() {
        let model = model("anthropic/claude-sonnet-4-5");
        let task = Task { effort: Some(Effort::Minimal), ..task(UpstreamKind::LiteLlm, Some(&model)) };
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent --mode json -p --model anthropic/claude-sonnet-4-5 --thinking minimal
ANTHROPIC_API_KEY=KEY
OPENAI_API_KEY=
GEMINI_API_KEY=
PI_OFFLINE=1
~/.pi/agent/models.json: {"providers":{"anthropic":{"apiKey":"KEY","baseUrl":"ROUTE"}}}
~/.pi/agent/settings.json: {"cacheWarming":"off","enableInstallTelemetry":false,"retry":{"baseDelayMs":1000,"maxRetries":3}}
<<< - fix it
"#
        );
    }

    #[test]
    fn providers_are_asked_in_the_servers_words() {
        let models = |kind, name: Option<&str>| {
            let model = name.map(model);
            let task = Task { effort: Some(Effort::High), ..task(kind, model.as_ref()) };
            super::models(Way::of(&task), &task) + "\n"
        };
        let settled = [
            models(UpstreamKind::OpenAi, None),
            models(UpstreamKind::OpenAi, Some("openrouter/anthropic/claude-3")),
            models(UpstreamKind::Gemini, Some("gemini/gemini-2.5-flash")),
            models(UpstreamKind::Anthropic, Some("mine/claude-x")),
        ];
        assert_eq!(
            short(&settled.concat()),
            r#"{"providers":{"openai":{"apiKey":"KEY","baseUrl":"ROUTE/v1"}}}
{"providers":{"openrouter":{"api":"openai-completions","apiKey":"KEY","baseUrl":"ROUTE/v1","models":[{"id":"anthropic/claude-3","reasoning":true}]}}}
{"providers":{"google":{"apiKey":"KEY","baseUrl":"ROUTE/v1beta"}}}
{"providers":{"mine":{"api":"anthropic-messages","apiKey":"KEY","baseUrl":"ROUTE","models":[{"id":"claude-x","reasoning":true}]}}}
"#
        );
    }

    #[test]
    fn a_terminal_comes_up_ready() {
        assert_eq!(
            shown(&interactive(&task(UpstreamKind::Gemini, None))),
            r#"/opt/agent -- - fix it
ANTHROPIC_API_KEY=
OPENAI_API_KEY=
GEMINI_API_KEY=KEY
PI_OFFLINE=1
~/.pi/agent/models.json: {"providers":{"google":{"apiKey":"KEY","baseUrl":"ROUTE/v1beta"}}}
~/.pi/agent/settings.json: {"cacheWarming":"off","defaultProjectTrust":"always","enableInstallTelemetry":false,"retry":{"baseDelayMs":1000,"maxRetries":3}}
"#
        );
    }
}

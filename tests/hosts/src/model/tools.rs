//! The tools on offer, and how a shell among them is told to run a command.

use super::conversation::list;
use super::example::example;
use serde_json::{Map, Value, json};

/// A tool on offer.
pub(super) struct Tool {
    pub(super) name: String,
    /// Of its arguments.
    pub(super) schema: Value,
    pub(super) shape: Shape,
    /// The group that it stands in, where calls name that too.
    pub(super) group: Option<String>,
}

/// How a call of it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A name, and arguments as JSON.
    Function,
    /// A name, and a text: with Codex, a program in JavaScript.
    Custom,
    /// OpenAI's own shell.
    LocalShell,
}

impl Tool {
    /// From a name beside a schema.
    pub(super) fn function(name: &Value, schema: &Value) -> Tool {
        Tool {
            name: name.as_str().unwrap_or_default().into(),
            schema: schema.clone(),
            shape: Shape::Function,
            group: None,
        }
    }

    /// The one of this name; or the one that an agent calls by its server and this name, as in `mcp__belljar__run_command`.
    pub(super) fn named<'a>(tools: &'a [Tool], name: &str) -> Option<&'a Tool> {
        let behind = format!("_{name}");
        let exact = tools.iter().find(|tool| tool.name == name);
        exact.or_else(|| tools.iter().find(|tool| tool.name.ends_with(&behind)))
    }

    /// The one to run commands with.
    pub(super) fn shell(tools: &[Tool]) -> Option<&Tool> {
        SHELLS.iter().find_map(|name| tools.iter().find(|tool| tool.name == *name))
    }

    /// Arguments that make it run this command, as its schema wants them.
    pub(super) fn arguments(&self, command: &str) -> Value {
        let properties = &self.schema["properties"];
        let name = COMMANDS.into_iter().find(|name| properties.get(name).is_some()).unwrap_or(COMMANDS[0]);
        let wants_words =
            properties[name]["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("array"));
        let value = if wants_words { json!(["bash", "-lc", command]) } else { command.into() };
        let mut arguments = Map::from_iter([(name.to_string(), value)]);
        for required in list(&self.schema["required"]).iter().filter_map(Value::as_str) {
            if !arguments.contains_key(required) {
                arguments.insert(required.into(), example(&properties[required], required));
            }
        }
        arguments.into()
    }
}

/// A program for Codex's `exec`, which runs JavaScript and has the shell as a function.
pub(super) fn javascript(command: &str) -> String {
    format!("const ran = await tools.exec_command({{cmd: {}}});\ntext(ran.output);", json!(command))
}

/// What agents call their shell, most particular first: Codex has an `exec` beside others.
const SHELLS: [&str; 10] = [
    "Bash",
    "bash",
    "shell_command",
    "exec_command",
    "shell",
    "local_shell",
    "run_shell_command",
    "container.exec",
    "terminal",
    "exec",
];

/// What they call its command.
const COMMANDS: [&str; 4] = ["command", "cmd", "script", "input"];

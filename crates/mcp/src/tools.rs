//! The tools: their names, what they say of themselves, and the arguments that they take.

use crate::protocol::Fault;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A call of a tool, with valid arguments.
#[derive(Debug, PartialEq)]
pub(crate) enum Call {
    RunCommand(RunCommand),
    CommandOutput(CommandOutput),
    StopCommand(OneCommand),
    ListCommands,
    ReadFile(ReadFile),
    WriteFile(WriteFile),
    ListFiles(ListFiles),
    TakeSnapshot(TakeSnapshot),
    RestoreSnapshot(RestoreSnapshot),
    AllowedHosts,
    AskForHost(AskForHost),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCommand {
    pub(crate) command: String,
    pub(crate) cwd: Option<String>,
    /// Seconds until it is ended.
    pub(crate) timeout_s: Option<u64>,
    /// Seconds until the answer, with the command still running.
    pub(crate) wait_s: Option<u64>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandOutput {
    pub(crate) command_id: String,
    pub(crate) wait_s: Option<u64>,
    #[serde(default)]
    pub(crate) from_start: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneCommand {
    pub(crate) command_id: String,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    pub(crate) path: String,
    pub(crate) first_line: Option<usize>,
    pub(crate) lines: Option<usize>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub(crate) path: String,
    pub(crate) content: String,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    pub(crate) path: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakeSnapshot {
    pub(crate) name: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreSnapshot {
    pub(crate) name: String,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskForHost {
    pub(crate) host: String,
    pub(crate) reason: String,
}

impl Call {
    /// Of the parameters of `tools/call`.
    pub(crate) fn read(mut params: Map<String, Value>) -> Result<Call, Fault> {
        let Some(Value::String(name)) = params.remove("name") else {
            return Err(Fault::arguments("`name` says which tool is called"));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Fault::arguments("`arguments` is one JSON object")),
        };
        let arguments = Arguments { name: &name, given: arguments };
        Ok(match name.as_str() {
            "run_command" => Call::RunCommand(arguments.read()?),
            "command_output" => Call::CommandOutput(arguments.read()?),
            "stop_command" => Call::StopCommand(arguments.read()?),
            "list_commands" => Call::ListCommands,
            "read_file" => Call::ReadFile(arguments.read()?),
            "write_file" => Call::WriteFile(arguments.read()?),
            "list_files" => Call::ListFiles(arguments.read()?),
            "take_snapshot" => Call::TakeSnapshot(arguments.read()?),
            "restore_snapshot" => Call::RestoreSnapshot(arguments.read()?),
            "allowed_hosts" => Call::AllowedHosts,
            "ask_for_host" => Call::AskForHost(arguments.read()?),
            _ => return Err(Fault::arguments(format!("there is no tool `{}`", name.escape_debug()))),
        })
    }
}

struct Arguments<'a> {
    name: &'a str,
    given: Map<String, Value>,
}

impl Arguments<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_value(Value::Object(self.given.clone()))
            .map_err(|error| Fault::arguments(format!("the arguments of `{}`: {error}", self.name)))
    }
}

/// What `tools/list` says.
pub(crate) fn list() -> Value {
    let tools: Vec<Value> = TOOLS.iter().map(Tool::described).collect();
    json!({ "tools": tools })
}

struct Tool {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    changes: Changes,
}

/// What a call may change, as clients are told.
#[derive(PartialEq)]
enum Changes {
    Nothing,
    /// It adds, and takes nothing away.
    Adds,
    Anything,
}

struct Argument {
    name: &'static str,
    kind: Kind,
    is_required: bool,
    description: &'static str,
}

enum Kind {
    Text,
    /// A whole number from this one to that one.
    Number(u64, u64),
    YesOrNo,
}

impl Tool {
    fn described(&self) -> Value {
        let properties: Map<String, Value> =
            self.arguments.iter().map(|one| (one.name.to_string(), one.schema())).collect();
        let required: Vec<&str> =
            self.arguments.iter().filter(|one| one.is_required).map(|one| one.name).collect();
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.changes == Changes::Nothing,
                "destructiveHint": self.changes == Changes::Anything,
                // It reaches the names that its policy allows.
                "openWorldHint": self.name == "run_command",
            },
        })
    }
}

impl Argument {
    const fn required(name: &'static str, description: &'static str) -> Argument {
        Argument { name, kind: Kind::Text, is_required: true, description }
    }

    const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Argument {
        Argument { name, kind, is_required: false, description }
    }

    fn schema(&self) -> Value {
        let description = self.description;
        match self.kind {
            Kind::Text => json!({ "type": "string", "description": description }),
            Kind::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most, "description": description })
            }
            Kind::YesOrNo => json!({ "type": "boolean", "description": description }),
        }
    }
}

/// How long a call waits for a command, unless it says: less than clients wait for a call.
pub(crate) const WAIT_S: u64 = 45;
pub(crate) const MAX_WAIT_S: u64 = 3600;
/// How many lines of a file are read, unless a call says.
pub(crate) const LINES: usize = 2000;

const COMMAND_ID: Argument =
    Argument::required("command_id", "The id that run_command or list_commands gave: cmd_1.");

const TOOLS: &[Tool] = &[
    Tool {
        name: "run_command",
        title: "Run a command",
        description: "Run a shell command in the sandbox and get its output and exit code. The sandbox stays from call to call: files, \
            installed packages and running servers are kept; the working directory and variables are not. A command that takes longer \
            than wait_s continues in the background: command_output shows the rest, stop_command ends it.",
        arguments: &[
            Argument::required("command", "A line for bash, or for sh where there is no bash."),
            Argument::optional(
                "cwd",
                Kind::Text,
                "The folder it starts in; relative paths start at the workspace. Default: the folder of the conversation.",
            ),
            Argument::optional(
                "wait_s",
                Kind::Number(0, MAX_WAIT_S),
                "Seconds to wait for its end. 0 leaves it in the background at once, as for a server. Default: 45.",
            ),
            Argument::optional(
                "timeout_s",
                Kind::Number(1, 31_536_000),
                "Seconds after which it is ended. Default: the sandbox's limit.",
            ),
        ],
        changes: Changes::Anything,
    },
    Tool {
        name: "command_output",
        title: "Read a command's output",
        description: "Get what a command wrote since its output was last shown, and whether it has ended.",
        arguments: &[
            COMMAND_ID,
            Argument::optional(
                "wait_s",
                Kind::Number(0, MAX_WAIT_S),
                "Seconds to wait for its end. Default: 0.",
            ),
            Argument::optional(
                "from_start",
                Kind::YesOrNo,
                "Show its output from the beginning. Default: false.",
            ),
        ],
        changes: Changes::Nothing,
    },
    Tool {
        name: "stop_command",
        title: "Stop a command",
        description: "End a command, with every process that it started.",
        arguments: &[COMMAND_ID],
        changes: Changes::Anything,
    },
    Tool {
        name: "list_commands",
        title: "List commands",
        description: "List the commands that run in the sandbox, and those that ended.",
        arguments: &[],
        changes: Changes::Nothing,
    },
    Tool {
        name: "read_file",
        title: "Read a file",
        description: "Read a text file of the sandbox.",
        arguments: &[
            Argument::required("path", "The file; relative paths start at the workspace."),
            Argument::optional(
                "first_line",
                Kind::Number(1, u32::MAX as u64),
                "The first line, counted from 1. Default: 1.",
            ),
            Argument::optional("lines", Kind::Number(1, u32::MAX as u64), "How many lines. Default: 2000."),
        ],
        changes: Changes::Nothing,
    },
    Tool {
        name: "write_file",
        title: "Write a file",
        description: "Write a text file in the sandbox. A file that is there is replaced; folders above it must exist.",
        arguments: &[
            Argument::required("path", "The file; relative paths start at the workspace."),
            Argument::required("content", "The whole content."),
        ],
        changes: Changes::Anything,
    },
    Tool {
        name: "list_files",
        title: "List files",
        description: "List a folder of the sandbox; names of folders end with a slash.",
        arguments: &[Argument::optional(
            "path",
            Kind::Text,
            "The folder; relative paths start at the workspace. Default: the folder of the conversation.",
        )],
        changes: Changes::Nothing,
    },
    Tool {
        name: "take_snapshot",
        title: "Take a snapshot",
        description: "Keep the sandbox's files as they are now, to go back to them later. The answer says which files are not part of it: \
            a folder of the host that is worked on directly is not.",
        arguments: &[Argument::optional("name", Kind::Text, "Its name. Default: a new id.")],
        changes: Changes::Adds,
    },
    Tool {
        name: "restore_snapshot",
        title: "Go back to a snapshot",
        description: "Put the sandbox's files back to a snapshot. No command may run. The present files are kept as a snapshot of their own.",
        arguments: &[Argument::required("name", "The name or id of the snapshot.")],
        changes: Changes::Anything,
    },
    Tool {
        name: "allowed_hosts",
        title: "List what may be reached",
        description: "Say which hosts the sandbox may reach, and what was refused since it started. A refusal is final: another tool, \
            port or address gets the same answer.",
        arguments: &[],
        changes: Changes::Nothing,
    },
    Tool {
        name: "ask_for_host",
        title: "Ask for a host",
        description: "Ask for a host that the sandbox may not reach. Only the user can allow it: the answer says what to tell the user.",
        arguments: &[
            Argument::required(
                "host",
                "The name of the host, as in registry.npmjs.org; with a port if it is not 443 or 80.",
            ),
            Argument::required("reason", "What it is needed for, in a sentence for the user."),
        ],
        changes: Changes::Nothing,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: Value) -> Result<Call, Fault> {
        let Value::Object(params) = json!({ "name": name, "arguments": arguments }) else { unreachable!() };
        Call::read(params)
    }

    #[test]
    fn every_tool_that_is_listed_can_be_called_as_it_says() {
        for tool in TOOLS {
            let arguments: Map<String, Value> = tool
                .arguments
                .iter()
                .map(|one| {
                    let value = match one.kind {
                        Kind::Text => json!("x"),
                        Kind::Number(least, _) => json!(least),
                        Kind::YesOrNo => json!(true),
                    };
                    (one.name.to_string(), value)
                })
                .collect();
            call(tool.name, arguments.clone().into())
                .unwrap_or_else(|fault| panic!("{}: {fault:?}", tool.name));
            for required in tool.arguments.iter().filter(|one| one.is_required) {
                let mut fewer = arguments.clone();
                fewer.remove(required.name);
                call(tool.name, fewer.into()).expect_err(required.name);
            }
        }
    }

    #[test]
    fn arguments_that_no_tool_takes_are_refused() {
        for (name, arguments) in [
            ("run_command", json!({ "command": "true", "shell": "zsh" })),
            ("run_command", json!({ "command": ["true"] })),
            ("run_command", json!({ "command": "true", "wait_s": -1 })),
            ("read_file", json!("README.md")),
            ("allow_host", json!({})),
        ] {
            call(name, arguments).expect_err(name);
        }
    }
}

//! `belljar integrate`: an agent that runs outside, and whose commands run in the folder's sandbox. The folder gets its sandbox, and the
//! agent its settings: a shell that is ours, where it lets itself be told one, else the tools of `belljar mcp` in the place of its own.

use super::mcp::{open, repository_of};
use super::print_json;
use crate::args::{IntegrateArgs, OutsideAgent};
use crate::commands::{block_on, print};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Survives, create_private, state_directory, write_atomic};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub(crate) fn integrate(options: IntegrateArgs) -> Result<u8, SandboxError> {
    let IntegrateArgs { agent, folder, write, json, sandbox_options } = options;
    let repository = repository_of(folder, &sandbox_options)?;
    if repository.branch.is_some() {
        return Err(ErrorCode::RequestConflict
            .error("an agent that runs outside works in the folder, and not on a branch of its own")
            .hint("omit `--branch`, or let `belljar agent run --branch` run the agent inside"));
    }
    let mut request = sandbox_options.request()?;
    let settings = Settings::of(agent, &shell()?, &program()?);
    let top = match settings.counts_for {
        CountsFor::Folder => repository.folder.clone(),
        CountsFor::EveryFolder(variable) => home(variable)?,
    };
    let files: Vec<PathBuf> = settings.files.iter().map(|file| top.join(file)).collect();
    if !write {
        return shown(&settings, &files, json);
    }
    // Before the sandbox starts: what is there then cannot be changed inside.
    let mut written = Vec::new();
    for file in &files {
        if settings.write(file)? {
            written.push(file);
        }
    }
    for path in settings.protect {
        let path = path.parse().expect("the paths in this file are paths of a work tree");
        request.workspace.protect.push(path);
    }
    let opened = block_on(open(repository.clone(), request, true))?;
    let sandbox = opened.created.sandbox;
    block_on(async {
        let _ = opened.client.sandbox(&sandbox.name).release(&opened.created.lease.id).await;
        Ok(())
    })?;
    let inside = sandbox.workspace.as_deref().unwrap_or_default();
    if Path::new(inside) != repository.folder {
        let message = format!(
            "the folder's sandbox shows it as {inside}, and an agent outside names files by {}",
            repository.text()
        );
        return Err(ErrorCode::SandboxDiffers.error(message).hint(
            "`belljar rm .` removes it; then this command makes one that shows the folder where it is",
        ));
    }
    if json {
        return print_json(&json!({
            "agent": settings.agent, "sandbox": sandbox.name, "files": files, "settings": settings.text(), "written": written,
        }));
    }
    eprintln!("belljar: {}'s commands run in {}: {}", settings.agent, sandbox.name, settings.how());
    for file in &files {
        match written.contains(&file) {
            true => eprintln!("belljar: wrote {}", file.display()),
            false => eprintln!("belljar: {} says so already", file.display()),
        }
    }
    if let CountsFor::EveryFolder(_) = settings.counts_for {
        eprintln!("belljar: {}", settings.elsewhere());
    }
    eprintln!(
        "  hint: its own tools to read, edit and fetch still run outside (`belljar help integrations`)"
    );
    Ok(0)
}

/// What would be written. Nothing is made: a file that came to be beside a sandbox could be changed inside.
fn shown(settings: &Settings, files: &[PathBuf], json: bool) -> Result<u8, SandboxError> {
    if json {
        return print_json(&json!({
            "agent": settings.agent, "sandbox": null, "files": files, "settings": settings.text(), "written": [],
        }));
    }
    for file in files {
        eprintln!("belljar: {} would say:", file.display());
    }
    print(settings.text().as_bytes())?;
    eprintln!("  hint: `--write` writes it, and makes the folder's sandbox");
    Ok(0)
}

/// What an agent is told.
struct Settings {
    agent: &'static str,
    counts_for: CountsFor,
    /// Below the folder, or below the user's. Each says the same.
    files: &'static [&'static str],
    /// What no command may change inside: the agent would run the next ones outside.
    protect: &'static [&'static str],
    content: Content,
}

/// Where settings count. An agent that heeds those of a folder only once it is trusted, and says nothing where it does not, would run
/// commands outside without a word: it is told by the user's own file.
#[derive(Clone, Copy)]
enum CountsFor {
    Folder,
    /// The user's folder for the agent: this variable, or a name below the home.
    EveryFolder((&'static str, &'static str)),
}

enum Content {
    /// Added to what is there.
    Json(Value),
    /// Written where there is no such file.
    Toml(String),
}

impl Settings {
    fn of(agent: OutsideAgent, shell: &str, program: &str) -> Settings {
        match agent {
            OutsideAgent::Claude => Settings {
                agent: "Claude Code",
                counts_for: CountsFor::Folder,
                files: &[".claude/settings.local.json"],
                protect: &[".claude/settings.json", ".claude/settings.local.json"],
                content: Content::Json(json!({ "env": { "CLAUDE_CODE_SHELL_PREFIX": shell } })),
            },
            OutsideAgent::Opencode => Settings {
                agent: "opencode",
                counts_for: CountsFor::Folder,
                // A file that is missing could be made inside, and would count for more.
                files: &["opencode.json", "opencode.jsonc"],
                protect: &["opencode.json", "opencode.jsonc", ".opencode"],
                content: Content::Json(
                    json!({ "$schema": "https://opencode.ai/config.json", "shell": shell }),
                ),
            },
            OutsideAgent::Pi => Settings {
                agent: "pi",
                counts_for: CountsFor::EveryFolder(("PI_CODING_AGENT_DIR", ".pi/agent")),
                files: &["settings.json"],
                protect: &[],
                content: Content::Json(json!({ "shellPath": shell })),
            },
            OutsideAgent::Gemini => Settings {
                agent: "Gemini CLI",
                counts_for: CountsFor::EveryFolder(("", ".gemini")),
                files: &["settings.json"],
                protect: &[],
                content: Content::Json(json!({
                    "mcpServers": { "belljar": { "command": program, "args": ["mcp"] } },
                    "tools": { "exclude": ["run_shell_command"] },
                })),
            },
            OutsideAgent::Codex => Settings {
                agent: "Codex",
                counts_for: CountsFor::EveryFolder(("CODEX_HOME", ".codex")),
                files: &["belljar.config.toml"],
                protect: &[],
                content: Content::Toml(format!(
                    "[features]\nshell_tool = false\nunified_exec = false\n\n[mcp_servers.belljar]\ncommand = {}\nargs = [\"mcp\"]\n",
                    json!(program)
                )),
            },
        }
    }

    /// What to know of settings that are not the folder's.
    fn elsewhere(&self) -> &'static str {
        match &self.content {
            Content::Toml(_) => {
                "it counts where Codex is started with `codex --profile belljar`, and nowhere else"
            }
            Content::Json(value) if value.get("mcpServers").is_some() => {
                "it counts in every folder, and each has a sandbox of its own"
            }
            Content::Json(_) => {
                "it counts in every folder: in one without a sandbox no command runs, until `belljar integrate pi` makes one"
            }
        }
    }

    fn how(&self) -> &'static str {
        match &self.content {
            Content::Json(value) if value.get("mcpServers").is_none() => "by a shell of belljar's",
            Content::Json(_) | Content::Toml(_) => {
                "by the tools of `belljar mcp`, in the place of its own shell tool"
            }
        }
    }

    fn text(&self) -> String {
        match &self.content {
            Content::Json(value) => format!("{value:#}\n"),
            Content::Toml(text) => text.clone(),
        }
    }

    /// Writes it into this file; says whether anything changed.
    fn write(&self, file: &Path) -> Result<bool, SandboxError> {
        let failed = |error: Error| {
            ErrorCode::StateFailed
                .error(format!("cannot write `{}`: {error}", file.display()))
                .hint("a sandbox that runs may hold its place: `belljar stop .`; without `--write` it is printed")
                .caused_by(error)
        };
        let above = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(above).map_err(failed)?;
        // A link in the place of the folder or of the file would make us write elsewhere.
        if !fs::symlink_metadata(above).map_err(failed)?.is_dir() {
            return Err(failed(Error::other(format!("`{}` is not a folder", above.display()))));
        }
        let before = match fs::symlink_metadata(file) {
            Ok(found) if found.is_file() => Some(fs::read_to_string(file).map_err(failed)?),
            Ok(_) => return Err(failed(Error::other("it is not a regular file"))),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let text = self.beside(before.as_deref()).map_err(|why| failed(Error::other(why)))?;
        if before.as_deref() == Some(text.as_str()) {
            return Ok(false);
        }
        write_atomic(file, text.as_bytes(), Survives::Kill).map_err(failed)?;
        Ok(true)
    }

    /// It and what was there before.
    fn beside(&self, before: Option<&str>) -> Result<String, &'static str> {
        match (&self.content, before) {
            (_, None) => Ok(self.text()),
            (Content::Json(ours), Some(before)) => {
                let mut all: Value =
                    serde_json::from_str(before).map_err(|_| "what is there is not plain JSON")?;
                let same = all.clone();
                merge(&mut all, ours)?;
                Ok(if all == same { before.to_string() } else { format!("{all:#}\n") })
            }
            (Content::Toml(ours), Some(before)) if before.contains(ours.as_str()) => Ok(before.to_string()),
            (Content::Toml(_), Some(_)) => Err("there is such a file already"),
        }
    }
}

/// Adds settings to settings. Nothing that is there and says something else is replaced, but for what this is about.
fn merge(all: &mut Value, ours: &Value) -> Result<(), &'static str> {
    match (all, ours) {
        (Value::Object(all), Value::Object(ours)) => {
            for (name, value) in ours {
                merge(all.entry(name).or_insert_with(|| empty_like(value)), value)?;
            }
            Ok(())
        }
        (Value::Array(all), Value::Array(ours)) => {
            let new: Vec<Value> = ours.iter().filter(|one| !all.contains(one)).cloned().collect();
            all.extend(new);
            Ok(())
        }
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
            Err("what is there has another shape")
        }
        (all, ours) => {
            *all = ours.clone();
            Ok(())
        }
    }
}

fn empty_like(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::Object(Map::new()),
        Value::Array(_) => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

/// The user's folder for an agent.
fn home((variable, below_home): (&str, &str)) -> Result<PathBuf, SandboxError> {
    let named = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let named_by_variable = Some(variable).filter(|name| !name.is_empty()).and_then(named);
    named_by_variable.or_else(|| Some(named("HOME")?.join(below_home))).ok_or_else(|| {
        ErrorCode::StateFailed
            .error("there is no home folder to write the settings to: HOME is not set")
            .hint("set HOME")
    })
}

/// The shell that agents are told, which no sandbox can write to. Its name is that of a shell they know.
fn shell() -> Result<String, SandboxError> {
    let failed = |error: Error| {
        ErrorCode::StateFailed.error(format!("cannot write the agents' shell: {error}")).caused_by(error)
    };
    let folder = state_directory()?.join("integrations");
    create_private(&folder).map_err(failed)?;
    let file = folder.join("bash");
    let program = program()?.replace('\'', r"'\''");
    let text = format!("#!/bin/sh\n# Written by `belljar integrate`.\nexec '{program}' tool-shell \"$@\"\n");
    write_atomic(&file, text.as_bytes(), Survives::Kill).map_err(failed)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    text_of(file)
}

/// This very program.
fn program() -> Result<String, SandboxError> {
    let program = std::env::current_exe().map_err(|error| {
        ErrorCode::Internal.error(format!("cannot tell where belljar is: {error}")).caused_by(error)
    })?;
    text_of(program)
}

fn text_of(path: PathBuf) -> Result<String, SandboxError> {
    path.into_os_string().into_string().map_err(|path| {
        ErrorCode::PathInvalid.error(format!("`{}` is not valid UTF-8", path.to_string_lossy()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(agent: OutsideAgent) -> Settings {
        Settings::of(agent, "/state/integrations/bash", "/usr/bin/belljar")
    }

    #[test]
    fn settings_are_added_to_those_that_are_there() {
        let claude = settings(OutsideAgent::Claude);
        let before = r#"{"env": {"A": "b"}, "model": "opus"}"#;
        let after = claude.beside(Some(before)).expect("settings");
        let expected = json!({
            "env": { "A": "b", "CLAUDE_CODE_SHELL_PREFIX": "/state/integrations/bash" }, "model": "opus",
        });
        assert_eq!(serde_json::from_str::<Value>(&after).expect("JSON"), expected);
        assert_eq!(claude.beside(Some(&after)).expect("settings"), after, "once is enough");

        let gemini = settings(OutsideAgent::Gemini);
        let before = r#"{"tools": {"exclude": ["web_fetch"]}}"#;
        let after: Value =
            serde_json::from_str(&gemini.beside(Some(before)).expect("settings")).expect("JSON");
        assert_eq!(after["tools"]["exclude"], json!(["web_fetch", "run_shell_command"]));
    }

    #[test]
    fn settings_that_are_not_understood_stay_as_they_are() {
        for (agent, before) in [
            (OutsideAgent::Claude, "// comment\n{}"),
            (OutsideAgent::Claude, r#"{"env": []}"#),
            (OutsideAgent::Opencode, r#"{"shell": {}}"#),
            (OutsideAgent::Codex, "model = \"x\"\n"),
        ] {
            settings(agent).beside(Some(before)).expect_err(before);
        }
        let codex = settings(OutsideAgent::Codex);
        assert_eq!(codex.beside(Some(&codex.text())), Ok(codex.text()));
    }
}

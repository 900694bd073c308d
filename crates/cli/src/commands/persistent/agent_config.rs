//! `belljar agent config codex`, `claude-init-config`: what an agent finds in every sandbox of a folder.

use super::print_json;
use super::repository::Repository;
use super::shell_rc;
use super::templates::{AGENTS, CLAUDE, CLAUDE_ANSWERS, CODEX, CODEX_HIGH, CODEX_PROFILE};
use super::volume::Folder;
use crate::args::AgentConfigArgs;
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn codex(options: AgentConfigArgs) -> Result<u8, SandboxError> {
    write(
        options,
        &Agent {
            name: "Codex",
            folder: "codex",
            files: &[
                ("config.toml", CODEX),
                ("high.config.toml", CODEX_HIGH),
                ("AGENTS.md", AGENTS),
                ("profile.json", CODEX_PROFILE),
            ],
            login: Login { variable: "CODEX_HOME", home: ".codex", file: "auth.json", word: "openai" },
        },
    )
}

pub(crate) fn claude(options: AgentConfigArgs) -> Result<u8, SandboxError> {
    write(
        options,
        &Agent {
            name: "Claude Code",
            folder: "claude",
            files: &[("settings.json", CLAUDE), ("CLAUDE.md", AGENTS), (".claude.json", CLAUDE_ANSWERS)],
            login: Login {
                variable: "CLAUDE_CONFIG_DIR",
                home: ".claude",
                file: ".credentials.json",
                word: "anthropic",
            },
        },
    )
}

/// What an agent looks for, and where.
struct Agent {
    name: &'static str,
    /// In the config volume.
    folder: &'static str,
    files: &'static [(&'static str, &'static str)],
    login: Login,
}

/// The user's login on this machine.
struct Login {
    /// Names the folder, if it is not below the home.
    variable: &'static str,
    home: &'static str,
    file: &'static str,
    /// What the vault calls the same key.
    word: &'static str,
}

fn write(options: AgentConfigArgs, agent: &Agent) -> Result<u8, SandboxError> {
    let repository = match options.folder {
        Some(folder) => Repository::of(&folder, None)?,
        None => Repository::here(None)?,
    };
    // A missing login is reported before anything is written.
    let login = options.auth.then(|| agent.login.read(agent.name)).transpose()?;
    shell_rc::prepare(&repository)?;
    let folder = repository.config()?.open()?.folder(agent.folder)?;
    let (mut written, mut left) = (Vec::new(), Vec::new());
    for (name, text) in agent.files {
        match keep(&folder, name, text, options.force)? {
            true => written.push(*name),
            false => left.push(*name),
        }
    }
    if let Some(secret) = &login {
        folder.write(agent.login.file, secret)?;
        written.push(agent.login.file);
    }
    if options.json {
        return print_json(&json!({
            "folder": repository.text(), "written": written, "left": left, "auth": login.is_some(),
        }));
    }
    for name in &written {
        eprintln!("belljar: wrote {name}");
    }
    for name in &left {
        eprintln!("belljar: {name} was there and stays; `--force` replaces it");
    }
    if login.is_some() {
        let Login { file, word, .. } = agent.login;
        eprintln!(
            "belljar: {file} is a real secret: everything in sandboxes of this folder can read it and send it on"
        );
        eprintln!(
            "  hint: `belljar secrets set {word}` and `belljar start --secret {word}` let it work without holding one"
        );
    }
    Ok(0)
}

/// Writes a file unless there is one; says whether it was written.
fn keep(folder: &Folder, name: &str, text: &str, force: bool) -> Result<bool, SandboxError> {
    if folder.has(name) && !force {
        return Ok(false);
    }
    folder.write(name, text.as_bytes())?;
    Ok(true)
}

impl Login {
    fn read(&self, agent: &str) -> Result<Vec<u8>, SandboxError> {
        let folder = std::env::var_os(self.variable)
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(self.home)));
        let file = folder.unwrap_or_default().join(self.file);
        std::fs::read(&file).map_err(|error| {
            ErrorCode::CredentialMissing
                .error(format!("cannot read `{}`: {error}", file.display()))
                .hint(format!("log in with {agent} on this machine first, or omit `--auth`"))
                .caused_by(error)
        })
    }
}

//! What is written for people and agents to read and change.

/// `.belljar/config.toml` of a repository that has none.
pub(super) const REPOSITORY: &str = include_str!("templates/config.toml");
/// `config.toml` of Codex.
pub(super) const CODEX: &str = include_str!("templates/codex.toml");
/// A profile of Codex. Current versions refuse one that is a table of `config.toml`.
pub(super) const CODEX_HIGH: &str = include_str!("templates/codex-high.toml");
/// Which of its profiles Codex is started with, for programs that ask.
pub(super) const CODEX_PROFILE: &str = "{\n  \"defaultProfile\": \"high\"\n}\n";
/// `settings.json` of Claude Code.
pub(super) const CLAUDE: &str =
    "{\n  \"skipDangerousModePermissionPrompt\": true,\n  \"skipWebFetchPreflight\": true\n}\n";
/// What Claude Code would ask at its first start.
pub(super) const CLAUDE_ANSWERS: &str = include_str!("templates/claude.json");
/// What every agent is told of the place where it is.
pub(super) const AGENTS: &str = include_str!("templates/agents.md");

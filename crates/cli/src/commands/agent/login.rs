//! `belljar agent login`: the token of a subscription, kept in the vault. A run has a placeholder, and the gateway puts the token in.

use crate::args::AgentLoginArgs;
use crate::commands::secrets::value;
use belljar_agent::adapter;
use belljar_spec::secret::SecretName;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_vault::Vault;

pub(super) fn login(options: &AgentLoginArgs) -> Result<u8, SandboxError> {
    // Nothing better can be done where it fails.
    let _ = belljar_sys::core_dump::leave_none();
    let agent = adapter::named(&options.agent)?;
    if agent.name != "claude" {
        let message = format!(
            "the login of {} cannot be kept outside: it renews itself by files in the agent's home, which would be inside",
            agent.title
        );
        return Err(ErrorCode::NotSupported.error(message).hint(other_way(agent.name)));
    }
    let name = plan();
    let token = value::read(&name)?;
    if !token.begins_with(b"sk-ant-oat") {
        return Err(ErrorCode::RequestValue
            .error("this is not the token of a Claude plan, which begins with `sk-ant-oat`")
            .hint("`claude setup-token` on this machine prints one; an API key is set with `belljar secrets set anthropic`"));
    }
    Vault::real()?.set(&name, &token)?;
    eprintln!("belljar: the token is kept as `{name}`, and counts for runs of Claude Code before an API key");
    eprintln!("  hint: `belljar agent run claude`; `belljar secrets rm {name}` removes it");
    Ok(0)
}

/// What the token of a Claude plan is called in the vault.
pub(super) fn plan() -> SecretName {
    "claude-plan".parse().expect("letters and a dash are a name")
}

/// Whether there is one.
pub(super) fn has_plan() -> bool {
    let listed = Vault::real().and_then(|vault| vault.list());
    listed.is_ok_and(|listed| listed.iter().any(|one| one.name == plan()))
}

fn other_way(agent: &str) -> &'static str {
    match agent {
        "codex" => {
            "an API key stays outside (`belljar secrets set openai`); `belljar agent config codex --auth` copies the ChatGPT login into a \
             folder's sandboxes, where every program can read it"
        }
        "gemini" => "an API key of Google AI Studio stays outside: `belljar secrets set gemini`",
        _ => "an API key stays outside: `belljar secrets set anthropic`, `openai`, `openrouter` or `gemini`",
    }
}

//! What may be reached, what was refused, and who can allow more: the user, and never a tool.

use crate::conversation::{Conversation, Held, failed};
use crate::tools::AskForHost;
use belljar_api::RefusedInfo;
use belljar_spec::egress::{Rule, RuleSource};
use belljar_spec::{ErrorCode, SandboxError};

impl Conversation {
    pub(crate) async fn allowed_hosts(&self) -> Result<String, SandboxError> {
        let (note, refused) = self
            .with(|held| async move {
                let note = held.sandbox.file(NOTE, MAX_NOTE_BYTES).await.map_err(failed)?;
                let refused = held.sandbox.refusals().await.map_err(failed)?;
                let sentences: Vec<String> = refused.into_iter().map(|one| one.sentence).collect();
                Ok((note, sentences))
            })
            .await?;
        let mut text = String::from_utf8_lossy(&note).trim_end().to_string();
        if !refused.is_empty() {
            text.push_str(&format!("\n\nRefused since the sandbox started:\n  {}", refused.join("\n  ")));
        }
        Ok(text)
    }

    /// Only the user can allow a host, with a command of the host. A model that could would be held by nothing.
    pub(crate) async fn ask_for_host(&self, arguments: AskForHost) -> Result<String, SandboxError> {
        let AskForHost { host, reason } = arguments;
        let rule = Rule::allow(&host, RuleSource::Flag).map_err(|error| {
            ErrorCode::RequestValue
                .error(format!("`{}` is not a host that can be allowed: {error}", host.escape_debug()))
                .hint("write a name, as in registry.npmjs.org, with a port if it is not 443 or 80")
        })?;
        let held = self.held().await?;
        let (folder, name) = (held.info.folder.as_deref(), &held.info.name);
        let commands = match folder {
            Some(folder) => format!(
                "belljar allow {} {}\n  belljar stop {name}",
                quoted(&rule.to_string()),
                quoted(folder)
            ),
            None => format!("a sandbox that is made with `egress.allow` = {rule}"),
        };
        Ok(format!(
            "{rule} is not allowed yet, and no tool can allow it. Tell the user that you need it ({}), and that these commands, outside \
             the sandbox, allow it:\n  {commands}\nThe second one ends the commands that run in the sandbox; the next call starts it \
             again with the new rule.",
            reason.trim()
        ))
    }
}

/// What was refused until now.
pub(crate) async fn refusals(held: &Held) -> Vec<RefusedInfo> {
    // Without it a command's output is still worth showing.
    held.sandbox.refusals().await.unwrap_or_default()
}

/// What was refused since then, each as a sentence.
pub(crate) async fn since(held: &Held, before: &[RefusedInfo]) -> Vec<String> {
    let now = refusals(held).await;
    RefusedInfo::since(before, &now).take(MAX_SHOWN).map(|one| one.sentence.clone()).collect()
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:=@+".contains(letter);
    match word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Where a sandbox is told of its network.
const NOTE: &str = "/etc/belljar/network.txt";
const MAX_NOTE_BYTES: usize = 1024 * 1024;
/// Of one command.
const MAX_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted() {
        assert_eq!(quoted("/home/ada/web"), "/home/ada/web");
        assert_eq!(quoted("/home/ada/it's $(here)"), r"'/home/ada/it'\''s $(here)'");
    }
}

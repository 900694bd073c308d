//! A conversation that a caller brings along: what was said so far, and what the user says now.
//!
//! A program of one's own gets it as it is. The agents with a name take one prompt: they get what was said so far as text in front of it.

use belljar_spec::{ErrorCode, SandboxError};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
}

/// Its author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions, which an agent gets as its context.
    System,
    User,
    Assistant,
}

/// A conversation that makes sense.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Messages(Vec<Message>);

impl Messages {
    /// The last message is the user's, and there are not too many.
    pub fn new(messages: Vec<Message>) -> Result<Messages, SandboxError> {
        let refused = |message: String| Err(ErrorCode::RequestValue.error(message));
        if messages.len() > MAX_MESSAGES {
            return refused(format!("`messages`: {} are more than {MAX_MESSAGES}", messages.len()));
        }
        let bytes: usize = messages.iter().map(|message| message.content.len()).sum();
        if bytes > MAX_BYTES {
            return refused(format!("`messages`: they may have {} MiB together", MAX_BYTES >> 20));
        }
        match messages.last() {
            Some(Message { role: Role::User, content }) if !content.trim().is_empty() => {
                Ok(Messages(messages))
            }
            _ => refused("`messages`: the last one is the user's, and says something".to_string()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Message] {
        &self.0
    }

    /// What the user says now, behind what was said so far.
    pub fn prompt(&self) -> String {
        let mut earlier = self.0.iter().filter(|message| message.role != Role::System).collect::<Vec<_>>();
        let last = earlier.pop().map_or("", |message| message.content.as_str());
        if earlier.is_empty() {
            return last.to_string();
        }
        let mut prompt = String::from("The conversation so far:\n");
        for message in earlier {
            let author = match message.role {
                Role::User => "User",
                Role::Assistant | Role::System => "Assistant",
            };
            let _ = write!(prompt, "\n{author}:\n{}\n", message.content.trim_end());
        }
        let _ = write!(prompt, "\nContinue it. The user says now:\n\n{last}");
        prompt
    }

    /// The instructions among them, each with a name.
    pub fn context(&self) -> Vec<(String, String)> {
        let instructions = self.0.iter().filter(|message| message.role == Role::System);
        instructions.map(|message| ("instructions".to_string(), message.content.clone())).collect()
    }
}

/// More than a model would read.
const MAX_MESSAGES: usize = 10_000;
/// As long as a prompt may be.
const MAX_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(all: &[(Role, &str)]) -> Result<Messages, SandboxError> {
        let message = |(role, content): &(Role, &str)| Message { role: *role, content: content.to_string() };
        Messages::new(all.iter().map(message).collect())
    }

    #[test]
    fn a_conversation_ends_with_the_user() {
        for wrong in [
            &[][..],
            &[(Role::User, "  ")],
            &[(Role::User, "a"), (Role::Assistant, "b")],
            &[(Role::System, "a")],
        ] {
            assert_eq!(messages(wrong).unwrap_err().code, ErrorCode::RequestValue, "{wrong:?}");
        }
        let long = "x".repeat(MAX_BYTES);
        assert!(messages(&[(Role::Assistant, &long), (Role::User, "a")]).is_err());
        assert_eq!(messages(&[(Role::User, "fix it")]).unwrap().prompt(), "fix it");
    }

    #[test]
    fn an_agent_gets_the_conversation_as_text_and_instructions_as_context() {
        let all = messages(&[
            (Role::System, "Answer in French."),
            (Role::User, "How many?\n"),
            (Role::Assistant, "Three."),
            (Role::User, "Sure?"),
        ])
        .unwrap();
        assert_eq!(
            all.prompt(),
            "The conversation so far:\n\nUser:\nHow many?\n\nAssistant:\nThree.\n\nContinue it. The user says now:\n\nSure?"
        );
        assert_eq!(all.context(), [("instructions".to_string(), "Answer in French.".to_string())]);
    }
}

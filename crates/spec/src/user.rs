//! The user that commands run as, by its name inside.

use std::fmt;
use std::str::FromStr;

/// The name of the user that commands run as. Its home is `/home/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserName(String);

impl UserName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its home, as a path inside.
    pub fn home(&self) -> String {
        format!("/home/{}", self.0)
    }
}

impl Default for UserName {
    fn default() -> UserName {
        UserName("agent".into())
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::text::serde_as_text!(UserName);

/// Not the name of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserNameError {
    #[error("`{0}` cannot name a user: write small letters, digits, `-` and `_`, at most 32, a letter first")]
    Spelling(String),
    #[error("`{0}` is another user of every system: choose another name")]
    Taken(String),
}

impl FromStr for UserName {
    type Err = UserNameError;

    fn from_str(text: &str) -> Result<UserName, UserNameError> {
        let is_more = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        let is_first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !is_first || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_more) {
            return Err(UserNameError::Spelling(text.escape_debug().to_string()));
        }
        if TAKEN.contains(&text) {
            return Err(UserNameError::Taken(text.into()));
        }
        Ok(UserName(text.into()))
    }
}

/// Both have an entry of their own in the sandbox's `/etc/passwd`.
const TAKEN: [&str; 2] = ["root", "nobody"];
/// As `useradd` has it.
const MAX_NAME_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_of_passwd_and_one_part_of_a_path() {
        for (text, is_name) in [
            ("user", true),
            ("ci-1_x", true),
            ("", false),
            ("1a", false),
            ("-a", false),
            ("User", false),
            ("a:b", false),
            ("a/b", false),
            ("..", false),
            ("a\n", false),
            ("root", false),
            ("nobody", false),
            (&"a".repeat(33), false),
        ] {
            assert_eq!(text.parse::<UserName>().is_ok(), is_name, "{text}");
        }
        assert_eq!(UserName::default().home(), "/home/agent");
    }
}

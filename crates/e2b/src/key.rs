//! The spelling of a grant's token as an API key. Clients of some versions take only `e2b_` and small hexadecimal digits; a token is
//! `bjt_ID_SECRET`, with both parts in such digits, so it can be spelled in both ways and nothing is kept for that.

use belljar_api::{TOKEN_ID_DIGITS, TOKEN_PREFIX};

/// A grant's token as an API key. `None` for what is no token.
pub fn key_of_token(token: &str) -> Option<String> {
    let (id, secret) = token.strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
    (id.len() == TOKEN_ID_DIGITS && is_hex(id) && is_hex(secret)).then(|| format!("{PREFIX}{id}{secret}"))
}

/// An API key as what it stands for. A token itself is taken too.
pub(crate) struct Key {
    /// The grant's id. Only the daemon knows whether the secret is the grant's.
    pub(crate) grant: String,
    pub(crate) token: String,
}

impl Key {
    pub(crate) fn parse(text: &str) -> Option<Key> {
        let (grant, secret) = match text.strip_prefix(PREFIX) {
            Some(rest) => rest.split_at_checked(TOKEN_ID_DIGITS)?,
            None => text.strip_prefix(TOKEN_PREFIX)?.split_once('_')?,
        };
        let is_key = is_hex(grant) && is_hex(secret);
        is_key.then(|| Key { grant: grant.into(), token: format!("{TOKEN_PREFIX}{grant}_{secret}") })
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

const PREFIX: &str = "e2b_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_spelling_as_a_key() {
        let token = "bjt_0123456789ab_00ff";
        let key = key_of_token(token).unwrap();
        assert_eq!(key, "e2b_0123456789ab00ff");
        for text in [token, &key] {
            let found = Key::parse(text).unwrap();
            assert_eq!((found.grant.as_str(), found.token.as_str()), ("0123456789ab", token));
        }
        for text in
            ["", "e2b_", "e2b_0123456789ab", "e2b_0123456789AB00", "e2b_é123456789ab00", "bjt_x_y", "x"]
        {
            assert!(Key::parse(text).is_none(), "{text}");
        }
        assert_eq!(key_of_token("bjt_12_34"), None);
    }
}

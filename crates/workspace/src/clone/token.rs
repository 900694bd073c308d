//! A token for a git host, and messages without it. Git gets the token through its environment, and uses it only when the token's
//! own host asks; it is in no file and no argument.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use belljar_vault::Secret;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use zeroize::Zeroizing;

/// A login for a host.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) token: Secret,
}

impl Login {
    /// With the user name that hosts expect together with a token.
    pub(super) fn with_token(token: Secret) -> Login {
        Login { user: "x-access-token".to_string(), token }
    }

    /// From the part of a URL before `@`; a name alone is taken for a token, as some hosts do.
    pub(super) fn of_url(part: &str) -> Login {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match part.split_once(':') {
            Some((user, token)) => Login { user: decoded(user), token: Secret::from_text(&decoded(token)) },
            None => Login::with_token(Secret::from_text(&decoded(part))),
        }
    }

    /// Text without the token, in any of the spellings that a client or a server may have used.
    pub(super) fn scrub(&self, text: &str) -> String {
        let token = self.token.reveal_text();
        if token.is_empty() {
            return text.to_string();
        }
        let both = Zeroizing::new(format!("{}:{token}", self.user));
        let spellings = [
            Zeroizing::new(STANDARD.encode(both.as_bytes())),
            Zeroizing::new(STANDARD.encode(token)),
            Zeroizing::new(URL_SAFE_NO_PAD.encode(token)),
            Zeroizing::new(utf8_percent_encode(token, NON_ALPHANUMERIC).to_string()),
            Zeroizing::new(token.to_string()),
        ];
        let scrub = |text: String, spelling: &Zeroizing<String>| text.replace(spelling.as_str(), "***");
        spellings.iter().fold(text.to_string(), scrub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_a_token_stays() {
        let login = Login { user: "ada".into(), token: Secret::from_text("ghp_se/cr+et") };
        for text in [
            "x ghp_se/cr+et y",
            "x ghp%5Fse%2Fcr%2Bet y",
            &format!("x {} y", STANDARD.encode("ghp_se/cr+et")),
            &format!("x {} y", STANDARD.encode("ada:ghp_se/cr+et")),
        ] {
            assert_eq!(login.scrub(text), "x *** y");
        }
    }

    #[test]
    fn a_url_may_carry_one() {
        for (part, user, token) in
            [("ada:s%2Fx", "ada", "s/x"), ("ghp_x", "x-access-token", "ghp_x"), ("ada:", "ada", "")]
        {
            let login = Login::of_url(part);
            assert_eq!((login.user.as_str(), login.token.reveal_text()), (user, token));
        }
    }
}

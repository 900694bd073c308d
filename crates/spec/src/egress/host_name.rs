//! A name of a host, as DNS carries it.

use super::{Printable, spelled_address};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Lower-case A-labels without the final dot, as in `xn--bcher-kva.example`. Never an address, in no spelling, so that a
/// name that was allowed cannot turn out to be a number.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Arc<str>);

impl HostName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Is it this name, or below it? `evilgithub.com` is not below `github.com`, and neither is `github.com.evil`.
    pub fn is_within(&self, apex: &HostName) -> bool {
        match self.0.strip_suffix(&*apex.0) {
            Some(rest) => rest.is_empty() || rest.ends_with('.'),
            None => false,
        }
    }
}

/// Text that is no name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    /// Nothing was written.
    #[error("a host name is missing: write one, as in `example.com`")]
    Empty,
    /// A number, in whatever spelling.
    #[error("`{0}` is an address: only names can be allowed, write the host's name")]
    Address(IpAddr),
    /// It ends as an address does; resolvers disagree about what it means.
    #[error("`{0}` ends in a number as an address does: write the host's name")]
    EndsInNumber(Printable),
    /// A character, or a place for one, that no name has.
    #[error(
        "`{0}` is not a host name: write letters, digits and hyphens between single dots, as in `example.com`"
    )]
    Malformed(Printable),
    /// A list, as other programs take it.
    #[error("`{0}` are several: give each host name by itself")]
    Several(Printable),
    /// More than DNS carries.
    #[error("`{0}` is too long for a host name: at most 253 characters, 63 between two dots")]
    TooLong(Printable),
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<HostName, HostNameError> {
        if let Some(address) = spelled_address(text) {
            return Err(HostNameError::Address(address));
        }
        if text.split([',', ';', ' ']).filter(|part| !part.is_empty()).nth(1).is_some() {
            return Err(HostNameError::Several(text.into()));
        }
        let ascii = to_ascii(text).ok_or_else(|| HostNameError::Malformed(text.into()))?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        check(name, text)?;
        Ok(HostName(Arc::from(name)))
    }
}

/// Lower-case A-labels. A plain ASCII name, which nearly every one is, costs no look into Unicode's tables.
fn to_ascii(text: &str) -> Option<Cow<'_, str>> {
    let encoded = |label: &[u8]| label.len() >= 4 && label[..4].eq_ignore_ascii_case(b"xn--");
    if !text.is_ascii() || text.as_bytes().split(|byte| *byte == b'.').any(encoded) {
        // What the characters are is checked afterwards, and more strictly than the deny lists here would.
        return idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::EMPTY).ok();
    }
    Some(match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    })
}

/// Of lower-case ASCII without the final dot.
fn check(name: &str, written: &str) -> Result<(), HostNameError> {
    if name.is_empty() {
        return Err(if written.is_empty() {
            HostNameError::Empty
        } else {
            HostNameError::Malformed(written.into())
        });
    }
    if name.len() > MAX_NAME {
        return Err(HostNameError::TooLong(written.into()));
    }
    let mut last = "";
    for label in name.split('.') {
        if label.len() > MAX_LABEL {
            return Err(HostNameError::TooLong(written.into()));
        }
        // Underscores are in use (`_dmarc`, some CDNs). A hyphen in front would be an option to many a program.
        let known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if label.is_empty() || !label.bytes().all(known) || label.starts_with('-') || label.ends_with('-') {
            return Err(HostNameError::Malformed(written.into()));
        }
        last = label;
    }
    // Wide and circled digits have become digits by now.
    if let Some(address) = spelled_address(name) {
        return Err(HostNameError::Address(address));
    }
    // No top-level domain is a number. What looks like an address and is none is read differently by different
    // resolvers (`1.2.3.4.5`, `127.0.0.0x100`, `09`): the URL standard refuses it as well.
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if numeric || hexadecimal {
        return Err(HostNameError::EndsInNumber(written.into()));
    }
    Ok(())
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostName({})", self.0)
    }
}

impl AsRef<str> for HostName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// RFC 1035 §2.3.4: 255 bytes in a message, two of which are the first length and the root.
const MAX_NAME: usize = 253;
/// RFC 1035 §2.3.4.
const MAX_LABEL: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_parsed() {
        for (text, expected) in [
            ("example.com", "example.com"),
            ("EXAMPLE.Com.", "example.com"),
            ("db", "db"),
            ("_dmarc.example.com", "_dmarc.example.com"),
            ("r3---sn-x.example", "r3---sn-x.example"),
            ("3com.com", "3com.com"),
            ("1.2.3.4.example", "1.2.3.4.example"),
            ("0x7f.example", "0x7f.example"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
            ("ｇｉｔｈｕｂ．com", "github.com"),
            ("例え。jp", "xn--r8jz45g.jp"),
            ("face", "face"),
        ] {
            assert_eq!(
                text.parse::<HostName>().map(|name| name.to_string()),
                Ok(expected.to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            ".",
            "..",
            ".com",
            "a..b",
            "a b",
            " a",
            "a\n",
            "a\0b",
            "a/b",
            "a:443",
            "a@b",
            "*.a",
            "a%2eb",
            "-a.com",
            "a-.com",
            "a.com..",
            "xn--a.com",
            "xn--.com",
            "\u{202e}a",
            "a,b",
            "[a]",
            "é\u{301}\u{fffd}.com",
        ] {
            assert!(text.parse::<HostName>().is_err(), "{text:?}");
        }
        for text in ["1.2.3.4.5", "256.1.1.1", "a.0x1", "a.09", "127.0.0.09", "a.1", "4294967296"] {
            assert!(matches!(text.parse::<HostName>(), Err(HostNameError::EndsInNumber(_))), "{text}");
        }
        for text in [format!("{}.com", "a".repeat(64)), ["a"; 128].join(".")] {
            assert!(matches!(text.parse::<HostName>(), Err(HostNameError::TooLong(_))), "{text}");
        }
        assert!(["a"; 127].join(".").parse::<HostName>().is_ok(), "253 characters");
    }

    #[test]
    fn an_address_is_no_name_in_any_spelling() {
        for text in [
            "127.0.0.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "1.2.3.4.",
            "[::1]",
            "fe80::1%eth0",
            "１２７.0.0.1",
            "①②⑦.1",
            "127。0。0。1",
            "0Ｘ7f.1",
        ] {
            assert!(matches!(text.parse::<HostName>(), Err(HostNameError::Address(_))), "{text}");
        }
    }

    #[test]
    fn within_is_the_apex_and_below_and_no_sibling() {
        let apex: HostName = "github.com".parse().expect("a name");
        for (name, expected) in [
            ("github.com", true),
            ("api.github.com", true),
            ("a.b.github.com", true),
            ("evilgithub.com", false),
            ("evil-github.com", false),
            ("github.com.evil", false),
            ("com", false),
            ("github.co", false),
        ] {
            assert_eq!(name.parse::<HostName>().expect("a name").is_within(&apex), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_a_name(text in "\\PC{0,40}|[a-zA-Z0-9._xX-]{0,40}") {
            if let Ok(name) = text.parse::<HostName>() {
                prop_assert!(name.as_str().len() <= 253);
                prop_assert!(name.as_str().split('.').all(|label| (1..=63).contains(&label.len())));
                prop_assert!(name.as_str().bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.')));
                prop_assert_eq!(spelled_address(name.as_str()), None);
                // What was understood is understood the same again.
                prop_assert_eq!(name.as_str().parse::<HostName>(), Ok(name.clone()));
            }
        }

        #[test]
        fn what_the_system_resolver_reads_as_an_address_is_no_name(bits: u32) {
            for text in [bits.to_string(), format!("{bits:#x}"), format!("{:#x}.{}", bits >> 24, bits & 0xff_ffff)] {
                prop_assert!(matches!(text.parse::<HostName>(), Err(HostNameError::Address(_))), "{}", text);
            }
        }
    }
}

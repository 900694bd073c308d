//! What a registry asks for when it refuses: RFC 9110 section 11.6.1, and the token scheme of Docker's registry.

/// What would let us in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The strongest that we understand of what one header asks for.
pub(super) fn challenge(header: &str) -> Option<Challenge> {
    let (mut basic, mut rest) = (None, header.trim_start());
    while !rest.is_empty() {
        let (scheme, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let (parameters, behind) = parameters(after);
        let value = |name: &str| {
            parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = value("realm")
        {
            return Some(Challenge::Bearer { realm, service: value("service"), scope: value("scope") });
        }
        if scheme.eq_ignore_ascii_case("basic") {
            basic = Some(Challenge::Basic);
        }
        // Whatever the text is, the loop ends.
        if behind.len() >= rest.len() {
            break;
        }
        rest = behind;
    }
    basic
}

/// `key=value` or `key="value"`, between commas; and what follows, where another scheme begins.
fn parameters(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        let Some((key, after)) = text.split_once('=') else { return (found, "") };
        if key.contains([' ', ',', '"']) {
            return (found, text);
        }
        let (value, behind) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = after.find([',', ' ']).unwrap_or(after.len());
                (after[..end].to_string(), &after[end..])
            }
        };
        found.push((key.to_string(), value));
        text = behind;
    }
}

fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_understood_or_it_is_none() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_string);
            Some(Challenge::Bearer { realm: realm.into(), service: owned(service), scope: owned(scope) })
        };
        for (header, expected) in [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#,
                bearer(
                    "https://auth.docker.io/token",
                    Some("registry.docker.io"),
                    Some("repository:a/b:pull,push"),
                ),
            ),
            (r#"bearer realm="a\"b""#, bearer("a\"b", None, None)),
            (r#"Basic realm="x", Bearer realm=https://b"#, bearer("https://b", None, None)),
            (r#"Basic realm="Registry Realm""#, Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            (r#"Bearer service="x""#, None),
            ("Digest a=b", None),
            ("", None),
            (r#"Bearer realm=""#, bearer("", None, None)),
            (",,,===\"\"", None),
        ] {
            assert_eq!(challenge(header), expected, "{header}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_judged(header in "\\PC{0,200}") {
            let _ = challenge(&header);
        }
    }
}

//! Where in a request a credential stands: finds a placeholder there, puts the value in its place, or adds it. Pure.

use super::forms::percent_encoded;
use belljar_spec::secret::CredentialLocation;
use data_encoding::BASE64;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use percent_encoding::percent_decode;
use zeroize::Zeroizing;

/// Does the request have something in this carrier, whatever it is?
pub(super) fn is_there(location: &CredentialLocation, head: &Parts) -> bool {
    match location {
        CredentialLocation::Bearer | CredentialLocation::Basic { .. } => {
            head.headers.contains_key(AUTHORIZATION)
        }
        CredentialLocation::Header(name) => head.headers.contains_key(name.as_str()),
        CredentialLocation::Query(name) => parameters(&head.uri).any(|part| part.is(name)),
    }
}

/// Does this carrier hold the placeholder?
pub(super) fn holds(location: &CredentialLocation, head: &Parts, placeholder: &str) -> bool {
    let authorized = |put: Put| {
        let mut values = head.headers.get_all(AUTHORIZATION).iter();
        values.any(|value| put(value.as_bytes(), placeholder.as_bytes(), b"").is_some())
    };
    match location {
        CredentialLocation::Bearer => authorized(bearer),
        CredentialLocation::Basic { .. } => authorized(basic),
        CredentialLocation::Header(name) => {
            let mut values = head.headers.get_all(name.as_str()).iter();
            values.any(|value| value.as_bytes() == placeholder.as_bytes())
        }
        CredentialLocation::Query(name) => {
            parameters(&head.uri).any(|part| part.is(name) && part.holds(placeholder.as_bytes()))
        }
    }
}

/// Puts the value where the placeholder is. What else is in this carrier stays.
pub(super) fn replace(
    location: &CredentialLocation,
    head: &mut Parts,
    placeholder: &str,
    value: &[u8],
) -> Result<(), Unfit> {
    let placeholder = placeholder.as_bytes();
    match location {
        CredentialLocation::Bearer => {
            rewrite(&mut head.headers, &AUTHORIZATION, |text| bearer(text, placeholder, value))
        }
        CredentialLocation::Basic { .. } => {
            rewrite(&mut head.headers, &AUTHORIZATION, |text| basic(text, placeholder, value))
        }
        CredentialLocation::Header(name) => {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Unfit)?;
            rewrite(&mut head.headers, &name, |text| {
                (text == placeholder).then(|| Zeroizing::new(value.to_vec()))
            })
        }
        CredentialLocation::Query(name) => {
            let changed = parameters(&head.uri).map(|part| match part.is(name) && part.holds(placeholder) {
                true => pair(part.name, value),
                false => Zeroizing::new(part.written.to_string()),
            });
            let query = Zeroizing::new(changed.fold(String::new(), joined));
            set_query(head, &query)
        }
    }
}

/// Adds the value to a request that has nothing in this carrier.
pub(super) fn add(location: &CredentialLocation, head: &mut Parts, value: &[u8]) -> Result<(), Unfit> {
    let (name, text) = match location {
        CredentialLocation::Bearer => (AUTHORIZATION, [b"Bearer ", value].concat()),
        CredentialLocation::Basic { user } => {
            let pair = Zeroizing::new([user.as_bytes(), b":", value].concat());
            (AUTHORIZATION, format!("Basic {}", BASE64.encode(&pair)).into_bytes())
        }
        CredentialLocation::Header(name) => {
            (HeaderName::from_bytes(name.as_bytes()).map_err(|_| Unfit)?, value.to_vec())
        }
        CredentialLocation::Query(name) => {
            let before = parameters(&head.uri).map(|part| Zeroizing::new(part.written.to_string()));
            let query = Zeroizing::new(before.chain([pair(name, value)]).fold(String::new(), joined));
            return set_query(head, &query);
        }
    };
    head.headers.insert(name, sensitive(&Zeroizing::new(text))?);
    Ok(())
}

/// A value that no request can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfit;

/// Puts a value where the placeholder is in a text, if it is there.
type Put = fn(&[u8], &[u8], &[u8]) -> Option<Zeroizing<Vec<u8>>>;

/// `Bearer VALUE`, also with GitHub's word for it.
fn bearer(text: &[u8], placeholder: &[u8], value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, held) = scheme(text)?;
    let known = scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token");
    (known && held == placeholder).then(|| Zeroizing::new([scheme, b" ", value].concat()))
}

/// `Basic`, the value as the password or, as some tools send it, as the user.
fn basic(text: &[u8], placeholder: &[u8], value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, held) = scheme(text)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = BASE64.decode(held).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&pair[..colon], &pair[colon + 1..]);
    let pair = match (user == placeholder, password == placeholder) {
        (false, false) => return None,
        (true, true) => [value, b":", value].concat(),
        (true, false) => [value, b":", password].concat(),
        (false, true) => [user, b":", value].concat(),
    };
    let pair = Zeroizing::new(pair);
    Some(Zeroizing::new([scheme, b" ", BASE64.encode(&pair).as_bytes()].concat()))
}

fn scheme(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..space], text[space..].trim_ascii()))
}

fn rewrite(
    headers: &mut HeaderMap,
    name: &HeaderName,
    change: impl Fn(&[u8]) -> Option<Zeroizing<Vec<u8>>>,
) -> Result<(), Unfit> {
    if let hyper::header::Entry::Occupied(mut entry) = headers.entry(name) {
        for held in entry.iter_mut() {
            if let Some(changed) = change(held.as_bytes()) {
                *held = sensitive(&changed)?;
            }
        }
    }
    Ok(())
}

/// A header's value that is not printed, nor kept by compression.
fn sensitive(text: &[u8]) -> Result<HeaderValue, Unfit> {
    let mut value = HeaderValue::from_bytes(text).map_err(|_| Unfit)?;
    value.set_sensitive(true);
    Ok(value)
}

/// One parameter of a query.
struct Parameter<'a> {
    written: &'a str,
    name: &'a str,
    value: &'a str,
}

impl Parameter<'_> {
    fn is(&self, name: &str) -> bool {
        decoded(self.name) == name.as_bytes()
    }

    fn holds(&self, text: &[u8]) -> bool {
        decoded(self.value) == text
    }
}

fn parameters(uri: &Uri) -> impl Iterator<Item = Parameter<'_>> {
    let query = uri.query().unwrap_or_default();
    query.split('&').filter(|part| !part.is_empty()).map(|written| {
        let (name, value) = written.split_once('=').unwrap_or((written, ""));
        Parameter { written, name, value }
    })
}

fn pair(name: &str, value: &[u8]) -> Zeroizing<String> {
    let value = Zeroizing::new(percent_encoded(value));
    Zeroizing::new(format!("{name}={}", String::from_utf8_lossy(&value)))
}

fn joined(mut query: String, part: Zeroizing<String>) -> String {
    if !query.is_empty() {
        query.push('&');
    }
    query.push_str(&part);
    query
}

fn set_query(head: &mut Parts, query: &str) -> Result<(), Unfit> {
    let mut parts = head.uri.clone().into_parts();
    let target = Zeroizing::new(format!("{}?{query}", head.uri.path()));
    parts.path_and_query = Some(target.parse().map_err(|_| Unfit)?);
    head.uri = Uri::from_parts(parts).map_err(|_| Unfit)?;
    Ok(())
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const P: &str = "sk-placeholder";
    const V: &[u8] = b"sk-the/real+one";

    fn head(target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn sent(head: &Parts, name: &str) -> Vec<String> {
        let values = head.headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    fn coded(pair: &str) -> String {
        format!("Basic {}", BASE64.encode(pair.as_bytes()))
    }

    #[test]
    fn a_placeholder_is_replaced_where_it_may_stand() {
        let basic = CredentialLocation::Basic { user: "x-access-token".into() };
        let header = CredentialLocation::Header("x-api-key".into());
        for (location, name, held, expected) in [
            (
                CredentialLocation::Bearer,
                "authorization",
                format!("Bearer {P}"),
                "Bearer sk-the/real+one".to_string(),
            ),
            (
                CredentialLocation::Bearer,
                "authorization",
                format!("bearer  {P}"),
                "bearer sk-the/real+one".into(),
            ),
            (
                CredentialLocation::Bearer,
                "authorization",
                format!("token {P}"),
                "token sk-the/real+one".into(),
            ),
            (basic.clone(), "authorization", coded(&format!("git:{P}")), coded("git:sk-the/real+one")),
            (
                basic.clone(),
                "authorization",
                coded(&format!("{P}:x-oauth-basic")),
                coded("sk-the/real+one:x-oauth-basic"),
            ),
            (header, "x-api-key", P.into(), "sk-the/real+one".into()),
        ] {
            let mut head = head("/", &[(name, &held)]);
            assert!(holds(&location, &head, P), "{held}");
            replace(&location, &mut head, P, V).expect("fits");
            assert_eq!(sent(&head, name), [expected]);
            assert!(head.headers[name].is_sensitive());
        }
    }

    #[test]
    fn what_is_not_exactly_the_placeholder_is_not_it() {
        for value in [
            "Bearer sk-placeholder2",
            "Bearer x sk-placeholder",
            "Digest sk-placeholder",
            "sk-placeholder",
            "",
        ] {
            assert!(
                !holds(&CredentialLocation::Bearer, &head("/", &[("authorization", value)]), P),
                "{value}"
            );
        }
        let header = CredentialLocation::Header("x-api-key".into());
        assert!(!holds(&header, &head("/", &[("x-api-key", "Bearer sk-placeholder")]), P));
    }

    #[test]
    fn a_parameter_is_found_however_it_is_encoded() {
        let location = CredentialLocation::Query("key".into());
        for (target, expected) in [
            ("/v1?key=sk-placeholder", "/v1?key=sk-the%2Freal%2Bone"),
            ("/v1?a=1&key=sk%2dplaceholder&b", "/v1?a=1&key=sk-the%2Freal%2Bone&b"),
            ("/v1?%6bey=sk-placeholder", "/v1?%6bey=sk-the%2Freal%2Bone"),
        ] {
            let mut head = head(target, &[]);
            assert!(holds(&location, &head, P), "{target}");
            replace(&location, &mut head, P, V).expect("fits");
            assert_eq!(head.uri, expected);
        }
        assert!(!holds(&location, &head("/v1?other=sk-placeholder", &[]), P));
    }

    #[test]
    fn a_request_without_it_gets_it() {
        let mut plain = head("https://a.example/p?x=1", &[]);
        for location in [
            CredentialLocation::Bearer,
            CredentialLocation::Header("x-api-key".into()),
            CredentialLocation::Query("key".into()),
        ] {
            assert!(!is_there(&location, &plain));
            add(&location, &mut plain, V).expect("fits");
            assert!(is_there(&location, &plain));
        }
        assert_eq!(sent(&plain, "authorization"), ["Bearer sk-the/real+one"]);
        assert_eq!(plain.uri, "https://a.example/p?x=1&key=sk-the%2Freal%2Bone");
        let mut git = head("/", &[]);
        add(&CredentialLocation::Basic { user: "x-access-token".into() }, &mut git, V).expect("fits");
        assert_eq!(sent(&git, "authorization"), [coded("x-access-token:sk-the/real+one")]);
    }

    #[test]
    fn a_value_that_no_header_can_carry_is_not_sent() {
        assert_eq!(add(&CredentialLocation::Bearer, &mut head("/", &[]), b"a\r\nx-evil: 1"), Err(Unfit));
    }
}

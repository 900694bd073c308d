//! Headers of a call, both ways. A client's header is passed on only if it is known to have no effect on the payer, the
//! caller or the destination; ours are made of configuration, by libraries that know what a header and what JSON is.

use belljar_spec::SandboxId;
use belljar_spec::llm::{Billing, UpstreamKind};
use belljar_vault::Secret;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use serde::Serialize;

/// The headers that go upstream, but for the key.
pub(super) fn outgoing(client: &HeaderMap, kind: UpstreamKind, billing: &BillingHeaders) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in client {
        if passes(name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // What is compressed cannot be read on its way.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if kind == UpstreamKind::Anthropic && !headers.contains_key(ANTHROPIC_VERSION) {
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
    }
    if kind == UpstreamKind::LiteLlm {
        headers.insert(END_USER, billing.end_user.clone());
        headers.insert(SPEND_METADATA, billing.metadata.clone());
    }
    headers
}

/// Shows the key, as this kind of upstream wants to see it. `None` if it cannot be in a header.
pub(super) fn show_key(headers: &mut HeaderMap, kind: UpstreamKind, key: &Secret) -> Option<()> {
    // A token of a plan is no API key: Anthropic takes it as a bearer, of clients that say so.
    let is_plan = kind == UpstreamKind::Anthropic && key.reveal().starts_with(PLAN_TOKEN);
    let (name, prefix) = match kind {
        UpstreamKind::Anthropic if is_plan => (AUTHORIZATION, &b"Bearer "[..]),
        UpstreamKind::LiteLlm | UpstreamKind::OpenAi => (AUTHORIZATION, &b"Bearer "[..]),
        UpstreamKind::Anthropic => (HeaderName::from_static("x-api-key"), &b""[..]),
        UpstreamKind::Gemini => (HeaderName::from_static("x-goog-api-key"), &b""[..]),
    };
    if !key.reveal().iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mut value = HeaderValue::from_bytes(&[prefix, key.reveal()].concat()).ok()?;
    value.set_sensitive(true);
    headers.insert(name, value);
    if is_plan {
        let values = headers.get_all(ANTHROPIC_BETA).iter().filter_map(|value| value.to_str().ok());
        let mut betas: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
        if !betas.contains(&PLAN_BETA) {
            betas.push(PLAN_BETA);
        }
        let betas = HeaderValue::from_str(&betas.join(",")).ok()?;
        headers.insert(ANTHROPIC_BETA, betas);
    }
    Some(())
}

/// What is told to LiteLLM of who pays.
pub(super) struct BillingHeaders {
    end_user: HeaderValue,
    metadata: HeaderValue,
}

impl BillingHeaders {
    /// `None` if the account cannot be in a header.
    pub(super) fn new(billing: &Billing, run: SandboxId) -> Option<BillingHeaders> {
        #[derive(Serialize)]
        struct Metadata<'a> {
            run_id: String,
            #[serde(flatten)]
            billing: &'a Billing,
        }
        let metadata = serde_json::to_string(&Metadata { run_id: run.to_string(), billing }).ok()?;
        Some(BillingHeaders {
            end_user: HeaderValue::from_str(billing.account()).ok()?,
            metadata: HeaderValue::from_str(&ascii(&metadata)).ok()?,
        })
    }
}

/// JSON in letters that every header can hold; what is not ASCII is only ever inside of strings.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() && character != '\x7f' {
            text.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// The headers that go in.
pub(super) fn incoming(upstream: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in upstream {
        if !stays_outside(name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Whether the body is what it seems.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether a body says that it is JSON, in letters that we read.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next().map(HeaderValue::to_str), types.next()) {
        (None, _) => true,
        (Some(Ok(kind)), None) => {
            let (kind, charset) = kind.split_once(';').unwrap_or((kind, ""));
            let charset = charset.trim().to_ascii_lowercase();
            let charset_fits = matches!(charset.as_str(), "" | "charset=utf-8" | "charset=\"utf-8\"");
            kind.trim().eq_ignore_ascii_case("application/json") && charset_fits
        }
        _ => false,
    }
}

/// One header, as text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What a client may say to a model besides its question: who it is, which dialect it speaks, which of its sessions
/// this is. None of them is read for billing or for who may.
fn passes(name: &str) -> bool {
    PASSING.contains(&name) || PASSING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn stays_outside(name: &str) -> bool {
    let litellm = name.starts_with("x-litellm-") && !LITELLM_REPORTED.contains(&name);
    OUTSIDE.contains(&name) || litellm || name.starts_with("llm_provider-") || name.starts_with("proxy-")
}

const PASSING: [&str; 16] = [
    "accept",
    "user-agent",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "openai-beta",
    "x-app",
    "x-goog-api-client",
    "session-id",
    "session_id",
    "thread-id",
    "conversation_id",
    "x-session-id",
    "originator",
    "version",
    "x-title",
];
const PASSING_PREFIXES: [&str; 3] = ["x-stainless-", "x-claude-code-", "x-codex-"];
/// Of one connection only (RFC 9110, 7.6.1), made by us, or of no concern to the sandbox.
const OUTSIDE: [&str; 16] = [
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "set-cookie",
    "set-cookie2",
    "alt-svc",
    "strict-transport-security",
    "location",
    "www-authenticate",
    "openai-organization",
    "openai-project",
    "anthropic-organization-id",
];
/// What LiteLLM may tell a program inside: which call it was and what it cost.
const LITELLM_REPORTED: [&str; 2] = ["x-litellm-call-id", "x-litellm-response-cost"];
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// What the tokens of `claude setup-token` begin with, and the version of the API that takes them.
const PLAN_TOKEN: &[u8] = b"sk-ant-oat";
const PLAN_BETA: &str = "oauth-2025-04-20";
const END_USER: HeaderName = HeaderName::from_static("x-litellm-end-user-id");
const SPEND_METADATA: HeaderName = HeaderName::from_static("x-litellm-spend-logs-metadata");

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    fn run() -> SandboxId {
        SandboxId::from_random([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef])
    }

    fn billing(billing: &Billing) -> BillingHeaders {
        BillingHeaders::new(billing, run()).unwrap()
    }

    #[test]
    fn a_token_of_a_plan_is_a_bearer_and_an_api_key_is_not() {
        for (kind, key, name, value) in [
            (UpstreamKind::Anthropic, "sk-ant-api03-x", "x-api-key", "sk-ant-api03-x"),
            (UpstreamKind::Anthropic, "sk-ant-oat01-x", "authorization", "Bearer sk-ant-oat01-x"),
            (UpstreamKind::OpenAi, "sk-ant-oat01-x", "authorization", "Bearer sk-ant-oat01-x"),
        ] {
            let mut headers = map(&[("anthropic-beta", "tools-1")]);
            show_key(&mut headers, kind, &Secret::new(key.as_bytes().to_vec())).unwrap();
            assert_eq!(headers[name], value, "{key}");
            let is_plan = kind == UpstreamKind::Anthropic && name == "authorization";
            let betas = if is_plan { "tools-1,oauth-2025-04-20" } else { "tools-1" };
            assert_eq!(headers["anthropic-beta"], betas);
        }
        let mut headers = map(&[("anthropic-beta", "tools-1,oauth-2025-04-20")]);
        show_key(&mut headers, UpstreamKind::Anthropic, &Secret::new(b"sk-ant-oat01-x".to_vec())).unwrap();
        assert_eq!(headers["anthropic-beta"], "tools-1,oauth-2025-04-20", "once is enough");
    }

    #[test]
    fn nothing_that_a_client_forges_goes_along() {
        let client = map(&[
            ("authorization", "Bearer mine"),
            ("Authorization", "Basic eA=="),
            ("x-api-key", "mine"),
            ("x-goog-api-key", "mine"),
            ("api-key", "mine"),
            ("cookie", "a=b"),
            ("proxy-authorization", "x"),
            ("proxy-connection", "x"),
            ("x-litellm-end-user-id", "other"),
            ("X-LiteLLM-Tags", "x"),
            ("x-litellm-spend-logs-metadata", "{}"),
            ("x_litellm_end_user_id", "other"),
            ("langfuse_trace_id", "x"),
            ("openai-organization", "x"),
            ("x-goog-user-project", "x"),
            ("x-forwarded-for", "x"),
            ("forwarded", "x"),
            ("host", "evil.test"),
            ("content-length", "7"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("connection", "x-api-key"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept-encoding", "gzip"),
            ("content-type", "text/plain"),
            ("x-model", "a litellm_call_id=- litellm_response_cost=0"),
            ("anthropic-beta", "a"),
            ("user-agent", "cli"),
            ("x-stainless-os", "Linux"),
        ]);
        let sent = outgoing(&client, UpstreamKind::LiteLlm, &billing(&Billing::default()));
        let mut sent: Vec<String> =
            sent.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        sent.sort();
        assert_eq!(
            sent,
            [
                "accept-encoding: identity",
                "anthropic-beta: a",
                "content-type: application/json",
                "user-agent: cli",
                "x-litellm-end-user-id: belljar",
                r#"x-litellm-spend-logs-metadata: {"run_id":"0123456789abcdef","attempt":0}"#,
                "x-stainless-os: Linux",
            ]
        );
        let sent = outgoing(&client, UpstreamKind::Anthropic, &billing(&Billing::default()));
        assert!(!sent.keys().any(|name| name.as_str().starts_with("x-litellm")));
        assert_eq!(text(&sent, "anthropic-version"), Some("2023-06-01"));
    }

    #[test]
    fn a_quote_in_an_id_stays_in_its_string() {
        let odd = "a\",\"run_id\":\"other\\ \r\nx: y ä€𝄞\x7f";
        let billing = billing(&Billing {
            end_user: Some("acc-1".into()),
            attempt: 2,
            session_id: Some(odd.into()),
            ..Billing::default()
        });
        let text = billing.metadata.to_str().unwrap();
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(read, serde_json::json!({"run_id": "0123456789abcdef", "attempt": 2, "session_id": odd}));
        let broken = Billing { end_user: Some("a\r\nb: c".into()), ..Billing::default() };
        assert!(BillingHeaders::new(&broken, run()).is_none());
    }

    #[test]
    fn each_kind_sees_the_key_where_it_looks() {
        let key = Secret::new(b"sk-real".to_vec());
        for (kind, name, value) in [
            (UpstreamKind::LiteLlm, "authorization", "Bearer sk-real"),
            (UpstreamKind::OpenAi, "authorization", "Bearer sk-real"),
            (UpstreamKind::Anthropic, "x-api-key", "sk-real"),
            (UpstreamKind::Gemini, "x-goog-api-key", "sk-real"),
        ] {
            let mut headers = HeaderMap::new();
            show_key(&mut headers, kind, &key).unwrap();
            assert_eq!((headers.len(), text(&headers, name)), (1, Some(value)));
            assert!(!format!("{headers:?}").contains("sk-real"));
        }
        let broken = Secret::new(b"sk\nx: y".to_vec());
        assert!(show_key(&mut HeaderMap::new(), UpstreamKind::OpenAi, &broken).is_none());
    }

    #[test]
    fn only_json_is_read_as_json() {
        for (kind, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json; charset=utf-16", false),
            ("text/plain", false),
            ("multipart/form-data; boundary=x", false),
        ] {
            assert_eq!(is_json(&map(&[("content-type", kind)])), expected, "{kind}");
        }
        assert!(is_json(&HeaderMap::new()));
        assert!(!is_json(&map(&[("content-type", "application/json"), ("content-type", "text/plain")])));
        assert!(
            is_plain(&map(&[("content-encoding", "identity")]))
                && !is_plain(&map(&[("content-encoding", "gzip")]))
        );
    }

    #[test]
    fn what_belongs_to_the_upstream_stays_outside() {
        let upstream = map(&[
            ("content-type", "application/json"),
            ("set-cookie", "a=b"),
            ("x-litellm-model-api-base", "http://inside"),
            ("x-litellm-call-id", "c"),
            ("request-id", "r"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("llm_provider-x", "y"),
            ("alt-svc", "h3"),
        ]);
        let mut names: Vec<String> = incoming(&upstream).keys().map(ToString::to_string).collect();
        names.sort();
        assert_eq!(names, ["content-type", "request-id", "x-litellm-call-id"]);
    }
}

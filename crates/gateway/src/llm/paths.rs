//! Which requests are for a model. The target has to be one of these letter by letter; whatever can be read in another
//! way (a percent sign, a dot segment, a second slash, a host) is none of them.

use belljar_spec::llm::UpstreamKind;
use hyper::{Method, Uri};

/// Whose way of speaking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Anthropic,
    /// Chat completions, and lists of models.
    Chat,
    Responses,
    Embeddings,
    Gemini,
}

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiCall {
    pub(crate) api: Api,
    /// As it is said upstream, below its base.
    pub(crate) path: String,
    /// What of the query goes along.
    pub(crate) query: Option<String>,
    /// Which model, where the path says so.
    pub(crate) model: Option<String>,
    pub(crate) purpose: Purpose,
    /// A stream, where the path says so.
    pub(crate) streams: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The model works, and is paid.
    Call,
    /// Tokens are counted; free.
    Count,
    /// Models are listed; free, and there is no body.
    List,
}

/// What a request wants of an upstream of this kind, if it is something that the route serves.
pub(crate) fn understand(kind: UpstreamKind, method: &Method, target: &Uri) -> Option<ApiCall> {
    if target.scheme().is_some() || target.authority().is_some() {
        return None;
    }
    let path = target.path();
    let api_call = match *method {
        Method::POST => gemini(path).or_else(|| fixed(path)),
        Method::GET => list(kind, path),
        _ => None,
    }?;
    let query = match target.query() {
        Some(query) => passed_on(query)?,
        None => None,
    };
    serves(kind, &api_call).then_some(ApiCall { query, ..api_call })
}

/// The paths with the usual name. Clients omit `/v1` when it is not in the base URL that they were given.
fn fixed(path: &str) -> Option<ApiCall> {
    let (api, purpose) = match path.strip_prefix("/v1").unwrap_or(path) {
        "/messages" => (Api::Anthropic, Purpose::Call),
        "/messages/count_tokens" => (Api::Anthropic, Purpose::Count),
        "/chat/completions" => (Api::Chat, Purpose::Call),
        "/responses" => (Api::Responses, Purpose::Call),
        "/embeddings" => (Api::Embeddings, Purpose::Call),
        _ => return None,
    };
    Some(plain(api, purpose, path.strip_prefix("/v1").unwrap_or(path)))
}

fn list(kind: UpstreamKind, path: &str) -> Option<ApiCall> {
    match (kind, path) {
        (UpstreamKind::Gemini, "/v1beta/models" | "/v1/models" | "/models") => {
            Some(ApiCall { path: "/v1beta/models".into(), ..plain(Api::Gemini, Purpose::List, "") })
        }
        (UpstreamKind::Anthropic, "/v1/models" | "/models") => {
            Some(plain(Api::Anthropic, Purpose::List, "/models"))
        }
        (UpstreamKind::LiteLlm | UpstreamKind::OpenAi, "/v1/models" | "/models") => {
            Some(plain(Api::Chat, Purpose::List, "/models"))
        }
        _ => None,
    }
}

fn plain(api: Api, purpose: Purpose, below: &str) -> ApiCall {
    ApiCall { api, path: format!("/v1{below}"), query: None, model: None, purpose, streams: false }
}

/// `/v1beta/models/MODEL:generateContent` and its siblings.
fn gemini(path: &str) -> Option<ApiCall> {
    let (version, rest) =
        ["v1beta", "v1"].into_iter().find_map(|v| Some((v, path.strip_prefix('/')?.strip_prefix(v)?)))?;
    let (model, verb) = rest.strip_prefix("/models/")?.split_once(':')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if model.is_empty() || model.starts_with('.') || !model.bytes().all(fits) {
        return None;
    }
    let (purpose, streams) = match verb {
        "generateContent" => (Purpose::Call, false),
        "streamGenerateContent" => (Purpose::Call, true),
        "countTokens" => (Purpose::Count, false),
        _ => return None,
    };
    let path = format!("/{version}/models/{model}:{verb}");
    let model = Some(model.to_string());
    Some(ApiCall { path, model, streams, ..plain(Api::Gemini, purpose, "") })
}

fn serves(kind: UpstreamKind, api_call: &ApiCall) -> bool {
    match (kind, api_call.api) {
        (UpstreamKind::LiteLlm, _) => true,
        (UpstreamKind::Anthropic, api) => api == Api::Anthropic,
        (UpstreamKind::OpenAi, api) => matches!(api, Api::Chat | Api::Responses | Api::Embeddings),
        (UpstreamKind::Gemini, api) => api == Api::Gemini,
    }
}

/// What of a query goes along: words that are known, with plain values. Keys are left out, since ours is shown in a
/// header. `None` if there is anything else.
fn passed_on(query: &str) -> Option<Option<String>> {
    let plain = |value: &str| {
        value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    let mut parameters = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if KEYS.contains(&name) {
            continue;
        }
        if !WORDS.contains(&name) || !plain(value) {
            return None;
        }
        parameters.push(part);
    }
    Some((!parameters.is_empty()).then(|| parameters.join("&")))
}

/// Where an upstream's base ends and the path begins. Most are named without a version; OpenAI's way is to name it with one.
pub(crate) fn on_upstream(kind: UpstreamKind, base: &str, api_call: &ApiCall) -> String {
    let path = match kind {
        UpstreamKind::OpenAi if !base.is_empty() => {
            format!("{base}{}", api_call.path.strip_prefix("/v1").unwrap_or(&api_call.path))
        }
        _ => {
            let base = base.strip_suffix("/v1beta").or_else(|| base.strip_suffix("/v1")).unwrap_or(base);
            format!("{base}{}", api_call.path)
        }
    };
    match &api_call.query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

/// What clients ask for in a query. `beta` is Anthropic's, `alt` Google's; the others turn the pages of lists.
const WORDS: [&str; 10] = [
    "beta",
    "alt",
    "api-version",
    "limit",
    "order",
    "after",
    "after_id",
    "before_id",
    "pageSize",
    "pageToken",
];
/// Where some clients show their key.
const KEYS: [&str; 4] = ["key", "api_key", "api-key", "access_token"];

#[cfg(test)]
mod tests {
    use super::*;

    fn path(kind: UpstreamKind, method: Method, target: &str) -> Option<String> {
        let api_call = understand(kind, &method, &target.parse().ok()?)?;
        Some(on_upstream(kind, "", &api_call))
    }

    #[test]
    fn the_usual_paths_are_served() {
        use UpstreamKind::{Anthropic, Gemini, LiteLlm, OpenAi};
        for (kind, target, expected) in [
            (Anthropic, "/v1/messages", Some("/v1/messages")),
            (Anthropic, "/messages", Some("/v1/messages")),
            (Anthropic, "/v1/messages?beta=true", Some("/v1/messages?beta=true")),
            (Anthropic, "/v1/messages/count_tokens", Some("/v1/messages/count_tokens")),
            (Anthropic, "/v1/chat/completions", None),
            (OpenAi, "/v1/chat/completions", Some("/v1/chat/completions")),
            (OpenAi, "/chat/completions", Some("/v1/chat/completions")),
            (OpenAi, "/v1/responses", Some("/v1/responses")),
            (OpenAi, "/v1/embeddings", Some("/v1/embeddings")),
            (OpenAi, "/v1/messages", None),
            (LiteLlm, "/v1/messages", Some("/v1/messages")),
            (LiteLlm, "/v1/responses", Some("/v1/responses")),
            (
                Gemini,
                "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse&key=AIza",
                Some("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
            ),
            (Gemini, "/v1/models/g:countTokens", Some("/v1/models/g:countTokens")),
            (Gemini, "/v1/messages", None),
        ] {
            assert_eq!(path(kind, Method::POST, target).as_deref(), expected, "{kind} {target}");
        }
        assert_eq!(
            path(Anthropic, Method::GET, "/v1/models?limit=20").as_deref(),
            Some("/v1/models?limit=20")
        );
        assert_eq!(path(Gemini, Method::GET, "/v1beta/models").as_deref(), Some("/v1beta/models"));
    }

    #[test]
    fn whatever_can_be_read_in_two_ways_is_not_served() {
        for target in [
            "/v1/messages/",
            "//v1/messages",
            "/v1//messages",
            "/v1/./messages",
            "/v1/x/../messages",
            "/v1/messages%2f",
            "/v1/%6dessages",
            "/V1/messages",
            "/v1/messages;x",
            "/v1/messages?x=1",
            "/v1/messages?beta=%74rue",
            "/v1/messages?beta=true&user=x",
            "http://evil.test/v1/messages",
            "/v1/v1/messages",
            "/v1/messages/batches",
            "/v1/files",
            "/key/generate",
            "/spend/logs",
            "/",
            "*",
            "/v1beta/models/a/b:generateContent",
            "/v1beta/models/..:generateContent",
            "/v1beta/models/a%2fb:generateContent",
            "/v1beta/models/a:generateContent:x",
            "/v1beta/models/:generateContent",
            "/v1beta/models/a:batchGenerateContent",
            "/v1/models",
        ] {
            assert_eq!(path(UpstreamKind::LiteLlm, Method::POST, target), None, "{target}");
        }
        for method in
            [Method::GET, Method::PUT, Method::CONNECT, Method::DELETE, Method::OPTIONS, Method::HEAD]
        {
            assert_eq!(path(UpstreamKind::LiteLlm, method, "/v1/messages"), None);
        }
    }

    #[test]
    fn a_base_is_named_as_people_name_it() {
        let parsed = |target: &str| {
            understand(UpstreamKind::LiteLlm, &Method::POST, &target.parse().unwrap()).unwrap()
        };
        for (kind, base, target, expected) in [
            (UpstreamKind::OpenAi, "/v1", "/v1/chat/completions", "/v1/chat/completions"),
            (UpstreamKind::OpenAi, "/api/v1", "/v1/chat/completions", "/api/v1/chat/completions"),
            (UpstreamKind::OpenAi, "/v1beta/openai", "/chat/completions", "/v1beta/openai/chat/completions"),
            (UpstreamKind::Anthropic, "/v1", "/v1/messages", "/v1/messages"),
            (UpstreamKind::LiteLlm, "/proxy", "/v1/messages", "/proxy/v1/messages"),
            (UpstreamKind::Gemini, "/v1beta", "/v1beta/models/g:countTokens", "/v1beta/models/g:countTokens"),
        ] {
            assert_eq!(on_upstream(kind, base, &parsed(target)), expected);
        }
    }
}

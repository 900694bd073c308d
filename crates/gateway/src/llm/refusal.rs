//! What a program is told when its call does not leave: in the shape of its provider's own errors, with a status that
//! makes the usual clients stop. They try 401 and 429 again for minutes; at 400 all of them stop at once.

use super::paths::Api;
use crate::http::Illegible;
use belljar_spec::egress::Reason;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::io;

/// A body of an answer.
pub(super) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// A call that did not leave, or whose answer did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: Reason,
    pub(super) status: StatusCode,
    /// For readers of the audit log.
    pub(super) detail: String,
    /// The detail names the upstream, or what is wrong on the way there: not for a program inside.
    is_hidden: bool,
    /// For the program, behind the sentence of the reason.
    pub(super) remedy: &'static str,
}

impl Refused {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Refused {
        let (status, remedy) = match reason {
            Reason::BudgetSpent => (
                StatusCode::BAD_REQUEST,
                "The user who started the sandbox can allow more with --llm-budget.",
            ),
            Reason::PriceUnknown => (
                StatusCode::BAD_REQUEST,
                "The user who started the sandbox can set the price in [llm.price], or omit `usd` from the budget.",
            ),
            Reason::ModelNotAllowed => (
                StatusCode::BAD_REQUEST,
                "The user who started the sandbox decides with --llm-model, or `models` in [llm].",
            ),
            Reason::DialFailed | Reason::TooSlow => (StatusCode::BAD_GATEWAY, ""),
            _ => (StatusCode::BAD_REQUEST, ""),
        };
        Refused { reason, status, detail: detail.into(), is_hidden: false, remedy }
    }

    /// With a detail that stays on the host.
    pub(super) fn for_the_record(self) -> Refused {
        Refused { is_hidden: true, ..self }
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Refused {
        Refused { status, ..self }
    }

    pub(super) fn response(&self, api: Api) -> Response<Body> {
        let text = self.body(api).to_string();
        let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status != StatusCode::BAD_GATEWAY {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }

    fn body(&self, api: Api) -> Value {
        let sentence = match self.reason {
            Reason::RequestNotAllowed => "this is not a request for the model",
            reason => reason.sentence(),
        };
        let gone = self.status == StatusCode::BAD_GATEWAY;
        let mut message = format!("belljar: {sentence}");
        if !self.is_hidden && !self.detail.is_empty() && (gone || !looks_busy(&self.detail)) {
            message.push_str(&format!(": {}", self.detail));
        }
        if !self.remedy.is_empty() {
            message.push_str(&format!(". {}", self.remedy));
        }
        match api {
            Api::Anthropic => {
                let kind = if gone { "api_error" } else { "invalid_request_error" };
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
            Api::Gemini => {
                let status = if gone { "UNAVAILABLE" } else { "INVALID_ARGUMENT" };
                json!({ "error": { "code": self.status.as_u16(), "message": message, "status": status } })
            }
            Api::Chat | Api::Responses | Api::Embeddings => {
                let kind = if gone { "server_error" } else { "invalid_request_error" };
                let code = self.reason.code();
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
        }
    }
}

/// Whether a text would be taken for the words of a server that has no time now. opencode looks for these digits in every
/// error, whatever its status, and asks again for more than a minute: `500000 tokens` is enough.
fn looks_busy(text: &str) -> bool {
    ["429", "500", "502", "503", "504", "524"].iter().any(|digits| text.contains(digits))
}

/// What of an upstream's answer is not passed on. A key that it does not take is nothing that a program inside could
/// mend, and the usual clients try 401 again for minutes.
pub(super) fn acceptable(status: StatusCode, illegible: Option<Illegible>) -> Result<(), Refused> {
    if status == StatusCode::UNAUTHORIZED {
        let what = "the upstream does not take the key that it is shown (401); see --llm-key";
        return Err(Refused::new(Reason::SecretUnavailable, what));
    }
    if status.is_redirection() || status.is_informational() {
        return Err(Refused::new(
            Reason::RequestNotAllowed,
            format!("the upstream leads elsewhere ({status})"),
        ));
    }
    if let Some(why) = illegible {
        return Err(Refused::new(Reason::EncodedResponse, why.to_string()));
    }
    Ok(())
}

/// What is not for the model. Codex tries a web socket first, and continues with HTTP at once when it is told to.
pub(super) fn elsewhere(request: &Request<Incoming>) -> Refused {
    let refused = Refused::new(Reason::RequestNotAllowed, "no such path here");
    match request.headers().contains_key(UPGRADE) {
        true => refused.with_status(StatusCode::UPGRADE_REQUIRED),
        false => refused,
    }
}

/// The SDKs of Anthropic and OpenAI heed it.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_looks_like_the_providers_own() {
        let refused = Refused::new(Reason::BudgetSpent, "2 of 2 calls are used");
        let body = refused.body(Api::Anthropic);
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
        let body = refused.body(Api::Responses);
        assert_eq!(body["error"]["code"], "budget_spent");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("2 of 2 calls are used") && message.contains("--llm-budget"), "{message}");
        assert_eq!(refused.body(Api::Gemini)["error"]["status"], "INVALID_ARGUMENT");
        let response = refused.response(Api::Chat);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x-should-retry"]),
            (400, &HeaderValue::from_static("false"))
        );
        let gone = Refused::new(Reason::DialFailed, "x").response(Api::Chat);
        assert_eq!((gone.status().as_u16(), gone.headers().get("x-should-retry")), (502, None));
    }

    #[test]
    fn a_refusal_is_not_taken_for_a_busy_server() {
        for detail in [
            "500000 of 500000 tokens are used",
            "1429 of 1000 calls are used",
            "`gpt-5024` is not among them",
        ] {
            let body = Refused::new(Reason::BudgetSpent, detail).body(Api::Chat).to_string();
            assert!(!looks_busy(&body) && body.contains("--llm-budget"), "{body}");
        }
        // One that is gone may be asked again.
        let gone = Refused::new(Reason::DialFailed, "it answered 503").body(Api::Chat).to_string();
        assert!(gone.contains("503"), "{gone}");
    }
}

//! What goes wrong with a service, as an error that a person can act on.

use crate::address::Addresses;
use crate::http::Failure;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Deserialize;

/// There is no answer.
pub(crate) fn unanswered(addresses: &Addresses, doing: &str, failure: &Failure) -> SandboxError {
    let code = match failure {
        Failure::Unreachable(_) => ErrorCode::BackendUnavailable,
        Failure::Broken(_) | Failure::Late | Failure::Invalid(_) => ErrorCode::StartFailed,
    };
    code.error(format!("could not {doing}: the E2B-compatible service at `{addresses}` {failure}")).hint(
        "see that it runs and that its address is right: `[e2b]` in your belljar.toml, or E2B_API_URL, E2B_SANDBOX_URL and E2B_DOMAIN",
    )
}

/// The service said no.
pub(crate) fn refused(addresses: &Addresses, doing: &str, status: StatusCode, body: &Bytes) -> SandboxError {
    let detail = message(body).unwrap_or_else(|| status.to_string());
    let message = format!("the E2B-compatible service at `{addresses}` did not {doing}: {detail}");
    match status {
        StatusCode::UNAUTHORIZED => ErrorCode::CredentialMissing.error(message).hint(hint!(
            "its API key is not accepted: store a valid one ({}), or name another below [e2b]",
            CommandLine::SecretsSet.of(KEY_NAME)
        )),
        StatusCode::FORBIDDEN => ErrorCode::NotGranted
            .error(message)
            .hint("the owner of the service can allow it; on a belljar it is a ceiling of the key's grant"),
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::TooManyRequests.error(message).hint("try again later"),
        StatusCode::NOT_FOUND => ErrorCode::SandboxNotFound
            .error(message)
            .hint("see that the template exists there, and that the sandbox was not ended by others"),
        StatusCode::NOT_IMPLEMENTED => {
            ErrorCode::NotSupported.error(message).hint("omit what the message names")
        }
        status if status.is_client_error() => {
            ErrorCode::RequestValue.error(message).hint("omit what the message names, or use another backend")
        }
        _ => ErrorCode::StartFailed.error(message).hint("try again; the log of the service says more"),
    }
}

/// The service said something that it should not.
pub(crate) fn strange(addresses: &Addresses, doing: &str, why: &str) -> SandboxError {
    unanswered(addresses, doing, &Failure::Invalid(why.into()))
}

/// What an error's body says, for a person: one line, and not endless.
pub(crate) fn message(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct ErrorBody {
        message: String,
    }
    let detail: ErrorBody = serde_json::from_slice(body).ok()?;
    Some(visible(&detail.message))
}

/// Foreign text without control characters, of a bounded length.
pub(crate) fn visible(text: &str) -> String {
    text.chars().take(MAX_MESSAGE_CHARS).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// The secret that a key is looked for in, where no other is named.
pub(crate) const KEY_NAME: &str = "E2B_API_KEY";
const MAX_MESSAGE_CHARS: usize = 400;

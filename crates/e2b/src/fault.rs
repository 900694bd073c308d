//! Errors over plain HTTP. The body is always JSON, and its `code` is the status: the clients read both.

use crate::connect::said;
use belljar_api::client::ClientError;
use belljar_spec::ErrorCode;
use hyper::StatusCode;
use serde_json::json;

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// When to ask again, in seconds.
    pub(crate) retry_after: Option<u32>,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into(), retry_after: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::CONFLICT, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// What belljar does not do, by its name.
    pub(crate) fn not_served(what: &str) -> Fault {
        let message = format!("belljar does not serve {what}; docs/e2b.md lists what it serves");
        Fault::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        json!({ "code": self.status.as_u16(), "message": self.message }).to_string().into_bytes()
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Fault {
        let status = match (error.code(), error.status()) {
            (ErrorCode::DiskFull, _) => StatusCode::INSUFFICIENT_STORAGE,
            (ErrorCode::PermissionDenied, _) => StatusCode::FORBIDDEN,
            // What the protocol has one status for.
            (_, Some(422)) => StatusCode::BAD_REQUEST,
            (_, Some(410)) => StatusCode::NOT_FOUND,
            (_, Some(status)) => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            (_, None) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let retry_after = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
        Fault { status, message: said(&error), retry_after }
    }
}

//! Errors of a call: a code from the protocol's list, and a sentence.

use belljar_api::client::ClientError;
use belljar_spec::ErrorCode;
use hyper::StatusCode;
use serde_json::{Value, json};

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// Those of the protocol's codes that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl RpcError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> RpcError {
        RpcError::new(Code::InvalidArgument, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> RpcError {
        RpcError::new(Code::NotFound, message)
    }

    pub(crate) fn body(&self) -> Value {
        json!({ "code": self.code.as_str(), "message": self.message })
    }
}

impl Code {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Code::InvalidArgument => "invalid_argument",
            Code::DeadlineExceeded => "deadline_exceeded",
            Code::NotFound => "not_found",
            Code::AlreadyExists => "already_exists",
            Code::PermissionDenied => "permission_denied",
            Code::ResourceExhausted => "resource_exhausted",
            Code::FailedPrecondition => "failed_precondition",
            Code::Unimplemented => "unimplemented",
            Code::Internal => "internal",
            Code::Unavailable => "unavailable",
            Code::Unauthenticated => "unauthenticated",
        }
    }

    /// The status of a unary answer with this code, as the protocol has it.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists => StatusCode::CONFLICT,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

impl From<ClientError> for RpcError {
    fn from(error: ClientError) -> RpcError {
        let code = match (error.code(), error.status()) {
            (ErrorCode::NotFound, _) | (_, Some(404 | 410)) => Code::NotFound,
            (ErrorCode::FileOperation | ErrorCode::PathInvalid, _) => Code::InvalidArgument,
            (ErrorCode::PermissionDenied, _) => Code::PermissionDenied,
            (_, Some(400 | 422)) => Code::InvalidArgument,
            (_, Some(401)) => Code::Unauthenticated,
            (_, Some(403)) => Code::PermissionDenied,
            (_, Some(429)) => Code::ResourceExhausted,
            (_, Some(409)) => Code::FailedPrecondition,
            (_, Some(500..)) => Code::Internal,
            (_, _) => Code::Unavailable,
        };
        RpcError::new(code, said(&error))
    }
}

/// What happened and what to do next, in one sentence.
pub(crate) fn said(error: &ClientError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

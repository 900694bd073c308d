//! What comes with a request, understood or refused in belljar's own words.

use super::failure::Failure;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use belljar_spec::{ErrorCode, SandboxError};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A body of JSON.
pub(crate) struct Body<T>(pub(crate) T);

/// What stands behind the `?`.
pub(crate) struct QueryParams<T>(pub(crate) T);

/// Which part of a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<String>,
}

impl Part {
    /// How many; a hundred where nothing is said.
    pub(crate) fn limit(&self) -> Result<usize, SandboxError> {
        match self.limit {
            None => Ok(USUAL_PART),
            Some(limit @ 1..=MAX_PART) => Ok(limit),
            Some(_) => Err(invalid(format!("`limit` must be from 1 to {MAX_PART}"))),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Failure> {
        let bytes = axum::body::Bytes::from_request(request, state)
            .await
            .map_err(|rejection| too_long(&rejection))?;
        Ok(Body(belljar_api::read(&bytes)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<QueryParams<T>, Failure> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(QueryParams(query)),
            Err(error) => {
                Err(invalid(format!("the query is not what it should be: {}", error.body_text())).into())
            }
        }
    }
}

/// A request that makes no sense.
pub(crate) fn invalid(message: impl Into<String>) -> SandboxError {
    ErrorCode::RequestInvalid.error(message)
}

fn too_long(rejection: &BytesRejection) -> Failure {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let message = format!("the body is longer than {} MiB", MAX_BODY_BYTES >> 20);
        return ErrorCode::BodyTooLarge
            .error(message)
            .hint("send standard input with `stdin_open`, and files with PUT")
            .into();
    }
    invalid("the body did not come whole").into()
}

/// The longest body, but for files and standard input that comes later.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;
const USUAL_PART: usize = 100;
const MAX_PART: usize = 1000;

//! What comes with a request, understood or refused in belljar's own words.

use crate::answer::{Refusal, invalid};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use belljar_api::Page;
use belljar_spec::{ErrorCode, SandboxError};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use utoipa::IntoParams;

/// A body of JSON; none at all is an empty object.
pub(super) struct Body<T>(pub(super) T);

/// What stands behind the `?`.
pub(super) struct QueryParams<T>(pub(super) T);

/// A part of the path.
pub(super) struct Named(pub(super) String);

/// Which part of a list.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(super) limit: Option<usize>,
    /// What comes behind this, which is `next` of the part before.
    pub(super) after: Option<String>,
}

impl Part {
    /// The part of a list that is in order of what `name` gives.
    pub(super) fn of<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>, SandboxError> {
        let limit = self.limit()?;
        let after = self.after.as_deref();
        let mut rest = all.into_iter().filter(|one| after.is_none_or(|after| name(one).as_str() > after));
        let items: Vec<T> = rest.by_ref().take(limit).collect();
        let next = rest.next().and_then(|_| items.last().map(&name));
        Ok(Page { items, next })
    }

    pub(super) fn limit(&self) -> Result<usize, SandboxError> {
        match self.limit {
            None => Ok(USUAL_PART),
            Some(limit @ 1..=MAX_PART) => Ok(limit),
            Some(_) => Err(invalid(format!("`limit` must be from 1 to {MAX_PART}"))),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Body<T>, Refusal> {
        let whole = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
        let body = match tokio::time::timeout(TO_COME, whole).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let message = format!("the body is longer than {} MiB", MAX_BODY_BYTES >> 20);
                return Err(ErrorCode::BodyTooLarge.error(message).into());
            }
            Ok(Err(_)) => return Err(invalid("the body did not come whole").into()),
            Err(_) => return Err(invalid("the body did not come in time").into()),
        };
        let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
        Ok(Body(belljar_api::read(body)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<QueryParams<T>, Refusal> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(QueryParams(query)),
            Err(error) => {
                Err(invalid(format!("the query is not what it should be: {}", error.body_text())).into())
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, Refusal> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params
            .map_err(|error| invalid(format!("the path is not what it should be: {}", error.body_text())))?;
        let first = params.iter().next().map(|(_, value)| value.to_string());
        Ok(Named(first.unwrap_or_default()))
    }
}

/// The longest body, but for what goes through to a sandbox.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;
const USUAL_PART: usize = 100;
const MAX_PART: usize = 1000;
/// A client that takes longer than this for a body does not want an answer.
const TO_COME: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_in_parts() {
        let all = ["a", "b", "c", "d", "e"];
        let mut part = Part { limit: Some(2), after: None };
        let mut seen = Vec::new();
        loop {
            let page = part.of(all, |one| one.to_string()).unwrap();
            seen.extend(page.items);
            match page.next {
                Some(next) => part.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, all);
        assert!(Part { limit: Some(0), after: None }.limit().is_err());
        assert!(Part { limit: Some(1001), after: None }.limit().is_err());
    }
}

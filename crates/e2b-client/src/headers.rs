//! The headers that hold the API key of a service and the tokens of a sandbox: the one place where their values leave the type that
//! hides them.

use crate::rpc::ENVD_PORT;
use belljar_vault::Secret;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};

/// Those of a request to the control API.
pub(crate) fn of_key(key: &Secret) -> Result<HeaderMap, InvalidHeaderValue> {
    let mut headers = HeaderMap::new();
    headers.insert(API_KEY, secret(key)?);
    Ok(headers)
}

/// Those of a request to the data plane of a sandbox.
pub(crate) fn of_sandbox(id: &str, token: Option<&Secret>) -> Result<HeaderMap, InvalidHeaderValue> {
    let mut headers = HeaderMap::new();
    headers.insert(SANDBOX_ID, HeaderValue::from_str(id)?);
    headers.insert(SANDBOX_PORT, HeaderValue::from(ENVD_PORT));
    if let Some(token) = token {
        headers.insert(ACCESS_TOKEN, secret(token)?);
    }
    Ok(headers)
}

/// Is not printed with the others.
fn secret(value: &Secret) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut header = HeaderValue::from_bytes(value.reveal())?;
    header.set_sensitive(true);
    Ok(header)
}

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");

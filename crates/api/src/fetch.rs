//! Requests that belljar makes for a sandbox from outside of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An HTTP request that is held to the sandbox's egress policy, as one from inside is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fetch {
    /// `http://` or `https://`.
    pub url: String,
    /// `GET` if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// The body, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The same in base64, for bytes that are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Redirects that are followed, each held to the policy; 10 if omitted. With 0 a redirect is the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 50)]
    pub max_redirects: Option<u32>,
    /// The largest body of the answer, in bytes; 10 MiB if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16777216)]
    pub max_bytes: Option<u64>,
    /// The time limit, redirects included; 30 if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 600)]
    pub timeout_s: Option<u64>,
}

/// A header of a request or of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub name: String,
    /// In an answer with U+FFFD for bytes that are not valid UTF-8.
    pub value: String,
}

/// The answer of a server, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fetched {
    /// The address that answered, after redirects.
    pub url: String,
    pub status: u16,
    pub headers: Vec<Header>,
    /// The body, if it is text: UTF-8 without control characters other than tabs and ends of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Any other body, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

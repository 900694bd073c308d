//! Requests that belljar makes for a sandbox from outside of it.

use std::time::Duration;

/// A request that belljar makes for a sandbox from outside of it, held to the sandbox's egress policy.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    pub url: String,
    /// `GET` and the like.
    pub method: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Followed, and each judged anew; 0 gives a redirect back as it is. To another origin go no header but `Accept`,
    /// `Accept-Language` and `User-Agent`, and no body: a redirect that would take it there is given back too.
    pub max_redirects: u32,
    /// Bytes of the response's body.
    pub max_bytes: u64,
    /// For all of it, redirects included.
    pub timeout: Duration,
    /// PEM certificates to trust beside the system's.
    pub trust: Vec<u8>,
}

impl FetchRequest {
    /// A GET with the usual limits.
    pub fn get(url: impl Into<String>) -> FetchRequest {
        FetchRequest {
            url: url.into(),
            method: "GET".into(),
            headers: Vec::new(),
            body: Vec::new(),
            max_redirects: 10,
            max_bytes: 10 * 1024 * 1024,
            timeout: Duration::from_secs(30),
            trust: Vec::new(),
        }
    }
}

/// The answer to a [`FetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// The address that answered, after redirects.
    pub url: String,
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

//! The control API: sandboxes are made, found, kept alive, paused and ended. Every call waits for its answer, on a runtime of the
//! service's own: backends block.

use crate::address::Addresses;
use crate::error::{KEY_NAME, refused, strange, unanswered};
use crate::headers;
use crate::http::{Call, Http};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_vault::Secret;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// A service, and the key to it.
pub struct Service {
    pub(crate) shared: Arc<Shared>,
    /// Always there, until it is dropped.
    runtime: Option<Runtime>,
}

pub(crate) struct Shared {
    pub(crate) addresses: Addresses,
    pub(crate) http: Http,
    /// With the key.
    headers: HeaderMap,
}

/// A sandbox to make.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSandbox {
    #[serde(rename = "templateID")]
    pub template: String,
    #[serde(flatten)]
    pub lifetime: Lifetime,
    /// By which it is found again.
    pub metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    pub network: Network,
}

/// How long it lives without being heard of, and what becomes of it then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifetime {
    /// Seconds.
    pub timeout: u64,
    /// It is paused, and not removed.
    pub auto_pause: bool,
    /// With its processes.
    pub auto_pause_memory: bool,
}

/// What it may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    #[serde(rename = "allow_internet_access")]
    pub allow_internet_access: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRules>,
}

impl Network {
    /// Nothing at all.
    pub fn nothing() -> Network {
        Network { allow_internet_access: false, network: Some(NetworkRules::default()) }
    }
}

/// Rules beside that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRules {
    pub allow_out: Vec<String>,
    pub deny_out: Vec<String>,
    /// Whether its ports are reached without a token.
    pub allow_public_traffic: bool,
}

/// A sandbox that was made, or found again.
#[derive(Clone)]
pub struct RemoteSandbox {
    pub(crate) id: String,
    pub(crate) token: Option<Secret>,
    pub(crate) domain: Option<String>,
}

impl RemoteSandbox {
    /// Its name in the service.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// A sandbox in a list.
#[derive(Debug, Clone, Deserialize)]
pub struct Listed {
    #[serde(rename = "sandboxID")]
    pub id: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

impl Service {
    /// A service at these addresses. Nothing is sent yet.
    pub fn new(addresses: Addresses, key: &Secret) -> Result<Service, SandboxError> {
        let headers = headers::of_key(key).map_err(|_| {
            ErrorCode::CredentialMissing
                .error("the API key of the E2B-compatible service cannot be sent: it is not one line of text")
                .hint(hint!("store it again: {}", CommandLine::SecretsSet.of(KEY_NAME)))
        })?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("belljar-e2b")
            .enable_all()
            .build()
            .map_err(|error| {
                ErrorCode::StartFailed.error(format!("cannot wait for answers: {error}")).caused_by(error)
            })?;
        let shared = Arc::new(Shared { addresses, http: Http::default(), headers });
        Ok(Service { shared, runtime: Some(runtime) })
    }

    /// Whether it answers, and takes the key.
    pub fn check(&self) -> Result<(), SandboxError> {
        let shared = Arc::clone(&self.shared);
        self.wait_within(CHECK_TIMEOUT, async move {
            shared.expect("list sandboxes", Method::GET, "/v2/sandboxes?limit=1", None).await.map(drop)
        })
    }

    /// Makes a sandbox. The same `word` makes the same one, if an answer was lost.
    pub fn create(&self, new: &NewSandbox, word: &str) -> Result<RemoteSandbox, SandboxError> {
        let shared = Arc::clone(&self.shared);
        let body = json!(new);
        let word = word.to_string();
        self.wait(async move {
            let doing = "make a sandbox";
            let answer = shared.call(doing, Method::POST, "/v2/sandboxes", Some(&body), Some(&word)).await?;
            shared.made(doing, &answer)
        })
    }

    /// The sandboxes with these metadata, running or paused; newest first.
    pub fn find(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<Listed>, SandboxError> {
        let shared = Arc::clone(&self.shared);
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs: Vec<String> =
            metadata.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        // A form within a parameter: encoded twice.
        let target =
            format!("/v2/sandboxes?state=running,paused&limit=100&metadata={}", encode(&pairs.join("&")));
        self.wait(async move {
            let doing = "list sandboxes";
            let answer = shared.expect(doing, Method::GET, &target, None).await?;
            serde_json::from_slice(&answer)
                .map_err(|error| strange(&shared.addresses, doing, &error.to_string()))
        })
    }

    /// Finds a sandbox again, and resumes it if it is paused. It lives at least as long from now on.
    pub fn connect(&self, id: &str, timeout_s: u64) -> Result<RemoteSandbox, SandboxError> {
        let shared = Arc::clone(&self.shared);
        let id = id.to_string();
        self.wait(async move { shared.connect(&id, timeout_s).await })
    }

    /// Ends a sandbox. One that is gone is fine.
    pub fn kill(&self, id: &str) -> Result<(), SandboxError> {
        let shared = Arc::clone(&self.shared);
        let target = format!("/sandboxes/{id}");
        self.wait_within(LAST_CALL_TIMEOUT, async move {
            shared.unless("end a sandbox", Method::DELETE, &target, None, StatusCode::NOT_FOUND).await
        })
    }

    /// Stops a sandbox; its files are kept. One that is paused is fine.
    pub fn stop(&self, id: &str) -> Result<(), SandboxError> {
        let shared = Arc::clone(&self.shared);
        let id = id.to_string();
        self.wait_within(LAST_CALL_TIMEOUT, async move { shared.pause(&id, false).await })
    }

    /// Where it is: by this a note of a sandbox says whose it is.
    pub fn name(&self) -> String {
        self.shared.addresses.to_string()
    }

    /// Where work for sandboxes is done beside the caller.
    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("only `drop` takes the runtime").handle()
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        self.wait_within(CALL_TIMEOUT, work)
    }

    /// Blocks this thread, which may be one of another runtime, and not for ever.
    pub(crate) fn wait_within<T: Send + 'static>(
        &self,
        time_limit: Duration,
        work: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let (tell, answer) = mpsc::sync_channel(1);
        self.handle().spawn(async move {
            // A caller that no longer waits has its error already.
            let _ = tell.send(work.await);
        });
        answer.recv_timeout(time_limit).unwrap_or_else(|_| {
            let message =
                format!("the E2B-compatible service at `{}` does not answer", self.shared.addresses);
            Err(ErrorCode::StartFailed.error(message).hint("see that it runs, and try again"))
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A sandbox may be dropped in a task of another runtime, where this one must not wait for its own tasks.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Has a sandbox live for this long from now on. `false`: there is no such sandbox.
    pub(crate) async fn keep_alive(&self, id: &str, timeout_s: u64) -> Result<bool, SandboxError> {
        let target = format!("/sandboxes/{id}/timeout");
        let (status, body) = self
            .send("keep a sandbox alive", Method::POST, &target, Some(&json!({ "timeout": timeout_s })), None)
            .await?;
        match status {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            status => Err(refused(&self.addresses, "keep a sandbox alive", status, &body)),
        }
    }

    /// Whether it exists: running or paused.
    pub(crate) async fn exists(&self, id: &str) -> Result<bool, SandboxError> {
        let doing = "look at a sandbox";
        let (status, body) = self.send(doing, Method::GET, &format!("/sandboxes/{id}"), None, None).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            status => Err(refused(&self.addresses, doing, status, &body)),
        }
    }

    pub(crate) async fn connect(&self, id: &str, timeout_s: u64) -> Result<RemoteSandbox, SandboxError> {
        let doing = "resume a sandbox";
        let target = format!("/v2/sandboxes/{id}/connect");
        let answer =
            self.expect(doing, Method::POST, &target, Some(&json!({ "timeout": timeout_s }))).await?;
        self.made(doing, &answer)
    }

    pub(crate) async fn pause(&self, id: &str, memory: bool) -> Result<(), SandboxError> {
        let target = format!("/sandboxes/{id}/pause");
        let body = json!({ "memory": memory });
        self.unless("pause a sandbox", Method::POST, &target, Some(&body), StatusCode::CONFLICT).await
    }

    fn made(&self, doing: &str, answer: &[u8]) -> Result<RemoteSandbox, SandboxError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Made {
            #[serde(rename = "sandboxID")]
            id: String,
            envd_access_token: Option<String>,
            domain: Option<String>,
        }
        let made: Made = serde_json::from_slice(answer)
            .map_err(|error| strange(&self.addresses, doing, &error.to_string()))?;
        // It becomes part of paths and names.
        if made.id.is_empty()
            || made.id.len() > 64
            || !made.id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            return Err(strange(&self.addresses, doing, "the sandbox has no valid id"));
        }
        let token = made.envd_access_token.map(|token| Secret::from_text(&token));
        Ok(RemoteSandbox { id: made.id, token, domain: made.domain.filter(|domain| !domain.is_empty()) })
    }

    async fn expect(
        &self,
        doing: &str,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, SandboxError> {
        self.call(doing, method, target, body, None).await
    }

    /// The same, where this status means that it was done before.
    async fn unless(
        &self,
        doing: &str,
        method: Method,
        target: &str,
        body: Option<&Value>,
        done: StatusCode,
    ) -> Result<(), SandboxError> {
        match self.send(doing, method, target, body, None).await? {
            (status, _) if status.is_success() || status == done => Ok(()),
            (status, body) => Err(refused(&self.addresses, doing, status, &body)),
        }
    }

    async fn call(
        &self,
        doing: &str,
        method: Method,
        target: &str,
        body: Option<&Value>,
        word: Option<&str>,
    ) -> Result<Bytes, SandboxError> {
        match self.send(doing, method, target, body, word).await? {
            (status, body) if status.is_success() => Ok(body),
            (status, body) => Err(refused(&self.addresses, doing, status, &body)),
        }
    }

    async fn send(
        &self,
        doing: &str,
        method: Method,
        target: &str,
        body: Option<&Value>,
        word: Option<&str>,
    ) -> Result<(StatusCode, Bytes), SandboxError> {
        let mut headers = self.headers.clone();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(word) = word.and_then(|word| HeaderValue::from_str(word).ok()) {
            headers.insert(IDEMPOTENCY_KEY, word);
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let call = Call { method, target: target.into(), headers, body };
        let answer = self.http.whole(&self.addresses.api, &call).await;
        answer.map_err(|failure| unanswered(&self.addresses, doing, &failure))
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// All backends are asked together.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than any answer is waited for.
const CALL_TIMEOUT: Duration = Duration::from_secs(180);
/// At the end of a sandbox: what takes longer is left to its time to live.
const LAST_CALL_TIMEOUT: Duration = Duration::from_secs(15);

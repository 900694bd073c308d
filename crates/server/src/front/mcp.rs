//! `/v1/mcp`: the MCP server over HTTP, for agents on other machines and for clients with a grant. A session has a conversation of its own
//! (`belljar_mcp`), which asks this daemon's own API in the name of the caller: a grant allows no more than it does there.
//!
//! Of the transport "Streamable HTTP" it is the part in which each request has one answer: there is no stream that a client could listen
//! to, because the server asks for nothing.

use super::Front;
use super::extract::QueryParams;
use super::gate::Asking;
use crate::answer::{Answer, invalid};
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, Response, StatusCode};
use axum::response::IntoResponse;
use belljar_api::CreateSandbox;
use belljar_api::client::Client;
use belljar_mcp::{Conversation, LEASE, Server, opening};
use belljar_spec::request::HostPath;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::new_id;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The sessions of all callers.
#[derive(Default)]
pub(super) struct Sessions {
    all: Mutex<HashMap<String, Session>>,
}

struct Session {
    /// Who began it, and alone may use it.
    caller: String,
    server: Arc<Server>,
    used: Instant,
}

/// Which sandbox a session has. Without a key and a folder it is one of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Which {
    key: Option<String>,
    folder: Option<String>,
    profile: Option<String>,
}

/// One message of a client.
pub(super) async fn post(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    QueryParams(which): QueryParams<Which>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response<Body>> {
    asking.caller.may_have_sandboxes()?;
    let body = to_bytes(body, MAX_MESSAGE_BYTES)
        .await
        .map_err(|_| invalid(format!("a message has at most {MAX_MESSAGE_BYTES} bytes")))?;
    let caller = asking.caller.id();
    let (server, new) = match session_of(&headers) {
        Some(id) => (front.mcp.find(id, caller)?, None),
        None if begins(&body) => {
            let server = Arc::new(Server::new(front.conversation(&asking, which)?));
            let id = new_id()?.to_string();
            front.mcp.add(id.clone(), caller, &server)?;
            (server, Some(id))
        }
        None => {
            let error = ErrorCode::RequestInvalid.error("the message belongs to no session");
            return Err(error
                .hint("begin with `initialize`, and send its `mcp-session-id` with each message")
                .into());
        }
    };
    let answer = match server.answer(&body).await {
        Some(answer) => ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    };
    Ok(match new {
        Some(id) => ([(SESSION, id)], answer).into_response(),
        None => answer,
    })
}

/// The end of a session. Its sandbox is let go of.
pub(super) async fn end(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let id = session_of(&headers).ok_or_else(|| invalid("`mcp-session-id` says which session"))?;
    let server = front.mcp.find(id, asking.caller.id())?;
    front.mcp.locked().remove(id);
    server.cancel_all();
    server.conversation().release().await;
    Ok(StatusCode::NO_CONTENT)
}

fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION).and_then(|id| id.to_str().ok())
}

fn begins(message: &[u8]) -> bool {
    let message: Option<Value> = serde_json::from_slice(message).ok();
    message.is_some_and(|message| message["method"] == "initialize")
}

impl Front {
    fn conversation(&self, asking: &Asking, which: Which) -> Result<Conversation, SandboxError> {
        let Some(own) = &self.own else {
            return Err(ErrorCode::NotSupported.error("this daemon does not serve MCP clients"));
        };
        let client: Client = match asking.caller.is_owner() {
            true => own.clone(),
            false => own.clone().for_grant(asking.caller.id()),
        };
        let Which { key, folder, profile } = which;
        let mut request =
            CreateSandbox { key, profile, lease_s: Some(LEASE.as_secs()), ..CreateSandbox::default() };
        request.sandbox.workspace.folder = folder
            .map(|folder| HostPath::try_from(std::path::PathBuf::from(folder)))
            .transpose()
            .map_err(|error| invalid(format!("`folder`: {error}")))?;
        Ok(Conversation::new(opening(client, request), |error| error.hint.as_ref().map(ToString::to_string)))
    }
}

impl Sessions {
    fn add(&self, id: String, caller: &str, server: &Arc<Server>) -> Result<(), SandboxError> {
        let mut all = self.locked();
        // Their leases ended long before.
        all.retain(|_, session| session.used.elapsed() < FORGOTTEN);
        if all.values().filter(|session| session.caller == caller).count() >= MAX_SESSIONS {
            return Err(ErrorCode::QuotaExceeded
                .error(format!("the caller has {MAX_SESSIONS} MCP sessions"))
                .hint(
                    "end some of them with `DELETE`, or wait: one that is not used for an hour is forgotten",
                ));
        }
        let session = Session { caller: caller.into(), server: Arc::clone(server), used: Instant::now() };
        all.insert(id, session);
        Ok(())
    }

    /// One of another caller is not there.
    fn find(&self, id: &str, caller: &str) -> Result<Arc<Server>, SandboxError> {
        let mut all = self.locked();
        let found = all.get_mut(id).filter(|session| session.caller == caller);
        let session = found.ok_or_else(|| {
            ErrorCode::NotFound
                .error("there is no such MCP session")
                .hint("begin a new one with `initialize`")
        })?;
        session.used = Instant::now();
        Ok(Arc::clone(&session.server))
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Of one caller.
const MAX_SESSIONS: usize = 64;
const FORGOTTEN: Duration = Duration::from_secs(3600);

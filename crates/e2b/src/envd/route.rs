//! Which call of the data plane a request is, and whether it may: the sandbox's access token opens everything, a signature one file.

use super::{files, filesystem, paths, process, rpc};
use crate::book::Entry;
use crate::connect::{Code, RpcError, said};
use crate::facts::{Facts, now_ms};
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Body, Query, header, json, nothing, refused, set};
use crate::server::{ACCESS_TOKEN, E2b};
use crate::signature::Signed;
use base64::prelude::{BASE64_STANDARD, Engine};
use belljar_api::State;
use belljar_api::client::{ClientError, Sandbox};
use belljar_spec::ErrorCode;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::sync::Arc;

/// The sandbox that a request is for.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) e2b: Arc<E2b>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) sandbox: Sandbox,
    /// Its user, and where paths begin.
    pub(crate) user: String,
    pub(crate) home: String,
    /// Where commands start and relative paths begin.
    start: String,
}

impl Context {
    pub(crate) fn of(e2b: &Arc<E2b>, entry: &Arc<Entry>) -> Context {
        let facts = entry.facts();
        let home = format!("/home/{USER}");
        Context {
            e2b: Arc::clone(e2b),
            sandbox: e2b.sandbox(&facts),
            entry: Arc::clone(entry),
            user: USER.into(),
            start: facts.begin.workdir.unwrap_or_else(|| home.clone()),
            home,
        }
    }

    /// A path inside, as a client says it.
    pub(crate) fn absolute(&self, path: &str) -> String {
        paths::absolute(path, &self.home, &self.start)
    }

    /// An error of the daemon, as a call tells it. A sandbox that is gone there is gone here.
    pub(crate) fn failed(&self, error: ClientError) -> RpcError {
        if error.code() == ErrorCode::SandboxNotFound {
            return RpcError::new(Code::Unavailable, self.e2b.lost(&self.entry, error).message);
        }
        error.into()
    }

    /// The same over plain HTTP.
    pub(crate) fn fault(&self, error: ClientError) -> Fault {
        match error.code() {
            ErrorCode::SandboxNotFound => self.e2b.lost(&self.entry, error),
            ErrorCode::SandboxNotAlive => Fault::new(StatusCode::BAD_GATEWAY, said(&error)),
            _ => error.into(),
        }
    }

    /// Commands and files are one user's. Another one that a request names is refused by its name.
    pub(crate) fn must_be_user<B>(&self, request: &Request<B>) -> Result<(), RpcError> {
        let Some(header) = header(request, "authorization") else { return Ok(()) };
        let (scheme, encoded) = header.split_once(' ').unwrap_or((header, ""));
        let decoded = scheme
            .eq_ignore_ascii_case("basic")
            .then(|| BASE64_STANDARD.decode(encoded.trim()).ok())
            .flatten();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let text =
            decoded.ok_or_else(|| RpcError::new(Code::Unauthenticated, "`Authorization` names no user"))?;
        let name = text.split(':').next().unwrap_or_default();
        self.must_be_named(name).map_err(|message| RpcError::new(Code::Unauthenticated, message))
    }

    fn must_be_named(&self, name: &str) -> Result<(), String> {
        if name.is_empty() || name == self.user {
            return Ok(());
        }
        Err(format!("invalid username: '{name}': everything in this sandbox is done as `{}`", self.user))
    }
}

/// Answers a request to the data plane of a sandbox.
pub(crate) async fn answer(e2b: &Arc<E2b>, entry: &Arc<Entry>, request: Request<Incoming>) -> Response<Body> {
    let mut response = match request.method() {
        &Method::OPTIONS => preflight(&request),
        _ => routed(e2b, entry, request).await,
    };
    set(&mut response, "access-control-allow-origin", "*");
    set(&mut response, "access-control-expose-headers", "*");
    response
}

async fn routed(e2b: &Arc<E2b>, entry: &Arc<Entry>, request: Request<Incoming>) -> Response<Body> {
    let context = Context::of(e2b, entry);
    let path = request.uri().path().to_string();
    if path == "/health" {
        return health(&context).await;
    }
    let call = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let is_open = has_token(e2b, &entry.facts(), &request);
    match (call, is_open) {
        (Some((PROCESS | FILESYSTEM, _)), false) => {
            rpc::answer(Err(RpcError::new(Code::Unauthenticated, NO_TOKEN)))
        }
        (Some((PROCESS, method)), true) if is_post(&request) => {
            let method = method.to_string();
            process::answer(context, &method, request).await
        }
        (Some((FILESYSTEM, method)), true) if is_post(&request) => {
            let method = method.to_string();
            filesystem::answer(context, &method, request).await
        }
        _ if path == "/files" => {
            let answer = match is_open {
                true => Ok(()),
                false => signed(&request, &e2b.tokens.access(&entry.facts().bearer())),
            };
            told(match answer {
                Ok(()) => files_of(&context, request).await,
                Err(fault) => Err(fault),
            })
        }
        _ if !is_open => refused(&Fault::unauthorized(NO_TOKEN)),
        _ => told(match (request.method(), path.as_str()) {
            (&Method::GET, "/envs") => Ok(json(StatusCode::OK, &json!({}))),
            (&Method::GET, "/metrics") => crate::metrics::now(e2b, &entry.facts()).await,
            _ => Err(Fault::not_found("there is nothing at this path")),
        }),
    }
}

fn has_token<B>(e2b: &E2b, facts: &Facts, request: &Request<B>) -> bool {
    header(request, ACCESS_TOKEN).is_some_and(|token| e2b.opens(facts, token))
}

/// Whether a request would open something here: such a one wakes a sandbox that is paused.
pub(crate) fn is_open<B>(e2b: &E2b, facts: &Facts, request: &Request<B>) -> bool {
    let is_signed =
        || request.uri().path() == "/files" && signed(request, &e2b.tokens.access(&facts.bearer())).is_ok();
    has_token(e2b, facts, request) || is_signed()
}

fn is_post(request: &Request<Incoming>) -> bool {
    request.method() == Method::POST
}

/// Files of the sandbox whose token made the signature: the address names none.
pub(crate) async fn files_by_signature(e2b: &Arc<E2b>, request: Request<Incoming>) -> Response<Body> {
    if request.method() == Method::OPTIONS {
        return preflight(&request);
    }
    let query = Query::of(request.uri().query());
    let found = signature(&query, request.method()).and_then(|signed| {
        e2b.book.there().into_iter().find(|entry| signed.is_by(&e2b.tokens.access(&entry.facts().bearer())))
    });
    match found {
        Some(entry) if !entry.facts().is_paused() => answer(e2b, &entry, request).await,
        Some(entry) => refused(&crate::ports::not_there(&entry.facts().id)),
        None => refused(&Fault::unauthorized("invalid signature")),
    }
}

fn signed<B>(request: &Request<B>, token: &str) -> Result<(), Fault> {
    let query = Query::of(request.uri().query());
    let signed = signature(&query, request.method()).ok_or_else(|| Fault::unauthorized(NO_TOKEN))?;
    signed.judge(token, now_ms() / 1000)
}

fn signature<'q>(query: &'q Query, method: &Method) -> Option<Signed<'q>> {
    Some(Signed {
        path: query.get("path").unwrap_or_default(),
        operation: if method == Method::GET || method == Method::HEAD { "read" } else { "write" },
        user: query.get("username").unwrap_or_default(),
        signature: query.get("signature")?,
        expires: query.get("signature_expiration"),
    })
}

async fn files_of(context: &Context, request: Request<Incoming>) -> Answer {
    let query = Query::of(request.uri().query());
    context.must_be_named(query.get("username").unwrap_or_default()).map_err(Fault::unauthorized)?;
    match *request.method() {
        Method::GET => files::read(context, request).await,
        Method::POST => files::write(context, request).await,
        _ => Err(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "files are read by GET and written by POST")),
    }
}

async fn health(context: &Context) -> Response<Body> {
    match context.sandbox.info().await {
        Ok(info) if info.state == State::Live => nothing(StatusCode::NO_CONTENT),
        Ok(_) => refused_with_id(context),
        Err(error) if error.status() == Some(404) => {
            let _ = context.e2b.lost(&context.entry, error);
            refused_with_id(context)
        }
        Err(error) => refused(&error.into()),
    }
}

fn refused_with_id(context: &Context) -> Response<Body> {
    crate::ports::told_as_gone(&context.entry.facts().id)
}

fn told(answer: Answer) -> Response<Body> {
    answer.unwrap_or_else(|fault| refused(&fault))
}

/// Pages of any origin may ask: what opens a sandbox is its token, which no browser sends by itself.
fn preflight(request: &Request<Incoming>) -> Response<Body> {
    let mut response = nothing(StatusCode::NO_CONTENT);
    set(&mut response, "access-control-allow-origin", "*");
    set(&mut response, "access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
    let asked = header(request, "access-control-request-headers").unwrap_or("*").to_string();
    set(&mut response, "access-control-allow-headers", &asked);
    set(&mut response, "access-control-max-age", "7200");
    response
}

/// Who works in a sandbox.
pub(crate) const USER: &str = "user";
const PROCESS: &str = "process.Process";
const FILESYSTEM: &str = "filesystem.Filesystem";
const NO_TOKEN: &str = "the access token of the sandbox is missing or wrong";

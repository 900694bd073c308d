//! The way to one shim.

use super::life::{self, Ending, Life};
use super::pool::{LinkError, Passing, Pool};
use crate::shim::Contact;
use axum::body::Body;
use belljar_api::SHIM_TOKEN_HEADER;
use belljar_fleet::snapshots::{SnapshotOrder, SnapshotReport};
use belljar_fleet::{Alive, Future, Shim, Status, Stop};
use belljar_spec::{ErrorCode, SandboxError};
use http_body_util::BodyExt;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Leads to one shim, in one life of its sandbox.
#[derive(Debug)]
pub struct Line {
    contact: Contact,
    pool: Arc<Pool>,
    life: Life,
    /// Until a task watches the process.
    ending: Mutex<Option<Ending>>,
}

impl Line {
    pub(super) fn new(contact: Contact) -> Line {
        let (life, ending) = Life::new();
        let pool = Arc::new(Pool::new(contact.address.clone()));
        Line { contact, pool, life, ending: Mutex::new(Some(ending)) }
    }

    /// Asks whether it answers to its token, and from now on knows when it ends.
    pub(super) async fn watch(&self) -> Result<(), SandboxError> {
        let stream = self.pool.dial().await.map_err(|error| LinkError::Gone(error).to_error())?;
        let process = life::process_of(&stream);
        self.status().await?;
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner).take();
        match process {
            Ok(process) => {
                _ = tokio::spawn(async move {
                    life::ended(process).await;
                    drop(ending);
                })
            }
            // In another namespace of processes: an answer that never ends is the next best thing.
            Err(_) => {
                let answer = self.ask(Method::GET, "/keeper/life", Body::empty()).await?;
                tokio::spawn(async move {
                    let _ = answer.into_body().collect().await;
                    drop(ending);
                });
            }
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.contact.pid
    }

    /// Does this when the shim has ended.
    pub(super) fn at_its_end(&self, act: impl FnOnce() + Send + 'static) {
        let life = self.life.clone();
        tokio::spawn(async move {
            life.over().await;
            act();
        });
    }

    /// Passes a request on, as it is but for its address and what proves that it comes from the daemon.
    pub async fn pass(&self, mut request: Request<Body>) -> Result<Response<Passing>, LinkError> {
        if self.life.is_over() {
            return Err(LinkError::Gone(io::ErrorKind::ConnectionRefused.into()));
        }
        let token = HeaderValue::from_str(&self.contact.token)
            .map_err(|error| LinkError::Gone(io::Error::other(error)))?;
        request.headers_mut().insert(SHIM_TOKEN_HEADER, token);
        request.headers_mut().insert(HOST, HeaderValue::from_static("keeper"));
        tokio::select! {
            biased;
            answer = self.pool.send(request) => answer,
            // A connection that was never accepted shows no end.
            () = self.life.over() => Err(LinkError::Gone(io::ErrorKind::ConnectionReset.into())),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Body) -> Result<Response<Passing>, SandboxError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("paths of a shim are written in this file");
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = self.pass(request).await.map_err(|error| error.to_error())?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(refused(answer).await),
        }
    }

    async fn tell(&self, path: &str, body: Body) -> Result<(), SandboxError> {
        let to_error = async {
            let answer = self.ask(Method::POST, path, body).await?;
            // Read to its end, so that the connection can be used again.
            let _ = answer.into_body().collect().await;
            Ok(())
        };
        within(to_error).await
    }
}

impl Shim for Line {
    fn alive(&self) -> &Alive {
        &self.contact.alive
    }

    fn status(&self) -> Future<'_, Result<Status, SandboxError>> {
        Box::pin(within(async {
            let answer = self.ask(Method::GET, "/keeper/status", Body::empty()).await?;
            let body =
                answer.into_body().collect().await.map_err(|error| LinkError::Broken(error).to_error())?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| {
                ErrorCode::Internal
                    .error(format!("the sandbox's shim was not understood: {error}"))
                    .caused_by(error)
            })
        }))
    }

    fn pause(&self) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(self.tell("/keeper/pause", Body::empty()))
    }

    fn resume(&self) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(self.tell("/keeper/resume", Body::empty()))
    }

    fn snapshot<'a>(&'a self, order: &'a SnapshotOrder) -> Future<'a, Result<SnapshotReport, SandboxError>> {
        // How long that takes depends on what is copied: the fleet has a limit for it.
        Box::pin(async move {
            let body = serde_json::to_vec(order).expect("plain data can be written as JSON");
            let answer = self.ask(Method::POST, "/keeper/snapshot", Body::from(body)).await?;
            let body =
                answer.into_body().collect().await.map_err(|error| LinkError::Broken(error).to_error())?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| {
                ErrorCode::Internal
                    .error(format!("the sandbox's shim was not understood: {error}"))
                    .caused_by(error)
            })
        })
    }

    fn stop(&self, how: Stop) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            let body = serde_json::json!({ "how": how }).to_string();
            match self.tell("/keeper/stop", Body::from(body)).await {
                Ok(()) => {}
                // It may be quicker than its answer.
                Err(error) if error.code == ErrorCode::SandboxNotAlive => {}
                Err(error) => return Err(error),
            }
            match tokio::time::timeout(TO_END, self.life.over()).await {
                Ok(()) => Ok(()),
                Err(_) => Err(silent("did not end")),
            }
        })
    }

    fn gone(&self) -> Future<'_, ()> {
        Box::pin(self.life.over())
    }
}

async fn within<T>(
    work: impl std::future::Future<Output = Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    tokio::time::timeout(TO_ANSWER, work).await.unwrap_or_else(|_| Err(silent("does not answer")))
}

fn silent(what: &str) -> SandboxError {
    ErrorCode::DaemonUnreachable
        .error(format!("the sandbox's shim {what}"))
        .hint("`keeper.log` in the sandbox's directory may say why")
}

/// What a shim said instead.
async fn refused(answer: Response<Passing>) -> SandboxError {
    let status = answer.status();
    let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    match serde_json::from_slice::<belljar_api::ErrorBody>(&body) {
        Ok(body) => body.error.into(),
        Err(_) => ErrorCode::Internal.error(format!("the sandbox's shim answered {status}")),
    }
}

/// A shim answers these in a millisecond. One that is stopped by a debugger must not stop the daemon.
const TO_ANSWER: Duration = Duration::from_secs(10);
/// Containers and layers may take a while to go.
const TO_END: Duration = Duration::from_secs(60);

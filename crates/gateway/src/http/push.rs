//! A push on its way to a git host: kept in a file until it is judged, then sent, or answered as git answers.
//!
//! The answer to a refused push is receive-pack's own report, so that the reason stands where people look:
//! `! [remote rejected] main -> main (...)`. Nothing of such a push reaches the server.

use super::body::{Body, BodyError, SpooledBody, WholePacks, whole};
use super::legible::illegible;
use super::route::{Outgoing, Route, Search, Stop};
use crate::pushes::{Named, Pushes, Spool, named, spooled};
use crate::record::PushRefused;
use belljar_audit::Event;
use belljar_git::fetch::{self, Content};
use belljar_git::judge::{self, Questions};
use belljar_git::push::{Collect, Push, PushError, Update};
use belljar_git::report::Report;
use belljar_git::{ObjectId, PushRefusal, TakenPack};
use belljar_spec::egress::{Reason, Refusal};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT,
    HeaderName, HeaderValue, IF_MATCH, RANGE, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A request about a push, as the client wrote it.
pub(super) struct PushRequest {
    named: Named,
    /// Before a secret was put into it.
    head: Parts,
}

impl PushRequest {
    /// If it is one.
    pub(super) fn of(head: &Parts) -> Option<PushRequest> {
        match named(head) {
            Named::Nothing => None,
            named => Some(PushRequest { named, head: head.clone() }),
        }
    }

    /// The repository, as the path says it.
    fn repository(&self) -> &str {
        let path = self.head.uri.path();
        path.strip_suffix(RECEIVE_PACK).unwrap_or(path)
    }
}

/// A push as it came.
struct Taken {
    push: Push,
    /// All of it, from the first command on.
    file: File,
    length: u64,
    /// Where the pack begins.
    pack: u64,
}

/// Why a push does not continue.
enum No {
    /// Judged, ref by ref.
    Judged(Push, Vec<Result<(), PushRefusal>>),
    Stop(Stop),
}

impl Route {
    /// Whatever it is about a push.
    pub(super) async fn push(
        &self,
        pushes: &Pushes,
        request: PushRequest,
        mut head: Parts,
        outgoing: Outgoing,
        search: Option<Search>,
        upgrade: OnUpgrade,
    ) -> Result<Response<Body>, Stop> {
        match request.named {
            Named::Nothing => self.pass_on(head, outgoing, search, upgrade).await,
            Named::Unclear(why) => Err(self.no_push(&request, why)),
            Named::Discovery => {
                head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
                head.headers.remove(RANGE);
                Ok(with_whole_packs(self.pass_on(head, outgoing, search, upgrade).await?))
            }
            Named::Push => match self.judged(pushes, &request, outgoing).await {
                Ok(taken) => {
                    for header in [TRANSFER_ENCODING, EXPECT, IF_MATCH] {
                        head.headers.remove(header);
                    }
                    head.headers.insert(CONTENT_LENGTH, taken.length.into());
                    let body = SpooledBody::new(spooled(taken.file), taken.length).boxed_unsync();
                    self.pass_on(head, Outgoing { body, verdict: None }, search, upgrade).await
                }
                Err(No::Stop(stop)) => Err(stop),
                Err(No::Judged(push, verdicts)) => self.report(&request, &push, &verdicts),
            },
        }
    }

    /// Takes all of a push, and judges it; what comes back may be sent.
    async fn judged(&self, pushes: &Pushes, request: &PushRequest, outgoing: Outgoing) -> Result<Taken, No> {
        let unclear = |why: &str| No::Stop(self.no_push(request, why));
        if request.head.headers.contains_key(CONTENT_ENCODING) {
            return Err(unclear("a compressed push cannot be judged"));
        }
        let Ok(_room) = pushes.room.acquire().await else { return Err(unclear("the sandbox is gone")) };
        let mut taken = self.take(pushes, request, outgoing).await?;
        let push = &taken.push;
        let has_pack = taken.length > taken.pack;
        if push.brings_pack() != has_pack {
            return Err(unclear("its pack does not match its commands"));
        }
        let mut questions = Vec::new();
        for update in &push.updates {
            questions.push(judge::by_name(&pushes.policy, update).expect("judged by name while it came"));
        }
        if has_pack {
            let objects = announced_objects(&mut taken.file, taken.pack);
            let most = pushes.policy.limits.objects;
            match objects {
                Some(objects) if objects <= most => {}
                Some(_) => return Err(refused_whole(taken.push, &PushRefusal::Objects { most })),
                None => {
                    let detail = "there is none".to_string();
                    return Err(refused_whole(taken.push, &PushRefusal::Pack { detail }));
                }
            }
        }
        if has_pack && questions.iter().any(|questions| questions.any()) {
            taken = self.by_facts(pushes, request, taken, &questions).await?;
        }
        taken.file.rewind().map_err(|error| broken(BodyError::Spool(error)))?;
        self.record_sent(request, &taken.push).map_err(No::Stop)?;
        Ok(taken)
    }

    /// Reads the body into a file. A push that its names forbid is not kept, only read to its end.
    async fn take(&self, pushes: &Pushes, request: &PushRequest, outgoing: Outgoing) -> Result<Taken, No> {
        let unclear = |error: &PushError| No::Stop(self.no_push(request, &error.to_string()));
        let Outgoing { mut body, verdict } = outgoing;
        let judge = Arc::clone(&pushes.judge);
        let spool = Spool::new(move || judge.spool());
        let most = pushes.policy.limits.bytes.as_u64();
        let mut collect = Some(Collect::default());
        let mut commands = None;
        let mut length = 0u64;
        loop {
            let frame = match timeout(PUSH_FRAME_TIMEOUT, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    return Err(match verdict.and_then(|verdict| verdict.get().cloned()) {
                        Some(refusal) => No::Stop(Stop::Refused(Box::new(refusal))),
                        None => broken(error),
                    });
                }
                Err(_) => return Err(No::Stop(self.no_push(request, "nothing of it came for too long"))),
            };
            // Trailers mean nothing to git.
            let Ok(data) = frame.into_data() else { continue };
            length += data.len() as u64;
            if let Some(mut collecting) = collect.take() {
                match collecting.feed(&data).map_err(|error| unclear(&error))? {
                    false => collect = Some(collecting),
                    true => {
                        let (push, rest) = collecting.finish().map_err(|error| unclear(&error))?;
                        let verdicts: Vec<_> = push
                            .updates
                            .iter()
                            .map(|update| judge::by_name(&pushes.policy, update).map(|_| ()))
                            .collect();
                        if verdicts.iter().any(Result::is_err) {
                            discard(body, most).await;
                            return Err(No::Judged(push, verdicts));
                        }
                        commands = Some((push, length - rest.len() as u64));
                    }
                }
            }
            if length > most {
                discard(body, most).await;
                let most = pushes.policy.limits.bytes;
                return Err(match commands {
                    Some((push, _)) => refused_whole(push, &PushRefusal::Bytes { most }),
                    None => No::Stop(self.no_push(request, "it has no end")),
                });
            }
            spool.write(data).await;
        }
        let Some((push, pack)) = commands else { return Err(unclear(&PushError::CutOff)) };
        match spool.finish().await {
            Ok(file) => Ok(Taken { push, file, length, pack }),
            Err(error) => {
                let detail = format!("the push cannot be kept: {error}");
                Err(refused_whole(push, &PushRefusal::Failed { detail }))
            }
        }
    }

    /// Looks into the pack, and asks the server for what the pack does not show.
    async fn by_facts(
        &self,
        pushes: &Pushes,
        request: &PushRequest,
        taken: Taken,
        questions: &[Questions],
    ) -> Result<Taken, No> {
        let Taken { push, mut file, length, pack } = taken;
        let at_pack = file.seek(SeekFrom::Start(pack)).and_then(|_| file.try_clone());
        let pack_file = at_pack.map_err(|error| broken(BodyError::Spool(error)))?;
        let (judge, format, limits) = (Arc::clone(&pushes.judge), push.format(), pushes.policy.limits);
        let opened = blocking(move || {
            let opened = judge.take(pack_file, format, limits)?;
            Ok((opened.needed_commits(), opened))
        });
        let (missing, mut opened) = match opened.await {
            Ok(opened) => opened,
            Err(refusal) => return Err(refused_whole(push, &refusal)),
        };
        if questions.iter().any(|questions| questions.keeps_workflows) && !missing.is_empty() {
            opened = match self.show(pushes, request, opened, &missing).await {
                Ok(opened) => opened,
                Err(refusal) => return Err(refused_whole(push, &refusal)),
            };
        }
        let moved = push.updates.iter().zip(questions).filter(|(_, questions)| questions.follows);
        for (update, _) in moved.take(MAX_HISTORIES) {
            opened = match self.trace(pushes, request, opened, update.clone()).await {
                Ok(opened) => opened,
                Err(refusal) => return Err(refused_whole(push, &refusal)),
            };
        }
        let (policy, updates) = (pushes.policy.clone(), push.updates.clone());
        let verdicts = blocking(move || {
            let verdict = |update| judge::by_facts(&policy, update, opened.facts(update));
            Ok(updates.iter().map(verdict).collect::<Vec<_>>())
        });
        let verdicts = match verdicts.await {
            Ok(verdicts) => verdicts,
            Err(refusal) => return Err(refused_whole(push, &refusal)),
        };
        match verdicts.iter().all(Result::is_ok) {
            true => Ok(Taken { push, file, length, pack }),
            false => Err(No::Judged(push, verdicts)),
        }
    }

    /// Adds what the server has of these commits; without it they stay unknown.
    async fn show(
        &self,
        pushes: &Pushes,
        request: &PushRequest,
        mut opened: Box<dyn TakenPack>,
        missing: &[ObjectId],
    ) -> Result<Box<dyn TakenPack>, PushRefusal> {
        if missing.len() > MAX_REQUESTED_OBJECTS {
            return Ok(opened);
        }
        for content in [Content::Trees, Content::Everything] {
            let Ok(Some(file)) = timeout(ASKING, self.ask(pushes, request, missing, content)).await else {
                continue;
            };
            opened = blocking(move || opened.add(file).map(|()| opened)).await?;
            break;
        }
        Ok(opened)
    }

    /// Adds the history that the server has between the old place of a branch and what the pack builds on.
    async fn trace(
        &self,
        pushes: &Pushes,
        request: &PushRequest,
        opened: Box<dyn TakenPack>,
        update: Update,
    ) -> Result<Box<dyn TakenPack>, PushRefusal> {
        let since = update.old.clone();
        let (origins, mut opened) = blocking(move || Ok((opened.origins(&update), opened))).await?;
        if origins.is_empty() || origins.len() > MAX_REQUESTED_OBJECTS {
            return Ok(opened);
        }
        let content = Content::History { since: &since };
        if let Ok(Some(file)) = timeout(ASKING, self.ask(pushes, request, &origins, content)).await {
            opened = blocking(move || opened.add(file).map(|()| opened)).await?;
        }
        Ok(opened)
    }

    /// Fetches commits from the repository that the push is for, as the client would.
    async fn ask(
        &self,
        pushes: &Pushes,
        request: &PushRequest,
        objects: &[ObjectId],
        content: Content<'_>,
    ) -> Option<File> {
        let mut head = request.head.clone();
        let path = format!("{}{UPLOAD_PACK}", request.repository());
        let mut parts = std::mem::take(&mut head.uri).into_parts();
        parts.path_and_query = Some(path.try_into().ok()?);
        head.uri = Uri::from_parts(parts).ok()?;
        head.method = Method::POST;
        let body = fetch::request(objects, content);
        for header in [TRANSFER_ENCODING, EXPECT, IF_MATCH, RANGE] {
            head.headers.remove(header);
        }
        for (name, value) in [
            (CONTENT_TYPE, "application/x-git-upload-pack-request"),
            (ACCEPT, "application/x-git-upload-pack-result"),
            (ACCEPT_ENCODING, "identity"),
            (GIT_PROTOCOL, "version=2"),
        ] {
            head.headers.insert(name, HeaderValue::from_static(value));
        }
        head.headers.insert(CONTENT_LENGTH, body.len().into());
        // The rules for requests and the credential's places hold for this one too.
        self.admit(&mut head).await.ok()?;
        let sent = self.send(Request::from_parts(head, whole(body))).await.ok()?;
        let response = sent.outcome.ok()?;
        if sent.sender.is_for_one() {
            sent.sender.keep(&mut *self.upstream.lock().await);
        }
        if response.status() != StatusCode::OK || illegible(response.headers()).is_some() {
            return None;
        }
        let judge = Arc::clone(&pushes.judge);
        let spool = Spool::new(move || judge.spool());
        let mut answer = fetch::Answer::new(MAX_SHOWN_BYTES);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.ok()?.into_data() {
                spool.write(Bytes::from(answer.feed(&data).ok()?)).await;
            }
        }
        answer.finish().ok()?;
        let mut file = spool.finish().await.ok()?;
        file.rewind().ok()?;
        Some(file)
    }

    /// git's own report, which git shows.
    fn report(
        &self,
        request: &PushRequest,
        push: &Push,
        verdicts: &[Result<(), PushRefusal>],
    ) -> Result<Response<Body>, Stop> {
        let mut report = Report::refused(push, verdicts);
        report.progress = format!("belljar refused this push; nothing of it was sent to {}\n", self.to.name);
        let first = verdicts.iter().find_map(|verdict| verdict.as_ref().err());
        let detail = first.map(ToString::to_string).unwrap_or_default();
        let refusal = self.to.refusal(Reason::PushRefused).request("POST", request.head.uri.path(), None);
        let refusal = refusal.detail(&detail);
        let bytes = report.bytes(push);
        if bytes.is_empty() {
            return Err(Stop::Refused(Box::new(refusal)));
        }
        let events = report.outcomes.iter().filter_map(|outcome| {
            let why = outcome.result.as_ref().err()?;
            Some(PushRefused {
                name: self.to.name.clone(),
                port: self.to.port,
                repository: request.repository().into(),
                reference: outcome.name.as_str().into(),
                reason: why.code(),
                detail: why.to_string().as_str().into(),
            })
        });
        self.serving.recorder.push_refused(&refusal, events.collect());
        let mut response = Response::new(whole(bytes));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-git-receive-pack-result"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(response)
    }

    /// What cannot be recorded is not let out.
    fn record_sent(&self, request: &PushRequest, push: &Push) -> Result<(), Stop> {
        for update in &push.updates {
            let event = Event::PushSent {
                name: self.to.name.clone(),
                port: self.to.port,
                repository: request.repository().into(),
                reference: update.name.as_str().into(),
                old: update.old.as_str().into(),
                new: update.new.as_str().into(),
            };
            let written = self.serving.recorder.write(&event);
            written.map_err(|_| Stop::Refused(Box::new(self.to.refusal(Reason::NotRecorded))))?;
        }
        Ok(())
    }

    /// A refusal of something that may be a push, and is none that git would send.
    fn no_push(&self, request: &PushRequest, why: &str) -> Stop {
        let (method, path) = (request.head.method.as_str(), request.head.uri.path());
        let refusal: Refusal = self.to.refusal(Reason::PushRefused).request(method, path, None);
        Stop::Refused(Box::new(refusal.detail(&format!("a push that cannot be judged: {why}"))))
    }
}

/// Every ref for the same reason.
fn refused_whole(push: Push, refusal: &PushRefusal) -> No {
    let verdicts = push.updates.iter().map(|_| Err(refusal.clone())).collect();
    No::Judged(push, verdicts)
}

fn broken(error: BodyError) -> No {
    No::Stop(Stop::Broken(error))
}

/// How many objects a pack says that it has (gitformat-pack(5)).
fn announced_objects(file: &mut File, at: u64) -> Option<u64> {
    let mut head = [0; 12];
    file.seek(SeekFrom::Start(at)).ok()?;
    file.read_exact(&mut head).ok()?;
    let (mark, count) = (head.first_chunk::<4>()?, head.last_chunk::<4>()?);
    (mark == b"PACK").then(|| u64::from(u32::from_be_bytes(*count)))
}

/// Reads what a refused client still sends, so that it comes to read the answer.
async fn discard(mut body: Body, most: u64) {
    let mut left = most.max(DISCARDED);
    while let Ok(Some(Ok(frame))) = timeout(PUSH_FRAME_TIMEOUT, body.frame()).await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
        if left == 0 {
            break;
        }
    }
}

/// Does something that takes a while, beside the event loop.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PushRefusal> + Send + 'static,
) -> Result<T, PushRefusal> {
    let gone = || PushRefusal::Failed { detail: "looking at it was interrupted".to_string() };
    spawn_blocking(work).await.unwrap_or_else(|_| Err(gone()))
}

/// The length is another one by now.
fn with_whole_packs(response: Response<Body>) -> Response<Body> {
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_list = kind == Some(b"application/x-git-receive-pack-advertisement");
    if response.status() != StatusCode::OK || !is_list || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, WholePacks::new(body).boxed_unsync())
}

const RECEIVE_PACK: &str = "/git-receive-pack";
const UPLOAD_PACK: &str = "/git-upload-pack";
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
/// Between two pieces of a push. git packs while it sends.
const PUSH_FRAME_TIMEOUT: Duration = Duration::from_secs(300);
/// A client whose push is too large still comes to read that, if it is not much larger.
const DISCARDED: u64 = 64 << 20;
/// For all that the server is asked.
const ASKING: Duration = Duration::from_secs(60);
/// Commits that a push builds on; honest ones have one or two.
const MAX_REQUESTED_OBJECTS: usize = 32;
/// Branches of one push that the server is asked about.
const MAX_HISTORIES: usize = 8;
/// Trees of some commits of the largest repositories, compressed.
const MAX_SHOWN_BYTES: usize = 256 << 20;

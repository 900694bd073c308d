//! One build, carried out by a Docker daemon: the files go to it as they are read, what it says comes back as it happens.
//!
//! Docker's own first builder is spoken to, which every daemon has. A build that is interrupted here ends there: the connection is what
//! holds it.

use super::context::Context;
use super::progress::{Event, Listener};
use belljar_docker::bollard::errors::Error;
use belljar_docker::bollard::query_parameters::{BuildImageOptions, CreateImageOptions};
use belljar_docker::bollard::{body_try_stream, models::ImageInspect};
use belljar_docker::{Daemon, is_missing, refused};
use belljar_spec::{CommandLine, ErrorCode, ImageName, SandboxError, hint};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// Receives the events of a build in progress.
pub type OnEvent<'t> = &'t mut (dyn FnMut(Event) + Send);

/// What is to be built, and how.
pub(super) struct Job<'j> {
    /// What it is called then, with its tag.
    pub(super) image: &'j str,
    /// Within the files.
    pub(super) dockerfile: &'j str,
    pub(super) files: Files<'j>,
    pub(super) arguments: BTreeMap<&'static str, String>,
    pub(super) labels: BTreeMap<&'static str, String>,
    pub(super) how: &'j How,
}

/// What an image is made from.
pub(super) enum Files<'f> {
    Folder(&'f Context),
    /// Names and what is in them.
    Given(&'f [(&'f str, &'f str)]),
}

/// How a build is done, whatever is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct How {
    /// The network of its steps, in Docker's words; without one, the daemon's default.
    pub network: Option<String>,
    /// Do every step anew.
    pub without_cache: bool,
    /// Ask registries whether they have a newer base of the same name.
    pub pull: bool,
}

/// How a build ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Built(Built),
    /// A step did not succeed, and there is no image.
    Failed(Failed),
}

/// An image that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// `sha256:…` as the daemon knows it.
    pub id: String,
    pub steps: u32,
    /// As many of them had been done before.
    pub cached: u32,
}

/// The step that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// 0 if it was none of the steps: a file that makes no sense.
    pub number: u32,
    pub of: u32,
    pub instruction: String,
    /// Why, in Docker's words.
    pub why: String,
    /// What it wrote, the end of it.
    pub output: String,
}

/// Builds it.
pub(super) fn build(daemon: &Daemon, job: &Job<'_>, on_event: OnEvent<'_>) -> Result<Ended, SandboxError> {
    let total = job.files.bytes();
    let sent = AtomicU64::new(0);
    let (pieces, arriving) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    let (written, outcome, listener) = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&job.files, pieces, &sent));
        let (outcome, listener) = hear(daemon, job, arriving, (&sent, total), on_event);
        (writer.join(), outcome, listener)
    });
    // Why the files ended early is known here; the daemon only heard that they did.
    if let Ok(Err(error)) = written
        && error.code != ErrorCode::StartFailed
    {
        return Err(error);
    }
    match outcome {
        Ok(()) => {
            let id = inspect(daemon, job.image)?.and_then(|image| image.id).unwrap_or_default();
            Ok(Ended::Built(Built { id, steps: listener.of, cached: listener.cached }))
        }
        Err(Error::DockerStreamError { error }) => Ok(Ended::Failed(failed(&listener, error))),
        // The file was not understood, before any step.
        Err(Error::DockerResponseServerError { status_code: BAD_REQUEST, message }) => {
            Ok(Ended::Failed(failed(&listener, message)))
        }
        Err(error) => Err(refused(&format!("build `{}`", job.image), &error)),
    }
}

/// What the daemon has under this name, if it has.
pub(super) fn inspect(daemon: &Daemon, image: &str) -> Result<Option<ImageInspect>, SandboxError> {
    match daemon.try_run(async |client| client.inspect_image(image).await) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(refused(&format!("look at the image `{image}`"), &error)),
    }
}

/// Sees to it that the daemon has an image. One that is there is not asked for, unless `always`.
pub(super) fn ensure(
    daemon: &Daemon,
    image: &ImageName,
    always: bool,
    on_event: OnEvent<'_>,
) -> Result<(), SandboxError> {
    let name = image.to_string();
    if !always && inspect(daemon, &name)?.is_some() {
        return Ok(());
    }
    let options = CreateImageOptions { from_image: Some(name.clone()), ..CreateImageOptions::default() };
    on_event(Event::Pulling { image: name.clone(), status: String::new() });
    let pulled = daemon.try_follow(async |client| {
        let mut answers = client.create_image(Some(options), None, None);
        while let Some(answer) = answers.next().await {
            let answer = answer?;
            if let Some(why) = answer.error_detail.and_then(|detail| detail.message) {
                return Err(Error::DockerStreamError { error: why });
            }
            let layer = answer.id.unwrap_or_default();
            let status = format!("{layer} {}", answer.status.unwrap_or_default());
            on_event(Event::Pulling { image: name.clone(), status: status.trim().to_string() });
        }
        Ok(())
    });
    pulled.map_err(|error| {
        let why = refused(&format!("pull `{name}`"), &error).message;
        ErrorCode::ImageMissing.error(why).hint(hint!(
            "name a mirror with {}, an image that is here with {}, or `docker pull` it where that \
                 takes a login",
            CommandLine::BuildPullFrom,
            CommandLine::BuildFrom
        ))
    })
}

type Arriving = mpsc::Receiver<io::Result<Bytes>>;

fn hear(
    daemon: &Daemon,
    job: &Job<'_>,
    arriving: Arriving,
    (sent, total): (&AtomicU64, u64),
    on_event: OnEvent<'_>,
) -> (Result<(), Error>, Listener) {
    let mut listener = Listener::default();
    let outcome = daemon.try_follow(async |client| {
        let files = stream::unfold(arriving, async |mut from| from.recv().await.map(|piece| (piece, from)));
        let mut answers =
            std::pin::pin!(client.build_image(job.options(), None, Some(body_try_stream(files))));
        let mut tick = tokio::time::interval(OFTEN);
        let mut is_sending = total > 0;
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                _ = tick.tick(), if is_sending => {
                    on_event(Event::Sent { bytes: sent.load(Ordering::Relaxed), of: total });
                    continue;
                }
            };
            if std::mem::take(&mut is_sending) {
                on_event(Event::Sent { bytes: sent.load(Ordering::Relaxed), of: total });
            }
            let Some(answer) = answer.transpose()? else { return Ok(()) };
            if let Some(why) = answer.error_detail.and_then(|detail| detail.message) {
                return Err(Error::DockerStreamError { error: why });
            }
            if let Some(text) = answer.stream {
                listener.hear(&text, on_event);
            }
        }
    });
    (outcome, listener)
}

impl Job<'_> {
    fn options(&self) -> BuildImageOptions {
        let owned = |map: &BTreeMap<&'static str, String>| -> HashMap<String, String> {
            map.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
        };
        BuildImageOptions {
            dockerfile: self.dockerfile.into(),
            t: Some(self.image.into()),
            nocache: self.how.without_cache,
            // A step that failed leaves no container behind either.
            rm: true,
            forcerm: true,
            buildargs: Some(owned(&self.arguments)),
            labels: Some(owned(&self.labels)),
            networkmode: self.how.network.clone(),
            ..BuildImageOptions::default()
        }
    }
}

impl Files<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Files::Folder(context) => context.bytes(),
            Files::Given(_) => 0,
        }
    }
}

fn write(
    files: &Files<'_>,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    sent: &AtomicU64,
) -> Result<(), SandboxError> {
    let mut out = io::BufWriter::with_capacity(PIECE, Pieces(&pieces));
    let written = match files {
        Files::Folder(context) => context.write(&mut out, |bytes| sent.store(bytes, Ordering::Relaxed)),
        Files::Given(files) => given(files, &mut out),
    };
    let written = written.and_then(|()| out.flush().map_err(gone));
    if pieces.is_closed() {
        // The Docker daemon reads no more: the build ended, and says why itself.
        return Err(gone(io::ErrorKind::BrokenPipe.into()));
    }
    if let Err(error) = &written {
        // An end without this would be an end as planned.
        let _ = pieces.blocking_send(Err(io::Error::other(error.message.clone())));
    }
    written
}

fn given(files: &[(&str, &str)], out: impl Write) -> Result<(), SandboxError> {
    let mut archive = ::tar::Builder::new(out);
    for (name, text) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes()).map_err(gone)?;
    }
    archive.finish().map_err(gone)
}

/// Bytes on their way to the daemon, which may be slower than the disk.
struct Pieces<'p>(&'p mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.0.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gone(error: io::Error) -> SandboxError {
    ErrorCode::StartFailed.error(format!("the Docker daemon went away: {error}")).caused_by(error)
}

fn failed(listener: &Listener, why: String) -> Failed {
    Failed {
        number: listener.number,
        of: listener.of,
        instruction: listener.instruction.clone(),
        why: why.trim().to_string(),
        output: listener.written(),
    }
}

const BAD_REQUEST: u16 = 400;
/// How many bytes go at once, and how many such pieces wait.
const PIECE: usize = 256 << 10;
const PIECES: usize = 8;
/// Often enough to be seen moving.
const OFTEN: Duration = Duration::from_millis(200);

//! A file by its address: fetched into a file of ours, continuing where an earlier try stopped, and only what its digest
//! says.

use crate::digest::{Digest, Hasher};
use crate::error::ImageError;
use crate::limits::DOCUMENT_TIME;
use crate::pace::{LEAST, Pace, WINDOW};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Fetches files from one server. Blocking.
#[derive(Debug)]
pub struct Downloader {
    client: Client,
    server: String,
    /// How long is waited for a document, or for a file to begin.
    time_limit: Duration,
    /// How often it is looked how fast a file comes.
    window: Duration,
}

impl Downloader {
    /// For the server of this address. Its name leads to `addresses`, which the caller has looked up already.
    pub fn new(server: &str, addresses: &[SocketAddr]) -> Result<Downloader, ImageError> {
        let unusable = |why: String| ImageError::MirrorUnreachable { mirror: server.to_string(), why };
        let url = Url::parse(server).map_err(|error| unusable(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let policy = Policy::custom(|attempt| {
            let was_safe = attempt.previous().iter().any(|before| before.scheme() == "https");
            match attempt.previous().len() {
                _ if was_safe && attempt.url().scheme() != "https" => {
                    attempt.error("it sends us from TLS to the clear")
                }
                0..REDIRECTS => attempt.follow(),
                _ => attempt.error("it sends us around in circles"),
            }
        });
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(policy)
            .referer(false)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")));
        if let (Some(host), false) = (url.host_str(), addresses.is_empty()) {
            builder = builder.resolve_to_addrs(host, addresses);
        }
        let client = builder.build().map_err(|error| unusable(why(&error)))?;
        Ok(Downloader { client, server: server.to_string(), time_limit: DOCUMENT_TIME, window: WINDOW })
    }

    /// A small document, whole.
    pub async fn document(&self, url: &str, largest: u64) -> Result<Vec<u8>, ImageError> {
        let all = async {
            let mut answer = self.get(url, 0).await?;
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(|error| self.broken(&error))? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() as u64 > largest {
                    return Err(ImageError::TooLarge(largest));
                }
            }
            Ok(bytes)
        };
        self.in_time(all).await
    }

    /// A file of at most `largest` bytes, into `path`, which may hold the beginning of it. It counts only with its digest; what has
    /// another one is removed. Tells how much is here, and of how much.
    pub async fn file(
        &self,
        url: &str,
        expected: &Digest,
        largest: u64,
        path: &Path,
        progress: &dyn Fn(u64, Option<u64>),
    ) -> Result<(), ImageError> {
        let mut attempt = 0;
        let mut pace = Pace::within(self.window, Instant::now());
        // Only what was there before this call is to blame for it; what came since, the server sent.
        let mut was_there = path.metadata().is_ok_and(|found| found.len() > 0);
        loop {
            let mut part = Part::open(path).map_err(ImageError::store("open", path))?;
            let before = part.have;
            match self.rest(&mut part, url, largest, &mut pace, progress).await {
                Ok(()) => {
                    let found = part.hasher.finish();
                    if found == *expected {
                        return Ok(());
                    }
                    std::fs::remove_file(path).map_err(ImageError::store("remove", path))?;
                    // What an earlier try left may be damaged: once more, from the beginning.
                    if !was_there {
                        let (expected, found) = (expected.to_string(), found.to_string());
                        return Err(ImageError::Mismatch { what: "file", expected, found });
                    }
                    was_there = false;
                }
                Err(error @ ImageError::MirrorUnreachable { .. }) => {
                    // A connection that breaks after it brought something is no reason to give up.
                    attempt = if part.have > before { 1 } else { attempt + 1 };
                    if attempt > ATTEMPTS {
                        return Err(error);
                    }
                    tokio::time::sleep(PAUSE * attempt).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn rest(
        &self,
        part: &mut Part,
        url: &str,
        largest: u64,
        pace: &mut Pace,
        progress: &dyn Fn(u64, Option<u64>),
    ) -> Result<(), ImageError> {
        let failed = |source| ImageError::store("write", "a download")(source);
        let mut answer = self.in_time(self.get(url, part.have)).await?;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            // All of it is here.
            return Ok(());
        }
        if answer.status() != StatusCode::PARTIAL_CONTENT || !begins_at(&answer, part.have) {
            part.restart().map_err(failed)?;
        }
        let size = answer.content_length().map(|rest| part.have + rest);
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.broken(&error))? {
            part.take(&chunk).map_err(failed)?;
            if part.have > largest {
                part.restart().map_err(failed)?;
                return Err(ImageError::TooLarge(largest));
            }
            if pace.is_too_slow(chunk.len() as u64, Instant::now()) {
                return Err(ImageError::MirrorTooSlow { mirror: self.server.clone(), least: LEAST });
            }
            progress(part.have, size);
        }
        Ok(())
    }

    async fn get(&self, url: &str, offset: u64) -> Result<Response, ImageError> {
        let mut request = self.client.get(url);
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        let answer = request.send().await.map_err(|error| self.broken(&error))?;
        match answer.status() {
            status if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => Ok(answer),
            StatusCode::NOT_FOUND => {
                Err(ImageError::NoFile { mirror: self.server.clone(), file: url.to_string() })
            }
            status if status.is_server_error() => Err(ImageError::MirrorUnreachable {
                mirror: self.server.clone(),
                why: format!("it answered {status}"),
            }),
            status => Err(ImageError::MirrorAnswer {
                mirror: self.server.clone(),
                status: status.as_u16(),
                file: url.to_string(),
            }),
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ImageError>>) -> Result<T, ImageError> {
        let late = |_| {
            let why = format!("it took longer than {} s", self.time_limit.as_secs_f64());
            ImageError::MirrorUnreachable { mirror: self.server.clone(), why }
        };
        tokio::time::timeout(self.time_limit, work).await.map_err(late)?
    }

    fn broken(&self, error: &reqwest::Error) -> ImageError {
        ImageError::MirrorUnreachable { mirror: self.server.clone(), why: why(error) }
    }
}

/// As much of a file as is here.
struct Part {
    file: File,
    hasher: Hasher,
    have: u64,
}

impl Part {
    fn open(path: &Path) -> io::Result<Part> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut hasher = Hasher::new();
        let have = io::copy(&mut file, &mut hasher)?;
        Ok(Part { file, hasher, have })
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = Hasher::new();
        self.have = 0;
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }
}

/// `bytes 100-199/200`
fn begins_at(answer: &Response, offset: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()) == Some(offset)
}

/// The innermost reason: the outer ones only say that there was one.
fn why(error: &reqwest::Error) -> String {
    let mut reason: &dyn Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string()
}

const CONNECT: Duration = Duration::from_secs(15);
/// Of a server that says nothing.
const SILENCE: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 4;
/// As curl and Go have it.
const REDIRECTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dripping;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_server_that_breaks_off_and_then_lies_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let has_range = String::from_utf8_lossy(&request[..length]).contains("range: bytes=");
                // Half of something, and then another half that does not belong to it.
                let answer = match has_range {
                    false => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nwrong",
                    true => {
                        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\nbytes"
                    }
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let downloader = Downloader::new(&format!("http://{address}"), &[]).unwrap();
        let (url, path) = (format!("http://{address}/file"), folder.path().join("file"));
        let digest = Digest::of(b"something else");
        let error = downloader.file(&url, &digest, 1000, &path, &|_, _| {}).await.unwrap_err();
        assert!(matches!(error, ImageError::Mismatch { .. }), "{error}");
        assert!(requests.load(Ordering::Relaxed) < 5 && !path.exists());
        // What an earlier call left may be to blame, once.
        std::fs::write(&path, "old").unwrap();
        assert!(downloader.file(&url, &digest, 1000, &path, &|_, _| {}).await.is_err());
        assert!(requests.load(Ordering::Relaxed) < 12);
    }

    #[tokio::test]
    async fn a_mirror_that_drips_is_given_up() {
        // In the end all of it is there, and right: only a client that waits for so long gets it.
        let address = dripping::serve(|_, _| ("200 OK", String::new(), "text"));
        let mut downloader = Downloader::new(&format!("http://{address}"), &[]).unwrap();
        downloader.time_limit = Duration::from_millis(100);
        let url = format!("http://{address}/file");
        let error = downloader.document(&url, 1000).await.unwrap_err();
        assert!(error.to_string().contains("took longer than 0.1 s"), "{error}");
        downloader.time_limit = DOCUMENT_TIME;
        downloader.window = Duration::from_millis(200);
        let folder = tempfile::tempdir().unwrap();
        let digest = Digest::of(dripping::dripped("text").as_bytes());
        let error =
            downloader.file(&url, &digest, 1000, &folder.path().join("file"), &|_, _| {}).await.unwrap_err();
        assert!(matches!(error, ImageError::MirrorTooSlow { .. }), "{error}");
    }
}

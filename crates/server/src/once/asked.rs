//! A run as the daemon sees it: a process, and somebody who waits for what it says. Of a result only a few pieces are here at a time,
//! however long it is: the rest waits in the process, which is counted until it has ended.

use super::job::{Job, Said};
use crate::job::{failed, remove_directory};
use axum::body::Bytes;
use belljar_spec::SandboxError;
use futures_util::{Stream, stream};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// A run that goes on as long as somebody has this.
pub(crate) struct Asked {
    words: mpsc::Receiver<Word>,
}

/// A result that is on its way.
pub(crate) struct Telling {
    /// In bytes.
    pub(crate) length: u64,
    words: mpsc::Receiver<Word>,
}

/// What is heard of a run.
enum Word {
    /// There is no result.
    Failed(SandboxError),
    /// There is one, this long.
    Length(u64),
    Piece(Bytes),
}

/// What a run needs of the daemon.
pub(crate) struct Terms<H> {
    /// What is held until its process has ended, whoever waits.
    pub(crate) held: H,
    /// How long a piece of the result waits for whoever reads.
    pub(crate) patience: Duration,
    /// What is done when nobody read for so long.
    pub(crate) on_silence: Box<dyn FnOnce() + Send>,
}

/// Starts it. The result is for whoever waits; whoever does not any more ends the run.
pub(crate) fn ask<H: Send + 'static>(program: &Path, job: Job, terms: Terms<H>) -> Asked {
    let (tell, words) = mpsc::channel(AHEAD);
    tokio::spawn(attend(program.to_path_buf(), job, tell, terms));
    Asked { words }
}

impl Asked {
    /// Waits for the end of the run: the sandbox is gone by then.
    pub(crate) async fn result(mut self) -> Result<Telling, SandboxError> {
        match self.words.recv().await {
            Some(Word::Length(length)) => Ok(Telling { length, words: self.words }),
            Some(Word::Failed(error)) => Err(error),
            Some(Word::Piece(_)) | None => Err(without_a_word()),
        }
    }
}

impl Telling {
    /// The result as it comes, to its last byte or an error.
    pub(crate) fn pieces(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::unfold(Some(self), |telling| async move {
            let mut telling = telling.filter(|telling| telling.length > 0)?;
            match telling.words.recv().await {
                Some(Word::Piece(piece)) => {
                    telling.length = telling.length.saturating_sub(piece.len() as u64);
                    Some((Ok(piece), Some(telling)))
                }
                _ => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
            }
        })
    }
}

/// From its start to its end. What is held is let go when nothing of the run is left, and before anybody can know that it is over:
/// who was told may at once ask for the next.
async fn attend<H>(program: PathBuf, job: Job, tell: mpsc::Sender<Word>, terms: Terms<H>) {
    let Terms { held, patience, on_silence } = terms;
    let told = match begin(&program, &job, &tell).await {
        Err(told) => told,
        Ok(mut child) => {
            let told = follow(&mut child, &job, &tell, patience).await;
            // Whatever became of us, it ends: its standard input and output have, too.
            drop((child.stdin.take(), child.stdout.take()));
            let _ = child.wait().await;
            told
        }
    };
    let _ = tokio::task::spawn_blocking(move || remove_directory(&job.directory)).await;
    drop(held);
    let last = match told {
        Ok(word) => tell.send_timeout(word, patience).await.map_err(Gone::from),
        Err(gone) => Err(gone),
    };
    if let Err(Gone::Silent) = last {
        on_silence();
    }
}

/// Why nobody hears more of it.
#[derive(Debug, PartialEq, Eq)]
enum Gone {
    HungUp,
    /// Still there, and reads nothing.
    Silent,
}

/// Starts its process, if somebody still waits.
async fn begin(program: &Path, job: &Job, tell: &mpsc::Sender<Word>) -> Result<Child, Result<Word, Gone>> {
    let directory = job.directory.clone();
    let made = tokio::task::spawn_blocking(move || fs::create_dir_all(&directory)).await;
    let made = made.unwrap_or_else(|error| Err(io::Error::other(error)));
    made.map_err(|error| Ok(Word::Failed(failed("make its directory", &error))))?;
    if tell.is_closed() {
        return Err(Err(Gone::HungUp));
    }
    let mut command = Command::new(program);
    command.arg("once-job").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map_err(|error| Ok(Word::Failed(failed("start its process", &error))))
}

/// Tells the process what to do and passes on what it says, but for the last word. Whoever hangs up ends this, and the process'
/// standard input after it, which is what a job waits for.
async fn follow(
    child: &mut Child,
    job: &Job,
    tell: &mpsc::Sender<Word>,
    patience: Duration,
) -> Result<Word, Gone> {
    let (Some(stdin), Some(stdout)) = (&mut child.stdin, child.stdout.take()) else {
        return Ok(Word::Failed(failed("describe it", &"its process has no pipes")));
    };
    let mut stdout = BufReader::with_capacity(PIECE, stdout);
    let told = async {
        let said = match describe(job, stdin).await {
            Ok(()) => said(&mut stdout).await,
            Err(error) => Err(error),
        };
        match said {
            Ok(length) => {
                tell.send(Word::Length(length)).await.map_err(|_| Gone::HungUp)?;
                pass(stdout, length, tell, patience).await
            }
            Err(error) => Ok(Word::Failed(error)),
        }
    };
    tokio::select! {
        biased;
        () = tell.closed() => Err(Gone::HungUp),
        told = told => told,
    }
}

async fn describe(job: &Job, stdin: &mut ChildStdin) -> Result<(), SandboxError> {
    let mut text = serde_json::to_vec(job).map_err(|error| failed("describe it", &error))?;
    text.push(b'\n');
    stdin.write_all(&text).await.map_err(|error| failed("describe it", &error))
}

/// What it says first: how long the result is, or why there is none.
async fn said(stdout: &mut BufReader<ChildStdout>) -> Result<u64, SandboxError> {
    let mut line = Vec::new();
    let read = stdout.take(LONGEST_WORD).read_until(b'\n', &mut line).await;
    read.map_err(|error| failed("hear of it", &error))?;
    match serde_json::from_slice(&line) {
        Ok(Said::Result(length)) => Ok(length),
        Ok(Said::Error(error)) => Err(error.into()),
        Err(_) => Err(without_a_word()),
    }
}

/// Piece by piece, at the pace of whoever reads. The last piece is given back.
async fn pass(
    mut stdout: BufReader<ChildStdout>,
    length: u64,
    tell: &mpsc::Sender<Word>,
    patience: Duration,
) -> Result<Word, Gone> {
    let mut left = length;
    loop {
        let piece = match stdout.fill_buf().await {
            Ok(bytes) => {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                Bytes::copy_from_slice(&bytes[..most])
            }
            Err(_) => Bytes::new(),
        };
        left -= piece.len() as u64;
        stdout.consume(piece.len());
        // One that broke off is told as such: what came is shorter than its length.
        if left == 0 || piece.is_empty() {
            return Ok(Word::Piece(piece));
        }
        tell.send_timeout(Word::Piece(piece), patience).await?;
    }
}

impl From<mpsc::error::SendTimeoutError<Word>> for Gone {
    fn from(error: mpsc::error::SendTimeoutError<Word>) -> Gone {
        match error {
            mpsc::error::SendTimeoutError::Timeout(_) => Gone::Silent,
            mpsc::error::SendTimeoutError::Closed(_) => Gone::HungUp,
        }
    }
}

fn without_a_word() -> SandboxError {
    failed("hear of it", &"its process ended without a word")
}

/// Of a result, at a time: what a pipe holds.
const PIECE: usize = 64 << 10;
/// Pieces that wait for whoever reads.
const AHEAD: usize = 2;
/// A length, or an error with its hint.
const LONGEST_WORD: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::RunOnce;
    use belljar_spec::ErrorCode;
    use futures_util::StreamExt;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::TempDir;

    /// A program in the place of belljar, and a run of it.
    struct Fake {
        home: TempDir,
        held: Arc<()>,
        silent: Arc<AtomicBool>,
    }

    impl Fake {
        fn new(script: &str) -> Fake {
            let home = tempfile::tempdir().unwrap();
            let program = home.path().join("program");
            fs::write(&program, format!("#!/bin/sh\nread -r job\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
            Fake { home, held: Arc::new(()), silent: Arc::default() }
        }

        fn ask(&self, patience: Duration) -> Asked {
            let job = Job {
                run: RunOnce { argv: vec!["true".into()], ..RunOnce::default() },
                directory: self.home.path().join("job"),
                volumes: self.home.path().join("volumes"),
            };
            let silent = Arc::clone(&self.silent);
            let terms = Terms {
                held: Arc::clone(&self.held),
                patience,
                on_silence: Box::new(move || silent.store(true, Ordering::SeqCst)),
            };
            ask(&self.home.path().join("program"), job, terms)
        }

        fn is_held(&self) -> bool {
            Arc::strong_count(&self.held) > 1
        }

        fn path(&self, name: &str) -> PathBuf {
            self.home.path().join(name)
        }

        async fn until(&self, is_so: impl Fn() -> bool) {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_result_comes_whole_and_nothing_is_held_when_it_has() {
        let fake = Fake::new(r#"echo '{"result":3000000}'; head -c 3000000 /dev/zero"#);
        let telling = fake.ask(LONG).result().await.unwrap();
        assert_eq!(telling.length, 3_000_000);
        let mut pieces = Box::pin(telling.pieces());
        let mut length = 0;
        while let Some(piece) = pieces.next().await {
            length += piece.unwrap().len();
        }
        assert_eq!(length, 3_000_000);
        assert!(!fake.is_held() && !fake.path("job").exists());
    }

    #[tokio::test]
    async fn what_is_not_read_is_not_here() {
        let fake =
            Fake::new(r#"echo '{"result":30000000}'; head -c 30000000 /dev/zero; touch "${0%/*}/done""#);
        let telling = fake.ask(LONG).result().await.unwrap();
        fake.until(|| telling.words.len() == AHEAD).await;
        assert!(fake.is_held(), "its process has the rest");
        assert!(!fake.path("done").exists());
        drop(telling);
        fake.until(|| !fake.is_held()).await;
        assert!(!fake.path("job").exists());
    }

    #[tokio::test]
    async fn who_does_not_read_is_not_waited_for() {
        let fake = Fake::new(r#"echo '{"result":30000000}'; head -c 30000000 /dev/zero"#);
        let telling = fake.ask(Duration::from_millis(50)).result().await.unwrap();
        fake.until(|| !fake.is_held()).await;
        fake.until(|| fake.silent.load(Ordering::SeqCst)).await;
        let pieces: Vec<_> = telling.pieces().collect().await;
        assert!(pieces.last().unwrap().is_err(), "what was cut off does not look whole");
    }

    #[tokio::test]
    async fn a_run_counts_until_its_process_has_ended_whoever_waits() {
        // It is told to stop, and takes its time.
        let script = r#"touch "${0%/*}/began"; read -r more; touch "${0%/*}/told"; until [ -e "${0%/*}/go" ]; do sleep 0.01; done"#;
        let fake = Fake::new(script);
        let asked = fake.ask(LONG);
        fake.until(|| fake.path("began").exists()).await;
        drop(asked);
        fake.until(|| fake.path("told").exists()).await;
        assert!(fake.is_held(), "it still goes on");
        fs::write(fake.path("go"), "").unwrap();
        fake.until(|| !fake.is_held()).await;
    }

    #[tokio::test]
    async fn a_process_that_says_nothing_or_too_little_is_an_error() {
        let code =
            async |script: &str| Fake::new(script).ask(LONG).result().await.err().map(|error| error.code);
        assert_eq!(code("exit 0").await, Some(ErrorCode::Internal));
        assert_eq!(code("echo what").await, Some(ErrorCode::Internal));
        let told = r#"echo '{"error":{"kind":"policy","code":"path_refused","message":"no"}}'; exit 1"#;
        assert_eq!(code(told).await, Some(ErrorCode::PathRefused));
        let telling = Fake::new(r#"echo '{"result":10}'; printf 12345"#).ask(LONG).result().await.unwrap();
        let pieces: Vec<_> = telling.pieces().collect().await;
        assert!(pieces.last().unwrap().is_err());
    }
}

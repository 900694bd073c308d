use super::*;
use belljar_api::RunOnce;
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

    fn start(&self, patience: Duration) -> Started {
        let run = RunOnce { argv: vec!["true".into()], ..RunOnce::default() };
        self.start_plan(Plan::OneShot(Box::new(run)), patience)
    }

    fn start_plan(&self, plan: Plan, patience: Duration) -> Started {
        let silent = Arc::clone(&self.silent);
        let terms = Terms {
            held: Arc::clone(&self.held),
            patience,
            on_silence: Box::new(move || silent.store(true, Ordering::SeqCst)),
        };
        let place = Place::new(self.home.path().join("job"));
        Start { program: self.home.path().join("program"), place, plan }.start(terms)
    }

    /// A run whose result is on its way: its length.
    async fn result(&self, patience: Duration) -> Result<(u64, Started), SandboxError> {
        let mut started = self.start(patience);
        match started.answer().await? {
            Word::Length(length) => Ok((length, started)),
            _ => panic!("no result"),
        }
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
    let (told, started) = fake.result(LONG).await.unwrap();
    assert_eq!(told, 3_000_000);
    let mut pieces = Box::pin(started.pieces(told));
    let mut length = 0;
    while let Some(piece) = pieces.next().await {
        length += piece.unwrap().len();
    }
    assert_eq!(length, 3_000_000);
    assert!(!fake.is_held() && !fake.path("job").exists());
}

#[tokio::test]
async fn what_is_not_read_is_not_here() {
    let fake = Fake::new(r#"echo '{"result":30000000}'; head -c 30000000 /dev/zero; touch "${0%/*}/done""#);
    let (_, started) = fake.result(LONG).await.unwrap();
    fake.until(|| started.words.len() == PIECES_AHEAD).await;
    assert!(fake.is_held(), "its process has the rest");
    assert!(!fake.path("done").exists());
    drop(started);
    fake.until(|| !fake.is_held()).await;
    assert!(!fake.path("job").exists());
}

#[tokio::test]
async fn who_does_not_read_is_not_waited_for() {
    let fake = Fake::new(r#"echo '{"result":30000000}'; head -c 30000000 /dev/zero"#);
    let (length, started) = fake.result(Duration::from_millis(50)).await.unwrap();
    fake.until(|| !fake.is_held()).await;
    fake.until(|| fake.silent.load(Ordering::SeqCst)).await;
    let pieces: Vec<_> = started.pieces(length).collect().await;
    assert!(pieces.last().unwrap().is_err(), "what was cut off does not look whole");
}

#[tokio::test]
async fn a_run_counts_until_its_process_has_ended_whoever_waits() {
    // It is told to stop, and takes its time.
    let script = r#"touch "${0%/*}/began"; read -r more; touch "${0%/*}/told"; until [ -e "${0%/*}/go" ]; do sleep 0.01; done"#;
    let fake = Fake::new(script);
    let started = fake.start(LONG);
    fake.until(|| fake.path("began").exists()).await;
    drop(started);
    fake.until(|| fake.path("told").exists()).await;
    assert!(fake.is_held(), "it still goes on");
    fs::write(fake.path("go"), "").unwrap();
    fake.until(|| !fake.is_held()).await;
}

#[tokio::test]
async fn a_process_that_says_nothing_or_too_little_is_an_error() {
    let code = async |script: &str| Fake::new(script).result(LONG).await.err().map(|error| error.code);
    assert_eq!(code("exit 0").await, Some("run_failed"));
    assert_eq!(code("echo what").await, Some("run_failed"));
    let told = r#"echo '{"error":{"kind":"policy","code":"no_such","message":"no"}}'; exit 1"#;
    assert_eq!(code(told).await, Some("no_such"));
    let short = Fake::new(r#"echo '{"result":10}'; printf 12345"#);
    let (length, started) = short.result(LONG).await.unwrap();
    let pieces: Vec<_> = started.pieces(length).collect().await;
    assert!(pieces.last().unwrap().is_err());
}

#[tokio::test]
async fn an_agent_runs_until_its_caller_ends_it() {
    let fake = Fake::new(r#"echo '{"run":"0101010101010101"}'; read -r more; touch "${0%/*}/told""#);
    let plan = r#"{"agent_run":{"agent":"pi","run":{"prompt":"x"},"may_choose_model":false}}"#;
    let mut started = fake.start_plan(serde_json::from_str(plan).unwrap(), LONG);
    assert!(matches!(started.answer().await, Ok(Word::Run(id)) if id == "0101010101010101"));
    assert!(fake.is_held() && !fake.path("told").exists());
    tokio::task::spawn_blocking(|| started.end_blocking()).await.unwrap();
    assert!(fake.path("told").exists() && !fake.path("job").exists());
    assert!(!fake.is_held(), "before the caller knows that it is over");
}

#[tokio::test]
async fn a_sandbox_whose_caller_leaves_before_it_is_ready_is_killed() {
    // It does not look at its standard input any more.
    let fake = Fake::new(r#"touch "${0%/*}/began"; exec sleep 1000"#);
    fs::create_dir(fake.path("job")).unwrap();
    let plan =
        r#"{"sandbox":{"name":"box","key":"box","id":"0101010101010101","sandbox":{},"persistent":false}}"#;
    let started = fake.start_plan(serde_json::from_str(plan).unwrap(), LONG);
    fake.until(|| fake.path("began").exists()).await;
    drop(started);
    fake.until(|| !fake.is_held()).await;
    assert!(fake.path("job").exists(), "the place is the fleet's");
}

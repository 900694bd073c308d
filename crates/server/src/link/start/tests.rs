use super::*;
use belljar_api::RunOnce;
use futures_util::StreamExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A program in the place of belljar, and a run of it.
struct Fake {
    home: TempDir,
    held: Arc<()>,
    code: Arc<AtomicI32>,
}

impl Fake {
    fn new(script: &str) -> Fake {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("program");
        fs::write(&program, format!("#!/bin/sh\nread -r job\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        Fake { home, held: Arc::new(()), code: Arc::default() }
    }

    async fn start(&self) -> Result<(Answer, Started), SandboxError> {
        let run = RunOnce { argv: vec!["true".into()], ..RunOnce::default() };
        self.start_plan(Plan::OneShot(Box::new(run))).await
    }

    async fn start_plan(&self, plan: Plan) -> Result<(Answer, Started), SandboxError> {
        let (held, code) = (Arc::clone(&self.held), Arc::clone(&self.code));
        let on_end = move |ended: Option<i32>| {
            code.store(ended.unwrap_or(-1), Ordering::SeqCst);
            drop(held);
        };
        let program = Spawner::Program(self.path("program"));
        start(&program, &Arc::default(), &SandboxDir::new(self.path("job")), plan, on_end).await
    }

    /// A run whose result is on its way: its length.
    async fn result(&self) -> Result<(u64, Started), SandboxError> {
        match self.start().await? {
            (Answer::Result(length), shim) => Ok((length, shim)),
            (answer, _) => panic!("{answer:?}"),
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

#[tokio::test]
async fn a_result_comes_whole_and_nothing_is_held_when_it_has() {
    let fake = Fake::new(r#"echo '{"result":3000000}'; head -c 3000000 /dev/zero"#);
    let (report, shim) = fake.result().await.unwrap();
    assert_eq!(report, 3_000_000);
    let mut pieces = Box::pin(shim.result(report));
    let mut length = 0;
    while length < 3_000_000 {
        length += pieces.next().await.unwrap().unwrap().len();
    }
    assert!(!fake.is_held() && !fake.path("job").exists());
    assert!(pieces.next().await.is_none());
}

#[tokio::test]
async fn what_is_not_read_is_not_here() {
    let script = r#"echo '{"result":30000000}'; head -c 30000000 /dev/zero; touch "${0%/*}/done""#;
    let fake = Fake::new(script);
    let (length, shim) = fake.result().await.unwrap();
    let mut pieces = Box::pin(shim.result(length));
    assert!(pieces.next().await.unwrap().unwrap().len() <= PIECE_BYTES);
    assert!(fake.is_held(), "its process has the rest");
    assert!(!fake.path("done").exists());
    drop(pieces);
    fake.until(|| !fake.is_held()).await;
    assert!(!fake.path("job").exists());
}

#[tokio::test]
async fn a_result_that_broke_off_does_not_look_whole() {
    let fake = Fake::new(r#"echo '{"result":10}'; printf 12345; exit 3"#);
    let (length, shim) = fake.result().await.unwrap();
    let pieces: Vec<_> = shim.result(length).collect().await;
    assert!(pieces.last().unwrap().is_err());
    fake.until(|| !fake.is_held()).await;
    assert_eq!(fake.code.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_abandoned_run_counts_until_its_process_has_ended() {
    // It is told to stop, and takes its time.
    let script = r#"touch "${0%/*}/began"; read -r more; touch "${0%/*}/told"; until [ -e "${0%/*}/go" ]; do sleep 0.01; done"#;
    let fake = Fake::new(script);
    tokio::select! {
        _ = fake.start() => panic!("it says nothing"),
        () = fake.until(|| fake.path("began").exists()) => {}
    }
    fake.until(|| fake.path("told").exists()).await;
    assert!(fake.is_held(), "it still goes on");
    fs::write(fake.path("go"), "").unwrap();
    fake.until(|| !fake.is_held()).await;
}

#[tokio::test]
async fn a_process_that_says_nothing_is_an_error_and_nothing_is_left_of_it() {
    let report = r#"echo '{"error":{"kind":"policy","code":"not_found","message":"no"}}'; exit 1"#;
    for (script, code) in
        [("exit 0", ErrorCode::Internal), ("echo what", ErrorCode::Internal), (report, ErrorCode::NotFound)]
    {
        let fake = Fake::new(script);
        assert_eq!(fake.start().await.err().map(|error| error.code), Some(code), "{script}");
        assert!(!fake.is_held() && !fake.path("job").exists());
    }
}

#[tokio::test]
async fn an_agent_runs_until_its_caller_ends_it() {
    let fake = Fake::new(r#"echo '{"run":"0101010101010101"}'; read -r more; touch "${0%/*}/told""#);
    let plan = r#"{"agent_run":{"agent":"pi","run":{"prompt":"x"},"may_choose_model":false}}"#;
    let (answer, shim) = fake.start_plan(serde_json::from_str(plan).unwrap()).await.unwrap();
    assert!(matches!(answer, Answer::Run(id) if id == "0101010101010101"));
    assert!(fake.is_held() && !fake.path("told").exists());
    spawn_blocking(|| shim.end_blocking()).await.unwrap();
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
    let plan = serde_json::from_str(plan).unwrap();
    tokio::select! {
        _ = fake.start_plan(plan) => panic!("it says nothing"),
        () = fake.until(|| fake.path("began").exists()) => {}
    }
    fake.until(|| !fake.is_held()).await;
    assert!(fake.path("job").exists(), "the place is the fleet's");
}

//! kill -9 of belljar while git waits for a remote: no process that git has started is left.

use belljar_workspace::inert::Git;
use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Not a test: the process that is killed, started by the test below.
#[test]
#[ignore = "a process of another test"]
fn fetching() {
    let Ok(remote) = std::env::var("SILENT_REMOTE") else { return };
    let call = Git::find().unwrap().anywhere().args(["ls-remote", &remote]).allow_protocols(&["http"]);
    let _ = call.config("http.proxy", "").run();
}

#[test]
fn what_git_has_started_dies_with_the_process_that_started_git() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inert_killed::fetching", "--ignored", "--nocapture"])
        .env("SILENT_REMOTE", format!("http://{}/x", silent.local_addr().unwrap()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // git-remote-http has connected, and waits for an answer.
    let _connection = silent.accept().unwrap();
    let started = below(child.id());
    let names = |processes: &[u32]| processes.iter().map(|process| name(*process)).collect::<Vec<_>>();
    assert!(names(&started).iter().any(|name| name.starts_with("git-remote-http")), "{:?}", names(&started));
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let left = || started.iter().copied().filter(|process| is_alive(*process)).collect::<Vec<_>>();
    while !left().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(names(&left()), Vec::<String>::new());
}

/// All descendants of a process.
fn below(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|list| list.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.iter().flat_map(|child| std::iter::once(*child).chain(below(*child))).collect()
}

fn name(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_string()
}

fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

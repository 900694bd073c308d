//! kill -9 of an import at every point: the host's repository is intact, its branch is old or new, and no commit is lost.

use super::super::{HostGit, ImportMode, Importer, Synced};
use super::pair::{ID, Pair};
use crate::foreign::Foreign;
use crate::quarantine::sweep;
use belljar_spec::git::RefPolicy;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Not a test: the process that is killed.
#[test]
#[ignore = "a process of another test"]
fn importing() {
    let Ok(place) = std::env::var("IMPORT_PLACE") else { return };
    let place = Path::new(&place);
    let own = place.join("host/.git");
    let host = HostGit { top: place.join("host"), own: own.clone(), common: own.clone() };
    let git = crate::inert::Git::find().unwrap();
    let importer = Importer {
        host: &host,
        repository: &crate::quarantine::HostRepository::open(&git, &own).unwrap(),
        from: &Foreign::open(&place.join("private")).unwrap(),
        id: ID,
        state: &place.join("state"),
        policy: &RefPolicy::only(vec!["*".parse().unwrap()]),
        mode: ImportMode::Bind,
        protected: &[],
        leash: None,
    };
    let mut synced: Synced = serde_json::from_slice(&fs::read(place.join("synced.json")).unwrap()).unwrap();
    importer.import(&mut synced).unwrap();
}

const STEPS: [&str; 9] =
    ["quarantine", "taken", "admitted", "copied", "index", "lock", "prepared", "renamed", "committed"];

fn killed(pair: &Pair, at: Option<&str>, after: Option<Duration>) {
    fs::write(pair.place.join("synced.json"), serde_json::to_vec(&pair.synced).unwrap()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "private_git::tests::killed::importing", "--ignored"])
        .env("IMPORT_PLACE", &pair.place)
        .env("IMPORT_KILLED_AT", at.unwrap_or_default())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    if let Some(after) = after {
        std::thread::sleep(after);
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    assert!(at.is_none() || !status.success(), "{at:?}: not killed");
}

/// The host after an import that was killed, and after the next one.
fn assert_whole(pair: &mut Pair, before: &str, users: &str, what: &str) {
    let after = pair.agent(&["rev-parse", "main"]);
    let now = pair.at_host("main");
    assert!(now == before || now == after, "{what}: {now}");
    pair.user(&["fsck", "--strict", "--no-dangling"]);
    sweep(&pair.place.join("state")).unwrap();
    // A git that it started may still run for a moment.
    for _ in 0..100 {
        if leftovers(pair).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(leftovers(pair), Vec::<PathBuf>::new(), "{what}");
    // The user's staged changes are still staged, and the user can work.
    assert_eq!(pair.user(&["show", ":staged"]), users, "{what}");
    pair.import();
    assert_eq!(pair.at_host("main"), after, "{what}");
    pair.user(&["fsck", "--strict", "--no-dangling"]);
    assert_eq!(pair.user(&["diff", "--cached", "--name-only"]), "staged", "{what}");
}

fn leftovers(pair: &Pair) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![pair.host.own.clone()];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_ours = name.contains("belljar-") || name.starts_with("tmp_");
            if is_ours || name.ends_with(".lock") || name.ends_with(".keep") {
                found.push(path.clone());
            }
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    let waiting = fs::read_dir(pair.place.join("state/quarantine")).into_iter().flatten().flatten();
    found.extend(waiting.map(|entry| entry.path()).filter(|path| path.is_dir()));
    found
}

fn staged() -> Pair {
    let pair = Pair::new();
    pair.write("staged", "by the user\n");
    pair.user(&["add", "staged"]);
    pair
}

#[test]
fn an_import_that_is_killed_leaves_the_host_whole() {
    let mut pair = staged();
    for step in STEPS {
        let before = pair.at_host("main");
        pair.agent_commits("work", &format!("{step}\n"));
        killed(&pair, Some(step), None);
        assert_whole(&mut pair, &before, "by the user", step);
    }
}

/// Ends every git of this process, the first time.
pub(super) fn kill_git_once() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            assert!(Command::new("kill").args(["-9", child]).status().unwrap().success());
        }
    }
}

#[test]
fn git_that_is_killed_alone_leaves_no_lock() {
    for step in ["lock", "prepared", "renamed"] {
        let mut pair = staged();
        let before = pair.at_host("main");
        pair.agent_commits("work", "x\n");
        fs::write(pair.place.join("synced.json"), serde_json::to_vec(&pair.synced).unwrap()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "private_git::tests::killed::importing", "--ignored"]);
        command.env("IMPORT_PLACE", &pair.place).env("IMPORT_GIT_KILLED_AT", step);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(leftovers(&pair), Vec::<PathBuf>::new(), "{step}");
        assert_ne!(pair.at_host("main"), before, "{step}");
        assert_whole(&mut pair, &before, "by the user", step);
    }
}

/// By hand: `IMPORT_ROUNDS=500`, at random moments.
#[test]
#[ignore = "takes minutes; by hand"]
fn an_import_that_is_killed_at_any_moment_leaves_the_host_whole() {
    let mut pair = staged();
    let rounds = std::env::var("IMPORT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(50);
    for round in 0..rounds {
        let before = pair.at_host("main");
        match round % 3 {
            0 => drop(pair.agent_commits("work", &format!("{round}\n"))),
            1 => {
                pair.agent_commits("work", &format!("{round}\n"));
                pair.agent_commits("more", &format!("{round}\n"));
            }
            _ => {
                for number in 0..120 {
                    pair.write(&format!("many/{number}"), &format!("{round} {number}\n"));
                }
                pair.agent(&["add", "many"]);
                pair.agent(&["commit", "-q", "-m", "many"]);
            }
        }
        let wait = (u64::from(std::process::id()) ^ round as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        killed(&pair, None, Some(Duration::from_micros(wait % 250_000)));
        assert_whole(&mut pair, &before, "by the user", &round.to_string());
    }
}

//! belljar is killed while a sandbox works: what was committed inside comes out at the next start, into the repository that it was made
//! for and into no other.

use belljar_tests_cli::Home;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn git(folder: &Path, line: &str) -> String {
    let output = Command::new("git")
        .args(line.split(' '))
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("there is git");
    assert!(output.status.success(), "git {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < until, "`{}` does not appear", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A repository with a commit inside that belljar, stopped and then killed, had no time to import.
fn killed() -> Home {
    let home = Home::new("").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let folder = home.path("work");
    git(&folder, "init -q -b main .");
    git(&folder, "config user.name Ada");
    git(&folder, "config user.email ada@example.org");
    git(&folder, "commit -q --allow-empty -m first");
    let script = "touch ready; until [ -e go ]; do sleep 0.02; done; git commit -q --allow-empty -m late; touch done; sleep 1000";
    let mut belljar = home.belljar(&["run", "--", "sh", "-c", script]).spawn().expect("it starts");
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &belljar.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    };
    wait_for(&folder.join("ready"));
    signal("-STOP");
    fs::write(folder.join("go"), "").expect("a file");
    wait_for(&folder.join("done"));
    signal("-KILL");
    belljar.wait().expect("it is gone");
    assert_eq!(git(&folder, "log -1 --format=%s main"), "first");
    home
}

/// What a start says of the killed sandbox. Its last process may take a moment to go, and holds the lock until then.
fn next_start(home: &Home) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let run = home.run(&["run", "--", "true"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        if run.stderr.contains("was killed") {
            return run.stderr;
        }
        assert!(Instant::now() < until, "nothing is said: {}", run.stderr);
    }
}

#[test]
fn commits_of_a_killed_sandbox_are_there_after_the_next_start() {
    let home = killed();
    let folder = home.path("work");
    let said = next_start(&home);
    let (_, kept) = said.split_once("was killed; its commits are kept as ").expect("it says where");
    let kept = kept.lines().next().expect("a ref");
    assert_eq!(git(&folder, &format!("log -1 --format=%s {kept}")), "late");
    assert_eq!(git(&folder, "log -1 --format=%s main"), "first");
    assert!(!home.run(&["run", "--", "true"]).stderr.contains("was killed"), "it says so once");
}

#[test]
fn commits_of_a_killed_sandbox_go_into_no_other_repository() {
    let home = killed();
    let folder = home.path("work");
    fs::remove_dir_all(folder.join(".git")).expect("it goes");
    git(&folder, "init -q -b main .");
    let said = next_start(&home);
    assert!(said.contains("is another repository now"), "{said}");
    assert_eq!(git(&folder, "for-each-ref"), "");
    assert!(!home.run(&["run", "--", "true"]).stderr.contains("was killed"), "it says so once");
}

#[test]
fn a_start_that_fails_says_where_commits_of_a_killed_sandbox_are() {
    let home = killed();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let run = home.run(&["run", "--backend", "host", "--at-least", "namespace", "--", "true"]);
        assert_eq!(run.code, 125, "{}", run.stderr);
        assert!(run.stderr.contains("below namespace"), "{}", run.stderr);
        if run.stderr.contains("was killed; its commits are kept as refs/belljar/") {
            break;
        }
        assert!(Instant::now() < until, "nothing is said: {}", run.stderr);
    }
    assert!(!home.run(&["run", "--", "true"]).stderr.contains("was killed"), "it says so once");
}

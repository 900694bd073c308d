//! `belljar du`, `prune`, `daemon stop`, `service uninstall`, `uninstall`: what belljar keeps on a machine, and how it goes.

use belljar_tests_cli::{Home, belljar};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn help_stays_as_it_is() {
    let home = Home::new("");
    for (name, args) in [
        ("du", &["du", "--help"][..]),
        ("prune", &["prune", "--help"]),
        ("daemon_stop", &["daemon", "stop", "--help"]),
        ("service_uninstall", &["daemon", "service", "uninstall", "--help"]),
        ("uninstall", &["uninstall", "--help"]),
    ] {
        insta::assert_snapshot!(format!("help_{name}"), home.run(args).stdout);
    }
}

#[test]
fn what_is_kept_is_measured_by_store() {
    let home = Home::new("");
    assert_eq!(home.run(&["run", "--overlay", "--", "sh", "-c", "head -c 300000 /dev/zero > big"]).code, 0);
    let report: Value = serde_json::from_str(&home.run(&["du", "--json"]).stdout).expect("one object");
    let stores = report["stores"].as_array().expect("a list");
    let bytes = |name: &str| {
        let store = stores.iter().find(|store| store["store"] == name);
        store.unwrap_or_else(|| panic!("no {name}: {report}"))["bytes"].as_u64().expect("a number")
    };
    assert!(bytes("layers") >= 300_000 && bytes("audit") > 0, "{report}");
    let sum: u64 = stores.iter().map(|store| store["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(report["bytes"], sum);
    let table = home.run(&["du"]);
    assert!(table.stdout.contains("change sets of --overlay, not yet applied"), "{}", table.stdout);
    for store in stores {
        assert_ne!(store["what"], "other", "`du` has no words for it: {store}");
    }
}

#[test]
fn what_is_old_goes_and_work_and_what_is_young_stay() {
    let home = Home::new("");
    assert_eq!(home.run(&["run", "--overlay", "--", "touch", "new"]).code, 0);
    assert_eq!(home.run(&["run", "--", "true"]).code, 0);
    let old = SystemTime::now() - Duration::from_secs(50 * 24 * 3600);
    let logs: Vec<_> = fs::read_dir(home.path("state/belljar/audit"))
        .expect("there are logs")
        .map(|entry| entry.expect("it is ours").path())
        .filter(|path| path.file_stem().is_some_and(|name| name.len() == 16))
        .collect();
    File::options().append(true).open(&logs[0]).expect("it is ours").set_modified(old).expect("it is ours");

    let requested = home.run(&["prune"]);
    assert_eq!(requested.code, 126, "there is no terminal to ask at: {}", requested.stderr);
    assert!(requested.stdout.contains("audit logs of sandboxes that ended long ago"), "{}", requested.stdout);
    let dry = home.run(&["prune", "--dry-run"]);
    assert!(dry.code == 0 && logs.iter().all(|log| log.exists()), "{}", dry.stderr);
    let done = home.run(&["prune", "--yes", "--json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let report: Value = serde_json::from_str(&done.stdout).expect("one object");
    let entries = |name: &str| {
        let stores = report["stores"].as_array().expect("a list");
        stores.iter().find(|store| store["store"] == name).expect("it is listed")["entries"].clone()
    };
    assert_eq!(entries("audit"), 1, "{report}");
    assert_eq!(logs.iter().filter(|log| log.exists()).count(), logs.len() - 1, "{report}");
    assert_eq!(home.run(&["audit", "verify"]).code, 0);
    let layers: Value =
        serde_json::from_str(&home.run(&["changes", "list", "--json"]).stdout).expect("a list");
    assert_eq!(layers.as_array().map(Vec::len), Some(1), "work is not pruned");
    let again = home.run(&["prune"]);
    assert!(again.code == 0 && again.stderr.contains("nothing to prune"), "{}", again.stderr);
}

/// Makes an audit log as old as this, and gives its path.
fn an_old_log(home: &Home, age: Duration) -> PathBuf {
    let known = logs(home);
    assert_eq!(home.run(&["run", "--", "true"]).code, 0);
    let log = logs(home).into_iter().find(|log| !known.contains(log)).expect("each run has its log");
    let file = File::options().append(true).open(&log).expect("it is ours");
    file.set_modified(SystemTime::now() - age).expect("it is ours");
    log
}

fn logs(home: &Home) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(home.path("state/belljar/audit")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("it is ours").path());
    paths.filter(|path| path.file_stem().is_some_and(|name| name.len() == 16)).collect()
}

#[test]
fn the_daemon_removes_what_is_older_than_the_configured_retention() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let home = Home::new("[daemon]\nretention = \"3d\"\n");
    let old = an_old_log(&home, 4 * DAY);
    let young = an_old_log(&home, 2 * DAY);
    let shown = home.run(&["config", "show"]);
    assert!(shown.stdout.contains("retention    3d"), "{}", shown.stdout);
    let dry: Value =
        serde_json::from_str(&home.run(&["prune", "--dry-run", "--json"]).stdout).expect("one object");
    let audit = dry["stores"].as_array().expect("a list").iter().find(|store| store["store"] == "audit");
    assert_eq!(audit.expect("it is listed")["entries"], 1, "`prune` takes the configured age: {dry}");
    assert!(old.exists());

    assert_eq!(home.run(&["start"]).code, 0);
    let end = Instant::now() + Duration::from_secs(30);
    while old.exists() && Instant::now() < end {
        sleep(Duration::from_millis(20));
    }
    assert!(!old.exists() && young.exists());
    assert_eq!(home.run(&["rm", "--force", "."]).code, 0);
    assert_eq!(home.run(&["daemon", "stop"]).code, 0);
    assert_eq!(home.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_daemon_that_is_stopped_leaves_its_sandboxes() {
    let home = Home::new("");
    assert!(home.run(&["daemon", "stop"]).stderr.contains("no daemon runs"));
    assert_eq!(home.run(&["start"]).code, 0);
    let stopped = home.run(&["daemon", "stop"]);
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert!(stopped.stderr.contains("has ended; its sandboxes keep running"), "{}", stopped.stderr);
    assert!(home.run(&["daemon", "stop"]).stderr.contains("no daemon runs"));
    // It lives, so nothing is removed under it, and the next command finds it.
    let refused = home.run(&["uninstall", "--yes"]);
    assert_eq!(refused.code, 125, "{}", refused.stderr);
    assert!(refused.stderr.contains("1 sandbox runs"), "{}", refused.stderr);
    let list = home.run(&["list"]);
    assert!(list.stdout.contains("live"), "{}{}", list.stdout, list.stderr);
    assert_eq!(home.run(&["rm", "--force", "."]).code, 0);
    assert_eq!(home.run(&["daemon", "stop"]).code, 0);
}

#[test]
fn everything_goes_and_what_stays_is_said() {
    let home = Home::new("[workspace]\nprotect = [\"Makefile\"]\n");
    assert_eq!(home.run(&["run", "--overlay", "--", "touch", "new"]).code, 0);
    assert_eq!(home.run(&["daemon", "service", "install", "--user"]).code, 0);
    // A unit that belljar did not write is the user's own.
    home.write("config/systemd/user/other.service", "[Unit]\n");
    let dry = home.run(&["uninstall", "--dry-run"]);
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stderr.contains("work that was not applied"), "{}", dry.stderr);
    assert!(home.path("state/belljar").exists() && home.path("config/systemd/user/belljar.socket").exists());
    let requested = home.run(&["uninstall"]);
    assert!(requested.code == 126 && home.path("state/belljar").exists(), "{}", requested.stderr);
    let gone = home.run(&["uninstall", "--yes"]);
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    assert!(!home.path("state/belljar").exists());
    assert_eq!(fs::read_dir(home.path("state")).expect("it is there").count(), 0, "nothing is set aside");
    for unit in ["belljar.service", "belljar.socket"] {
        assert!(!home.path("config/systemd/user").join(unit).exists(), "{unit}");
    }
    assert!(home.path("config/systemd/user/other.service").exists());
    assert!(home.path("config/belljar/belljar.toml").exists());
    for line in ["your configuration stays: [home]/config/belljar/belljar.toml", "the executable stays"] {
        assert!(gone.stderr.contains(line), "{}", gone.stderr);
    }
    assert!(
        home.run(&["daemon", "service", "uninstall", "--user"]).stderr.contains("no service is installed")
    );
}

#[test]
fn a_daemon_hands_over_to_the_executable_that_replaced_its_own() {
    let home = Home::new("");
    let installed = home.path("bin-of-belljar");
    fs::copy(belljar(), &installed).expect("there is room");
    let run = |words: &[&str]| {
        let like = home.belljar(words);
        let mut command = Command::new(&installed);
        command.args(like.get_args()).current_dir(home.path("work"));
        like.get_envs().for_each(|(name, value)| {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        });
        let output = command.output().expect("belljar starts");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, printed) = run(&["start"]);
    assert_eq!(code, Some(0), "{printed}");
    let lock = home.path("state/belljar/fleet/daemon.lock");
    let first = holder(&lock).expect("a daemon runs");
    // As a package manager does it.
    let new = home.path("new");
    fs::copy(belljar(), &new).expect("there is room");
    fs::rename(&new, &installed).expect("it is ours");
    let deadline = Instant::now() + Duration::from_secs(30);
    while holder(&lock) == Some(first) {
        assert!(Instant::now() < deadline, "the daemon goes on with an executable that is gone");
        sleep(Duration::from_millis(100));
    }
    let (code, listed) = run(&["list"]);
    assert!(code == Some(0) && listed.contains("live"), "{listed}");
    assert_ne!(holder(&lock), Some(first));
    let (code, printed) = run(&["rm", "--force", "."]);
    assert_eq!(code, Some(0), "{printed}");
    run(&["daemon", "stop"]);
}

/// The process that holds a lock: proc_locks(5).
fn holder(lock: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{}", fs::metadata(lock).ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").expect("the kernel says");
    let line = locks.lines().find(|line| line.contains("FLOCK") && line.contains(&format!("{inode} ")))?;
    line.split_ascii_whitespace().nth(4)?.parse().ok()
}

//! Limits at the ends of what can be said: held, or refused with what is possible, and never a cgroup left behind.

use belljar_tests_cli::{belljar, left, run};
use std::fs;
use std::process::Command;

#[test]
fn extreme_values_are_held_or_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (limit, refusal) in [
        (["--pids", "5000000"], None),
        (["--pids", "4294967295"], None),
        (["--cpus", "0.005"], None),
        (["--cpus", "4096"], None),
        (["--memory", "4000000t"], None),
        (["--memory", "1"], Some("a sandbox takes 1m of memory for itself at least")),
        (["--memory", "1023k"], Some("a sandbox takes 1m of memory for itself at least")),
        (["--open-files", "18446744073709551615"], Some("open files here")),
    ] {
        let result = run(folder.path(), ["run", limit[0], limit[1], "--", "echo", "ran"]);
        if result.stderr.contains("no cgroup is delegated to belljar") {
            // An ordinary user without delegated cgroups.
            continue;
        }
        match refusal {
            None => assert_eq!(
                (result.code, result.stdout.as_str()),
                (0, "ran\n"),
                "{limit:?}: {}",
                result.stderr
            ),
            Some(saying) => {
                assert_eq!((result.code, result.stdout.as_str()), (125, ""), "{limit:?}");
                assert!(result.stderr.contains(saying), "{limit:?}: {}", result.stderr);
            }
        }
        let id = folder.path().to_str().unwrap();
        assert!(left::eventually(|| left::of_run(id, None).is_empty()), "{limit:?}");
    }
}

/// Root's, with version 1: a cgroup around that gives less than what is asked for, so that the last of the files cannot be written.
/// Version 2 refuses no such value.
#[test]
fn a_cgroup_that_cannot_be_finished_is_removed() {
    let name = format!("around-{}", std::process::id());
    let homes = ["memory", "pids", "cpu"].map(|controller| format!("/sys/fs/cgroup/{controller}/{name}"));
    if !homes.iter().all(|home| fs::create_dir(home).is_ok()) {
        homes.iter().for_each(|home| drop(fs::remove_dir(home)));
        return;
    }
    fs::write(format!("{}/cpu.cfs_quota_us", homes[2]), "10000").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = r#"for controller in memory pids cpu; do
    mount --bind "/sys/fs/cgroup/$controller/$1" "/sys/fs/cgroup/$controller" || exit 99
done
exec "$0" run --backend native --cpus 1 -- touch ran"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(belljar()).arg(&name).current_dir(folder.path());
    let output = command.output().unwrap();
    // One that holds another cannot be removed.
    let are_empty = homes.iter().map(fs::remove_dir).all(|removed| removed.is_ok());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{printed}");
    assert!(
        printed.contains("the kernel does not take this value") && printed.contains("hint: ask for less"),
        "{printed}"
    );
    assert!(are_empty, "{:?}", left::cgroups(&name));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

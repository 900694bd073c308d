//! `belljar verify`: it finds nothing where nothing is, and the hole that was planted where one was, and nothing of it is left.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use belljar_tests_cli::Home;
use belljar_tests_hosts::have;
use serde_json::Value;
use std::collections::BTreeSet;

fn verified(home: &Home, args: &[&str]) -> (i32, Value) {
    let run = home.run(&[&["verify", "--json"], args].concat());
    let report =
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{} {}", run.stdout, run.stderr));
    (run.code, report)
}

fn attacks(report: &Value) -> &Vec<Value> {
    report["targets"][0]["attacks"].as_array().unwrap()
}

/// Of the attacks that worked.
fn promises(report: &Value) -> BTreeSet<&str> {
    let holes = attacks(report).iter().filter(|attack| attack["outcome"] == "hole");
    holes.map(|attack| attack["promise"].as_str().unwrap()).collect()
}

#[test]
fn everything_holds_here_and_nothing_is_left() {
    let home = Home::new("");
    let (code, report) = verified(&home, &["--backend", "native"]);
    assert_eq!((code, &report["holes"]), (0, &0.into()), "{report:#}");
    let tried = attacks(&report).iter().filter(|attack| attack["outcome"] == "held").count();
    assert!(tried >= 60, "{tried} were tried: {report:#}");
    assert_eq!(report["targets"][0]["complete"], true);
    let left: Vec<_> = std::fs::read_dir("/tmp")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("belljar-verify-"))
        .collect();
    // Another test may verify at this moment: what ours made is gone, or younger than it.
    assert!(left.len() <= 4, "{left:?}");
}

/// A peer in which one mechanism is off at a time: each shows in its own row.
#[test]
fn a_planted_hole_is_found_in_its_class() {
    if !have(["bwrap"]) {
        return;
    }
    let home = Home::new("");
    // What a careful person would write, with the git directory and the settings read-only.
    const USR: &str = "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --tmpfs /etc \
        --tmpfs /tmp --tmpfs /var/tmp --dev /dev --bind . /workspace --chdir /workspace --die-with-parent --clearenv \
        --setenv PATH /usr/bin:/usr/sbin";
    const TREE: &str = "--ro-bind .git /workspace/.git --ro-bind .envrc /workspace/.envrc --ro-bind .vscode /workspace/.vscode \
        --tmpfs /workspace/.claude --remount-ro /workspace/.claude";
    const APART: &str = "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --proc /proc --cap-drop ALL";
    let peer = |parts: &[&str]| format!("bwrap {}", parts.join(" "));
    let tried = |command: &str, words: &[&str]| {
        let expected = words.iter().flat_map(|word| ["--promise", word]);
        let args: Vec<&str> = ["--command", command].into_iter().chain(expected).collect();
        let (code, report) = verified(&home, &args);
        assert_eq!(report["targets"][0]["complete"], true, "{command}: {report:#}");
        let found: Vec<String> = promises(&report).into_iter().map(String::from).collect();
        (code, found)
    };
    let sound = peer(&[USR, TREE, APART, "--unshare-net"]);
    let (code, found) = tried(&sound, &["network", "files", "processes", "sockets", "work_tree"]);
    assert_eq!((code, found), (0, Vec::new()));
    let outside = "--bind $(dirname $PWD)/outside $(dirname $PWD)/outside";
    let seen = "--unshare-user --unshare-ipc --unshare-net --ro-bind /proc /proc --cap-drop ALL";
    for (planted, command) in [
        ("network", peer(&[USR, TREE, APART])),
        ("files", peer(&[USR, TREE, APART, "--unshare-net", outside])),
        ("processes", peer(&[USR, TREE, seen])),
        ("sockets", peer(&[USR, TREE, APART, "--unshare-net", outside])),
        ("work_tree", peer(&[USR, APART, "--unshare-net"])),
        // No filter of system calls, and no limit: what bwrap does not do by itself.
        ("privileges", sound.clone()),
        ("limits", sound),
    ] {
        assert_eq!(tried(&command, &[planted]), (1, vec![planted.to_string()]), "{command}");
    }
}

#[test]
fn a_sandbox_that_does_not_start_holds_nothing() {
    let home = Home::new("");
    for command in ["false", "no-such-program", "sh -c 'exit 0' --"] {
        let (code, report) = verified(&home, &["--command", command]);
        assert_eq!((code, &report["targets"][0]["complete"]), (1, &false.into()), "{command}");
    }
}

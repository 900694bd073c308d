//! `belljar verify`: it finds nothing where nothing is, and the hole that was planted where one was, and nothing of it is left.

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
    if !have("bwrap") {
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
    for (planted, command) in [
        ("", peer(&[USR, TREE, APART, "--unshare-net"])),
        ("network", peer(&[USR, TREE, APART])),
        (
            "files",
            peer(&[
                USR,
                TREE,
                APART,
                "--unshare-net",
                "--bind $(dirname $PWD)/outside $(dirname $PWD)/outside",
            ]),
        ),
        ("work_tree", peer(&[USR, APART, "--unshare-net"])),
        (
            "processes",
            peer(&[
                USR,
                TREE,
                "--unshare-user --unshare-ipc --unshare-net --ro-bind /proc /proc --cap-drop ALL",
            ]),
        ),
        (
            "sockets",
            peer(&[
                USR,
                TREE,
                APART,
                "--unshare-net",
                "--bind $(dirname $PWD)/outside $(dirname $PWD)/outside",
            ]),
        ),
    ] {
        let (code, report) = verified(&home, &["--command", &command]);
        assert_eq!(code, 1, "{planted}: a peer without a filter of system calls has holes");
        assert_eq!(report["targets"][0]["complete"], true, "{planted}: {report:#}");
        let found = promises(&report);
        assert!(found.contains("privileges") && found.contains("limits"), "{planted}: {found:?}");
        if !planted.is_empty() {
            assert!(found.contains(planted), "{planted}: {found:?}");
        }
        // Sockets without a name in the filesystem belong to the network's namespace, and those with one to its files.
        let beside: &[&str] = match planted {
            "network" => &["sockets"],
            "files" | "sockets" => &["sockets", "files"],
            _ => &[],
        };
        let expected =
            |class: &&str| [planted, "privileges", "limits"].contains(class) || beside.contains(class);
        assert!(found.iter().all(expected), "{planted}: {found:?}");
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

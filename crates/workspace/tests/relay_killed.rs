//! kill -9 of the relay's process at any moment: the host's repository is intact, works, and has no file of ours in it after the
//! next start.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

use crate::relay::{self, Raw, commands, indexer, policy, serve, try_push};
use crate::repository::{Repository, directory, git};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::process::{PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use belljar_workspace::quarantine::sweep;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Not a test: the process that is killed, started by the test below.
#[test]
#[ignore = "a process of another test"]
fn serving() {
    let Ok(place) = std::env::var("RELAY_PLACE") else { return };
    let place = Path::new(&place);
    let (address, _relay) =
        serve(&place.join("host/.git"), &place.join("state"), policy(), Default::default());
    println!("\nserving {address}");
    std::thread::sleep(Duration::from_secs(600));
}

fn start(place: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "relay_killed::serving", "--ignored", "--nocapture"])
        .env("RELAY_PLACE", place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("serving ").map(str::to_string)).unwrap();
    (child, address)
}

#[test]
fn a_killed_relay_leaves_the_host_whole() {
    let (_guard, place) = directory();
    let host = Repository::with_commit(&place.join("host"));
    fs::create_dir(place.join("state")).unwrap();
    let clone = Repository { folder: place.join("clone") };
    host.git(&["clone", "-q", "-o", "host", ".", clone.folder.to_str().unwrap()]);
    clone.git(&["checkout", "-q", "-b", "agent/x"]);
    for round in 0..40_u64 {
        let before = host.git(&["rev-parse", "--verify", "-q", "refs/heads/main"]);
        let (mut child, address) = start(&place);
        clone.git(&["remote", "set-url", "host", &format!("git://{address}/repo")]);
        let commit = clone.commit("work", &format!("{round}\n"), "work");
        let killed = std::thread::scope(|scope| {
            let pushing = scope.spawn(|| try_push(&clone, &["agent/x", "HEAD:agent/y"]).status.success());
            // Somewhere in the middle, each time elsewhere.
            std::thread::sleep(Duration::from_millis(round * 8));
            child.kill().unwrap();
            child.wait().unwrap();
            !pushing.join().unwrap()
        });
        // Each ref is old or new, and no lock blocks the host's git.
        for name in ["refs/heads/agent/x", "refs/heads/agent/y"] {
            let output = git(&host.folder, &["rev-parse", "--verify", "-q", name]);
            let now = String::from_utf8(output.stdout).unwrap().trim_end().to_string();
            let known = now.is_empty() || clone.git(&["rev-list", "HEAD"]).contains(&now);
            assert!(known, "{round}: {name} is at {now}");
            assert!(killed || now == commit, "{round}: {name} is at {now}, though the push went well");
        }
        assert_eq!(host.git(&["rev-parse", "main"]), before);
        sweep(&place.join("state")).unwrap();
        // The git that moved the refs is not ended by us: it is done in a moment.
        for _ in 0..100 {
            if leftovers(&place).is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        host.git(&["fsck", "--full", "--strict"]);
        host.git(&["update-ref", "refs/heads/agent/z", &before]);
        assert_eq!(leftovers(&place), Vec::<PathBuf>::new(), "{round}");
    }
    // And a push succeeds in the end.
    let (mut child, address) = start(&place);
    clone.git(&["remote", "set-url", "host", &format!("git://{address}/repo")]);
    let output = try_push(&clone, &["agent/x", "HEAD:agent/y"]);
    assert!(output.status.success(), "{}", relay::stderr_text(&output));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Files that git itself would not have there.
fn leftovers(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![place.join("host/.git"), place.join("state/quarantine")];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            let ends = |end: &str| path.extension().is_some_and(|extension| extension == end);
            let lone = ends("pack") && !path.with_extension("idx").exists();
            if ends("lock")
                || ends("keep")
                || lone
                || name.starts_with("tmp_")
                || path.ends_with("journal.json")
            {
                found.push(path.clone());
            }
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    found
}

#[test]
fn who_unpacks_dies_with_its_relay() {
    let (_guard, place) = directory();
    Repository::with_commit(&place.join("host"));
    fs::create_dir(place.join("state")).unwrap();
    let (mut child, address) = start(&place);
    let mut raw = Raw::push(address.parse().unwrap());
    let (zero, new) = ("0".repeat(40), "a".repeat(40));
    raw.send(&commands(&[(zero, new, "refs/heads/agent/x")]));
    // The beginning of a pack, and then nothing.
    raw.send(b"PACK\0\0\0\x02\0\0\0\x03");
    let process = indexer(&place.join("state"));
    let handle = pidfd_open(process, PidfdFlags::empty()).unwrap();
    // Like a process that computes: it does not notice that its input has ended.
    kill_process(process, Signal::STOP).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&Timespec { tv_sec: 60, tv_nsec: 0 }));
    let _ = pidfd_send_signal(&handle, Signal::KILL);
    assert_eq!(ended, Ok(1));
}

#[test]
fn what_a_killed_push_left_is_swept() {
    let (_guard, place) = directory();
    let host = Repository::with_commit(&place.join("host"));
    let state = place.join("state");
    let quarantine = state.join("quarantine/0123456789abcdef");
    fs::create_dir_all(quarantine.join("objects/pack")).unwrap();
    let packs = host.git_directory().join("objects/pack");
    let id = "a".repeat(40);
    let lock = |name: &str, content: &str| {
        format!(r#"{{"path":"{}/{name}","content":"{content}"}}"#, host.git_directory().display())
    };
    let journal = format!(
        r#"{{"pack":{{"directory":"{}","name":"pack-1"}},"locks":[{},{},{}]}}"#,
        packs.display(),
        lock("refs/heads/a.lock", &format!("{id}\\n")),
        lock("refs/heads/b.lock", &format!("{id}\\n")),
        lock("HEAD.lock", ""),
    );
    // An older lock of another process.
    fs::write(host.git_directory().join("HEAD.lock"), "").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    fs::write(quarantine.join("journal.json"), journal).unwrap();
    for (name, content) in [
        ("pack-1.keep", "belljar 0123456789abcdef\n"),
        ("pack-1.pack", "PACK"),
        ("tmp_belljar_0123456789abcdef_idx", ""),
        ("pack-2.pack", "not ours"),
        ("pack-2.keep", "not ours"),
    ] {
        fs::write(packs.join(name), content).unwrap();
    }
    fs::write(host.git_directory().join("refs/heads/a.lock"), format!("{id}\n")).unwrap();
    fs::write(host.git_directory().join("refs/heads/b.lock"), "something else\n").unwrap();
    assert_eq!(sweep(&state).unwrap(), 1);
    let mut left = leftovers(&place);
    left.sort();
    let expected = ["HEAD.lock", "objects/pack/pack-2.keep", "objects/pack/pack-2.pack", "refs/heads/b.lock"];
    let expected = expected.map(|name| host.git_directory().join(name));
    assert_eq!(left, expected);
    assert!(!quarantine.exists());
    assert_eq!(sweep(&state).unwrap(), 0);
}

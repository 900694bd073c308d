//! The process whose copies are shims: killed, orphaned, and looked for in what it made.

use belljar_tests_daemon::{Home, Sandbox, Started, eventually, kill};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_zygote_that_is_killed_takes_no_sandbox_along_and_another_takes_its_place() {
    let home = Home::new();
    let daemon = home.start();
    let first = Sandbox::create(&home.client(), &json!({}));
    let command = first.start("while [ ! -e stop ]; do sleep 0.1; done; echo end");
    let zygote = daemon.zygote().unwrap();
    kill(zygote);
    assert_eq!(first.run("touch stop; echo here"), ("here\n".into(), 0));
    assert_eq!(command.wait()["result"]["exit_code"], 0);
    let second = Sandbox::create(&home.client(), &json!({}));
    assert_eq!(second.run("echo here"), ("here\n".into(), 0));
    assert!(daemon.zygote().is_some_and(|another| another != zygote));
    first.delete();
    second.delete();
    home.is_clean(&[], &[first.id(), second.id()], Some(&daemon));
}

#[test]
fn a_zygote_ends_with_its_daemon_and_its_shims_do_not() {
    let home = Home::new();
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    let zygote = daemon.zygote().unwrap();
    daemon.kill();
    assert!(eventually(|| !fs::exists(format!("/proc/{zygote}/exe")).unwrap()), "the zygote goes on");
    let daemon = home.start();
    assert!(daemon.zygote().is_some_and(|another| another != zygote), "a new daemon has a zygote of its own");
    assert_eq!(sandbox.run("echo here"), ("here\n".into(), 0));
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn a_shim_begins_as_a_program_does() {
    let home = Home::new();
    let daemon = home.start();
    let before = Sandbox::create(&home.client(), &json!({}));
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    let shim = home.shim(&sandbox.name).unwrap();
    let zygote = daemon.zygote().unwrap();
    assert_eq!(parent(shim), daemon.pid(), "the daemon hears of its end");
    assert_eq!((leader(shim, 5), leader(shim, 6)), (shim, shim), "a group and a session of its own");
    let name = |number: u32| fs::read_link(format!("/proc/{shim}/fd/{number}")).unwrap();
    let log = home.places().join(&sandbox.name).join("keeper.log");
    assert_eq!([name(0), name(1), name(2)], ["/dev/null".into(), "/dev/null".into(), log]);
    let others = home.shim(&before.name).unwrap();
    for other in [zygote, others] {
        assert_eq!(shared_sockets(shim, other), 0, "a connection of another process");
    }
    for set in ["SigBlk:", "ShdPnd:"] {
        assert_eq!(status(shim, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(shim, "SigIgn:"), status(daemon.pid(), "SigIgn:"));
    assert_eq!(fs::metadata(format!("/proc/{zygote}/task")).unwrap().nlink(), 3, "one thread");
    before.delete();
    sandbox.delete();
    home.is_clean(&[], &[before.id(), sandbox.id()], Some(&daemon));
}

#[test]
fn each_shim_has_the_environment_that_it_was_started_with() {
    let home = Home::new();
    let daemon = home.start();
    for zone in ["Europe/Berlin", "Asia/Tokyo"] {
        let sandbox = Sandbox::create(&home.client(), &json!({"environment": {"TZ": zone}}));
        assert_eq!(sandbox.run("echo $TZ"), (format!("{zone}\n"), 0));
        sandbox.delete();
    }
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    assert_eq!(sandbox.run("echo $TZ"), ("\n".into(), 0), "nothing is left of others");
    sandbox.delete();
    drop::<Started>(daemon);
}

fn parent(pid: u32) -> u32 {
    leader(pid, 4)
}

/// A field of proc_pid_stat(5).
fn leader(pid: u32, field: usize) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit_once(") ").unwrap().1;
    rest.split(' ').nth(field - 3).unwrap().parse().unwrap()
}

fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_string()
}

fn shared_sockets(one: u32, other: u32) -> usize {
    let sockets = |pid: u32| -> Vec<_> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).collect()
    };
    let others = sockets(other);
    sockets(one).iter().filter(|socket| others.contains(socket)).count()
}

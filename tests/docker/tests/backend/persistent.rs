//! Sandboxes that Docker holds and a daemon keeps: they outlive the daemon, and are found again by their key.

use belljar_tests_daemon::{Home, Sandbox};
use belljar_tests_docker::{Dockerd, eventually};
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_daemon_that_was_killed_finds_its_containers_again_by_key() {
    found_again("docker");
}

#[test]
fn a_container_that_hangs_continues_after_another_daemon_came() {
    goes_on("docker");
}

fn found_again(backend: &str) {
    let Some(docker) = Dockerd::start() else { return };
    let home = Home::new().env("DOCKER_HOST", &docker.host());
    let daemon = home.start();
    let folder = home.folder(backend);
    let sandbox = Sandbox::create(&home.client(), &request(backend, &folder));
    let script =
        "i=0; while [ ! -e stop ]; do i=$((i + 1)); echo $i > .n; mv .n count; sleep 0.1; done; echo end";
    let command = sandbox.start(script);
    let count = || -> u64 {
        let text = fs::read_to_string(folder.join("count")).unwrap_or_default();
        text.trim().parse().unwrap_or_default()
    };
    assert!(eventually(|| count() > 1), "{backend}: the command does not begin");
    let containers = docker.containers();
    daemon.kill();
    let before = count();
    assert!(eventually(|| count() > before + 1), "{backend}: nothing goes on without the daemon");

    let daemon = home.start();
    let again = Sandbox::create(&home.client(), &request(backend, &folder));
    assert_eq!((again.id(), docker.containers()), (sandbox.id(), containers), "{backend}: it is another");
    fs::write(folder.join("stop"), "").unwrap();
    assert_eq!(command.wait()["result"]["exit_code"], 0, "{backend}");
    assert_eq!(command.output(), "end\n", "{backend}");
    sandbox.delete();
    assert!(eventually(|| docker.containers().is_empty()), "{backend}: {:?}", docker.containers());
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
    assert!(daemon.stop().success(), "{}", home.log());
}

fn goes_on(backend: &str) {
    let Some(docker) = Dockerd::start() else { return };
    let home = Home::new().env("DOCKER_HOST", &docker.host());
    let daemon = home.start();
    let folder = home.folder(backend);
    let sandbox = Sandbox::create(&home.client(), &request(backend, &folder));
    let lines = || fs::read_to_string(folder.join("lines")).unwrap_or_default().lines().count();
    let command = sandbox.start("while [ ! -e stop ]; do echo >> lines; sleep 0.05; done");
    assert!(eventually(|| lines() > 2), "{backend}: the command does not begin");
    home.client().post(&sandbox.path("/pause"), &Value::Null).ok();
    let before = lines();
    daemon.kill();
    let daemon = home.start();
    // Had it gone on, it would have written many by now.
    assert!(lines() <= before + 1, "{backend}: it goes on while it is paused");
    home.client().post(&sandbox.path("/resume"), &Value::Null).ok();
    assert!(eventually(|| lines() > before + 2), "{backend}: it does not go on");
    fs::write(folder.join("stop"), "").unwrap();
    assert_eq!(command.wait()["result"]["exit_code"], 0, "{backend}");
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
    assert!(daemon.stop().success(), "{}", home.log());
}

fn request(backend: &str, folder: &std::path::Path) -> Value {
    json!({ "key": backend, "sandbox": { "backend": backend, "workspace": { "folder": folder } } })
}

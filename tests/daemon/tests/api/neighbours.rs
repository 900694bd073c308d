//! Several daemons on one machine, and shims that die: what lives is never touched, and what is dead is removed or kept.

use belljar_tests_daemon::{Home, Sandbox, eventually, kill};
use serde_json::json;
use std::process::Stdio;

#[test]
fn daemons_never_sweep_each_other() {
    let (ours, theirs) = (Home::new(), Home::new());
    let (daemon, neighbour) = (ours.start(), theirs.start());
    let key = json!({ "key": "the same" });
    let (here, there) = (Sandbox::create(&ours.client(), &key), Sandbox::create(&theirs.client(), &key));
    let gone = Sandbox::create(&theirs.client(), &json!({}));
    assert_eq!(here.name, there.name, "a name follows from its key alone");
    here.run("echo ours > file");
    there.run("echo theirs > file");

    // One that lives.
    assert_eq!(ours.client().post("/v1/sweep", &json!({})).ok()["swept"], json!([]));
    assert_eq!(there.run("cat file"), ("theirs\n".into(), 0));
    // One that was killed, and whose sandboxes continue.
    neighbour.kill();
    assert_eq!(ours.client().post("/v1/sweep", &json!({})).ok()["swept"], json!([]));
    let neighbour = theirs.start();
    assert_eq!(there.run("cat file"), ("theirs\n".into(), 0));
    assert_eq!(gone.run("echo here"), ("here\n".into(), 0));
    assert_eq!(here.run("cat file"), ("ours\n".into(), 0));
    [&here, &there, &gone].into_iter().for_each(Sandbox::delete);
    ours.is_clean(&[], &[here.id()], Some(&daemon));
    theirs.is_clean(&[], &[there.id(), gone.id()], Some(&neighbour));
}

#[test]
fn a_state_directory_has_one_daemon() {
    let home = Home::new();
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    let mut second = home.belljar();
    second.arg("serve").env("XDG_RUNTIME_DIR", home.folder("elsewhere"));
    let refused = second.stdin(Stdio::null()).output().unwrap();
    assert!(!refused.status.success());
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(printed.contains("daemon") && printed.contains("hint"), "{printed}");
    assert_eq!(sandbox.run("echo here"), ("here\n".into(), 0));
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn a_shim_that_dies_takes_an_ephemeral_sandbox_with_it() {
    let home = Home::new();
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    let command = sandbox.start("sleep 1000");
    kill(home.shim(&sandbox.name).unwrap());
    let gone = || sandbox.client.get(&sandbox.path("")).status == 404;
    assert!(eventually(gone), "{:#}", sandbox.info());
    let late = sandbox.client.post(&sandbox.path("/commands"), &json!({ "shell": "true" }));
    late.refused(404, "sandbox_not_found");
    drop(command);
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn a_persistent_one_is_stopped_then_and_wakes_with_its_files() {
    let home = Home::new();
    let daemon = home.start();
    let request = json!({ "key": "kept" });
    let sandbox = Sandbox::create(&home.client(), &request);
    sandbox.run("echo kept > file");
    kill(home.shim(&sandbox.name).unwrap());
    assert!(eventually(|| sandbox.info()["state"] == "stopped"), "{:#}", sandbox.info());
    home.is_clean(&[&sandbox.name], &[sandbox.id()], Some(&daemon));
    let joined = home.client().post("/v1/sandboxes", &json!({ "key": "kept", "owner": false }));
    assert_eq!(joined.code(), "sandbox_not_alive", "{}", joined.text());
    let woken = Sandbox::create(&home.client(), &request);
    assert_eq!((&woken.name, &woken.created["created"]), (&sandbox.name, &json!(false)));
    assert_ne!(woken.id(), sandbox.id(), "it is the same life");
    assert_eq!(woken.run("cat file"), ("kept\n".into(), 0));
    woken.delete();
    home.is_clean(&[], &[woken.id()], Some(&daemon));
}

/// Both at once: no daemon saw the shims die.
#[test]
fn what_died_with_the_daemon_is_swept_by_the_next_one() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client();
    let [kept, gone, alive] = [json!({ "key": "kept" }), json!({}), json!({ "key": "alive" })]
        .map(|request| Sandbox::create(&client, &request));
    kept.run("echo kept > file");
    daemon.kill();
    for dead in [&kept, &gone] {
        kill(home.shim(&dead.name).unwrap());
    }
    let daemon = home.start();
    assert!(eventually(|| client.get(&gone.path("")).status == 404));
    assert_eq!(kept.info()["state"], "stopped");
    assert_eq!(alive.run("echo here"), ("here\n".into(), 0));
    let woken = Sandbox::create(&client, &json!({ "key": "kept" }));
    assert_eq!(woken.run("cat file"), ("kept\n".into(), 0));
    woken.delete();
    alive.delete();
    home.is_clean(&[], &[kept.id(), gone.id(), alive.id(), woken.id()], Some(&daemon));
}

#[test]
fn a_sweep_can_be_asked_what_it_would_do() {
    let home = Home::new();
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    let swept = home.client().post("/v1/sweep?dry_run=true", &json!({})).ok();
    assert_eq!((&swept["dry_run"], &swept["swept"]), (&json!(true), &json!([])));
    daemon.kill();
    kill(home.shim(&sandbox.name).unwrap());
    // Without a daemon, by itself.
    let reported = home.belljar().args(["sweep", "--dry-run"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&reported.stdout);
    assert!(
        reported.status.success() && text.contains(&sandbox.name),
        "{text}{}",
        String::from_utf8_lossy(&reported.stderr)
    );
    assert!(home.places().join(&sandbox.name).exists(), "a dry run did something");
    let reported = home.belljar().arg("sweep").stdin(Stdio::null()).output().unwrap();
    assert!(reported.status.success(), "{}", String::from_utf8_lossy(&reported.stderr));
    home.is_clean(&[], &[sandbox.id()], None);
}

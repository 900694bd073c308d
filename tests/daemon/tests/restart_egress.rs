//! What a sandbox reaches while its daemon dies, and afterwards.

use belljar_tests_daemon::{Home, Sandbox, eventually};
use belljar_tests_hosts::{Dns, HttpServer, Response};
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;

#[test]
fn connections_continue_without_the_daemon_and_after_it() {
    let server = HttpServer::start(Ipv4Addr::LOCALHOST, |request| {
        Response::ok(format!("you asked for {}\n", request.target))
    });
    let names = Dns::of([("files.example", Ipv4Addr::LOCALHOST.into())]);
    let home = Home::new()
        .operator(&format!("[egress]\nprivate = [\"127.0.0.0/8\"]\nresolvers = [\"{}\"]\n", names.address()));
    let daemon = home.start();
    let folder = home.folder("work");
    let port = server.address().port();
    let sandbox = Sandbox::create(
        &home.client(),
        &json!({ "sandbox": {
            "workspace": { "folder": folder },
            "egress": { "mode": "strict", "allow": [format!("files.example:{port}/http")] },
        }}),
    );
    let ask = format!("curl -sS --max-time 20 http://files.example:{port}/one");
    assert_eq!(sandbox.run(&ask), ("you asked for /one\n".into(), 0));
    let refused = format!("curl -sS --max-time 20 http://other.example:{port}/");
    assert_ne!(sandbox.run(&refused).1, 0);
    let command = sandbox.start(&format!(
        "n=0; while [ ! -e stop ]; do curl -sS --max-time 20 http://files.example:{port}/$n >> got || echo failed $n; \
         n=$((n + 1)); sleep 0.1; done; echo $n"
    ));
    let count = || fs::read_to_string(folder.join("got")).unwrap_or_default().lines().count();
    assert!(eventually(|| count() > 2));
    daemon.kill();
    let before = count();
    assert!(eventually(|| count() > before + 2), "nothing is reached without a daemon");
    let daemon = home.start();
    assert_eq!(sandbox.run(&ask), ("you asked for /one\n".into(), 0));
    assert_ne!(sandbox.run(&refused).1, 0, "egress was opened without a rule");
    fs::write(folder.join("stop"), "").unwrap();
    assert_eq!(command.wait()["result"]["exit_code"], 0);
    assert_eq!(command.output().trim(), count().to_string(), "each request was answered");
    // The record is one, whatever became of the daemon. Refusals of one name are told together.
    let decisions = home.client().get(&sandbox.path("/egress?limit=1000")).ok();
    let refusals = decisions["items"].to_string().matches("other.example").count();
    assert!(refusals >= 1, "{decisions:#}");
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

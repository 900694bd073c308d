//! The published SDKs, unmodified, in both ways in.

use crate::daemon::{DOMAIN, Served, all_succeed, has_sdks};
use belljar_sys::rustix::process::geteuid;
use std::fs;
use std::process::Command;

const PYTHON: &str = include_str!("../programs/sdk.py");
const NODE: &str = include_str!("../programs/sdk.mjs");
const TEMPLATES_PYTHON: &str = include_str!("../programs/templates.py");
const TEMPLATES_NODE: &str = include_str!("../programs/templates.mjs");
const DNS: &str = include_str!("../programs/dns.py");

/// One plain port, with routing headers.
#[test]
fn both_sdks_work_at_one_plain_port() {
    if !has_sdks() {
        return;
    }
    let served = Served::new();
    let url = format!("http://{}", served.address);
    let with = |mut command: Command, name: &str| {
        command.env("E2B_API_KEY", served.key(name)).env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url);
        command
    };
    all_succeed(vec![
        with(served.python("sdk.py", PYTHON), "python"),
        with(served.node("sdk.mjs", NODE), "node"),
    ]);
    served.home.is_clean(&[], &[], served.started.as_ref());
}

/// Templates that clients build: every kind of step, files, tags, what they start; and that nothing of a build is left behind.
#[test]
fn both_sdks_build_templates() {
    if !has_sdks() {
        return;
    }
    let served = Served::new();
    let url = format!("http://{}", served.address);
    let with = |mut command: Command, name: &str| {
        command.env("E2B_API_KEY", served.key(name)).env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url);
        command
    };
    all_succeed(vec![
        with(served.python("templates.py", TEMPLATES_PYTHON), "python"),
        with(served.node("templates.mjs", TEMPLATES_NODE), "node"),
    ]);
    served.home.is_clean(&[], &[], served.started.as_ref());
}

/// Names below a domain, with TLS by a CA of our own and the variables that `belljar e2b env` prints, where there is nothing but a
/// loopback interface: no answer comes from elsewhere. Names are answered by a server of the test, since no hosts file has wildcards.
#[test]
fn both_sdks_work_by_name_without_any_other_network() {
    // Only root may bring a mount over the file that says who is asked for names; the server is the same for every user.
    if !has_sdks() || !geteuid().is_root() {
        return;
    }
    let served = Served::to_start();
    let home = &served.home;
    let folder = home.folder("programs");
    fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    let dns = served.python("dns.py", DNS);
    let python = served.python("sdk.py", PYTHON);
    let node = served.node("sdk.mjs", NODE);
    let script = r#"
        set -eu
        ip link set lo up
        mount --bind "$PWD/resolv.conf" /etc/resolv.conf
        "$PYTHON" dns.py "$DOMAIN" &
        dns=$!
        "$BELLJAR" serve --e2b "$ADDRESS" --e2b-domain "$DOMAIN" 2>daemon.log &
        daemon=$!
        trap 'kill $daemon $dns' EXIT
        until "$BELLJAR" e2b env >env 2>>wait.log; do sleep 0.1; done
        E2B_API_KEY=$("$BELLJAR" daemon grants create sdk --e2b --egress open --egress strict --host '*')
        export E2B_API_KEY
        . ./env
        test -n "$E2B_DOMAIN" && test -z "${E2B_API_URL:-}"
        "$PYTHON" -W ignore sdk.py >python.log 2>&1 &
        python=$!
        node sdk.mjs >node.log 2>&1 || { cat node.log daemon.log; exit 1; }
        wait $python || { cat python.log daemon.log; exit 1; }
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", script]).current_dir(folder);
    for (name, value) in home.belljar().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    for (name, value) in node.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PYTHON", python.get_program()).env("BELLJAR", home.belljar().get_program());
    command.env("ADDRESS", "127.0.0.1:8443").env("DOMAIN", DOMAIN).env_remove("SSL_CERT_DIR");
    command.env_remove("E2B_API_URL").env_remove("E2B_SANDBOX_URL");
    drop(dns);
    all_succeed(vec![command]);
}

//! A port inside reached from here, and a host name allowed from here.

use crate::persistent::home::Home;
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

/// Whether or not the sandbox was made with `ports`.
#[test]
fn a_port_of_this_machine_leads_to_one_inside() {
    let home = Home::new();
    home.run(&["init"]);
    home.run(&["start"]);
    let serve = "import socket\ns = socket.create_server(('127.0.0.1', 3000))\nopen('listens', 'w')\n\
                 while True:\n c, _ = s.accept(); c.sendall(b'from inside: ' + c.recv(100)); c.close()";
    let started = home.run(&["exec", "-d", "--", "python3", "-c", serve]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let listens = home.run(&["exec", "--", "sh", "-c", "until test -e listens; do sleep 0.1; done"]);
    assert_eq!(listens.code, 0, "{}", listens.stderr);
    let mut forward = home.command(&["forward", "--json", "0:3000"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    let mut lines = BufReader::new(forward.stdout.take().unwrap());
    while !printed.ends_with("\n}\n") {
        assert_ne!(lines.read_line(&mut printed).unwrap(), 0, "{printed}");
    }
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["ports"][0]["inside"], 3000);
    let port = printed["ports"][0]["here"].as_u64().unwrap() as u16;
    for word in ["one", "two"] {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(word.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, format!("from inside: {word}"));
    }
    let taken = home.run(&["forward", ".", &format!("{port}:3000")]);
    assert_eq!(taken.code, 126, "{}", taken.stderr);
    assert!(
        taken.stderr.contains("cannot be opened") && taken.stderr.contains("`0:3000`"),
        "{}",
        taken.stderr
    );
    kill_process(Pid::from_child(&forward), Signal::INT).unwrap();
    assert_eq!(forward.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// Without a word of `forward`: as long as the sandbox lives, and shown where sandboxes are listed.
#[test]
fn ports_that_a_sandbox_was_started_with_lead_into_it() {
    let home = Home::new();
    home.run(&["init"]);
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().port();
    let started = home.run(&["start", "-p", "0:3000", "-p", "[::1]:0:3000", "--json"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let info: serde_json::Value = serde_json::from_str(&started.stdout).unwrap();
    let forwarded = info["forwarded"].as_array().unwrap();
    let addresses: Vec<_> = forwarded.iter().map(|at| (&at["address"], &at["inside"])).collect();
    assert_eq!(addresses, [(&"127.0.0.1".into(), &3000.into()), (&"::1".into(), &3000.into())]);
    let port = forwarded[0]["port"].as_u64().unwrap() as u16;
    let serve = "import socket\ns = socket.create_server(('127.0.0.1', 3000))\nopen('listens', 'w')\n\
                 while True:\n c, _ = s.accept(); c.sendall(b'from inside: ' + c.recv(100)); c.close()";
    assert_eq!(home.run(&["exec", "-d", "--", "python3", "-c", serve]).code, 0);
    home.run(&["exec", "--", "sh", "-c", "until test -e listens; do sleep 0.1; done"]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"word").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "from inside: word");
    let listed = home.run(&["list"]).stdout;
    assert!(listed.contains(&format!("127.0.0.1:{port}->3000")), "{listed}");
    // One that another program has starts nothing.
    home.run(&["stop", "."]);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the port is closed with the sandbox");
    let refused = home.run(&["run", "-p", &format!("{taken}:3000"), "--", "true"]);
    assert!(refused.code == 126 && refused.stderr.contains("cannot be opened"), "{}", refused.stderr);
}

/// What a trusted repository asks for: another port, where that one is in use.
#[test]
fn the_ports_of_a_repository_lead_into_its_sandbox() {
    let home = Home::new();
    home.run(&["init"]);
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let config = home.path("work/.belljar/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, format!("[sandbox]\nports = [{port}]\n")).unwrap();
    assert_eq!(home.run(&["config", "trust", "--yes"]).code, 0);
    let started = home.run(&["start", "--json"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    assert!(started.stderr.contains(&format!("port {port} of this machine is in use")), "{}", started.stderr);
    let info: serde_json::Value = serde_json::from_str(&started.stdout).unwrap();
    let at = &info["forwarded"][0];
    assert!(at["inside"] == port && at["port"] != port && at["address"] == "127.0.0.1", "{at}");
}

#[test]
fn a_host_is_allowed_in_the_folders_own_configuration() {
    let home = Home::new();
    let first = home.run(&["allow", "one.example"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stderr.contains("one.example is allowed"), "{}", first.stderr);
    assert_eq!(home.run(&["allow", "=two.example:8443"]).code, 0);
    let again = home.run(&["allow", "one.example", "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!((&again["rule"], &again["changed"]), (&"one.example".into(), &false.into()));
    let reported = home.run(&["run", "--", "cat", "/etc/belljar/network.txt"]).stdout;
    assert!(reported.contains("one.example") && reported.contains("two.example"), "{reported}");
    let wrong = home.run(&["allow", "not a host"]);
    assert_eq!(wrong.code, 126, "{}", wrong.stderr);
    // What another author wrote is not trusted along with it.
    let file = home.path("work/.belljar/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("one.example", "other.example")).unwrap();
    let changed = home.run(&["allow", "three.example"]);
    assert!(changed.code != 0 && changed.stderr.contains("`belljar config trust`"), "{}", changed.stderr);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("three.example"));
}

/// Over the sandbox's own socket: a daemon holds it, and the command line needs none.
#[test]
fn a_host_is_allowed_and_denied_in_a_sandbox_that_lives() {
    let home = Home::new();
    home.run(&["init"]);
    assert_eq!(home.run(&["start"]).code, 0);
    let shown = |args: &[&str]| -> serde_json::Value {
        let shown = home.run(&[&["policy", "show", "--json"], args].concat());
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        serde_json::from_str(&shown.stdout).unwrap()
    };
    let before = shown(&["."]);
    assert_eq!((&before["mode"], &before["version"]), (&"strict".into(), &0.into()));
    let allowed = home.run(&["allow", "live.example", "--in", ".", "--for", "10m"]);
    assert_eq!(allowed.code, 0, "{}", allowed.stderr);
    let config = home.path("work/.belljar/config.toml");
    assert!(!std::fs::read_to_string(&config).unwrap().contains("live.example"), "no file says so");
    let after = shown(&["."]);
    assert_eq!(after["version"], 1);
    assert_ne!(after["policy"], before["policy"]);
    let rule = &after["rules"][0];
    assert_eq!((&rule["rule"], &rule["live"]), (&"live.example".into(), &true.into()));
    assert!(rule["ends_s"].as_u64().is_some_and(|left| left <= 600), "{rule}");
    let name = |name: &str| home.run(&["exec", "--", "getent", "hosts", name]).code;
    assert_eq!((name("live.example"), name("other.example")), (0, 2));
    // Under another policy than the one that was looked at, nothing runs.
    let digest = before["policy"].as_str().unwrap();
    let refused = home.run(&["exec", "--policy", digest, "--", "true"]);
    assert!(refused.code == 126 && refused.stderr.contains(digest), "{}", refused.stderr);
    let digest = after["policy"].as_str().unwrap();
    assert_eq!(home.run(&["exec", "--policy", digest, "--", "true"]).code, 0);
    // With the folder's configuration, both at once.
    let denied = home.run(&["deny", "live.example"]);
    assert!(denied.code == 0 && denied.stderr.contains(" now "), "{}", denied.stderr);
    assert_eq!(name("live.example"), 2);
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("deny = [\"live.example\"]"), "{text}");
    let why = home.run(&["why", "live.example"]);
    assert!(why.code == 0 && why.stdout.contains("a rule forbids this name"), "{}", why.stdout);
    let audit = home.run(&["audit"]);
    assert_eq!(audit.code, 0, "{}", audit.stderr);
    let nothing = home.run(&["allow", "x.example", "--once", "--in", "nowhere"]);
    assert!(nothing.code == 126 && nothing.stderr.contains("no sandbox `nowhere`"), "{}", nothing.stderr);
}

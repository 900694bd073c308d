//! A port inside reached from here, and a host name allowed from here.

use crate::kept::home::Home;
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
    let mut forward = home.command(&["forward", "--json", ".", "3000:0"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(forward.stdout.take().unwrap());
    while !said.ends_with("\n}\n") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["ports"][0]["inside"], 3000);
    let port = said["ports"][0]["here"].as_u64().unwrap() as u16;
    for word in ["one", "two"] {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(word.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, format!("from inside: {word}"));
    }
    let taken = home.run(&["forward", ".", &format!("3000:{port}")]);
    assert_eq!(taken.code, 126, "{}", taken.stderr);
    assert!(
        taken.stderr.contains("cannot be opened") && taken.stderr.contains("`3000:0`"),
        "{}",
        taken.stderr
    );
    kill_process(Pid::from_child(&forward), Signal::INT).unwrap();
    assert_eq!(forward.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
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
    let told = home.run(&["run", "--", "cat", "/etc/belljar/network.txt"]).stdout;
    assert!(told.contains("one.example") && told.contains("two.example"), "{told}");
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

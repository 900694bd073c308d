//! A person at a terminal in a sandbox that is kept.

use crate::persistent::home::Home;
use belljar_sys::rustix::process::Signal;
use belljar_tests_cli::{Foreground, Piped};

#[test]
fn a_shell_joins_the_folders_sandbox_and_remembers() {
    let home = Home::ready();
    let mut person = home.at_terminal(&["shell"]);
    person.sees("you are inside").sees("(belljar)").sees("$ ");
    person
        .types("alias freeclaude freecodex\r")
        .sees("dangerously-skip-permissions")
        .sees("dangerously-bypass");
    person.types("echo $((40 + 2)); exit 3\r").sees("42");
    assert_eq!(person.ends().0, 3);
    let mut again = home.at_terminal(&["shell"]);
    again.sees("$ ").types("echo times=$(history | grep -c freeclaude)\r").sees("times=2").types("exit\r");
    assert_eq!(again.ends().0, 0);
    assert_eq!(home.json(&["list", "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn belljar_alone_is_a_shell_at_a_terminal_and_help_elsewhere() {
    let home = Home::new();
    let mut person = home.at_terminal(&[]);
    person
        .sees("you are inside")
        .sees("(belljar)")
        .types("test -e /volumes || echo al''one; exit 5\r")
        .sees("alone");
    assert_eq!(person.ends().0, 5);
    assert!(home.daemon().is_none(), "a one-shot sandbox needs no daemon");
    assert!(home.run(&[]).stdout.contains("Usage: belljar"), "there is no terminal");
    assert_eq!(home.run(&["init"]).code, 0);
    let mut person = home.at_terminal(&[]);
    person.sees("(belljar)").types("test -e /volumes && echo ke''pt; exit 4\r").sees("kept");
    assert_eq!(person.ends().0, 4);
    assert!(home.run(&[]).stdout.contains("Usage: belljar"), "there is no terminal");
}

#[test]
fn flags_and_once_open_a_shell_of_its_own() {
    let home = Home::ready();
    for words in [&["shell", "--once"][..], &["shell", "--open-files", "512"]] {
        let run = home.run_with(words, b"test -e /volumes || echo alone");
        assert_eq!(run.stdout, "alone\n", "{}", run.stderr);
    }
    assert_eq!(home.json(&["list", "--json"]), serde_json::json!([]));
}

#[test]
fn a_terminal_has_our_size_and_our_keys() {
    let home = Home::ready();
    let script =
        "trap 'stty size' WINCH; trap 'exit 130' INT; stty size; echo ready; while :; do sleep 0.1; done";
    let mut person = home.at_terminal(&["exec", "--", "bash", "-c", script]);
    person.sees("24 80").sees("ready").resizes(33, 101).sees("33 101").types("\x03");
    assert_eq!(person.ends().0, 130);
    let never = home.at_terminal(&["exec", "--tty", "never", "--", "tty"]).ends();
    assert!(never.1.contains("not a tty"), "{}", never.1);
    let always = home.run(&["exec", "--tty", "always", "--", "tty"]);
    assert!(always.stdout.contains("/dev/pts/"), "{}", always.stdout);
}

#[test]
fn signals_reach_a_command_that_does_not_read() {
    let home = Home::ready();
    let exec = |script: &str| home.command(&["exec", "--", "sh", "-c", script]);
    for piped in [Piped::Nothing, Piped::Everything] {
        let script = "trap 'echo heard; exit 41' TERM; echo ready; while :; do sleep 0.05; done";
        let belljar = Foreground::start(exec(script), piped);
        belljar.send(Signal::TERM);
        assert_eq!(belljar.ends(), ("heard\n".into(), Some(41)), "{piped:?}");
        let script = "trap '' INT; echo ready; while :; do sleep 0.05; done";
        let mut belljar = Foreground::start(exec(script), piped);
        belljar.send_until_it_ends(Signal::INT);
        assert_eq!(belljar.ends(), (String::new(), Some(137)), "{piped:?}");
    }
}

#[test]
fn a_second_terminal_joins_a_command_and_leaves_it_again() {
    let home = Home::ready();
    let mut first = home.at_terminal(&["shell"]);
    first.sees("$ ").types("echo fi''rst\r").sees("first");
    let mut second = home.at_terminal(&["attach", ".", "cmd_1"]);
    second.sees("first").types("echo sec''ond\r").sees("second");
    first.sees("second");
    second.types("\x10\x11").sees("keeps running");
    assert_eq!(second.ends().0, 0);
    first.types("exit 6\r");
    assert_eq!(first.ends().0, 6);
    let late = home.run(&["attach", ".", "cmd_1"]);
    assert!(late.code == 6 && late.stdout.contains("second"), "{}{}", late.stdout, late.stderr);
}

#[test]
fn a_shell_says_that_its_sandbox_was_stopped() {
    for ending in [&["stop"][..], &["rm", "--force", "."]] {
        let home = Home::ready();
        let mut person = home.at_terminal(&["shell"]);
        person.sees("$ ").types("echo is $((40 + 2))\r").sees("is 42");
        assert_eq!(home.run(ending).code, 0);
        let (code, shown) = person.ends();
        assert_eq!(code, 125, "{ending:?}: {shown}");
        assert!(shown.contains("the sandbox was stopped") && shown.contains("belljar start"), "{shown}");
        assert!(!shown.contains("doctor"), "{shown}");
    }
}

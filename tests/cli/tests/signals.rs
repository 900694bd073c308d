//! Signals to `belljar run`: one is handed to the command, a second one ends it; whether the command reads its input or not.

use belljar_sys::rustix::process::Signal;
use belljar_tests_cli::{Foreground, Home, Piped};

const SIGNALS: [(Signal, &str); 3] = [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP")];

/// Checks what becomes of a script that runs in the foreground, for each signal and whatever is piped to it.
fn each(check: impl Fn(Signal, &str, &dyn Fn(&str) -> Foreground)) {
    let home = Home::new("");
    for piped in [Piped::Nothing, Piped::Everything] {
        for (signal, name) in SIGNALS {
            check(signal, name, &|script| {
                Foreground::start(home.belljar(&["run", "--", "sh", "-c", script]), piped)
            });
        }
    }
}

#[test]
fn a_signal_is_handed_to_the_command() {
    each(|signal, name, run| {
        let trap = format!("trap 'echo heard {name}; exit 41' {name}");
        let belljar = run(&format!("{trap}; echo ready; while :; do sleep 0.05; done"));
        belljar.send(signal);
        assert_eq!(belljar.ends(), (format!("heard {name}\n"), Some(41)));
    });
}

#[test]
fn a_signal_ends_a_command_that_has_no_other_plan() {
    each(|signal, name, run| {
        let belljar = run("echo ready; exec sleep 1000");
        belljar.send(signal);
        assert_eq!(belljar.ends(), (String::new(), Some(128 + signal.as_raw())), "{name}");
    });
}

#[test]
fn a_second_signal_kills_a_command_that_ignores_them() {
    each(|signal, name, run| {
        let mut belljar = run(&format!("trap '' {name}; echo ready; while :; do sleep 0.05; done"));
        belljar.send_until_it_ends(signal);
        assert_eq!(belljar.ends(), (String::new(), Some(137)), "{name}");
    });
}

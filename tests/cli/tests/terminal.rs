//! A person at a terminal, in a sandbox that goes with its command.

use belljar_tests_cli::{Home, Person};
use std::process::Command;

fn at_terminal(home: &Home, args: &[&str]) -> Person {
    let mut command = home.belljar(args);
    command.env("SHELL", "/bin/bash");
    Person::new(command)
}

#[test]
fn a_command_has_our_size_and_our_keys() {
    let home = Home::new("");
    let script =
        "trap 'stty size' WINCH; trap 'exit 130' INT; stty size; echo ready; while :; do sleep 0.1; done";
    for tty in [&[][..], &["--tty", "always"]] {
        let words = [&["run"], tty, &["--", "bash", "-c", script]].concat();
        let mut person = at_terminal(&home, &words);
        person.sees("24 80").sees("ready").resizes(33, 101).sees("33 101").types("\x03");
        assert_eq!(person.ends().0, 130, "{tty:?}");
    }
}

#[test]
fn the_size_is_known_before_anything_else() {
    let home = Home::new("");
    let (code, shown) = at_terminal(&home, &["run", "--", "stty", "size"]).ends();
    assert_eq!((code, shown.as_str()), (0, "24 80\r\n"));
}

#[test]
fn a_command_at_a_terminal_knows_what_ours_can_do() {
    let script = "echo \"$(printenv TERM),$(printenv COLORTERM)\"";
    let home = Home::new("").env("COLORTERM", "truecolor");
    let (_, shown) = at_terminal(&home, &["run", "--", "sh", "-c", script]).ends();
    assert_eq!(shown, "xterm,truecolor\r\n");
    let (_, named) = at_terminal(&home, &["run", "--env", "COLORTERM=no", "--", "sh", "-c", script]).ends();
    assert_eq!(named, "xterm,no\r\n", "what is named counts");
    let unasked = home.run(&["run", "--", "sh", "-c", script]);
    assert_eq!(unasked.stdout, ",\n", "without a terminal there is nothing to know");
    let home = Home::new("").env("COLORTERM", "\u{1b}[2J");
    let (_, odd) = at_terminal(&home, &["run", "--", "sh", "-c", script]).ends();
    assert_eq!(odd, "xterm,\r\n", "what is not a plain name stays outside");
}

#[test]
fn a_command_gets_a_terminal_where_there_is_one_or_is_to_be_one() {
    let home = Home::new("");
    let (_, never) = at_terminal(&home, &["run", "--tty", "never", "--", "tty"]).ends();
    assert!(never.contains("not a tty"), "{never}");
    assert!(home.run(&["run", "--", "tty"]).stdout.contains("not a tty"), "there is no terminal");
    let always = home.run(&["run", "--tty", "always", "--", "sh", "-c", "tty; stty size; exit 5"]);
    assert!(always.stdout.contains("/dev/pts/") && always.stdout.contains("24 80"), "{}", always.stdout);
    assert_eq!(always.code, 5);
}

/// A program with a screen of its own gives the terminal back and stops itself at ctrl-Z. Then belljar stops as well, so that the
/// shell that started it has the terminal; and `fg` continues both.
#[test]
fn a_command_that_stops_itself_stops_belljar_until_the_shell_continues_it() {
    let home = Home::new("");
    let from = home.belljar(&[]);
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "bash", "--norc", "-i"]).current_dir(home.path("work"));
    shell.env("BELLJAR", from.get_program());
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let mut person = Person::new(shell);
    // What a command writes in the moment before it stops comes out when it goes on.
    person.types(
        "\"$BELLJAR\" run -- sh -c 'echo beg''un; sleep 1; kill -TSTP $$; echo ba''ck; read x; echo $x; exit 3'\n",
    );
    person.sees("begun\r\n").sees("Stopped").types("echo the sh''ell\n").sees("the shell");
    person.types("fg\n").sees("back\r\n").types("typed\n").sees("typed\r\ntyped\r\n");
    // The prompt: what is typed before belljar has ended is for the command.
    person.sees("bash-").types("exit $?\n");
    assert_eq!(person.ends().0, 3);
}

#[test]
fn ctrl_c_is_for_what_runs_at_the_terminal() {
    let home = Home::new("");
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut person = at_terminal(&home, &["run", "--", "bash", "-c", script]);
    person.sees("ready").types("\x03").sees("caught");
    assert_eq!(person.ends().0, 9);
}

#[test]
fn a_shell_of_its_own_says_where_we_are() {
    let home = Home::new("");
    for words in [&["shell", "--once"][..], &["shell", "--open-files", "512"]] {
        let mut person = at_terminal(&home, words);
        person.sees("you are inside (").sees("this folder is /workspace").sees("exit with ctrl-D");
        person.sees("(belljar)").sees("$ ").types("stty size\r").sees("24 80");
        // The new size comes by a signal, and not at once.
        let wait = "until [ \"$(stty size)\" = '50 132' ]; do sleep 0.05; done; echo wi\"\"de\r";
        person.resizes(50, 132).types(wait).sees("wide");
        // A command goes, and the shell stays.
        person.types("sh -c 'echo sle\"\"eps; exec sleep 1000'\r").sees("sleeps").types("\x03").sees("$ ");
        person.types("echo $((40 + 2)); exit 3\r").sees("42");
        assert_eq!(person.ends().0, 3, "{words:?}");
    }
}

#[test]
fn ctrl_d_leaves_a_shell_of_its_own() {
    let home = Home::new("");
    let mut person = at_terminal(&home, &["shell", "--once"]);
    person.sees("$ ").types("\x04");
    assert_eq!(person.ends().0, 0);
}

//! Looser means louder: a user who weakens the isolation reads so on standard error, and standard output stays the command's own.

use belljar_tests_cli::Home;

const NESTED: &str = "belljar: user namespaces are allowed inside (--nested)\n";
const HOST: &str = "belljar: no isolation (--backend host): the command runs as you, on this machine\n";
const CONTAINER: &str = "belljar: the only isolation is the container that belljar runs in (";

#[test]
fn nothing_is_said_of_a_whole_backend() {
    let run = Home::new("").run(&["run", "--", "echo", "it ran"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "it ran\n", ""));
}

#[test]
fn namespaces_inside_are_announced() {
    let home = Home::new("");
    let run = home.run(&["run", "--nested", "--", "echo", "it ran"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "it ran\n", NESTED));
    let json = home.run(&["run", "--nested", "--json", "--", "echo", "it ran"]);
    assert_eq!((json.code, json.stderr.as_str()), (0, NESTED));
    let shell = home.run_with_input(&["shell", "--nested"], "echo it ran");
    assert_eq!((shell.stdout.as_str(), shell.stderr.as_str()), ("it ran\n", NESTED));
}

#[test]
fn no_backend_is_announced() {
    let home = Home::new("");
    let run = home.run(&["run", "--backend", "host", "--", "echo", "it ran"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "it ran\n", HOST));
    let json = home.run(&["run", "--backend", "host", "--json", "--", "echo", "it ran"]);
    assert_eq!((json.code, json.stderr.as_str()), (0, HOST));
    let shell = home.run_with_input(&["shell", "--backend", "host"], "echo it ran");
    assert_eq!((shell.stdout.as_str(), shell.stderr.as_str()), ("it ran\n", HOST));
}

#[test]
fn a_container_as_the_only_backend_is_announced() {
    let home = Home::new("");
    let run = home.run(&["run", "--backend", "container", "--", "echo", "it ran"]);
    if run.code == 125 {
        // There is no container around us; nothing ran, and no message claims that something protects it.
        assert!(run.stdout.is_empty() && !run.stderr.contains(CONTAINER), "{}{}", run.stdout, run.stderr);
        return;
    }
    assert_eq!((run.code, run.stdout.as_str()), (0, "it ran\n"), "{}", run.stderr);
    let is_reported = |printed: &str| printed.starts_with(CONTAINER) && printed.lines().count() == 1;
    assert!(is_reported(&run.stderr), "{}", run.stderr);
    let shell = home.run_with_input(&["shell", "--backend", "container"], "echo it ran");
    assert_eq!(shell.stdout, "it ran\n");
    assert!(is_reported(&shell.stderr), "{}", shell.stderr);
}

#[test]
fn a_real_value_inside_is_announced() {
    let home = Home::new("");
    home.keep("token", "0123456789");
    let printed = "belljar: the real value of `secret:token` is inside, in TOKEN (--forward-secret)\n";
    let flags = ["--env", "TOKEN=secret:token", "--forward-secret", "token"];
    let run = home.run(&[&["run"], &flags[..], &["--", "sh", "-c", "echo ${#TOKEN}"]].concat());
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "10\n", printed));
    let json = home.run(&[&["run", "--json"], &flags[..], &["--", "true"]].concat());
    assert_eq!((json.code, json.stderr.as_str()), (0, printed));
    let shell = home.run_with_input(&[&["shell"], &flags[..]].concat(), "echo ${#TOKEN}");
    assert_eq!((shell.stdout.as_str(), shell.stderr.as_str()), ("10\n", printed));
}

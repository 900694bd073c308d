//! `belljar serve`, `service`, `grants`, `profiles`, `sweep`: what a person sees of the daemon and of who may ask it.

use belljar_tests_cli::Home;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn help_stays_as_it_is() {
    let home = Home::new("");
    for (name, args) in [
        ("serve", &["serve", "--help"][..]),
        ("service_install", &["service", "install", "--help"]),
        ("grants", &["grants", "--help"]),
        ("grants_create", &["grants", "create", "--help"]),
        ("profiles", &["profiles", "--help"]),
        ("sweep", &["sweep", "--help"]),
    ] {
        insta::assert_snapshot!(format!("help_{name}"), home.run(args).stdout);
    }
}

/// A grant with a limit that nothing holds here would have every one of its requests refused.
#[test]
fn a_grant_has_only_limits_that_a_sandbox_can_have() {
    let home = Home::new("").env("DOCKER_HOST", "unix:///nonexistent");
    for (flag, value) in [("--memory", "64m"), ("--cpus", "0.5")] {
        let sandbox = home.run(&["run", flag, value, "--", "true"]);
        let grant = home.run(&["grants", "create", "ci", "--key", "ci/*", flag, value]);
        assert_eq!(grant.code, sandbox.code, "{flag}: {}{}", sandbox.stderr, grant.stderr);
        let limit = flag.trim_start_matches('-');
        let refused = format!("a limit on {limit} cannot be enforced on this machine");
        assert_eq!(grant.stderr.contains(&refused), grant.code != 0, "{}", grant.stderr);
    }
}

#[test]
fn grants_are_kept_without_a_daemon_and_never_their_tokens() {
    let home = Home::new("");
    insta::assert_snapshot!("grants_none", home.transcript(&["grants", "list"]));
    let made = home.run(&["grants", "create", "ci", "--key", "ci/*", "--disk", "1g", "--sandboxes", "2"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let token = made.stdout.trim();
    let [prefix, id, secret] = token.split('_').collect::<Vec<_>>()[..] else { panic!("{token}") };
    assert_eq!((prefix, secret.len()), ("bjt", 64));
    let file = home.path("state/belljar/fleet/grants.json");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).expect("it is ours").contains(secret));
    let list = home.run(&["grants", "list"]).stdout;
    assert!(list.contains(id) && list.contains("2 sandboxes, keys ci/*") && !list.contains(secret), "{list}");
    assert_eq!(home.run(&["grants", "revoke", id]).code, 0);
    assert_eq!(home.run(&["grants", "list", "--json"]).stdout.trim(), "[]");
    insta::assert_snapshot!("grants_revoke_unknown", home.transcript(&["grants", "revoke", "000000000000"]));
    insta::assert_snapshot!("grants_wrong", home.transcript(&["grants", "create", "x", "--egress", "wide"]));
}

#[test]
fn units_say_where_belljar_is_and_are_written_where_systemd_looks() {
    let home = Home::new("");
    insta::assert_snapshot!(
        "service_print_user",
        home.transcript(&["service", "install", "--print", "--user"])
    );
    insta::assert_snapshot!(
        "service_print_system",
        home.run(&["service", "install", "--print", "--system"]).stdout
    );
    assert_eq!(home.run(&["service", "install", "--user"]).code, 0);
    for unit in ["belljar.service", "belljar.socket"] {
        assert!(home.path("config/systemd/user").join(unit).exists(), "{unit}");
    }
}

#[test]
fn what_is_not_encrypted_stays_on_this_machine() {
    let home = Home::new("");
    insta::assert_snapshot!("serve_plain", home.transcript(&["serve", "--listen", "0.0.0.0:0"]));
}

#[test]
fn there_is_nothing_to_sweep_where_nothing_was() {
    insta::assert_snapshot!("sweep_nothing", Home::new("").transcript(&["sweep", "--dry-run"]));
}

#[test]
fn profiles_of_files_are_offered_and_checked() {
    let home = Home::new("");
    home.user(
        "[profile.no-way-out]\ndescription = \"reaches nothing\"\negress = \"none\"\nbackend = \"native\"\n",
    );
    let list = home.run(&["profiles", "--json"]).stdout;
    assert!(list.contains("\"no-way-out\"") && list.contains("belljar.toml"), "{list}");
    // Nothing limits the egress of the host's own processes.
    home.user("[profile.never]\negress = \"none\"\nbackend = \"host\"\n");
    let list = home.run(&["profiles", "--json"]).stdout;
    assert!(!list.contains("\"never\""), "{list}");
    home.user("[profile.host]\nbackend = \"host\"\n");
    let twice = home.run(&["profiles"]);
    assert!(twice.code != 0 && twice.stderr.contains("there are two profiles `host`"), "{}", twice.stderr);
}

//! Secrets that a run uses: what a person sees, and what the command sees.

use belljar_tests_cli::Home;

const KEY: &str = "sk-ant-api03-Abc123Def456Ghi789Jkl012Mno345Pqr678";

#[test]
fn a_command_sees_a_placeholder_of_the_same_shape() {
    let home = Home::new("");
    home.keep("anthropic", KEY);
    let run =
        home.run(&["run", "--secret", "anthropic", "--", "sh", "-c", "printf %s \"$ANTHROPIC_API_KEY\""]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.starts_with("sk-ant-api03-") && run.stdout.len() == KEY.len(), "{}", run.stdout);
    assert_ne!(run.stdout, KEY);
    // By another name too, which the command line gives it.
    let script = "[ \"$MY_KEY\" = \"$ANTHROPIC_API_KEY\" ] && echo same";
    let run = home.run(&["run", "--env", "MY_KEY=secret:anthropic", "--", "sh", "-c", script]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "same\n"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_used_is_refused_with_what_to_do() {
    let home = Home::new("[credential.build]\nhost = \"=build.example.com\"\n");
    for (name, args) in [
        ("no_secret", &["--secret", "anthropic"][..]),
        ("no_credential", &["--secret", "nobody"]),
        ("no_egress", &["--secret", "build", "--egress", "none"]),
        ("not_a_search", &["--secret", "tavily"]),
        ("no_search", &["--web-search"]),
        ("not_bound", &["--env", "TOKEN=secret:other"]),
        ("nowhere_to_forward", &["--forward-secret", "build"]),
        ("no_app", &["--github", "read"]),
        ("no_profile", &["--github", "admin"]),
        ("no_repository", &["--github", "read", "--github-repo", "widgets"]),
    ] {
        let args = [&["run"][..], args, &["--", "echo", "it ran"]].concat();
        let printed = home.transcript(&args);
        assert!(!printed.starts_with("it ran"), "{name}: {printed}");
        insta::assert_snapshot!(name, printed);
    }
}

#[test]
fn the_apps_key_stays_behind_two_gates() {
    let app = "[github]\napp = 1\ninstallation = 2\nkey = \"secret:app\"\n";
    let home = Home::new(app);
    let printed = home.transcript(&[
        "run",
        "--github",
        "review-write",
        "--danger-forward-app-key",
        "--",
        "echo",
        "it ran",
    ]);
    insta::assert_snapshot!("one_gate", printed);
    let home = Home::new(&format!("{app}danger_forward_app_key = true\n"));
    insta::assert_snapshot!("no_such_gate", home.transcript(&["run", "--", "echo", "it ran"]));
}

#[test]
fn a_forwarded_secret_is_announced() {
    let home = Home::new("");
    home.keep("token", "0123456789");
    let args =
        ["run", "--env", "TOKEN=secret:token", "--forward-secret", "token", "--", "sh", "-c", "echo $TOKEN"];
    insta::assert_snapshot!("forwarded", home.transcript(&args));
    let shown = home.run(&["audit", "show"]).stdout;
    assert!(shown.contains("forwarded   the real value of secret:token is inside, in TOKEN"), "{shown}");
    assert!(!shown.contains("0123456789"), "{shown}");
}

#[test]
fn a_variable_that_a_secret_has_is_not_set_beside_it() {
    let home = Home::new("");
    home.keep("anthropic", KEY);
    let args = ["run", "--secret", "anthropic", "--env", "ANTHROPIC_API_KEY=mine", "--", "echo", "it ran"];
    insta::assert_snapshot!("twice", home.transcript(&args));
}

#[test]
fn what_files_bind_is_shown() {
    let home = Home::new(
        "[credential.build]\nsecret = \"env:BUILD_KEY\"\nhost = \"=build.example.com\"\nport = 8443\n\n\
         [credential.deploy]\nhost = \"=deploy.example.com\"\ninject = \"always\"\n\n[github]\napp = 1\n\
         installation = 2\nkey = \"secret:app\"\n",
    );
    insta::assert_snapshot!("shown", home.transcript(&["config", "show"]));
}

#[test]
fn a_repository_binds_nothing() {
    let home = Home::new("");
    home.write(
        "work/config.toml",
        "[credential.anthropic]\nsecret = \"env:HOME\"\nhost = \"evil.example.com\"\n",
    );
    insta::assert_snapshot!(
        "repository",
        home.transcript(&["policy", "check", "--as", "repository", "config.toml"])
    );
}

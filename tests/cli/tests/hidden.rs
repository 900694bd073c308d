//! `--hide` and `[workspace] hide`: what a person sees of files that the sandbox does not.

use belljar_tests_cli::Home;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

fn home(config: &str) -> Home {
    let home = Home::new(config);
    home.write("work/.env", "TOKEN=sk-secret\n");
    home.write("work/web/.env.local", "TOKEN=sk-secret\n");
    home.write("work/seen.txt", "seen\n");
    home
}

fn read(home: &Home, flags: &[&str]) -> String {
    let run = home.run(&[&["run"], flags, &["--", "sh", "-c", "cat .env web/.env.local seen.txt"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

#[test]
fn a_flag_and_a_file_hide_the_same_and_add_up() {
    assert_eq!(read(&home(""), &["--hide", ".env", "--hide", ".env.*"]), "seen\n");
    let configured = home("[workspace]\nhide = [\".env*\"]\n");
    assert_eq!(read(&configured, &[]), "seen\n");
    assert_eq!(read(&configured, &["--hide", "seen.txt"]), "");
    assert_eq!(read(&configured, &["--overlay"]), "seen\n");
    assert_eq!(fs::read_to_string(configured.path("work/.env")).unwrap(), "TOKEN=sk-secret\n");
}

/// In the work tree of a branch too. What git has of it in its objects is another matter, which the documentation says.
#[test]
fn a_file_that_git_tracks_is_hidden_in_a_branchs_work_tree() {
    let home = home("");
    for words in ["init -q", "add -f .", "-c user.name=n -c user.email=e@example.com commit -qm first"] {
        let git = Command::new("git").args(words.split(' ')).current_dir(home.path("work")).status().unwrap();
        assert!(git.success());
    }
    assert_eq!(read(&home, &["--branch", "fix", "--hide", ".env*"]), "seen\n");
}

/// Never on a pipe, as a field for programs; and not where the user said that it may be seen.
#[test]
fn a_secret_that_is_not_hidden_is_named_once() {
    let notes = |home: &Home, flags: &[&str]| -> Value {
        let run = home.run(&[&["run", "--json"], flags, &["--", "true"]].concat());
        assert!(!run.stderr.contains(".env"), "{}", run.stderr);
        let object: Value = serde_json::from_str(&run.stdout).unwrap();
        object["notes"].clone()
    };
    let found = notes(&home(""), &[]);
    assert_eq!((found.as_array().map(Vec::len), &found[0]["code"]), (Some(1), &json!("secret_visible")));
    assert_eq!(found[0]["message"], "the sandbox can read `.env`");
    assert!(found[0]["hint"].as_str().unwrap().contains("`--hide .env`"), "{found}");
    assert_eq!(notes(&home(""), &["--hide", ".env"]), Value::Null);
    assert_eq!(notes(&home("[workspace]\nvisible = [\".env\"]\n"), &[]), Value::Null);
    let plain = home("").run(&["run", "--", "true"]);
    assert_eq!((plain.code, plain.stderr.as_str()), (0, ""));
}

#[test]
fn a_backend_that_does_not_isolate_hides_nothing_and_says_so() {
    let run = home("").run(&["run", "--backend", "host", "--hide", ".env", "--", "cat", ".env"]);
    assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{}", run.stderr);
    assert!(run.stderr.contains("and so hides none in a folder"), "{}", run.stderr);
}

/// What an agent moves in one run, to find it under another name in the next.
#[test]
fn what_is_hidden_stays_so_in_the_next_run() {
    let deep =
        "n=$(printf %0200d 0); for i in 1 2 3 4 5 6 7; do mkdir $n && cd $n; done; mv \"$OLDPWD\"/web .";
    for (patterns, script, look) in [
        (&[".env*"][..], "mkdir x; mv web x/.git", "cat x/.git/.env.local web/.env.local"),
        (&["web/.env.local"], "mv web web2", "cat web2/.env.local web/.env.local"),
        (&[".env*"], deep, "find . -name .env.local -exec cat {} +"),
        (&[".env*"], "chmod 111 web", "cat web/.env.local"),
        (&[".env*"], "mv .env y; mv web/.env.local z; ln web/.env.local w", "cat .env y z w web/.env.local"),
    ] {
        let home = home("");
        let hide: Vec<&str> = patterns.iter().flat_map(|pattern| ["--hide", *pattern]).collect();
        let run = |script: &str| home.run(&[&["run"], hide.as_slice(), &["--", "sh", "-c", script]].concat());
        run(script);
        let seen = run(look);
        assert!(!seen.stdout.contains("sk-secret"), "{script}: {}{}", seen.stdout, seen.stderr);
    }
}

/// Links that were there before: a hidden folder's file has the same content under a name outside of it.
#[test]
fn a_file_of_a_hidden_folder_is_hidden_under_every_name() {
    let home = home("");
    fs::hard_link(home.path("work/web/.env.local"), home.path("work/plain")).unwrap();
    let run = home.run(&["run", "--hide", "web", "--", "sh", "-c", "cat plain; echo changed > plain"]);
    assert_eq!(run.stdout, "", "{}", run.stderr);
    assert_eq!(fs::read_to_string(home.path("work/plain")).unwrap(), "TOKEN=sk-secret\n");
}

/// A link that an agent planted covers nothing of the sandbox's own in the next run.
#[test]
fn a_link_out_of_the_workspace_hides_nothing_there() {
    let home = home("");
    for target in ["/workspace", "/usr/bin/env", "..", "/home/agent"] {
        let script = format!("rm -f .env.x; ln -s {target} .env.x");
        assert_eq!(home.run(&["run", "--", "sh", "-c", &script]).code, 0);
        let run = home.run(&[
            "run",
            "--hide",
            ".env.x",
            "--",
            "sh",
            "-c",
            "env true && cat seen.txt && touch ~/x y",
        ]);
        assert_eq!((run.code, run.stdout.as_str()), (0, "seen\n"), "{target}: {}", run.stderr);
    }
}

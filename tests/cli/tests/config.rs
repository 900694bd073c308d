//! `belljar config`, `policy`, `trust`: what a person sees of files and rules.

use belljar_tests_cli::Home;
use std::fs;
use std::path::Path;

/// A home with nothing in it, and a repository to work in.
fn home() -> Home {
    let home = Home::new("");
    fs::create_dir(home.path("work/.belljar")).expect("the folder is ours");
    home
}

fn repository(home: &Home, content: &str) {
    home.write("work/.belljar/config.toml", content);
}

const USER: &str = r#"[egress]
groups = ["github"]
allow = ["example.com", "=db.example.org:5433/postgres"]
deny = ["gist.github.com"]
connections = 100
bytes = "1g"

[[egress.rule]]
host = "build.example.net"
ports = [443, "8000-8100"]
protocols = ["tls"]
matches = ["a.build.example.net:8001"]
does_not_match = ["example.net"]
reason = "the build farm"
"#;

#[test]
fn help_stays_as_it_is() {
    let home = home();
    for (name, args) in [
        ("trust", &["trust", "--help"][..]),
        ("config", &["config", "--help"]),
        ("policy_check", &["policy", "check", "--help"]),
        ("policy_explain", &["policy", "explain", "--help"]),
    ] {
        insta::assert_snapshot!(format!("help_{name}"), home.run(args).stdout);
    }
}

#[test]
fn what_holds_is_shown_with_where_it_comes_from() {
    let home = home();
    insta::assert_snapshot!("show_nothing", home.transcript(&["config", "show"]));
    home.user(USER);
    repository(&home, "[egress]\nmode = \"none\"\n");
    let flags = ["config", "show", "--allow", "x.com/ssh", "--egress", "strict"];
    insta::assert_snapshot!("show", home.transcript(&flags));
    let shown = home.run(&["config", "show", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).expect("one JSON object");
    assert_eq!(json["mode"], serde_json::json!({ "value": "strict", "from": "default" }));
    assert_eq!(json["connections"]["from"], "[home]/config/belljar/belljar.toml:5");
    assert_eq!(json["allow"][0]["openings"][0], serde_json::json!({ "ports": "443", "protocols": ["tls"] }));
    assert_eq!(json["notes"][0]["code"], "repository_untrusted");
}

#[test]
fn the_schema_is_json() {
    let schema = home().run(&["config", "schema"]);
    let json: serde_json::Value = serde_json::from_str(&schema.stdout).expect("one JSON object");
    assert!(json["properties"]["egress"]["properties"]["allow"].is_object());
}

#[test]
fn a_repositorys_file_is_shown_before_it_is_trusted() {
    let home = home();
    insta::assert_snapshot!("trust_nothing", home.transcript(&["trust"]));
    repository(&home, USER);
    insta::assert_snapshot!("trust_without_a_terminal", home.transcript(&["trust"]));
    insta::assert_snapshot!(
        "trust_untrusted",
        home.transcript(&["policy", "explain", "--no-resolve", "example.com"])
    );
    insta::assert_snapshot!("trust_yes", home.transcript(&["config", "trust", "--yes"]));
    insta::assert_snapshot!(
        "trust_trusted",
        home.transcript(&["policy", "explain", "--no-resolve", "example.com"])
    );
    assert_eq!(home.run(&["trust"]).code, 0, "the user is not asked twice");
    repository(&home, &USER.replace("example.com", "example.org"));
    insta::assert_snapshot!(
        "trust_changed",
        home.transcript(&["policy", "explain", "--no-resolve", "example.com"])
    );
    let json = home.run(&["trust", "--yes", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("one JSON object");
    assert_eq!((json["trusted"].clone(), json["before"].clone()), (true.into(), "changed".into()));
    insta::assert_snapshot!("trust_revoke", home.transcript(&["trust", "--revoke"]));
    insta::assert_snapshot!("trust_revoke_again", home.transcript(&["trust", "--revoke", "--json"]));
}

#[test]
fn what_a_repositorys_sandboxes_need_is_shown_before_it_is_trusted() {
    let home = home();
    repository(
        &home,
        "[sandbox]\nports = [3000]\nprofile = \"web\"\nvolumes = { cache = \"/volumes/cache\" }\nenv = { CI = \"1\" }\n",
    );
    insta::assert_snapshot!("trust_sandbox", home.transcript(&["config", "trust", "--yes"]));
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["trust", "--json"]).stdout).expect("one JSON object");
    assert_eq!(json["sandbox"]["ports"], serde_json::json!([3000]));
    assert_eq!(json["sandbox"]["volumes"]["cache"], "/volumes/cache");
    let shown = home.run(&["sandbox", "plan"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("one JSON object");
    assert_eq!(shown["environment"]["CI"], "1");
    let own = home.run(&["show-run", "--env", "CI=2"]);
    let own: serde_json::Value = serde_json::from_str(&own.stdout).expect("one JSON object");
    assert_eq!(own["environment"]["CI"], "2");
}

#[test]
fn a_file_is_checked_and_counted() {
    let home = home();
    home.write("work/team.toml", USER);
    insta::assert_snapshot!("check_fine", home.transcript(&["policy", "check", "team.toml"]));
    let wrong = [
        ("typo", "[egress]\nmode = \"strict\"\nalow = [\"x.com\"]\n"),
        ("group", "[egress]\ngroups = [\n  \"github\",\n  \"registres\",\n]\n"),
        (
            "example",
            "[[egress.rule]]\nhost = \"x.com\"\nmatches = [\"x.com:443\"]\ndoes_not_match = [\"api.x.com\"]\n",
        ),
        ("rule", "[egress]\nallow = [\"https://x.com/path\"]\n"),
        ("layer", "[egress]\nonly = [\"x.com\"]\n"),
        ("loopback", "[egress]\nprivate = [\"127.0.0.0/8\"]\n"),
        ("syntax", "[egress]\nallow = [\"x.com\"\nmode = \"open\"\n"),
    ];
    for (name, content) in wrong {
        home.write("work/team.toml", content);
        insta::assert_snapshot!(format!("check_{name}"), home.transcript(&["policy", "check", "team.toml"]));
    }
    home.write("work/team.toml", wrong[4].1);
    assert_eq!(home.run(&["policy", "check", "--as", "operator", "team.toml"]).code, 0);
    assert_eq!(home.run(&["policy", "check", "nowhere.toml"]).code, 126);
}

#[test]
fn a_name_is_explained() {
    let home = home();
    home.user(USER);
    for (name, args) in [
        ("name", &["api.github.com"][..]),
        ("port", &["api.github.com:443"]),
        ("wrong_port", &["example.com:8443"]),
        ("denied", &["gist.github.com:443"]),
        ("unknown", &["evil.example"]),
        ("flags", &["evil.example:22", "--allow", "evil.example/ssh"]),
        ("open", &["evil.example", "--egress", "open"]),
        ("none", &["example.com", "--egress", "none"]),
        ("address", &["127.0.0.1:80"]),
    ] {
        let args: Vec<&str> = ["policy", "explain", "--no-resolve"].iter().chain(args).copied().collect();
        insta::assert_snapshot!(format!("explain_{name}"), home.transcript(&args));
    }
    let explained = home.run(&["policy", "explain", "--no-resolve", "--json", "example.com:443"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&explained).expect("one JSON object");
    assert_eq!((json["allowed"].clone(), json["port"].clone()), (true.into(), 443.into()));
    let explained = home.run(&["policy", "explain", "--no-resolve", "--json", "evil.example"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&explained).expect("one JSON object");
    assert_eq!(
        (json["reason"].clone(), json["remedy"].clone()),
        ("name_not_allowed".into(), "--allow evil.example".into())
    );
}

#[test]
fn an_explanation_says_where_a_name_leads_and_whether_it_may() {
    let dns = belljar_tests_hosts::Dns::start(|query| match query.name.as_str() {
        "public.test" => vec!["93.184.216.34".parse().expect("an address")],
        "private.test" => vec!["10.0.0.5".parse().expect("an address")],
        _ => Vec::new(),
    });
    let home = home();
    home.user(&format!("[egress]\nresolvers = [\"{}\"]\nallow = [\"test\"]\n", dns.address()));
    for (name, says) in [
        ("public.test:443", "93.184.216.34"),
        ("private.test:443", "not public"),
        ("nowhere.test:443", "there is no such name"),
    ] {
        let printed = home.transcript(&["policy", "explain", name]);
        assert!(printed.contains(says), "{name}: {printed}");
    }
}

#[test]
fn words_that_are_no_rules_are_refused_with_the_fix() {
    let home = home();
    for (args, says) in [
        (["--allow", "*.x.com"], "write `x.com`"),
        (["--allow", "10.0.0.1"], "is an address"),
        (["--allow", "com"], "public suffix"),
        (["--allow", "x.com:53/tcp"], "question for names"),
        (["--egress", "wide"], "write none, strict, ask or open"),
        (["--group", "githb"], "there are coding-agents, github, providers, registries"),
    ] {
        let result = home.run(&["run", args[0], args[1], "--", "true"]);
        assert_eq!(result.code, 125, "{}", result.stderr);
        assert!(result.stderr.contains(says), "{args:?}: {}", result.stderr);
    }
}

#[test]
fn a_run_stops_at_a_file_that_makes_no_sense() {
    let home = home();
    home.user("[egress]\nalow = []\n");
    let result = home.run(&["run", "--", "true"]);
    assert_eq!(result.code, 126);
    assert_eq!(
        result.stderr,
        "belljar: [home]/config/belljar/belljar.toml:2: there is no key `alow`\n  hint: did you mean `allow`?\n"
    );
    assert!(Path::new(&home.path("state")).read_dir().is_err(), "nothing was started");
}

/// What the user's file says counts at the next start: no process inside may write it, wherever it really lies.
#[test]
fn the_users_configuration_is_in_no_sandbox_not_even_behind_a_link() {
    let home = Home::new("");
    home.write("work/dots/belljar.toml", "[egress]\nmode = \"strict\"\n");
    home.write("work/other/file", "");
    fs::create_dir_all(home.path("config/belljar")).expect("the folder is ours");
    fs::create_dir_all(home.path("work/middle")).expect("the folder is ours");
    let link = |to: &str, at: &str| {
        let _ = fs::remove_file(home.path(at));
        std::os::unix::fs::symlink(home.path(to), home.path(at)).expect("the folder is ours");
    };
    let write = ["run", "--", "sh", "-c", "echo 'mode = \"open\"' > belljar.toml; echo ran"];
    let run_in = |folder: &str, args: &[&str]| {
        let mut command = home.belljar(args);
        let output = command.current_dir(home.path(folder)).output().expect("belljar starts");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), printed)
    };
    let refused = |folder: &str, args: &[&str]| {
        let (code, stdout, printed) = run_in(folder, args);
        assert_eq!((code, stdout.as_str()), (Some(126), ""), "{folder}: {printed}");
        assert!(printed.contains("holds what belljar keeps to itself"), "{folder}: {printed}");
    };
    link("work/dots/belljar.toml", "config/belljar/belljar.toml");
    refused("work/dots", &write);
    refused("work", &write);
    let shared = home.path("work/dots");
    let shared = ["run", "--rw", shared.to_str().expect("a plain path"), "--", "true"];
    refused("work/other", &shared);
    // Over another link, which could be made to lead elsewhere.
    link("work/dots/belljar.toml", "work/middle/link");
    link("work/middle/link", "config/belljar/belljar.toml");
    refused("work/middle", &write);
    refused("work/dots", &write);
    // The folder itself, by any name.
    let folder = home.path("config/belljar");
    let folder = ["run", "--rw", folder.to_str().expect("a plain path"), "--", "true"];
    refused("work/other", &folder);
    refused("config/belljar", &write);
    let text = fs::read_to_string(home.path("work/dots/belljar.toml")).expect("it is there");
    assert_eq!(text, "[egress]\nmode = \"strict\"\n");
    // Elsewhere all is as ever.
    let (code, stdout, printed) = run_in("work/other", &write);
    assert_eq!((code, stdout.as_str()), (Some(0), "ran\n"), "{printed}");
}

/// A person's default profile is what their commands use; flags win, and a trusted repository names one of theirs and no other.
#[test]
fn commands_use_the_default_profile_and_flags_win() {
    let home = Home::new(
        "[profile.mine]\ndefault = true\npids = 77\negress = \"none\"\ntimeout = \"2s\"\n\n[profile.small]\npids = 33\n",
    );
    let described = |flags: &[&str]| -> serde_json::Value {
        let run = home.run(&[&["sandbox", "plan"], flags].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str(&run.stdout).expect("one object")
    };
    let pids = |flags: &[&str]| described(flags)["limits"]["pids"].to_string();
    assert!(pids(&[]).contains("77"), "{}", pids(&[]));
    assert!(pids(&["--pids", "55"]).contains("55"), "{}", pids(&["--pids", "55"]));
    // As long as the profile says.
    let slow = home.run(&["run", "--", "sleep", "30"]);
    assert_eq!(slow.code, 124, "{}", slow.stderr);
    let shown = home.run(&["config", "show"]).stdout;
    for line in ["profile      mine", "pids         77", "mode         none"] {
        assert!(shown.contains(line), "{shown}");
    }
    assert!(shown.contains("profile mine ([home]/config/belljar/belljar.toml:1)"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["config", "show", "--json"]).stdout).expect("one object");
    assert_eq!(json["sandbox"]["pids"]["value"], "77");
    assert_eq!(json["sandbox"]["memory"]["from"], "default");
    // A repository that the user did not trust has no say; a trusted one names a profile of the user's.
    home.write("work/.belljar/config.toml", "[sandbox]\nprofile = \"small\"\n");
    assert!(pids(&[]).contains("77"), "{}", pids(&[]));
    assert_eq!(home.run(&["config", "trust", "--yes"]).code, 0);
    assert!(pids(&[]).contains("33"), "{}", pids(&[]));
    home.write("work/.belljar/config.toml", "[sandbox]\nprofile = \"gvisor\"\n");
    assert_eq!(home.run(&["config", "trust", "--yes"]).code, 0);
    let other = home.run(&["sandbox", "plan"]);
    assert!(other.stderr.contains("the profile `gvisor`"), "{}", other.stderr);
}

#[test]
fn a_sample_is_written_once_and_says_nothing() {
    let home = Home::new("");
    let written = home.run(&["config", "init"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let file = home.path("config/belljar/belljar.toml");
    let sample = fs::read_to_string(&file).expect("it is there");
    assert_eq!(home.run(&["config", "init", "--print"]).stdout, sample);
    assert_eq!(home.run(&["run", "--", "true"]).code, 0);
    home.user("[egress]\nmode = \"none\"\n");
    let again = home.run(&["config", "init"]);
    assert!(again.code != 0 && again.stderr.contains("is there already, and stays"), "{}", again.stderr);
    assert!(fs::read_to_string(&file).expect("it is there").contains("none"));
}

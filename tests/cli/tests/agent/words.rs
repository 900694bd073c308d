//! Help, and words that make no sense: what happened, to what, what to do next; and no run is made of it.

use crate::agent::home::Home;
use belljar_tests_cli::run;
use std::path::Path;

#[test]
fn help_stays_as_it_is() {
    for words in
        ["agent", "agent run", "agent shell", "agent list", "agent runs", "agent logs", "agent phases"]
    {
        let args: Vec<&str> = words.split(' ').chain(["--help"]).collect();
        let result = run(Path::new("/"), args);
        assert_eq!(result.code, 0, "{words}");
        insta::assert_snapshot!(format!("help_{}", words.replace(' ', "_")), result.stdout);
    }
}

#[test]
fn what_makes_no_sense_is_said_before_anything_runs() {
    let home = Home::new();
    home.program("mine", "touch ran");
    let to = ["--llm", "http://127.0.0.1:9", "--llm-key", "env:MODEL_KEY"];
    let printed = ["--prompt", "x"];
    for (args, code, sayings) in [
        (&["claud", "--prompt", "x"][..], 126, &["there is no agent `claud`", "did you mean `claude`?"][..]),
        (&["@openai/codex", "--prompt", "x"], 126, &["did you mean `codex`?"]),
        (
            &["./mine", "--prompt", "x"],
            126,
            &["no model is configured for `./mine`", "--model PROVIDER/MODEL", "[llm]"],
        ),
        (
            &["./mine", "--prompt", "x", "--model", "acme/m"],
            126,
            &["`acme` is not a provider that belljar knows", "--llm URL"],
        ),
        (
            &["./mine", "--prompt", "x", "--model", "gpt-5"],
            125,
            &["does not say whose model it is", "`openai/gpt-5`"],
        ),
        (&["./mine", "--prompt", "x", "--effort", "loads"], 125, &["`loads` is not an effort"]),
        (&["./mine", "--prompt", "x", "--budget", "much"], 125, &["`much` is not a budget", "`usd=5`"]),
        (&["./mine", "--prompt", "x", "--budget", "time=soon"], 125, &["`soon` is not a time"]),
        (&["./mine", "--prompt", "x", "--prompt-file", "y"], 125, &["--prompt", "--prompt-file"]),
        (&["./mine", "--prompt", ""], 126, &["the prompt from `--prompt` is empty"]),
        (&["./mine", "--prompt-file", "nowhere.md"], 126, &["`nowhere.md` cannot be read"]),
        (&["./mine", "--prompt-file", "."], 126, &["`.` cannot be read"]),
        (&["./mine"], 126, &["the prompt from standard input is empty", "--prompt TEXT"]),
        (&["./mine", "--prompt", "x", "--context", "nowhere.md"], 126, &["`nowhere.md` cannot be read"]),
        (&["./mine", "--prompt", "x", "--egress", "wide"], 125, &["wide"]),
        (&[], 125, &["<AGENT>"]),
    ] {
        let result = home.run(&[&["agent", "run"], args].concat());
        assert_eq!(result.code, code, "{args:?}: {}", result.stderr);
        for saying in sayings {
            assert!(result.stderr.contains(saying), "{args:?} should say {saying:?}: {}", result.stderr);
        }
        assert_eq!((result.stdout.as_str(), home.file("ran")), ("", None), "{args:?}");
    }
    let bytes = home.run_with(&[&["agent", "run", "./mine"], &to[..]].concat(), b"ab\xff");
    assert!(bytes.stderr.contains("standard input is not UTF-8 text, from byte 2 on"), "{}", bytes.stderr);
    let much = home.run_with(&[&["agent", "run", "./mine"], &to[..]].concat(), &vec![b'x'; 9 << 20]);
    assert!(much.stderr.contains("too large for a prompt: it may have 8 MiB"), "{}", much.stderr);
    let shell = home.run(&[&["agent", "shell", "claude"], &to[..], &printed].concat());
    assert!(shell.code == 126 && shell.stderr.contains("needs a terminal"), "{}", shell.stderr);
    assert!(!home.path("state/belljar/runs").exists());
}

#[test]
fn a_person_who_says_nothing_is_told_where_to_say_it() {
    let home = Home::new();
    let (code, reported) = home.at_terminal(&["agent", "run", "claude"]);
    let reported = String::from_utf8(reported).unwrap();
    assert_eq!(code, 126);
    assert!(
        reported.contains("no prompt was given") && reported.contains("--prompt-file FILE"),
        "{reported}"
    );
}

#[test]
fn a_missing_agent_is_named_with_how_to_get_it() {
    let home = Home::new();
    let url = home.model.url();
    let mut words = home.agent(&url, "claude", &["--prompt", "x"]);
    words[4] = "anthropic/claude-sonnet-4-5";
    let output = home.command(&words).env("PATH", home.path("bin")).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(126), "{printed}");
    assert!(printed.contains("there is no `claude` on PATH"), "{printed}");
    assert!(printed.contains("npm install -g @anthropic-ai/claude-code@"), "{printed}");
    let result = home.result();
    assert_eq!(
        (&result["stopReason"], &result["step"]),
        (&"error_start".into(), &"policy".into()),
        "{result}"
    );
}

#[test]
fn the_catalog_says_what_is_here_and_what_is_missing() {
    let home = Home::new();
    let list = |args: &[&str]| {
        let output = home.command(args).env("PATH", home.path("bin")).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let all: serde_json::Value = serde_json::from_str(&list(&["agent", "list", "--json"])).unwrap();
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["claude", "codex", "opencode", "pi", "gemini"]);
    for one in all.as_array().unwrap() {
        assert_eq!((&one["available"], &one["path"]), (&false.into(), &serde_json::Value::Null), "{one}");
        assert!(one["remedy"].as_str().unwrap().contains("npm install -g"), "{one}");
        assert!(one["tried"].is_string() && one["speaks"].is_array() && one["efforts"].is_array(), "{one}");
    }
    let text = list(&["agent", "list"]);
    assert!(text.starts_with("AGENT ") && text.contains("\ncodex      no "), "{text}");
}

#[test]
fn a_key_that_is_missing_is_asked_for_by_name() {
    let home = Home::new();
    home.program("mine", "touch ran");
    let result = home.run(&["agent", "run", "./mine", "--model", "anthropic/claude-x", "--prompt", "x"]);
    assert_eq!((result.code, home.file("ran")), (126, None), "{}", result.stderr);
    assert!(result.stderr.contains("no secret `anthropic` in the vault"), "{}", result.stderr);
    assert!(result.stderr.contains("`belljar secrets set anthropic` sets it"), "{}", result.stderr);
    let line = home.run(&["agent", "run", "claud", "--prompt", "x", "--json"]);
    let value: serde_json::Value = serde_json::from_str(line.stdout.trim_end()).unwrap();
    assert_eq!((&value["type"], &value["error"]["code"]), (&"error".into(), &"name_unknown".into()));
    assert_eq!((line.code, line.stdout.lines().count()), (126, 1));
}

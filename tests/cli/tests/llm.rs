//! `--llm`, and `belljar llm`: what a person sees of a route to a model.

use belljar_tests_cli::{Run, belljar};
use belljar_tests_hosts::{Model, Response, Step, Usage};
use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A home of its own, with a workspace in it.
struct Home(TempDir);

impl Home {
    fn new(config: &str) -> Home {
        let home = tempfile::tempdir().expect("a temporary folder can be made");
        fs::create_dir_all(home.path().join("config/belljar")).expect("the folder is ours");
        fs::create_dir(home.path().join("work")).expect("the folder is ours");
        fs::write(home.path().join("config/belljar/belljar.toml"), config).expect("the folder is ours");
        Home(home)
    }

    fn run(&self, args: &[&str]) -> Run {
        let Output { status, stdout, stderr } = Command::new(belljar())
            .args(args)
            .current_dir(self.0.path().join("work"))
            .env("XDG_CONFIG_HOME", self.0.path().join("config"))
            .env("XDG_STATE_HOME", self.0.path().join("state"))
            .env("MODEL_KEY", KEY)
            .env("ADMIN_KEY", "sk-admin-0123456789")
            .stdin(Stdio::null())
            .output()
            .expect("belljar starts");
        Run {
            code: status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

const KEY: &str = "sk-real-0123456789";
/// What the model calls its answer to [`ASK`].
const CALL: &str = "chatcmpl-mock_script_0_0";
const ASK: &str = r#"curl -sS -o /dev/null -w '%{http_code}\n' $OPENAI_BASE_URL/chat/completions -H content-type:application/json -d '{"model":"gpt-5","messages":[]}'"#;

/// A model that has one answer.
fn model() -> Model {
    let model = Model::start(Ipv4Addr::LOCALHOST);
    let usage = Usage { input: 100, cache_write: 2000, cache_read: 7, output: 30, reasoning: 5 };
    model.script([Step::say("one two").usage(usage)]);
    model
}

fn config(model: &Model) -> String {
    format!(
        r#"
[llm]
url = "{}"
key = "env:MODEL_KEY"
admin_key = "env:ADMIN_KEY"
end_user = "team-1"
[llm.price."gpt-*"]
input = 1.0
output = 10.0
"#,
        model.url()
    )
}

#[test]
fn a_run_says_what_it_used_of_its_model() {
    let model = model();
    let home = Home::new("");
    let url = model.url();
    let args =
        ["run", "--llm", &url, "--llm-key", "env:MODEL_KEY", "--llm-budget", "calls=2", "--", "sh", "-c"];
    let twice = format!("{ASK}; {ASK}; {ASK}");
    let run = home.run(&[&args[..], &[&twice]].concat());
    assert_eq!((run.code, run.stdout.as_str()), (0, "200\n200\n400\n"), "{}", run.stderr);
    assert_eq!(
        run.stderr,
        "belljar: model: 2 calls, 4,274 tokens, the cost of 2 calls is not known, 1 refused\n"
    );
    assert!(
        model
            .requests()
            .iter()
            .all(|request| request.header("authorization") == Some(&format!("Bearer {KEY}")))
    );
}

#[test]
fn a_program_is_told_the_same_as_json() {
    let model = model();
    let home = Home::new(&config(&model));
    let run = home.run(&["run", "--json", "--", "sh", "-c", ASK]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("one object");
    assert_eq!(
        report["llm"],
        serde_json::json!({"calls": 1, "input_tokens": 100, "output_tokens": 30, "cache_read": 7, "cache_write": 2000,
            "cost_usd": 2407, "calls_without_cost": 0, "calls_estimated": 0, "refused": 0, "turns": 1, "millis": report["llm"]["millis"]})
    );
    let off = home.run(&["run", "--json", "--llm", "off", "--", "sh", "-c", "echo $OPENAI_BASE_URL"]);
    let report: serde_json::Value = serde_json::from_str(&off.stdout).expect("one object");
    assert_eq!((&report["llm"], &report["stdout"]), (&serde_json::Value::Null, &"\n".into()));
    let shown = home.run(&["config", "show"]).stdout;
    assert!(shown.contains(&format!("{} (litellm)", model.url())) && !shown.contains(KEY), "{shown}");
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    let home = Home::new("");
    for (args, code, said) in [
        (&["--llm-key", "env:MODEL_KEY"][..], 126, "add `--llm URL`"),
        (
            &["--llm", "http://127.0.0.1:9", "--llm-key", "env:NOT_THERE"],
            126,
            "the key for the model cannot be read",
        ),
        (&["--llm", "http://127.0.0.1:9", "--llm-key", "sk-secret-value"], 126, "not a reference"),
        (&["--llm", "https://x:sk-secret-value@x"], 126, "has no user"),
        (&["--llm", "api.anthropic.com"], 126, "is not the URL of a model"),
        (&["--llm", "http://127.0.0.1:9", "--llm-budget", "much"], 125, "is not a budget"),
        (&["--llm", "http://127.0.0.1:9", "--backend", "host"], 125, "no route to a model"),
    ] {
        let run = home.run(&[&["run"], args, &["--", "touch", "ran"]].concat());
        assert_eq!(run.code, code, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{args:?}: {}", run.stderr);
        assert!(!home.0.path().join("work/ran").exists());
        assert!(!run.stderr.contains("sk-secret-value"), "{}", run.stderr);
    }
}

#[test]
fn a_record_is_held_against_litellms_books() {
    let model = model();
    let home = Home::new(&config(&model));
    let run = home.run(&["run", "--json", "--", "sh", "-c", &format!("{ASK}; {ASK}")]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("one object");
    let sandbox = report["runId"].as_str().expect("an id").to_string();
    // A stand-in for LiteLLM's books. The model names every answer the same, so each row pays for one call.
    let row = |id: &str, run: &str, cost: &str| {
        format!(
            r#"{{"request_id":"{id}","end_user":"team-1","spend":{cost},"total_tokens":2137,"model":"gpt-5","metadata":{{"spend_logs_metadata":{{"run_id":"{run}"}}}}}}"#
        )
    };
    let cases = [
        (vec![row(CALL, &sandbox, "0.002407"), row(CALL, &sandbox, "0.002407")], 0, "both say the same"),
        (vec![row(CALL, &sandbox, "0.002407")], 1, "only here   #2 gpt-5"),
        (vec![row(CALL, &sandbox, "0.002407"), row(CALL, &sandbox, "0.9")], 1, "they differ"),
        (
            vec![
                row(CALL, &sandbox, "0.002407"),
                row(CALL, &sandbox, "0.002407"),
                row("x", &sandbox, "0.1"),
                row("y", "other", "1"),
            ],
            1,
            "only there  gpt-5 0.10 USD x",
        ),
    ];
    for (rows, code, said) in cases {
        let books = format!("[{}]", rows.join(","));
        model.instead(move |request| {
            let is_asked = request.target.starts_with("/spend/logs?end_user=team-1&start_date=");
            let opened = request.header("authorization") == Some("Bearer sk-admin-0123456789");
            Some(if is_asked && opened { Response::ok(books.clone()) } else { Response::status(403) })
        });
        let run = home.run(&["llm", "spend", &sandbox]);
        assert_eq!(run.code, code, "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains(said) && !run.stdout.contains(" y\n"), "{}", run.stdout);
    }
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["llm", "spend", "--json", &sandbox]).stdout).expect("one object");
    assert_eq!((&json["agrees"], json["matched"].as_array().map(Vec::len)), (&false.into(), Some(2)));
    model.instead(|_| Some(Response::status(500)));
    let run = home.run(&["llm", "spend"]);
    assert_eq!(run.code, 125);
    assert!(run.stderr.contains("it answers 500"), "{}", run.stderr);
}

#[test]
fn help_of_the_model_stays_as_it_is() {
    insta::assert_snapshot!("help_llm_spend", Home::new("").run(&["llm", "spend", "--help"]).stdout);
}

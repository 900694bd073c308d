//! `--llm`, and `belljar llm`: what a person sees of a route to a model.

use belljar_tests_cli::Home;
use belljar_tests_hosts::{Model, Response, Step, Usage};
use std::net::Ipv4Addr;
use std::process::Command;

/// A home whose environment has the keys.
fn home(config: &str) -> Home {
    Home::new(config).env("MODEL_KEY", KEY).env("ADMIN_KEY", "sk-admin-0123456789")
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
    let home = home("");
    let url = model.url();
    let args =
        ["run", "--llm", &url, "--llm-key", "env:MODEL_KEY", "--llm-budget", "calls=2", "--", "sh", "-c"];
    let twice = format!("{ASK}; {ASK}; {ASK}");
    let run = home.run(&[&args[..], &[&twice]].concat());
    assert_eq!((run.code, run.stdout.as_str()), (0, "200\n200\n400\n"), "{}", run.stderr);
    assert_eq!(
        run.stderr,
        "belljar: model: 2 calls, 4,274 tokens, the cost of 2 calls is not known (the price of the model lacks a rate for some of the tokens), 1 refused\n"
    );
    assert!(
        model
            .requests()
            .iter()
            .all(|request| request.header("authorization") == Some(&format!("Bearer {KEY}")))
    );
}

/// And is nowhere inside, nor in what belljar wrote.
#[test]
fn a_key_of_the_vault_opens_the_model() {
    let model = model();
    let home = home("");
    home.keep("model", "sk-kept-0123456789");
    // A decoy shows that the eyes are open.
    let look = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; grep -rah sk-kept ~ /etc /run /tmp /workspace";
    let script = format!(
        "{ASK}; echo $DECOY > /tmp/decoy; ({look}) 2>/dev/null | grep -ao 'sk-kept[-0-9a-z]*' | sort -u"
    );
    let run = home.run(&[
        "run",
        "--env",
        "DECOY=sk-kept-decoy",
        "--llm",
        &model.url(),
        "--llm-key",
        "secret:model",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "200\nsk-kept-decoy\n"), "{}", run.stderr);
    let requested = model.requests();
    assert!(
        requested.iter().all(|request| request.header("authorization") == Some("Bearer sk-kept-0123456789"))
    );
    assert!(!requested.is_empty());
    assert_eq!(files_with(&home, "sk-kept-0"), "");
    assert_ne!(files_with(&home, "sandbox_started"), "", "what belljar wrote was looked through");
}

/// The files of a home that have this in them.
fn files_with(home: &Home, text: &str) -> String {
    let output = Command::new("grep").args(["-rlF", text]).arg(home.path("")).output().expect("grep starts");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_program_is_told_the_same_as_json() {
    let model = model();
    let home = home(&config(&model));
    let run = home.run(&["run", "--json", "--", "sh", "-c", ASK]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("one object");
    assert_eq!(
        report["llm"],
        serde_json::json!({"calls": 1, "input_tokens": 100, "output_tokens": 30, "cache_read": 7, "cache_write": 2000,
            "cost_usd": 2407, "calls_without_cost": 0, "cost_unknown": null, "calls_estimated": 0, "refused": 0, "turns": 1, "millis": report["llm"]["millis"]})
    );
    let off = home.run(&["run", "--json", "--llm", "off", "--", "sh", "-c", "echo $OPENAI_BASE_URL"]);
    let report: serde_json::Value = serde_json::from_str(&off.stdout).expect("one object");
    assert_eq!((&report["llm"], &report["stdout"]), (&serde_json::Value::Null, &"\n".into()));
    let shown = home.run(&["config", "show"]).stdout;
    assert!(shown.contains(&format!("{} (litellm)", model.url())) && !shown.contains(KEY), "{shown}");
}

/// Without any price in the configuration. What has no price is refused in other words than what is spent.
#[test]
fn a_budget_in_dollars_needs_no_price_table() {
    let model = model();
    let home = home("");
    let ask = |name: &str| ASK.replace("gpt-5", name).replace("-o /dev/null ", "");
    let script = format!("{}; {}", ask("claude-opus-5-5"), ask("unheard-of"));
    let run = home.run(&[
        "run",
        "--llm",
        &model.url(),
        "--llm-kind",
        "openai",
        "--llm-budget",
        "usd=1",
        "--json",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("one object");
    // 100 in, 30 out, 7 read, 2000 written: 400 + 600 + 1.4 + 10,000 millionths.
    assert_eq!(
        (&report["llm"]["cost_usd"], &report["llm"]["calls"]),
        (&11_002.into(), &1.into()),
        "{report:#}"
    );
    let printed = report["stdout"].as_str().expect("text");
    assert!(printed.contains("`unheard-of` has no price") && !printed.contains("spent"), "{printed}");
}

#[test]
fn prices_are_listed_with_their_source() {
    let home = home("[llm.price.\"claude-opus-*\"]\ninput = 1.0\noutput = 2.5\n");
    let shown = home.run(&["llm", "prices", "claude-sonnet-4-5"]);
    insta::assert_snapshot!("prices_of_one_model", shown.stdout);
    let own = home.run(&["llm", "prices", "claude-opus-5-5"]).stdout;
    assert!(own.contains("claude-opus-*") && own.contains("source: your configuration"), "{own}");
    let all = home.run(&["llm", "prices", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&all.stdout).expect("one object");
    let models = all["models"].as_array().expect("a list");
    let argon = models.iter().find(|row| row["model"] == "gemini-4-argon").expect("it is listed");
    assert_eq!(argon["changes"][0]["from"], "2026-12-01");
    assert_eq!(argon["rates"]["cache_write"], serde_json::Value::Null);
    assert_eq!(models[0]["configured"], true);
    let unknown = home.run(&["llm", "prices", "unheard-of"]);
    assert_eq!(unknown.code, 126, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("[llm.price.\"unheard-of\"]"), "{}", unknown.stderr);
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    let home = home("");
    for (args, code, printed) in [
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
        (
            &["--llm", "https://api.openai.com", "--llm-model", "gpt-unheard-of", "--llm-budget", "usd=1"],
            126,
            "the model `gpt-unheard-of` has no price",
        ),
    ] {
        let run = home.run(&[&["run"], args, &["--", "touch", "ran"]].concat());
        assert_eq!(run.code, code, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(printed), "{args:?}: {}", run.stderr);
        assert!(!home.path("work/ran").exists());
        assert!(!run.stderr.contains("sk-secret-value"), "{}", run.stderr);
    }
}

#[test]
fn a_record_is_held_against_litellms_books() {
    let model = model();
    let home = home(&config(&model));
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
    for (rows, code, printed) in cases {
        let books = format!("[{}]", rows.join(","));
        model.instead(move |request| {
            let is_requested = request.target.starts_with("/spend/logs?end_user=team-1&start_date=");
            let opened = request.header("authorization") == Some("Bearer sk-admin-0123456789");
            Some(if is_requested && opened { Response::ok(books.clone()) } else { Response::status(403) })
        });
        let run = home.run(&["llm", "spend", &sandbox]);
        assert_eq!(run.code, code, "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains(printed) && !run.stdout.contains(" y\n"), "{}", run.stdout);
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

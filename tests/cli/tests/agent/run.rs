//! A run from its words to its end: what people see, what programs read, and exit codes.

use crate::agent::home::{ASK, Home, KEY, answer};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

#[test]
fn a_person_sees_each_step_the_answer_and_the_account() {
    let home = Home::new();
    home.program("mine", &format!("cat $BELLJAR_MESSAGES > asked.json\n{ASK}\n{}", answer("It is done.")));
    let url = home.model.url();
    let run = home.run(&home.agent(&url, "./mine", &["--prompt", "Do it."]));
    assert_eq!((run.code, run.stdout.as_str()), (0, "It is done.\n"), "{}", run.stderr);
    assert_eq!(home.file("asked.json").unwrap(), r#"[{"content":"Do it.","role":"user"}]"#);
    let result = home.result();
    let id = result["runId"].as_str().unwrap();
    for line in [
        &format!("belljar: run {id}"),
        "  step      sandbox, ",
        "  step      agent\n",
        "belljar: ./mine is done: 1 turn, ",
        "belljar: model: 1 call, ",
        "belljar: changed in the folder: asked.json (added)\n",
        &format!("belljar: `belljar agent logs {id}` shows all of it\n"),
    ] {
        assert!(run.stderr.contains(line), "{line:?} in {}", run.stderr);
    }
    assert!(!run.stderr.contains('\x1b') && !run.stderr.contains("It is done."), "{}", run.stderr);
    assert_eq!(
        (&result["success"], &result["turns"], &result["agent"]),
        (&true.into(), &1.into(), &"./mine".into())
    );
    assert_eq!(result["workspace"]["folder"]["touched"]["added"], 1);
    let used = home.model.requests();
    assert!(used.iter().all(|request| request.header("authorization") == Some(&format!("Bearer {KEY}"))));
}

#[test]
fn a_program_reads_the_log_and_its_last_line_says_everything() {
    let home = Home::new();
    home.program("mine", &format!("{ASK}\ncurl -s https://not.allowed.example\n{}", answer("done")));
    let url = home.model.url();
    let run = home.run(&home.agent(&url, "./mine", &["--prompt", "x", "--json"]));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let lines: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, last) = (&lines[0], lines.last().unwrap());
    assert_eq!((&first["type"], &first["message"]["content"]), (&"user".into(), &"x".into()));
    let id = last["sessionId"].as_str().unwrap();
    assert!(lines.iter().all(|line| line["sessionId"] == id && line["timestamp"].is_string()));
    let steps: Vec<&str> = lines
        .iter()
        .filter(|line| line["state"] == "done")
        .filter_map(|line| line["step"].as_str())
        .collect();
    for step in ["policy", "credentials", "workspace", "sandbox", "context", "agent", "collect", "teardown"] {
        assert!(steps.contains(&step), "{step} in {steps:?}");
    }
    assert_eq!(
        (&last["type"], &last["subtype"], &last["result"]),
        (&"result".into(), &"success".into(), &"done".into())
    );
    assert_eq!((&last["num_turns"], &last["turns"], &last["exitCode"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!((&last["stopReason"], &last["output"]), (&last["subtype"], &last["result"]));
    assert_eq!(last["refused"][0]["destination"], "not.allowed.example");
    assert_eq!((&last["llm"]["calls"], &last["calls"]["answered"]), (&1.into(), &1.into()));
    let kept = fs::read_to_string(home.path("state/belljar/runs").join(id).join("log.jsonl")).unwrap();
    assert_eq!(run.stdout, kept, "what is printed is what is kept");
    let result = home.result();
    assert_eq!((&result["runId"], &result["refused"]), (&id.into(), &last["refused"]));
}

#[test]
fn a_prompt_comes_from_one_place() {
    let home = Home::new();
    home.program(
        "mine",
        &format!("cat $BELLJAR_MESSAGES\n{}", answer("x")).replace(
            "cat $BELLJAR_MESSAGES",
            "cp $BELLJAR_MESSAGES asked.json; cp $BELLJAR_CONTEXT known.md",
        ),
    );
    fs::write(home.path("work/task.md"), "From a file.").unwrap();
    let url = home.model.url();
    let requested = || home.file("asked.json").unwrap();
    for (more, input, expected) in [
        (&["--prompt", "From a flag."][..], "ignored", "From a flag."),
        (&["--prompt-file", "task.md"], "ignored", "From a file."),
        (&["--prompt-file", "-"], "From a pipe.", "From a pipe."),
        (&[], "From a pipe,\nin two lines.", "From a pipe,\\nin two lines."),
    ] {
        let run = home.run_with(&home.agent(&url, "./mine", more), input.as_bytes());
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(requested().contains(expected), "{more:?}: {}", requested());
    }
    let run = home.run(&home.agent(&url, "./mine", &["--prompt", "x", "--context", "task.md"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let known = home.file("known.md").unwrap();
    assert!(known.contains("You run in a sandbox") && known.contains("From a file."), "{known}");
}

#[test]
fn an_exit_code_says_how_it_ended() {
    let spend = format!(
        "{ASK}\n{ASK}\n{}",
        r#"echo '{"payloads":[],"meta":{"error":{"code":"model","message":"no more"}}}'; exit 1"#
    );
    for (script, more, code, reason, printed) in [
        (answer("done"), &[][..], 0, "success", "is done"),
        (
            r#"echo '{"payloads":[],"meta":{"error":{"code":"bad","message":"it broke"}}}'; exit 1"#.into(),
            &[],
            1,
            "error_agent",
            "it broke",
        ),
        ("exit 3".into(), &[], 1, "error_exit", "exit code 3"),
        ("kill -9 $$".into(), &[], 1, "error_killed", "was killed"),
        ("sleep 100".into(), &["--budget", "time=1s"], 124, "error_timeout", "--budget time=TIME"),
        ("sleep 100".into(), &["--timeout", "1s", "--budget", "time=1h"], 124, "error_timeout", "--timeout"),
        (spend.clone(), &["--budget", "calls=1"], 1, "error_budget", "allow more with `--budget`"),
        (spend, &["--budget", "calls=1", "--llm-budget", "calls=9"], 1, "error_budget", "--budget"),
        (
            "head -c 9M /dev/zero > /tmp/x; exit 1".into(),
            &["--disk", "2M"],
            1,
            "error_disk",
            "allow more with `--disk`",
        ),
        (answer("done"), &["--backend", "host"], 125, "error_sandbox", "no route to a model"),
        (answer("done"), &["--ro", "/no/such/path"], 126, "error_sandbox", "does not exist"),
    ] {
        let home = Home::new();
        home.program("mine", &script);
        let url = home.model.url();
        let run = home.run(&home.agent(&url, "./mine", &[&["--prompt", "x"], more].concat()));
        let result = home.result();
        assert_eq!(result["stopReason"], reason, "{script} {more:?}: {result:#}\n{}", run.stderr);
        assert_eq!(run.code, code, "{script} {more:?}: {}", run.stderr);
        assert!(run.stderr.contains(printed), "{script} {more:?} should say {printed:?}: {}", run.stderr);
        assert_eq!(result["success"], code == 0);
    }
    let home = Home::new();
    let url = home.model.url();
    let run = home.run(&home.agent(&url, "./missing", &["--prompt", "x"]));
    assert_eq!((run.code, &home.result()["stopReason"]), (126, &"error_start".into()), "{}", run.stderr);
}

/// A model without a price is named before anything is started; a model that is free needs no money.
#[test]
fn a_budget_in_dollars_is_refused_before_the_start_if_the_model_has_no_price() {
    let home = Home::new();
    home.program("mine", &format!("touch started\n{ASK}\n{ASK}\n{}", answer("done")));
    let url = home.model.url();
    let words =
        ["agent", "run", "./mine", "--llm", &url, "--llm-kind", "openai", "--llm-key", "env:MODEL_KEY"];
    let with = |model, budget| {
        home.run(&[&words[..], &["--prompt", "x", "--model", model, "--budget", budget]].concat())
    };
    let run = with("openai/unheard-of", "usd=1,turns=20");
    assert_eq!(run.code, 126, "{}", run.stderr);
    assert!(run.stderr.contains("the model `unheard-of` has no price"), "{}", run.stderr);
    assert!(run.stderr.contains("belljar llm prices") && home.file("started").is_none(), "{}", run.stderr);
    let run = with("zai/glm-4.7-flash", "usd=0.000001,turns=20");
    let result = home.result();
    assert_eq!(
        (run.code, &result["costUsd"], &result["turns"]),
        (0, &0.0.into(), &2.into()),
        "{}",
        run.stderr
    );
}

/// As `run` does it: the repository is the workspace, and the agent starts where we stand.
#[test]
fn an_agent_in_a_subfolder_works_on_its_repository() {
    let home = Home::new();
    let script = format!("pwd > where; git rev-parse --show-toplevel >> where\n{ASK}\n{}", answer("done"));
    fs::create_dir_all(home.path("work/repo/sub")).unwrap();
    home.program("repo/sub/mine", &script);
    let git = |words: &str| {
        let folder = home.path("work/repo");
        std::process::Command::new("git")
            .args(words.split(' '))
            .current_dir(folder)
            .status()
            .unwrap()
            .success()
    };
    assert!(git("init --quiet"));
    let url = home.model.url();
    let mut command = home.command(&home.agent(&url, "./mine", &["--prompt", "x"]));
    let output = command.current_dir(home.path("work/repo/sub")).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("belljar: working on the repository"), "{printed}");
    assert_eq!(home.file("repo/sub/where").as_deref(), Some("/workspace/sub\n/workspace\n"));
}

#[test]
fn web_search_needs_no_key_of_yours_unless_you_name_one() {
    let home = Home::new();
    home.program("mine", &format!("echo $BELLJAR_WEB_SEARCH $TAVILY_API_KEY > search.txt\n{}", answer("x")));
    let url = home.model.url();
    for (more, code, reported) in [
        (&[][..], 0, "0\n"),
        (&["--web-search"], 0, "1\n"),
        (&["--web-search", "--egress", "none"], 0, "1\n"),
    ] {
        let run = home.run(&home.agent(&url, "./mine", &[&["--prompt", "x"], more].concat()));
        assert_eq!((run.code, home.file("search.txt").as_deref()), (code, Some(reported)), "{}", run.stderr);
    }
    let named = home.run(&home.agent(&url, "./mine", &["--prompt", "x", "--web-search=tavily"]));
    assert!(named.code == 125 && named.stderr.contains("`belljar secrets set tavily`"), "{}", named.stderr);
    let kept = home.run_with(&["secrets", "set", "tavily"], b"tvly-real-0123456789");
    assert_eq!(kept.code, 0, "{}", kept.stderr);
    let run = home.run(&home.agent(&url, "./mine", &["--prompt", "x", "--web-search"]));
    let reported = home.file("search.txt").unwrap();
    assert!(
        run.code == 0 && reported.starts_with("1 tvly-") && !reported.contains("real"),
        "{reported}{}",
        run.stderr
    );
}

#[test]
fn changes_beside_the_folder_are_told_as_ever() {
    let home = Home::new();
    home.program("mine", &format!("echo new > new.txt\n{}", answer("x")));
    let url = home.model.url();
    let run = home.run(&home.agent(&url, "./mine", &["--prompt", "x", "--overlay"]));
    assert!(run.stderr.contains("the folder is as it was; 1 change is kept in layer"), "{}", run.stderr);
    assert!(
        !run.stderr.contains("changed in the folder") && home.file("new.txt").is_none(),
        "{}",
        run.stderr
    );
}

#[test]
fn ctrl_c_once_keeps_the_work_and_twice_ends_at_once() {
    let home = Home::new();
    home.program("stubborn", "trap '' INT\necho kept > work.txt\nwhile :; do sleep 0.1; done");
    let url = home.model.url();
    let once = start(&home, &url);
    interrupt(&once);
    let output = once.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(
        printed.contains("stopping; what was done so far is kept") && printed.contains("(error_cancelled)"),
        "{printed}"
    );
    assert!(printed.contains("changed in the folder: work.txt (added)"), "{printed}");
    assert_eq!(home.result()["stopReason"], "error_cancelled");
    let home = Home::new();
    home.program("stubborn", "trap '' INT\necho kept > work.txt\nwhile :; do sleep 0.1; done");
    let url = home.model.url();
    let mut twice = start(&home, &url);
    interrupt(&twice);
    let mut printed = Vec::new();
    let mut stderr = twice.stderr.take().unwrap();
    while !String::from_utf8_lossy(&printed).contains("once more") {
        let mut buffer = [0; 256];
        let length = std::io::Read::read(&mut stderr, &mut buffer).unwrap();
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&printed));
        printed.extend_from_slice(&buffer[..length]);
    }
    interrupt(&twice);
    assert_eq!(twice.wait().unwrap().code(), Some(130));
    assert_eq!(home.file("work.txt").as_deref(), Some("kept\n"));
    let runs = home.run(&["agent", "runs"]);
    assert!(runs.stdout.contains(" killed "), "{}", runs.stdout);
}

fn start(home: &Home, url: &str) -> Child {
    let words = home.agent(url, "./stubborn", &["--prompt", "x"]);
    let mut command = home.command(&words);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while home.file("work.txt").as_deref() != Some("kept\n") {
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

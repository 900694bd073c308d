//! Several runs in sequence over one folder.

use crate::agent::home::{Home, answer};
use serde_json::Value;
use std::fs;

const THREE: &str = r#"
agent = "./mine"
model = "openai/gpt-5"

[[phase]]
name = "plan"
prompt = "Plan it."
egress = "none"

[[phase]]
name = "do"
prompt = "Do it: {{plan}}"
allow = ["allowed.example"]
budget = "calls=3"

[[phase]]
name = "check"
prompt_file = "check.md"
"#;

/// Notes what it was asked, what it may reach, and that it was here.
const NOTES: &str = "cat $BELLJAR_MESSAGES >> trace.txt; echo >> trace.txt\n\
    grep -o '`=*[a-z]*.example`' $BELLJAR_CONTEXT >> reach.txt\n\
    echo 1 >> /tmp/count; cat /tmp/count >> counts.txt";

fn home(phases: &str, script: &str) -> Home {
    let home = Home::new();
    fs::write(home.path("work/phases.toml"), phases).unwrap();
    fs::write(home.path("work/check.md"), "Check {{do}} and {{plan}}.").unwrap();
    home.program("mine", script);
    home
}

fn words<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["agent", "phases", "phases.toml", "--llm", url, "--llm-key", "env:MODEL_KEY"], more].concat()
}

#[test]
fn phases_follow_each_other_in_one_folder_each_in_a_fresh_sandbox() {
    let home = home(THREE, &format!("{NOTES}\n{}", answer("number '$(wc -l < trace.txt)'")));
    let url = home.model.url();
    let run = home.run(&words(&url, &[]));
    assert_eq!((run.code, run.stdout.as_str()), (0, "number 3\n"), "{}", run.stderr);
    let requested: Vec<Value> =
        home.file("trace.txt").unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requested: Vec<&str> =
        requested.iter().map(|requested| requested[0]["content"].as_str().unwrap()).collect();
    assert_eq!(requested, ["Plan it.", "Do it: number 1", "Check number 2 and number 1."]);
    assert_eq!(home.file("reach.txt").unwrap(), "`allowed.example`\n", "what one may reach is its own");
    assert_eq!(home.file("counts.txt").unwrap(), "1\n1\n1\n", "private files are gone with each");
    for line in [
        "belljar: phase 2 of 3: do\n",
        "  says      number 2\n",
        "belljar: phase plan: success, 0 turns",
        "belljar: all together: ",
    ] {
        assert!(run.stderr.contains(line), "{line:?} in {}", run.stderr);
    }
}

#[test]
fn a_layer_goes_from_one_phase_to_the_next() {
    let home = home(THREE, &format!("{NOTES}\n{}", answer("number '$(wc -l < trace.txt)'")));
    let url = home.model.url();
    let run = home.run(&words(&url, &["--overlay", "--json"]));
    let lines: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!(
        (run.code, &last["type"], &last["success"]),
        (0, &"phases_result".into(), &true.into()),
        "{}",
        run.stderr
    );
    let of_type = |name: &str| lines.iter().filter(|line| line["type"] == name).count();
    assert_eq!((of_type("phase"), of_type("result")), (6, 3));
    let phases = last["phases"].as_array().unwrap();
    let layers: Vec<&Value> = phases.iter().map(|phase| &phase["workspace"]["layer"]).collect();
    assert!(layers[0].is_string() && layers.iter().all(|layer| *layer == layers[0]), "{layers:?}");
    assert_eq!((&phases[2]["phase"], &phases[2]["output"]), (&"check".into(), &"number 3".into()));
    assert!(home.file("trace.txt").is_none());
    let kept: Value = serde_json::from_str(&home.run(&["layers", "--json"]).stdout).unwrap();
    assert_eq!(kept.as_array().unwrap().len(), 1, "{kept}");
}

#[test]
fn the_first_phase_that_fails_is_the_last() {
    let home = home(THREE, &format!("{NOTES}\n[ $(wc -l < trace.txt) = 1 ] || exit 9\n{}", answer("x")));
    let url = home.model.url();
    let run = home.run(&words(&url, &[]));
    assert_eq!((run.code, home.file("trace.txt").unwrap().lines().count()), (1, 2), "{}", run.stderr);
    assert!(
        run.stderr.contains("phase do: error_exit") && run.stderr.contains("not run: check"),
        "{}",
        run.stderr
    );
    let lines = home.run(&words(&url, &["--json"])).stdout;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["success"], &last["skipped"]), (&false.into(), &serde_json::json!(["do", "check"])));
}

#[test]
fn open_egress_is_chosen_by_a_phase_and_by_nothing_else() {
    let silent = "[[phase]]\nname = \"a\"\nagent = \"./mine\"\nmodel = \"openai/gpt-5\"\nprompt = \"x\"\n";
    let script = format!(
        "grep -c 'Public hosts' $BELLJAR_CONTEXT >> open.txt; cp $BELLJAR_CONTEXT c.md\n{}",
        answer("x")
    );
    let home = home(&format!("{silent}{}egress = \"open\"\n", silent.replace("\"a\"", "\"b\"")), &script);
    fs::write(home.path("config/belljar/belljar.toml"), "[egress]\nmode = \"open\"\n").unwrap();
    let url = home.model.url();
    let run = home.run(&words(&url, &[]));
    assert_eq!((run.code, home.file("open.txt").unwrap().as_str()), (0, "0\n1\n"), "{}", run.stderr);
    for (phases, more, printed) in [
        (
            format!("egress = \"open\"\n{silent}"),
            &[][..],
            "phases.toml:1: open egress is chosen by the phase that needs it",
        ),
        (silent.to_string(), &["--egress", "open"], "`--egress open` would open every phase"),
        (silent.to_string(), &["--clone", "/nowhere"], "phases cannot share a clone"),
        (format!("{silent}egres = \"none\""), &[], "phases.toml:6: there is no key `egres`"),
        (silent.replace("./mine", "claud"), &[], "phases.toml:3: there is no agent `claud`"),
        (
            format!("{silent}{}", silent.replace("\"a\"", "\"b\"").replace("./mine", "gemini")),
            &[],
            "phase `b`: Gemini CLI ",
        ),
    ] {
        fs::write(home.path("work/phases.toml"), &phases).unwrap();
        let run = home.run(&words(&url, more));
        assert!([125, 126].contains(&run.code), "{}", run.stderr);
        assert!(run.stderr.contains(printed) && run.stderr.contains("hint: "), "{printed}: {}", run.stderr);
    }
    assert_eq!(home.file("open.txt").unwrap(), "0\n1\n", "none of these ran anything");
}

#[test]
fn phases_in_the_workspace_cannot_be_rewritten() {
    let home = Home::new();
    let phases = "agent = \"./mine\"\nmodel = \"openai/gpt-5\"\n\
        [[phase]]\nname = \"a\"\nprompt = \"x\"\nallow = [\"allowed.example\"]\n[[phase]]\nname = \"b\"\nprompt = \"x\"\n";
    fs::create_dir(home.path("work/ci")).unwrap();
    fs::write(home.path("work/ci/phases.toml"), phases).unwrap();
    let script = "echo evil >> ci/phases.toml; rm -f ci/phases.toml; mv ci/phases.toml ci/old; mv ci old";
    home.program("mine", &format!("{script}\n{}", answer("done")));
    let url = home.model.url();
    let run = home.run(&["agent", "phases", "ci/phases.toml", "--llm", &url, "--llm-key", "env:MODEL_KEY"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(home.file("ci/phases.toml").as_deref(), Some(phases));
    assert!(run.stderr.contains("belljar: phase a opens egress to allowed.example\n"), "{}", run.stderr);
    assert!(!run.stderr.contains("phase b opens"), "{}", run.stderr);
}

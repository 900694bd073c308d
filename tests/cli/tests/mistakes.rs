//! What a person sees after usual mistakes: the exit code, and all that is said. A row is a mistake; what belljar answers to it is in
//! `snapshots/`, to be read aloud when it changes.

use crate::persistent::home::Home as Folder;
use belljar_sys::rustix::process::geteuid;
use belljar_tests_cli::{Home, belljar};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// The name of the mistake, and what was typed.
type Mistake = (&'static str, &'static [&'static str]);

/// Flags and commands that are not there, most of them Docker's.
const TYPOS: &[Mistake] = &[
    ("unknown_command", &["rnu", "--", "true"]),
    ("docker_create", &["create", "alpine"]),
    ("docker_kill", &["kill", "web"]),
    ("docker_version", &["version"]),
    ("show_a_secret", &["secrets", "get", "anthropic"]),
    ("unknown_flag", &["run", "--memroy", "2g", "--", "true"]),
    ("docker_volume", &["run", "-v", "/data:/data", "--", "true"]),
    ("docker_port", &["run", "--publish", "3000:3000", "--", "true"]),
    ("docker_network", &["run", "--network", "none", "--", "true"]),
    ("docker_name", &["run", "--name", "web", "--", "true"]),
    ("docker_rm", &["run", "--rm", "--", "true"]),
    ("forward_without_a_port", &["forward", "."]),
    ("prices_of_nothing", &["llm", "price"]),
    ("missing_argument", &["rm"]),
    ("unknown_help", &["help", "nonsense"]),
    ("exec_without_dashes", &["exec", "ls"]),
    ("set_a_setting", &["config", "set", "egress", "open"]),
    ("docker_logs", &["logs", "--tail", "20"]),
    ("unknown_topic", &["help", "topics", "nonsense"]),
    ("version_in_short", &["-v"]),
    ("docker_restart", &["restart", "web"]),
    ("docker_stats", &["stats"]),
    ("update_itself", &["update"]),
    ("an_agent_as_a_command", &["claude"]),
    ("a_prompt_as_an_argument", &["agent", "run", "claude", "fix it"]),
    ("where_is_the_configuration", &["config", "path"]),
    ("start_the_daemon", &["daemon", "start"]),
    ("remove_all", &["rm", "--all"]),
    ("listen_at_a_port_by_flag", &["serve", "--port", "7070"]),
];

/// Values that no flag takes.
const VALUES: &[Mistake] = &[
    ("wrong_size", &["run", "--memory", "1x", "--", "true"]),
    ("huge_size", &["run", "--memory", "99999999999999999999g", "--", "true"]),
    ("wrong_time", &["run", "--timeout", "forever", "--", "true"]),
    ("wrong_backend", &["run", "--backend", "dockr", "--", "true"]),
    ("wrong_image", &["run", "--image", "Alpine:3", "--", "true"]),
    ("image_without_tag", &["run", "--image", "alpine", "--", "true"]),
    ("wrong_group", &["run", "--group", "githb", "--", "true"]),
    ("allow_a_url", &["run", "--allow", "http://example.com/", "--", "true"]),
    ("allow_a_glob", &["run", "--allow", "*.example.com", "--", "true"]),
    ("allow_an_address", &["run", "--allow", "10.0.0.1", "--", "true"]),
    ("wrong_branch", &["run", "--branch", "bad..name", "--", "true"]),
    ("memory_without_a_unit", &["run", "--memory", "2", "--", "true"]),
    ("a_key_as_a_name", &["run", "--secret", "sk-ant-api03-0123456789abcdef", "--", "true"]),
    ("listen_at_a_port", &["serve", "--listen", "7070"]),
    ("zero_memory", &["run", "--memory", "0", "--", "true"]),
    ("negative_cpus", &["run", "--cpus", "-1", "--", "true"]),
    ("wrong_port", &["forward", ".", "http"]),
    ("port_out_of_range", &["forward", ".", "3000:70000"]),
    ("hide_outside", &["run", "--hide", "../secret", "--", "true"]),
    ("hide_everything", &["run", "--hide", "*", "--", "true"]),
    ("placeholders_outside", &["run", "--placeholders", "../.env", "--", "true"]),
    ("protect_outside", &["run", "--protect", "/etc", "--", "true"]),
    ("env_without_a_name", &["run", "--env", "=x", "--", "true"]),
    ("env_that_is_not_set", &["run", "--env", "NOT_SET_HERE", "--", "true"]),
    ("allow_nonsense", &["allow", "not a host"]),
    ("model_without_a_provider", &["agent", "run", "claude", "--model", "opus", "--prompt", "x"]),
    ("wrong_budget", &["run", "--llm-budget", "dollars=1", "--", "true"]),
    ("several_hosts", &["run", "--allow", "example.com,example.org", "--", "true"]),
    ("zero_pids", &["run", "--pids", "0", "--", "true"]),
    ("a_disk_without_a_unit", &["run", "--disk", "10", "--", "true"]),
    ("a_variable_as_a_credential", &["run", "--secret", "ANTHROPIC_API_KEY", "--", "true"]),
    ("huge_budget", &["run", "--llm-budget", "calls=99999999999999999999", "--", "true"]),
];

/// What does not exist. All of these end alike.
const MISSING: &[Mistake] = &[
    ("no_such_sandbox", &["stop", "nosuch"]),
    ("no_such_sandbox_to_run_in", &["exec", "nosuch", "--", "true"]),
    ("no_sandbox_of_this_folder", &["exec", "--", "true"]),
    ("no_such_audit_log", &["audit", "show", "nosuch"]),
    ("no_such_agent_run", &["agent", "logs", "nosuch"]),
    ("no_such_layer", &["diff", "ffffffff"]),
    ("no_such_profile", &["run", "--profile", "nosuch", "--", "true"]),
    ("no_such_workspace", &["run", "--workspace", "nosuch", "--", "true"]),
    ("no_such_path", &["run", "--ro", "nosuch", "--", "true"]),
    ("no_such_secret_to_remove", &["secrets", "rm", "nosuch"]),
    ("a_command_by_its_number", &["logs", "2"]),
    ("no_such_policy_file", &["policy", "check", "nosuch.toml"]),
    ("no_such_sandbox_to_forward", &["forward", "nosuch", "3000"]),
    ("no_such_agent", &["agent", "run", "cloude", "--prompt", "x"]),
    ("no_such_model_price", &["llm", "prices", "nosuch"]),
    ("no_such_prompt_file", &["agent", "run", "claude", "--prompt-file", "nosuch.md"]),
    ("no_such_env_file", &["run", "--env-file", "nosuch.env", "--", "true"]),
];

/// What cannot be done here, or not like this.
const CIRCUMSTANCES: &[Mistake] = &[
    ("nothing_to_run", &["run"]),
    ("an_empty_command", &["run", "--", ""]),
    ("not_a_repository", &["run", "--branch", "fix", "--", "true"]),
    ("a_secret_that_was_never_set", &["run", "--secret", "nosuch", "--", "true"]),
    ("no_terminal_to_ask_at", &["config", "trust"]),
    ("no_such_image", &["images", "rm", "nosuch:1"]),
    ("no_prompt", &["agent", "run", "claude"]),
    ("a_home_as_workspace", &["run", "--workspace", "../home", "--", "true"]),
    ("a_system_folder_as_workspace", &["run", "--workspace", "/etc", "--", "true"]),
    ("a_command_that_is_not_there", &["run", "--", "nosuch-command"]),
    ("a_line_as_a_command", &["run", "--", "ls -la"]),
    ("an_agent_in_a_sandbox", &["run", "--", "codex"]),
    ("an_image_as_the_command", &["run", "alpine", "sh"]),
    ("a_part_of_the_shell", &["run", "--", "cd", "/tmp"]),
    ("a_command_that_is_no_program", &["run", "--", "/etc/passwd"]),
    ("no_network", &["run", "--", "getent", "hosts", "example.com"]),
    (
        "a_budget_without_a_price",
        &[
            "run",
            "--llm",
            "https://api.openai.com",
            "--llm-model",
            "nosuch",
            "--llm-budget",
            "usd=1",
            "--",
            "true",
        ],
    ),
    ("hidden_without_isolation", &["run", "--backend", "host", "--hide", ".env", "--", "true"]),
    ("localhost_of_the_host", &["policy", "explain", "localhost:5432"]),
];

/// Every mistake of a table, in a new home each.
fn all(title: &str, mistakes: &[Mistake]) {
    let printed: Vec<String> = mistakes
        .iter()
        .map(|(name, typed)| {
            let home = Folder::new();
            let printed = answer(home.command(typed), &home.path(""));
            format!("# {name}\n$ belljar {}\n{printed}\n", typed.join(" "))
        })
        .collect();
    insta::assert_snapshot!(title, printed.concat());
}

/// Both streams, and the exit code; the home is called `[home]`.
fn answer(mut command: Command, home: &Path) -> String {
    let output = command.output().expect("belljar starts");
    let home = home.to_str().expect("a plain path").trim_end_matches('/');
    // Which profiles work differs from machine to machine.
    let steady = |line: &str| match line.split_once("on offer here: ") {
        Some((before, _)) => format!("{before}on offer here: …\n"),
        None => line.replace(home, "[home]"),
    };
    let text = |bytes: &[u8]| -> String {
        String::from_utf8_lossy(bytes).split_inclusive('\n').map(steady).collect()
    };
    format!(
        "{}{}exit code {}\n",
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap_or(-1)
    )
}

#[test]
fn a_typo_is_answered_with_what_to_write() {
    all("typos", TYPOS);
}

#[test]
fn a_wrong_value_is_answered_with_the_right_form() {
    all("values", VALUES);
}

#[test]
fn what_does_not_exist_always_ends_alike() {
    all("missing", MISSING);
    for (name, typed) in MISSING {
        assert_eq!(Folder::new().run(typed).code, 126, "{name}");
    }
}

#[test]
fn what_cannot_be_done_here_says_why() {
    all("circumstances", CIRCUMSTANCES);
}

/// With a daemon's address that leads nowhere, whatever this machine has.
#[test]
fn docker_that_is_not_there_is_named() {
    let home = Folder::new();
    let mut run = home.command(&["run", "--backend", "docker", "--", "true"]);
    run.env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    // It is told what it lacks first.
    let name = if geteuid().is_root() { "no_docker" } else { "no_docker_without_root" };
    insta::assert_snapshot!(name, answer(run, &home.path("")));
}

#[test]
fn what_asks_for_consent_says_how_to_give_it_without_a_terminal() {
    let home = Folder::new();
    fs::create_dir(home.path("work/.belljar")).unwrap();
    fs::write(home.path("work/.belljar/config.toml"), "[egress]\nallow = [\"example.com\"]\n").unwrap();
    insta::assert_snapshot!("no_terminal", answer(home.command(&["config", "trust"]), &home.path("")));
    insta::assert_snapshot!("allow_untrusted", answer(home.command(&["allow", "a.example"]), &home.path("")));
}

/// A sandbox that is stopped is started by what runs something in it, and everything else says that it is stopped.
#[test]
fn a_stopped_sandbox_says_that_it_is() {
    let home = Folder::ready();
    assert_eq!(home.run(&["start"]).code, 0);
    assert_eq!(home.run(&["stop"]).code, 0);
    let mut printed = String::new();
    for typed in [
        &["stop"][..],
        &["sandbox", "pause"],
        &["sandbox", "resume"],
        &["sandbox", "ps"],
        &["sandbox", "attach", ".", "cmd_1"],
        &["logs"],
    ] {
        let answer = answer(home.command(typed), &home.path(""));
        let name = name_in(&answer);
        printed += &format!("$ belljar {}\n{}\n", typed.join(" "), answer.replace(&name, "[name]"));
    }
    insta::assert_snapshot!("stopped", printed);
}

/// The name of the sandbox in a text, which depends on the folder.
fn name_in(text: &str) -> String {
    let name = text.split(|letter: char| letter.is_whitespace() || "`,;".contains(letter));
    name.filter(|word| word.starts_with("bj-")).max_by_key(|word| word.len()).unwrap_or("bj-").to_string()
}

#[test]
fn a_mistake_in_a_file_is_found_at_its_line() {
    let files: [(&str, &[u8]); 8] = [
        ("a typo in a key", b"[egress]\nalow = [\"example.com\"]\n"),
        ("a wrong type", b"[egress]\nallow = \"example.com\"\n"),
        ("a number for a list", b"[workspace]\nhide = 3\n"),
        ("a number for a table", b"egress = 3\n"),
        ("a huge value", b"[llm.budget]\ncalls = \"99999999999999999999\"\n"),
        ("a price below zero", b"[llm.price.m]\ninput = -1\noutput = 1\n"),
        ("not TOML", b"[egress\n"),
        ("not UTF-8", b"[egress]\nallow = [\"\xff\"]\n"),
    ];
    let mut printed = String::new();
    for (name, content) in files {
        let home = Home::new("[egress]\n");
        fs::write(home.path("config/belljar/belljar.toml"), content).unwrap();
        printed += &format!("# {name}\n{}\n", answer(home.belljar(&["run", "--", "true"]), &home.path("")));
    }
    insta::assert_snapshot!("files", printed);
}

#[test]
fn a_folder_with_an_odd_name_can_be_started_in_or_says_why_not() {
    let home = Folder::new();
    let odd = home.path("work").join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).unwrap();
    let mut start = home.command(&["start"]);
    start.current_dir(&odd);
    insta::assert_snapshot!("odd_folder", answer(start, &home.path("")));
}

/// A program that reads JSON gets one object, whatever was typed.
#[test]
fn a_mistake_is_an_object_for_who_asked_for_json() {
    for typed in [
        &["run", "--json", "--memroy", "2g", "--", "true"][..],
        &["run", "--json", "--image", "Alpine:3", "--", "true"],
        &["run", "--json", "--workspace", "nosuch", "--", "true"],
        &["doctor", "--json", "--nosuch"],
        &["stop", "nosuch", "--json"],
        &["audit", "verify", "nosuch", "--json"],
        &["rm", "--json"],
    ] {
        let result = Folder::new().run(typed);
        let object: serde_json::Value = serde_json::from_str(&result.stdout).expect(&result.stdout);
        assert!(
            object["error"]["message"].is_string() && object["error"]["code"].is_string(),
            "{typed:?}: {object}"
        );
        assert!(matches!(result.code, 125 | 126), "{typed:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_without_a_word() {
    let home = Home::new("");
    let script = format!("{} run -- yes 2>said | head -n 1; echo $?", belljar().display());
    let mut shell = home.belljar(&[]);
    let envs: Vec<_> =
        shell.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    shell = Command::new("sh");
    let output = shell.args(["-c", &script]).current_dir(home.path("work")).envs(envs).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y\n0\n");
    assert_eq!(fs::read_to_string(home.path("work/said")).unwrap(), "");
}

#[test]
fn nothing_is_coloured_or_wider_than_the_terminal_where_it_may_not_be() {
    let home = Home::new("");
    let help = home.belljar(&["help"]).env("COLUMNS", "40").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(widest.chars().count() <= 40, "{widest:?}");
    for typed in [&["rnu"][..], &["diff", "ffffffff"], &["run", "--nosuch"], &["doctor"]] {
        let output = home.belljar(typed).env("NO_COLOR", "1").output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        assert!(!printed.contains(&0x1b), "{typed:?}: {}", String::from_utf8_lossy(&printed));
    }
}

/// Flags that Docker has and belljar takes.
#[test]
fn habits_of_docker_work() {
    let home = Home::new("");
    home.write("work/.env", "# a comment\nA=1\n\nB=two words\n");
    let typed = [
        "run",
        "-it",
        "-q",
        "-e",
        "C=3",
        "--env-file",
        ".env",
        "-w",
        "/tmp",
        "--",
        "sh",
        "-c",
        "echo $A,$B,$C,$PWD",
    ];
    let result = home.run(&typed);
    assert_eq!((result.code, result.stdout.as_str()), (0, "1,two words,3,/tmp\n"), "{}", result.stderr);
    assert_eq!(home.run(&["run", "--profile", "native", "--", "true"]).code, 0);
}

/// As `exec` does it: the repository is the workspace, and the command starts where we stand.
#[test]
fn a_run_in_a_subfolder_works_on_its_repository() {
    let home = Home::new("");
    fs::create_dir_all(home.path("work/repo/sub")).unwrap();
    let init =
        Command::new("git").args(["init", "--quiet"]).current_dir(home.path("work/repo")).status().unwrap();
    assert!(init.success());
    let mut command = home.belljar(&["run", "--", "sh", "-c", "pwd; git rev-parse --show-toplevel"]);
    command.current_dir(home.path("work/repo/sub"));
    let printed =
        "belljar: working on the repository [home]/work/repo; `--workspace .` shows this folder alone\n";
    let expected = format!("/workspace/sub\n/workspace\n{printed}exit code 0\n");
    assert_eq!(answer(command, &home.path("")), expected);
    let mut shell = home.belljar(&["shell", "--once"]);
    fs::write(home.path("typed"), "pwd; git rev-parse --show-toplevel\n").unwrap();
    shell.current_dir(home.path("work/repo/sub")).stdin(fs::File::open(home.path("typed")).unwrap());
    assert_eq!(answer(shell, &home.path("")), expected);
}

//! Agents that run outside, unmodified: the commands of their models run in the folder's sandbox, or nowhere.

use belljar_tests_agents::{CONFIDENTIAL, Outside, for_agents};
use belljar_tests_hosts::Step;
use serde_json::json;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

for_agents! {
    the_shell_of_an_agent_outside_is_held: claude opencode pi;
    an_agent_outside_has_tools_in_the_place_of_its_shell: codex gemini;
    an_agent_outside_works_with_the_mcp_server: claude;
}

fn the_shell_of_an_agent_outside_is_held(agent: &str) {
    let outside = Outside::new();
    integrate(&outside, agent);
    let settings = SETTINGS.map(|name| outside.beside(name));
    let before = settings.each_ref().map(|file| fs::read_to_string(file).ok());
    let own = SETTINGS.map(|name| name.trim_start_matches("web/")).join(" ");
    let folder = outside.folder().display();
    // From inside: the settings that hold the agent, the folder that it is to remember, and the shell itself.
    let attack = format!(
        "cd {folder}; for file in {own}; do rm -rf $file; mkdir -p ${{file%/*}}; echo {{}} > $file; done; echo > {}; \
         ln -sfn /etc {folder}/sub/link; cd {folder}/sub/link",
        outside.shell().display()
    );
    let steps = [
        Step::run("cd sub && echo made > made.txt && pwd"),
        Step::run("pwd; cat ../secret.txt ../../secret.txt; curl -sS http://refused.example; exit 0"),
        Step::run("echo $ANTHROPIC_API_KEY; touch /etc/belljar-was-here ~/here; exit 7"),
        Step::run(attack),
        Step::run("pwd"),
        Step::say("Done."),
    ];
    let results = outside.run(agent, &[], steps);
    held(&outside, &results);
    // Those of other agents are not what holds this one.
    let is_own = |file: &&PathBuf| file.to_string_lossy().contains(agent);
    for (file, before) in settings.iter().zip(before).filter(|(file, _)| is_own(file)) {
        assert_eq!(fs::read_to_string(file).ok(), before, "{}: {results:?}", file.display());
    }
    assert!(fs::read_to_string(outside.shell()).unwrap().contains("tool-shell"), "{results:?}");
    assert!(results[4].starts_with(&folder.to_string()), "{results:?}");
    // Claude Code's tool says that `cd` carries; the others' say that it does not.
    let second = if agent == "claude" { format!("{folder}/sub\n") } else { format!("{folder}\n") };
    assert!(results[1].starts_with(&second), "{results:?}");
    // A shell that is told where nobody made a sandbox runs nothing.
    let other = outside.other_folder();
    let ran = Command::new(outside.shell()).args(["-c", "touch ran"]).current_dir(&other).output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && printed.contains("is in no folder that has a sandbox"), "{printed}");
    assert!(!other.join("ran").exists());
}

fn an_agent_outside_has_tools_in_the_place_of_its_shell(agent: &str) {
    let outside = Outside::new();
    outside.write_home(
        ".gemini/settings.json",
        r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}"#,
    );
    integrate(&outside, agent);
    let run = |command: &str| Step::call("run_command", json!({ "command": command }));
    let steps = [
        run("cd sub && echo made > made.txt && pwd"),
        run("pwd; cat ../secret.txt; curl -sS http://refused.example; exit 0"),
        run("echo $GEMINI_API_KEY $CODEX_API_KEY; touch /etc/belljar-was-here ~/here; exit 7"),
        Step::say("Done."),
    ];
    let words: &[&str] = if agent == "codex" { &["--profile", "belljar"] } else { &[] };
    let results = outside.run(agent, words, steps);
    held(&outside, &results);
    let calls = outside.model.calls();
    let offered = calls.iter().flat_map(|call| &call.tools);
    let shells = ["shell", "shell_command", "exec_command", "local_shell", "exec", "run_shell_command"];
    let own: Vec<&String> = offered.filter(|tool| shells.contains(&tool.as_str())).collect();
    assert!(own.is_empty(), "its own shell is still there: {own:?}");
}

fn an_agent_outside_works_with_the_mcp_server(agent: &str) {
    let outside = Outside::new();
    let program = outside
        .program("x")
        .get_envs()
        .find(|(name, _)| *name == "BELLJAR")
        .unwrap()
        .1
        .unwrap()
        .to_os_string();
    let servers =
        json!({ "mcpServers": { "belljar": { "command": program.to_str().unwrap(), "args": ["mcp"] } } });
    let path = outside.folder().join("sub/made.txt");
    let steps = [
        Step::call("mcp__belljar__write_file", json!({ "path": path, "content": "made\n" })),
        Step::call(
            "mcp__belljar__run_command",
            json!({ "command": "cat sub/made.txt ../secret.txt; id -u" }),
        ),
        Step::say("Done."),
    ];
    let results = outside.run(agent, &["--strict-mcp-config", "--mcp-config", &servers.to_string()], steps);
    assert!(results[1].contains("made\n") && results[1].contains("[exit code 0]"), "{results:?}");
    assert!(!results[1].contains(CONFIDENTIAL), "{results:?}");
    assert_eq!(fs::read_to_string(path).unwrap(), "made\n");
}

/// The published SDKs, unmodified.
#[test]
fn both_sdks_work_with_the_mcp_server() {
    let sdks = match env::var_os("BELLJAR_TEST_MCP").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None if belljar_sys::rustix::process::geteuid().is_root() => PathBuf::from("/var/cache/belljar-mcp"),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/belljar-mcp"),
    };
    let found = sdks.join("versions").exists();
    assert!(found || env::var_os("CI").is_none(), "the MCP SDKs are missing: `./dev setup` installs them");
    if !found {
        return;
    }
    let outside = Outside::new();
    let token = |name: &str| {
        let made = outside.belljar(&["daemon", "grants", "create", name]);
        String::from_utf8(made.stdout).unwrap().trim().to_string()
    };
    let (token, other) = (token("one"), token("other"));
    let programs = [
        (sdks.join("bin/python"), "sdk_http.py", include_str!("../../programs/sdk_http.py")),
        (sdks.join("bin/python"), "sdk.py", include_str!("../../programs/sdk.py")),
        ("node".into(), "sdk.mjs", include_str!("../../programs/sdk.mjs")),
    ];
    for (program, name, text) in programs {
        let file = outside.at_home(name);
        fs::write(&file, text).unwrap();
        let mut command = outside.program(program);
        command
            .env("URL", format!("{}/v1/mcp", outside.url()))
            .env("TOKEN", &token)
            .env("OTHER_TOKEN", &other);
        command.arg(file).env("OUTSIDE", outside.secret()).env("MCP_NODE_MODULES", sdks.join("node"));
        let output = command.output().unwrap();
        let printed =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success() && printed[0] == "done\n", "{name}: {}\n{}", printed[0], printed[1]);
    }
}

fn integrate(outside: &Outside, agent: &str) {
    let done = outside.belljar(&["integrate", agent, "--write"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The three commands that every agent of these tests runs.
fn held(outside: &Outside, results: &[String]) {
    let all = results.join("\n");
    assert!(results[0].contains(&format!("{}/sub", outside.folder().display())), "{results:?}");
    assert_eq!(fs::read_to_string(outside.folder().join("sub/made.txt")).unwrap(), "made\n");
    assert!(results[1].contains("refused.example: no rule allows this name"), "{results:?}");
    assert!(results[2].contains("Read-only file system"), "{results:?}");
    assert!(!all.contains(CONFIDENTIAL) && !all.contains(belljar_tests_agents::KEY), "{results:?}");
    assert!(!PathBuf::from("/etc/belljar-was-here").exists() && !outside.at_home("here").exists());
}

/// Settings of a folder that say in which shell an agent runs commands.
const SETTINGS: [&str; 5] = [
    "web/.claude/settings.json",
    "web/.claude/settings.local.json",
    "web/opencode.json",
    "web/opencode.jsonc",
    "web/.opencode/opencode.json",
];

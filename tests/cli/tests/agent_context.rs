//! `--agent-context`, `[agent] context` and `.belljar/agent-context`: who is heard, in which order, and what is left.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use belljar_tests_cli::{Home, Run};
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

fn what_agents_see(home: &Home, flags: &[&str]) -> String {
    let run = home.run(&[&["run"], flags, &["--", "cat", "AGENTS.md"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

fn in_work(home: &Home) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(home.path("work"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_user_the_repository_and_the_run_add_up() {
    let home = Home::new("");
    let user = home.path("user");
    home.user(&format!("[agent]\ncontext = \"{}\"\n", user.display()));
    home.write("user/a.md", "THE USER\n");
    home.write("work/.belljar/config.toml", "[workspace]\nprotect = [\"x\"]\n");
    home.write("work/.belljar/agent-context/a.md", "THE REPOSITORY\n");
    home.write("flag/a.md", "THE RUN\n");
    let flag = home.path("flag");
    let flags = ["--agent-context", flag.to_str().unwrap()];
    let seen = what_agents_see(&home, &flags);
    assert!(seen.contains("THE USER") && seen.contains("THE RUN"), "{seen}");
    assert!(!seen.contains("THE REPOSITORY"), "the user did not trust it: {seen}");
    let Run { code, stderr, .. } = home.run(&["trust", "--yes"]);
    assert_eq!(code, 0, "{stderr}");
    let seen = what_agents_see(&home, &flags);
    let order = ["THE USER", "THE REPOSITORY", "THE RUN"].map(|what| seen.find(what).unwrap_or(usize::MAX));
    assert!(order.is_sorted() && order[2] != usize::MAX, "{seen}");
    assert_eq!(in_work(&home), [".belljar"]);
}

#[test]
fn a_repository_does_not_say_where_context_is() {
    let home = Home::new("");
    home.write("work/.belljar/config.toml", "[agent]\ncontext = \"/etc\"\n");
    home.run(&["trust", "--yes"]);
    let Run { code, stderr, .. } = home.run(&["run", "--", "true"]);
    assert!(code == 0 || stderr.contains("`agent` is not for a repository to say"), "{stderr}");
    let Run { code, stderr, .. } =
        home.run(&["policy", "check", "--as", "repository", ".belljar/config.toml"]);
    assert!(code != 0 && stderr.contains("`agent`"), "{stderr}");
}

#[test]
fn what_cannot_be_is_said() {
    let home = Home::new("");
    home.write("context/a.md", "x\n");
    let context = home.path("context");
    let flag = ["run", "--agent-context", context.to_str().unwrap()];
    for (before, after, code, word) in [
        (&["run", "--agent-context", "/no/such/place"][..], &["--", "true"][..], 126, "/no/such/place"),
        (&flag, &["--backend", "host", "--", "true"], 125, "without isolation"),
    ] {
        let Run { code: found, stderr, .. } = home.run(&[before, after].concat());
        assert!(found == code && stderr.contains(word) && stderr.contains("hint"), "{found}: {stderr}");
    }
    // A link of the repository is no way to files of this machine.
    std::os::unix::fs::symlink("/etc/passwd", home.path("work/AGENTS.md")).unwrap();
    let Run { code, stdout, stderr } = home.run(&[&flag[..], &["--", "cat", "AGENTS.md"]].concat());
    assert!(
        code == 126 && stderr.contains("leads elsewhere") && !stdout.contains("root:"),
        "{stdout}{stderr}"
    );
}

#[test]
fn a_killed_belljar_leaves_no_file() {
    let home = Home::new("");
    home.write("context/a.md", "x\n");
    let context = home.path("context");
    let script = "test -s AGENTS.md && echo > started; while sleep 1; do :; done";
    let words = ["run", "--agent-context", context.to_str().unwrap(), "--", "sh", "-c", script];
    let mut child = home.belljar(&words).stderr(Stdio::null()).spawn().unwrap();
    let soon = |is_so: &dyn Fn() -> bool| {
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            is_so()
        })
    };
    assert!(soon(&|| home.path("work/started").exists()), "its command never ran");
    assert_eq!(fs::metadata(home.path("work/AGENTS.md")).map(|found| found.len()).unwrap_or(0), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(soon(&|| in_work(&home) == ["started"]), "{:?}", in_work(&home));
}

//! Completions in real shells: the script is loaded, and asked for a word.

use belljar_tests_cli::{Home, belljar};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// A home with something of everything that can be completed, and a folder of programs in which belljar is.
fn furnished() -> Home {
    let home = Home::new("");
    home.keep("hush", "a value");
    fs::create_dir_all(home.path("work/.git/refs/heads/fix")).expect(OURS);
    home.write("work/.git/refs/heads/fix/login", "0000\n");
    home.write("work/.git/packed-refs", "# pack-refs\n0000 refs/heads/release\n");
    fs::create_dir_all(home.path("state/belljar/fleet/sandboxes/bj-work-3f2a9c04d1e7")).expect(OURS);
    fs::create_dir(home.path("bin")).expect(OURS);
    symlink(belljar(), home.path("bin/belljar")).expect(OURS);
    home
}

/// What a shell says; nothing where it is not installed, which in CI is a failure.
fn in_shell(home: &Home, shell: &str, script: &str) -> Option<String> {
    let is_there = Command::new(shell).arg("--version").output().is_ok();
    assert!(is_there || std::env::var_os("CI").is_none(), "{shell} is not installed");
    if !is_there {
        return None;
    }
    let completions = home.run(&["completions", shell]);
    assert_eq!(completions.code, 0, "{}", completions.stderr);
    let file = home.path(if shell == "zsh" { "bin/_belljar" } else { "bin/belljar.script" });
    fs::write(&file, completions.stdout).expect(OURS);
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").expect(OURS));
    let output = Command::new(shell)
        .args(["-c", &script.replace("SCRIPT", file.to_str().expect(OURS))])
        .current_dir(home.path("work"))
        .env("PATH", path)
        .env("HOME", home.path(""))
        .env("XDG_STATE_HOME", home.path("state"))
        .env("XDG_CONFIG_HOME", home.path("config"))
        .output()
        .expect(OURS);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && printed.is_empty(), "{shell}: {printed}");
    Some(String::from_utf8(output.stdout).expect(OURS))
}

const OURS: &str = "the folder is ours, and its names are plain";

/// What is typed, and what must be among the candidates.
const TYPED: &[(&str, &str)] = &[
    ("belljar doc", "doctor"),
    ("belljar run --backend bw", "bwrap"),
    ("belljar run --group reg", "registries"),
    ("belljar run --secret anth", "anthropic"),
    ("belljar run --branch fix", "fix/login"),
    ("belljar start --branch rel", "release"),
    ("belljar start --profile nat", "native"),
    ("belljar secrets rm hu", "hush"),
    ("belljar stop bj-", "bj-work-3f2a9c04d1e7"),
    ("belljar images pu", "pull"),
];

#[test]
fn bash_completes_commands_and_what_is_there() {
    let home = furnished();
    for (typed, expected) in TYPED.iter().chain([&("belljar run --backend = bw", "bwrap")]) {
        let script = format!(
            "source SCRIPT; COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             compopt() {{ :; }}; _belljar; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let Some(printed) = in_shell(&home, "bash", &script) else { return };
        assert_eq!(printed.trim(), *expected, "{typed}");
    }
}

#[test]
fn fish_completes_commands_and_what_is_there() {
    let home = furnished();
    for (typed, expected) in TYPED {
        let script = format!("source SCRIPT; complete -C '{typed}'");
        let Some(printed) = in_shell(&home, "fish", &script) else { return };
        assert!(printed.lines().any(|line| line.split('\t').next() == Some(*expected)), "{typed}: {printed}");
    }
}

/// zsh has no way to ask for completions without a terminal: what the function hands to `_describe` is seen instead.
#[test]
fn zsh_completes_commands_and_what_is_there() {
    let home = furnished();
    for (typed, expected) in TYPED {
        let script = format!(
            "autoload -Uz compinit && compinit -u -D; _describe() {{ print -l -- \"${{(@P)4}}\" }}; _files() {{ }}; \
             source SCRIPT; words=({typed}); CURRENT=$#words; _belljar"
        );
        let Some(printed) = in_shell(&home, "zsh", &script) else { return };
        assert!(printed.lines().any(|line| line.split(':').next() == Some(*expected)), "{typed}: {printed}");
    }
}

/// A name that a shell would run is not offered: an agent may have made the branch.
#[test]
fn a_name_that_a_shell_would_obey_is_not_offered() {
    let home = furnished();
    home.write("work/.git/refs/heads/fix/$(touch x)", "0000\n");
    let printed = home.run(&["complete", "bash", "--", "run", "--branch", "fix"]).stdout;
    assert_eq!(printed, "fix/login\t\n");
}

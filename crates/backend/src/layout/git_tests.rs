//! Lines, and whether the guard refuses them; and the same lines given to a real git, judged by what happened.

use super::GIT_GUARD;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn lines_are_judged_by_what_they_mean() {
    let place = Scratch::new();
    for (line, is_refused) in [
        ("", false),
        ("status", false),
        ("--version", false),
        ("--help commit -n", false),
        ("log --grep=--no-verify", false),
        ("-C sub commit --no-verify", true),
        ("-C commit push --force", false),
        ("--git-dir x --work-tree=y --namespace n push --no-verify", true),
        ("--git-dir push commit -m x", false),
        ("-p --no-pager --literal-pathspecs --exec-path=/x commit -n", true),
        ("-c core.hooksPath=/dev/null commit", true),
        ("-c CORE.HOOKSPATH= commit", true),
        ("-c core.hooksPath commit", true),
        ("--config-env=core.hooksPath=HOME merge x", true),
        ("--config-env core.hooksPath=HOME cherry-pick x", true),
        ("-c core.hooksPath=/dev/null clone x", false),
        ("-c core.hookspaths=x commit", false),
        ("-c", false),
        ("-C", false),
        ("merge -n x", false),
        ("merge --no-verify x", true),
        ("merge --no-verify-signatures x", false),
        ("rebase --no-verify", true),
        ("rebase -n -f main", false),
        ("rebase -x --no-verify main", false),
        ("am -n x", true),
        ("pull --no-verify", true),
        ("pull -n --force", false),
        ("cherry-pick -n x", false),
        ("push -n", false),
        ("push -f origin +main :other", false),
        ("config core.hooksPath x", true),
        ("config --global core.hookspath /dev/null", true),
        ("config set core.hooksPath x", true),
        ("config --get core.hooksPath", false),
        ("config core.hooksPath", false),
        ("config --unset core.hooksPath x", false),
    ] {
        assert_eq!(place.is_refused(&split(line), &[]), is_refused, "{line}");
    }
}

#[test]
fn the_environment_counts() {
    type Variables<'v> = &'v [(&'v str, &'v str)];
    let place = Scratch::new();
    let cases: [(Variables<'_>, &str, bool); 10] = [
        (&[("HUSKY", "0")], "commit -m x", true),
        (&[("HUSKY", "1")], "commit -m x", false),
        (&[("HUSKY", "0")], "rev-parse HEAD", false),
        (&[("GIT_CONFIG_COUNT", "2"), ("GIT_CONFIG_KEY_1", "Core.HooksPath")], "commit", true),
        (&[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_1", "core.hooksPath")], "commit", false),
        (&[("GIT_CONFIG_COUNT", "$(touch x)"), ("GIT_CONFIG_KEY_0", "core.hooksPath")], "commit", false),
        (
            &[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.hooksPath"), ("GIT_CONFIG_VALUE_0", "")],
            "commit",
            false,
        ),
        (&[("GIT_CONFIG_PARAMETERS", "'core.hookspath'='/dev/null'")], "push", true),
        (&[("GIT_CONFIG_PARAMETERS", "'core.pager'='cat'")], "push", false),
        (&[], "commit", false),
    ];
    for (variables, line, is_refused) in cases {
        assert_eq!(place.is_refused(&split(line), variables), is_refused, "{variables:?} {line}");
    }
}

#[test]
fn an_agent_reads_what_and_why_and_what_to_do() {
    let output = Scratch::new().run(&["commit", "-an", "-m", "push --force"], &[]);
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
        (
            Some(1),
            "git: `commit -an` is refused in this sandbox: it would skip the hooks of this project\n  instead: let the hooks \
             run and mend what they report; if a hook itself is wrong, ask the user\n"
        )
    );
}

/// A hook says no: what is committed in spite of it was committed without it.
#[test]
fn a_commit_is_refused_if_git_would_skip_hooks() {
    let place = Scratch::new();
    if place.git("--version").is_none() {
        return;
    }
    place.git("init -q -b main w");
    let hook = place.folder.path().join("w/.git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.folder.path().join("w/message"), "text").unwrap();
    for words in [
        "-n",
        "-nm x",
        "-anm x",
        "-a -n -mx",
        "--no-verify -m x",
        "--no-verif -m x",
        "--no-veri -m x",
        "--no-ver -m x",
        "--no-v -m x",
        "--no -m x",
        "--no-verify=1 -m x",
        "-m x -- -n",
        "-m -n",
        "-mn",
        "-m 'push --force -n'",
        "-Fmessage -n",
        "-F message --no-verify",
        "--file=message -n",
        "--file message -n",
        "--message --no-verify",
        "--message=x --no-verify",
        "--mess x --no-verify",
        "--mess --no-verify",
        "-uno -m x",
        "-un -m x",
        "-unormal -nm x",
        "-vn -m x",
        "-m x --no-verify --verify",
        "-m x --verify --no-verify",
        "-m x -n --verify",
        "-m x --no-verify --verif",
        "-qnm x",
        "-m x --author 'A <a@b>' -n",
        "-m x --author -n",
        "-m x --date now -n",
        "-m x --trailer a=b -n",
        "--cleanup=strip -nm x",
        "--cleanup strip -nm x",
        "-m x --no-edit",
        "-m x --no-verbose",
        "-zm x",
        "-C -n",
        "-t message -m x -n",
        "-tn -m x",
    ] {
        let line = format!("commit --allow-empty {words}");
        let before = place.git("-C w rev-parse -q --verify HEAD");
        let committed = place.git(&format!("-C w {line}"));
        let committed = committed.is_some() && before != place.git("-C w rev-parse -q --verify HEAD");
        let refused = place.is_refused(&split(&line), &[]);
        // Without a message, and with a value that is not wanted, there is no commit, hooks or not.
        let only_tried = ["-n", "--no-verify=1 -m x"].contains(&words);
        assert_eq!(refused && !only_tried, committed, "{line}");
    }
}

/// Words as they are written, with a shell's single quotes.
fn split(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_ascii_whitespace().collect() })
        .collect()
}

/// The guard, and behind it on PATH a git that says `passed`.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("guard", GIT_GUARD), ("behind", "#!/bin/sh\necho passed\n")] {
            let program = folder.path().join(name).join("git");
            fs::create_dir(program.parent().unwrap()).unwrap();
            fs::write(&program, content).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        }
        Scratch { folder }
    }

    fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        let program = |name: &str| self.folder.path().join(name);
        let path = [program("guard"), program("behind"), "/usr/bin".into(), "/bin".into()];
        Command::new("/bin/sh")
            .arg(program("guard").join("git"))
            .args(words)
            .env_clear()
            .env("PATH", std::env::join_paths(path).unwrap())
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }

    fn is_refused(&self, words: &[&str], variables: &[(&str, &str)]) -> bool {
        let output = self.run(words, variables);
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert_eq!(
                (output.stdout.as_slice(), said.as_ref()),
                (b"passed\n".as_slice(), ""),
                "{words:?}"
            ),
            code => {
                assert!(code == Some(1) && said.contains("is refused in this sandbox"), "{words:?}: {said}")
            }
        }
        output.status.code() == Some(1)
    }

    /// What a git that knows no user says, if it is content.
    fn git(&self, text: &str) -> Option<String> {
        let words = split(text);
        let person = [("NAME", "T"), ("EMAIL", "t@example.org")];
        let mut git = Command::new("git");
        for (name, value) in person {
            git.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        let output = git
            .args(words)
            .current_dir(self.folder.path())
            .env("HOME", Path::new("/nonexistent"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", "true")
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

//! Folders, layers and clones from end to end, as a person uses them.

use belljar_tests_cli::{Home, Run};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn what_is_changed_in_an_overlay_is_shown_and_taken_over() {
    let home = Home::new("");
    for (name, content) in [("edited", "old\n"), ("gone", "x\n"), ("before", "moved\n"), ("sub/deep", "y\n")]
    {
        home.write(&format!("work/{name}"), content);
    }
    symlink("nowhere", home.path("work/link")).expect("the folder is ours");
    let script = "echo new > edited; rm gone; mv before after; ln -sf edited link; rm -r sub; mkdir sub; echo z > sub/other; \
        printf 'a\\000b' > binary; chmod 755 edited; echo all: > Makefile";
    let run = home.run(&["run", "--overlay", "--", "sh", "-c", script]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(fs::read_to_string(home.path("work/edited")).expect("it is there"), "old\n");
    let layers: serde_json::Value =
        serde_json::from_str(&home.run(&["layers", "--json"]).stdout).expect("one array");
    let id = layers[0]["id"].as_str().expect("an id").to_string();
    assert!(run.stderr.contains(&format!("belljar apply {id}")), "{}", run.stderr);
    let names = home.run(&["diff", &id, "--names"]);
    assert!(
        names.stderr.contains("commonly run it") && names.stderr.contains("  Makefile (make)"),
        "{}",
        names.stderr
    );
    let mut names: Vec<&str> = names.stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "A Makefile",
            "A binary",
            "A sub/other",
            "D gone",
            "D sub/deep",
            "M edited",
            "M link",
            "R before -> after"
        ]
    );
    let applied = home.run(&["apply", &id]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stderr.contains("  Makefile (make)"), "{}", applied.stderr);
    let content = |name: &str| fs::read(home.path("work").join(name)).ok();
    assert_eq!(content("edited"), Some(b"new\n".to_vec()));
    assert_eq!(content("after"), Some(b"moved\n".to_vec()));
    assert_eq!(content("sub/other"), Some(b"z\n".to_vec()));
    assert_eq!(content("binary"), Some(b"a\0b".to_vec()));
    assert_eq!(fs::read_link(home.path("work/link")).expect("a link"), std::path::Path::new("edited"));
    assert_eq!((content("gone"), content("before"), content("sub/deep")), (None, None, None));
    assert_eq!(home.run(&["layers", "--json"]).stdout.trim(), "[]", "what was taken is gone");
}

#[test]
fn uncommitted_work_on_a_branch_is_shown_and_applied() {
    let home = Home::new("");
    fs::create_dir(home.path("repo")).expect("the folder is ours");
    for (name, content) in [("edited", "old\n"), ("gone", "x\n"), ("other", "y\n")] {
        home.write(&format!("repo/{name}"), content);
    }
    for line in ["init -q -b main", "add .", "commit -q -m first"] {
        git(&home, line);
    }
    let repo = home.path("repo");
    let repo = repo.to_str().expect("a plain path");
    // A repository below it, and a pipe on which git would wait, are not a part of the work.
    let script = "echo new >> edited; rm gone; echo changed > other; mkdir -p sub; printf 'a\\000b' > sub/binary; ln -s edited link; \
        chmod 755 edited; mkfifo pipe; git init -q nested; echo z > nested/file";
    let run = home.run(&["run", "--workspace", repo, "--branch", "fix", "--", "sh", "-c", script]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let list: serde_json::Value =
        serde_json::from_str(&home.run(&["changes", "list", "--json"]).stdout).expect("one array");
    let branch = list[0]["id"].as_str().expect("an id").to_string();
    for command in ["diff", "apply"] {
        assert!(run.stderr.contains(&format!("belljar {command} {branch}")), "{}", run.stderr);
    }
    let names = home.run(&["diff", &branch, "--names"]);
    let mut lines: Vec<&str> = names.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["A link", "A nested/file", "A sub/binary", "D gone", "M edited", "M other"],
        "{}",
        names.stderr
    );
    assert!(names.stderr.contains("left out: pipe"), "{}", names.stderr);
    // A file that the user changed meanwhile is not lost, and none of the others is applied.
    home.write("repo/other", "of the user\n");
    let refused = home.run(&["apply", &branch]);
    assert_ne!(refused.code, 0);
    assert!(
        refused.stderr.contains("nothing was applied") && refused.stderr.contains("other is not"),
        "{}",
        refused.stderr
    );
    let content = |name: &str| fs::read(home.path("repo").join(name)).ok();
    assert_eq!((content("edited"), content("gone")), (Some(b"old\n".to_vec()), Some(b"x\n".to_vec())));
    let some = home.run(&["apply", &branch, "edited", "gone", "sub", "link"]);
    assert_eq!(some.code, 0, "{}", some.stderr);
    assert_eq!(content("edited"), Some(b"old\nnew\n".to_vec()));
    assert_eq!(content("sub/binary"), Some(b"a\0b".to_vec()));
    assert_eq!((content("gone"), content("other")), (None, Some(b"of the user\n".to_vec())));
    assert_eq!(fs::read_link(home.path("repo/link")).expect("a link"), std::path::Path::new("edited"));
    // A path that is protected by now is left out, as of a change set.
    home.user("[workspace]\nprotect = [\"other\"]\n");
    home.write("repo/other", "y\n");
    let without = home.run(&["apply", &branch]);
    assert_eq!(content("other"), Some(b"y\n".to_vec()), "{}", without.stderr);
    assert!(without.stderr.contains("left out: other"), "{}", without.stderr);
    home.user("");
    // What was applied is no conflict, and the branch still has its work.
    home.write("repo/other", "y\n");
    let rest = home.run(&["apply", &branch, "--json"]);
    assert_eq!(rest.code, 0, "{}", rest.stderr);
    assert_eq!(
        (content("other"), content("nested/file")),
        (Some(b"changed\n".to_vec()), Some(b"z\n".to_vec()))
    );
    assert!(content("nested/.git/HEAD").is_none() && content("pipe").is_none());
    let list: serde_json::Value =
        serde_json::from_str(&home.run(&["changes", "list", "--json"]).stdout).expect("one array");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "the change set is gone, the branch is not: {list}");
}

#[test]
fn what_a_file_or_a_flag_protects_stays_as_it_is() {
    let home = Home::new("[workspace]\nprotect = [\"Makefile\", \"ci/run\"]\nunprotect = [\".vscode\"]\n");
    home.write("work/Makefile", "all:\n");
    let script = "for path in Makefile ci/run deploy .claude/settings.json; do mkdir -p $(dirname $path); echo x > $path; rm -f $path; done 2>/dev/null; \
        mv Makefile other 2>/dev/null; echo x > free; mkdir .vscode; echo x > .vscode/tasks.json; echo x > build.rs";
    let run = home.run(&["run", "--protect", "deploy", "--", "sh", "-c", script]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(fs::read_to_string(home.path("work/Makefile")).expect("it is there"), "all:\n");
    assert_eq!(fs::read_to_string(home.path("work/free")).expect("what is not protected"), "x\n");
    for name in ["ci/run", "deploy", "other", ".claude"] {
        assert!(!home.path("work").join(name).exists(), "{name}");
    }
    // What the user lets agents change is theirs to look at.
    assert!(home.path("work/.vscode/tasks.json").exists());
    for line in ["  .vscode/tasks.json (", "  build.rs (cargo build)"] {
        assert!(run.stderr.contains(line), "{}", run.stderr);
    }
    assert!(!run.stderr.contains("warning"), "{}", run.stderr);
}

#[test]
fn a_clone_is_worked_in_and_published_on_request() {
    let home = Home::new("");
    fs::create_dir(home.path("repo")).expect("the folder is ours");
    for line in ["init -q -b main", "commit -q --allow-empty -m first"] {
        git(&home, line);
    }
    let repo = home.path("repo");
    let repo = repo.to_str().expect("a plain path");
    let commit = "git config --global user.name A; git config --global user.email a@example.org; \
        git commit -q --allow-empty -m inside; git checkout -q -b aside; git commit -q --allow-empty -m beside";
    let run = home.run(&["run", "--clone", repo, "--branch", "fix", "--", "sh", "-c", commit]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("1 commit on branch fix"), "{}", run.stderr);
    assert!(run.stderr.contains("what is on other branches stays in the clone: aside"), "{}", run.stderr);
    assert_eq!(git(&home, "branch --list --format=%(refname:short)"), "main\n", "nothing was pushed");
    let layers: serde_json::Value =
        serde_json::from_str(&home.run(&["layers", "--json"]).stdout).expect("one array");
    let id = layers[0]["id"].as_str().expect("an id").to_string();
    let Run { code, stderr, .. } = home.run(&["publish", &id]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(git(&home, "branch --list --format=%(refname:short)"), "fix\nmain\n");
    assert_eq!(git(&home, "log -1 --format=%s fix"), "inside\n");
}

#[test]
fn a_repository_that_cannot_be_cloned_is_said_and_nothing_runs() {
    let home = Home::new("");
    let url = "https://me:s3cr3t-token@127.0.0.1:1/none.git";
    let run = home.run(&["run", "--clone", url, "--", "sh", "-c", "echo it ran"]);
    assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{}", run.stderr);
    assert!(run.stderr.contains("could not be cloned") && !run.stderr.contains("s3cr3t"), "{}", run.stderr);
}

/// The host's git, in `repo`.
fn git(home: &Home, line: &str) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(line.split(' '))
        .current_dir(home.path("repo"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

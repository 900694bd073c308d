//! `--placeholders` and `[workspace] placeholders`: files of variables as a program inside finds them.

use crate::persistent::home::Home as Folder;
use belljar_tests_cli::Home;
use std::fs;
use std::path::Path;
use std::process::Command;

const ENV: &str = "# once TOKEN=sk-once-0123456789\nexport TOKEN=sk-real-0123456789abcdef\nPORT=3000\nEMPTY=\n\
    DB='postgres://app:hunter2-hunter2@db.example.com/app'\nPEM=\"-----BEGIN KEY-----\nQWJjZGVmZ2hpamts\n\" # QWJj\n";
/// What must be nowhere inside.
const REAL: [&str; 4] = ["once-0123", "real-0123", "hunter2", "QWJj"];

fn home(config: &str) -> Home {
    let home = Home::new(config);
    home.write("work/.env", ENV);
    home.write("work/web/.env.local", ENV);
    home
}

fn git(folder: &Path, words: &str) -> String {
    let base = "-c user.name=n -c user.email=e@example.com -c init.defaultBranch=main";
    let git = Command::new("git")
        .args(base.split(' '))
        .args(words.split(' '))
        .current_dir(folder)
        .output()
        .expect("git starts");
    assert!(git.status.success(), "{words}: {}", String::from_utf8_lossy(&git.stderr));
    String::from_utf8_lossy(&git.stdout).into_owned()
}

/// What a shell script prints.
fn seen(home: &Home, flags: &[&str], script: &str) -> String {
    let run = home.run(&[&["run"], flags, &["--", "sh", "-c", script]].concat());
    assert_eq!(run.code, 0, "{flags:?}: {}{}", run.stdout, run.stderr);
    run.stdout
}

fn is_without_values(text: &str) -> bool {
    REAL.iter().all(|real| !text.contains(real))
}

#[test]
fn names_and_shapes_are_seen_and_values_are_not() {
    let script = "cat .env; set -a; . ./.env; echo \"$DB\"; echo x > .env; cat web/.env.local; ls -l .env";
    for (config, flags) in [
        ("", &["--placeholders", ".env", "--placeholders", ".env.*"][..]),
        ("[workspace]\nplaceholders = [\".env*\"]\n", &[]),
        ("[workspace]\nplaceholders = [\".env*\"]\n", &["--overlay"]),
    ] {
        let home = home(config);
        let output = seen(&home, flags, script);
        assert!(is_without_values(&output), "{output}");
        for expected in
            ["\nexport TOKEN=sk-", "\nPORT=", "\nEMPTY=\nDB='postgres://", "\npostgres://", "PEM=\"-----"]
        {
            assert!(output.contains(expected), "{expected}: {output}");
        }
        let (first, _) = output.split_once("\nPORT=").unwrap();
        assert_eq!(first.len() + "\nPORT=".len(), ENV.find("3000").unwrap(), "the size stays: {output}");
        assert_eq!(fs::read_to_string(home.path("work/.env")).unwrap(), ENV);
        // Nothing of it in what belljar writes down.
        let found =
            Command::new("grep").args(["-rlE", &REAL.join("|")]).arg(home.path("state")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    }
}

/// What git does not track is not in a worktree of a branch; it is shown there all the same, and gets into no commit.
#[test]
fn a_file_that_git_ignores_is_seen_on_a_branch_too() {
    let home = home("");
    let work = home.path("work");
    home.write("work/.gitignore", "web/\n");
    for words in ["init -q", "add .gitignore", "commit -qm first"] {
        git(&work, words);
    }
    let flags = ["--branch", "fix", "--placeholders", ".env*"];
    let script = "cat .env web/.env.local; echo x > new; git add -A; git commit -qm second; git push -q; git status -s";
    let output = seen(&home, &flags, script);
    assert!(is_without_values(&output) && output.matches("export TOKEN=sk-").count() == 2, "{output}");
    assert_eq!(git(&work, "ls-tree -r --name-only fix"), ".gitignore\nnew\n");
    // Without the option it is gone again.
    assert_eq!(seen(&home, &["--branch", "fix"], "ls -a | grep -x .env; git status -s"), "");
}

/// A file that is committed: no commit takes what is seen for its content, hidden or with placeholders.
#[test]
fn a_file_that_git_tracks_is_committed_as_it_was() {
    for mode in [&[][..], &["--overlay"], &["--branch", "fix"]] {
        for (option, size) in [("--placeholders", ENV.len()), ("--hide", 0)] {
            let home = home("");
            let work = home.path("work");
            for words in ["init -q", "add -f .", "commit -qm first"] {
                git(&work, words);
            }
            let script = "wc -c < .env; echo x > new; git add -A; git commit -qm second; git commit -qam third >/dev/null; \
                git push -q 2>/dev/null; git status -s; git log --format=%s";
            let output = seen(&home, &[mode, &[option, ".env*"]].concat(), script);
            assert_eq!(output, format!("{size}\nsecond\nfirst\n"), "{mode:?} {option}");
            if mode != ["--overlay"] {
                let tip = if mode.is_empty() { "main" } else { "fix" };
                assert_eq!(git(&work, &format!("show {tip}:.env")), ENV, "{mode:?} {option}");
            }
            assert_eq!(fs::read_to_string(home.path("work/.env")).unwrap(), ENV);
        }
    }
}

/// The value of a secret that the sandbox may use: the same placeholder as in its environment, by the name or by the value.
#[test]
fn a_credentials_own_placeholder_is_used() {
    let home = Home::new("");
    home.keep("openai", "sk-proj-0123456789abcdefABCDEF");
    home.write(
        "work/.env",
        "OPENAI_API_KEY=sk-old-0123456789abcdef\nCOPY=\"sk-proj-0123456789abcdefABCDEF\"\nOTHER=sk-proj-0123456789abcdefABCDEF0\n",
    );
    let flags = ["--secret", "openai", "--placeholders", ".env"];
    let output = seen(
        &home,
        &flags,
        // By its name alone: a program that writes such a file must not learn which of its guesses is the value.
        "key=$OPENAI_API_KEY; . ./.env; [ $key = $OPENAI_API_KEY ] && [ $key != $COPY ] && echo $key $OTHER",
    );
    let (key, other) =
        output.trim().split_once(' ').expect("the variable has the placeholder, and the copy has not");
    assert!(
        key.starts_with("sk-proj-") && key != "sk-proj-0123456789abcdefABCDEF" && !other.starts_with(key),
        "{output}"
    );
}

#[test]
fn what_cannot_be_read_for_certain_starts_nothing() {
    for (content, why) in [
        ("A=1\nsecret-line\n", "line 2 is not `NAME=value`"),
        ("A='x\n", "line 1 begins a value whose quote is never closed"),
        ("A=it's\n", "line 1 has a quote in a value without quotes"),
    ] {
        let home = Home::new("");
        home.write("work/.env", content);
        let run = home.run(&["run", "--placeholders", ".env", "--", "cat", ".env"]);
        let expected = format!(
            "belljar: `.env` cannot be shown with placeholders: {why}\n  hint: correct that line, or hide the file with `--hide .env`\n"
        );
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (126, "", &*expected));
        // What is hidden is not read.
        assert_eq!(seen(&home, &["--placeholders", ".env", "--hide", ".env"], "cat .env"), "");
    }
    let home = home("");
    let run = home.run(&["run", "--backend", "host", "--placeholders", ".env", "--", "cat", ".env"]);
    assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{}", run.stderr);
}

/// Each life of a persistent sandbox reads it anew. What else looks like a secret is no message for a pipe.
#[test]
fn a_persistent_sandbox_reads_the_file_at_each_start() {
    let folder = Folder::ready();
    let file = folder.path("work/.env");
    fs::write(&file, "TOKEN=sk-real-0123456789abcdef\n").unwrap();
    fs::write(folder.path("work/.env.local"), "TOKEN=x\n").unwrap();
    let started = folder.run(&["start", "--placeholders", ".env"]);
    assert!(started.code == 0 && !started.stderr.contains("can read"), "{}", started.stderr);
    let first = folder.run(&["exec", "--", "cat", ".env"]);
    assert!(first.stdout.starts_with("TOKEN=sk-") && is_without_values(&first.stdout), "{}", first.stdout);
    assert_eq!(first.stderr, "");
    assert_eq!(folder.run(&["stop"]).code, 0);
    fs::write(&file, "TOKEN=sk-real-0123456789abcdef\nNEW=real-0123\n").unwrap();
    let second = folder.run(&["exec", "--", "cat", ".env"]);
    assert!(second.stdout.contains("\nNEW=") && is_without_values(&second.stdout), "{}", second.stdout);
    assert_ne!(first.stdout.lines().next(), second.stdout.lines().next());
}

/// In an overlay an agent may have written one itself, or removed the folder's.
#[test]
fn in_an_overlay_the_file_that_would_be_seen_counts() {
    let home = home("");
    let layer = |script: &str| {
        let run = home.run(&["run", "--overlay", "--", "sh", "-c", script]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stderr
            .split("kept in layer ")
            .nth(1)
            .expect("a layer")
            .split_whitespace()
            .next()
            .unwrap()
            .to_string()
    };
    for option in ["--placeholders", "--hide"] {
        let changed = layer("echo MINE=abcdefgh > .env");
        let output = seen(&home, &["--overlay", "--layer", &changed, option, ".env"], "cat .env");
        assert_eq!(output.contains("MINE="), option == "--placeholders", "{output}");
        assert!(!output.contains("abcdefgh"), "{output}");
        let removed = layer("rm -r .env web; mkdir web; echo x > web/y");
        let output =
            seen(&home, &["--overlay", "--layer", &removed, option, ".env*"], "ls -a . web | grep -v .envrc");
        assert!(!output.contains(".env") && output.contains("y\n"), "{output}");
    }
}

//! Lines, and what becomes of them; and the same lines given to a real git, judged by what happened.

use super::*;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn lines_are_judged_by_what_they_mean() {
    use Reason::{Deletes, Overwrites, SkipsHooks};
    let cases: [(&str, Option<Reason>); 46] = [
        ("", None),
        ("status", None),
        ("--version", None),
        ("--help commit -n", None),
        ("log --grep=--no-verify", None),
        ("-C sub commit --no-verify", Some(SkipsHooks)),
        ("-C commit push --force", Some(Overwrites)),
        ("--git-dir x --work-tree=y --namespace n push -f", Some(Overwrites)),
        ("--git-dir push commit -m x", None),
        ("-p --no-pager --literal-pathspecs --exec-path=/x commit -n", Some(SkipsHooks)),
        ("-c core.hooksPath=/dev/null commit", Some(SkipsHooks)),
        ("-c CORE.HOOKSPATH= commit", Some(SkipsHooks)),
        ("-c core.hooksPath commit", Some(SkipsHooks)),
        ("--config-env=core.hooksPath=HOME merge x", Some(SkipsHooks)),
        ("--config-env core.hooksPath=HOME cherry-pick x", Some(SkipsHooks)),
        ("-c core.hooksPath=/dev/null clone x", None),
        ("-c core.hookspaths=x commit", None),
        ("-c alias.x=commit\\ --no-verify x", Some(SkipsHooks)),
        ("-c alias.x=commit x -an", Some(SkipsHooks)),
        ("-c alias.x=y -c alias.y='push -f' x", Some(Overwrites)),
        ("-c alias.x=x x", None),
        ("-c alias.x=!git\\ push\\ --force x", Some(Overwrites)),
        ("-c alias.x=!true x --force", None),
        ("-c alias.commit=push commit --force", None),
        ("--config-env=alias.x=ALIAS x", Some(Deletes)),
        ("merge -n x", None),
        ("merge --no-verify x", Some(SkipsHooks)),
        ("merge --no-verify-signatures x", None),
        ("rebase --no-verify", Some(SkipsHooks)),
        ("rebase -n -f main", None),
        ("rebase -x --no-verify main", None),
        ("am -n x", Some(SkipsHooks)),
        ("pull --no-verify", Some(SkipsHooks)),
        ("pull -n --force", None),
        ("cherry-pick -n x", None),
        ("config core.hooksPath x", Some(SkipsHooks)),
        ("config --global core.hookspath /dev/null", Some(SkipsHooks)),
        ("config set core.hooksPath x", Some(SkipsHooks)),
        ("config --get core.hooksPath", None),
        ("config core.hooksPath", None),
        ("config --unset core.hooksPath x", None),
        ("push origin --delete x", Some(Deletes)),
        ("push --forc", Some(Overwrites)),
        ("push --fo", None),
        ("add -n --force .", None),
        ("stash push -f", None),
    ];
    for (text, expected) in cases {
        let variable = |name: &str| (name == "ALIAS").then(|| b"push --mirror".to_vec());
        assert_eq!(reason(text, &variable), expected, "{text}");
    }
}

#[test]
fn the_environment_counts() {
    type Variables<'v> = &'v [(&'v str, &'v str)];
    let cases: [(Variables<'_>, &str, bool); 9] = [
        (&[("HUSKY", "0")], "commit -m x", true),
        (&[("HUSKY", "1")], "commit -m x", false),
        (&[("HUSKY", "0")], "rev-parse HEAD", false),
        (&[("GIT_CONFIG_COUNT", "2"), ("GIT_CONFIG_KEY_1", "Core.HooksPath")], "commit", true),
        (&[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_1", "core.hooksPath")], "commit", false),
        (
            &[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.hooksPath"), ("GIT_CONFIG_VALUE_0", "")],
            "commit",
            false,
        ),
        (&[("GIT_CONFIG_PARAMETERS", "'core.hooksPath'='/dev/null'")], "push", true),
        (&[("GIT_CONFIG_PARAMETERS", "'core.pager'='cat'")], "push", false),
        (&[], "commit", false),
    ];
    for (variables, text, refused) in cases {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| value.as_bytes().to_vec());
        assert_eq!(reason(text, &variable).is_some(), refused, "{variables:?} {text}");
    }
}

#[test]
fn an_agent_reads_what_and_why_and_what_to_do() {
    let said = judge(&split(b"commit -an -m 'push --force'"), &|_| None).expect("refused").to_string();
    assert_eq!(
        said,
        "git: `commit -an` is refused in this sandbox: it would skip the hooks of this project\n  instead: let the hooks \
         run and mend what they report; if a hook itself is wrong, ask the user\n"
    );
}

/// A hook says no: what is committed in spite of it was committed without it.
#[test]
fn a_commit_is_refused_if_git_would_skip_hooks() {
    let Some(place) = Place::new() else { return };
    place.git("init -q -b main w");
    let hook = place.root.join("w/.git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.root.join("w/message"), "text").unwrap();
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
        let refused = reason(&line, &|_| None).is_some();
        // Without a message, and with a value that is not wanted, there is no commit, hooks or not.
        let only_tried = ["-n", "--no-verify=1 -m x"].contains(&words);
        assert_eq!(refused && !only_tried, committed, "{line}");
    }
}

/// A remote that has what we do not: what we overwrote or deleted was not ours.
#[test]
fn a_push_is_refused_if_git_would_overwrite_or_delete() {
    let Some(place) = Place::new() else { return };
    place.with_diverged_remote();
    let before = place.refs();
    for words in [
        "origin main",
        "origin main -f",
        "-f origin main",
        "-fu origin main",
        "-uf origin main",
        "--force origin main",
        "--forc origin main",
        "--for origin main",
        "--fo origin main",
        "--force-with-lease origin main",
        "--force-with-l origin main",
        "--force-with-lease=main origin main",
        "--force-if-includes --force-with-lease origin main",
        "--force --no-force origin main",
        "--no-force --force origin main",
        "origin +main",
        "origin +main:main",
        "origin +refs/heads/main",
        "origin -- +main",
        "-- origin +main",
        "origin :main",
        "origin :other",
        "origin :",
        "origin +:",
        "origin --delete other",
        "-d origin other",
        "--del origin other",
        "--d origin other",
        "-dn origin other",
        "-n origin main",
        "--mirror origin",
        "--mirr origin",
        "--mi origin",
        "--m origin",
        "--prune origin",
        "--prun origin --all",
        "--pru origin refs/heads/*",
        "--pr origin",
        "--all origin",
        "-o --force origin main",
        "-o x -f origin main",
        "--push-option --force origin main",
        "--repo --force main",
        "--repo origin --force",
        "--receive-pack git-receive-pack -f origin main",
        "--no-verify origin main",
        "origin main:new",
        "origin tag v1",
        "--follow-tags origin main",
        "--tags origin",
        "origin HEAD:refs/heads/+x",
    ] {
        place.again();
        let line = format!("push {words}");
        place.git(&format!("-C w {line}"));
        let after = place.refs();
        let is_lost = |(name, commit): (&String, &String)| match after.get(name) {
            None => true,
            Some(now) => {
                place.git(&format!("--git-dir up.git merge-base --is-ancestor {commit} {now}")).is_none()
            }
        };
        let lost = before.iter().any(is_lost);
        let refused = reason(&line, &|_| None);
        // Tried and not done: refused all the same. An option that git finds ambiguous does nothing either.
        let only_tried = [
            "-dn",
            "--no-verify",
            "--d ",
            "--prune origin",
            "--prun origin --all",
            "--forc ",
            "--for ",
            "+:",
            "--repo origin",
        ];
        match refused {
            Some(_) => assert!(
                lost || only_tried.iter().any(|case| words.contains(case)),
                "refused for nothing: {line}"
            ),
            None => assert!(!lost, "not refused: {line}"),
        }
    }
}

fn reason(text: &str, variable: &dyn Fn(&str) -> Option<Vec<u8>>) -> Option<Reason> {
    judge(&split(text.as_bytes()), variable).map(|refusal| refusal.reason)
}

/// A folder for repositories; gone in the end.
struct Place {
    root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    /// None where there is no git to compare with.
    fn new() -> Option<Place> {
        let directory = tempfile::tempdir().expect("a folder");
        let place = Place { root: directory.path().to_path_buf(), _directory: directory };
        place.git("--version")?;
        Some(place)
    }

    /// `main` differs on both sides, `other` is only there.
    fn with_diverged_remote(&self) {
        for line in [
            "init -q --bare -b main up.git",
            "init -q -b main w",
            "-C w commit -q --allow-empty -m a",
            "-C w remote add origin ../up.git",
            "-C w commit -q --allow-empty -m theirs",
            "-C w push -q origin main main:other",
            "-C w reset -q --hard HEAD~1",
            "-C w commit -q --allow-empty -m ours",
            "-C w tag v1",
            "--git-dir up.git config receive.denyDeleteCurrent ignore",
            "--git-dir up.git config receive.advertisePushOptions true",
        ] {
            assert!(self.git(line).is_some(), "{line}");
        }
    }

    /// As it was before the first push.
    fn again(&self) {
        let saved = self.root.join("saved");
        let copy = |from: &Path, to: &Path| {
            let copied =
                Command::new("cp").arg("-a").args([from.join("up.git"), from.join("w")]).arg(to).status();
            assert!(copied.is_ok_and(|status| status.success()));
        };
        if fs::create_dir(&saved).is_ok() {
            return copy(&self.root, &saved);
        }
        for name in ["up.git", "w"] {
            fs::remove_dir_all(self.root.join(name)).expect("removed");
        }
        copy(&saved, &self.root);
    }

    fn refs(&self) -> HashMap<String, String> {
        let listed = self.git("--git-dir up.git for-each-ref").unwrap_or_default();
        let lines =
            listed.lines().filter_map(|line| Some((line.split('\t').nth(1)?, line.split(' ').next()?)));
        lines.map(|(name, commit)| (name.to_string(), commit.to_string())).collect()
    }

    /// What a git that knows nobody says, if it is content.
    fn git(&self, text: &str) -> Option<String> {
        let words = split(text.as_bytes());
        let words = words.iter().map(|word| std::str::from_utf8(word).expect("text"));
        let person = [("NAME", "T"), ("EMAIL", "t@example.org")];
        let mut git = Command::new("git");
        for (name, value) in person {
            git.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        let output = git
            .args(words)
            .current_dir(&self.root)
            .env("HOME", Path::new("/nonexistent"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", "true")
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

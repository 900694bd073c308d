//! What people do with git every day, done in a sandbox and, with the same script, in a copy of the folder. Afterwards git on the host
//! must say the same of both: branches, commits to the last digit, index, files. What is only staged inside is not staged on the host:
//! the index of a sandbox never comes out.

use belljar_tests_cli::Home;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A script in place, and what it printed.
fn in_place(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("there is a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// What git says of a repository.
fn state(folder: &Path) -> String {
    in_place(
        folder,
        "git for-each-ref --format='%(refname) %(objectname) %(authorname) %(authoremail) %(subject)' refs/heads refs/tags; \
         git symbolic-ref HEAD; git log --format='%H %an %ae %cn %s'; git status --porcelain=v2 --branch; git diff; git diff --cached; \
         git ls-files -s; git stash list; git fsck --strict --no-dangling",
    )
}

/// The same hash for the same commit, wherever it is made.
const CLOCK: &str =
    "export GIT_AUTHOR_DATE='2026-01-02 03:04:05 +0000' GIT_COMMITTER_DATE='2026-01-02 03:04:05 +0000'\n";

/// Runs `work` in a sandbox on a repository that `before` has prepared, and in place in a copy.
fn same(before: &str, work: &str) {
    let home = Home::new("").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let folder = home.path("work");
    let first = "git init -q -b main .; git config user.name Ada; git config user.email ada@example.org\n\
                 for i in 1 2 3 4 5; do echo $i > f$i; done; git add .; git commit -q -m first\n";
    in_place(&folder, &format!("{CLOCK}{first}{before}"));
    let copy = home.path("copy");
    let copied = Command::new("cp").arg("-a").args([&folder, &copy]).status();
    assert!(copied.expect("there is cp").success());
    let script = format!("{CLOCK}{work}");
    let run = home.run(&["run", "--", "sh", "-ec", &script]);
    assert_eq!(run.code, 0, "{work}\n{}{}", run.stdout, run.stderr);
    let printed = in_place(&copy, &script);
    assert_eq!(run.stdout, printed, "{work}");
    assert_eq!(state(&folder), state(&copy), "{work}\n{}", run.stderr);
    assert!(!run.stderr.contains("not taken over"), "{}", run.stderr);
}

#[test]
fn commit_and_amend() {
    same(
        "",
        "echo 1 >> f1; git commit -q -a -m one; echo 2 >> f2; git commit -q -a --amend -m uno; git log --format=%s",
    );
    same(
        "",
        "echo 1 >> f1; git commit -q -a -m one; sleep 0.5; echo 2 >> f2; git commit -q -a --amend -m uno; git rm -q f3; git commit -q -m gone",
    );
}

#[test]
fn what_the_user_has_staged_and_changed_stays() {
    let before = "echo staged > new; git add new; echo changed > f1; git add -N f5; echo x > untracked";
    same(before, "echo two > f2; git commit -q -m two -- f2; git status --porcelain");
    same(before, "git commit -q -m all -a; git status --porcelain");
}

#[test]
fn interactive_rebase() {
    let commits = "for i in 1 2 3 4; do echo x >> f$i; git commit -q -a -m c$i; done\n";
    let rebase = "GIT_SEQUENCE_EDITOR='sed -i -e 2s/pick/squash/ -e 3s/pick/fixup/' GIT_EDITOR=true git rebase -q -i HEAD~4 >&2; git log --format=%s";
    same("", &format!("{commits}{rebase}"));
    same("", &format!("{commits} sleep 0.5; {rebase}"));
    same(
        "",
        "git checkout -q -b topic; echo t >> f1; git commit -q -a -m topic; git checkout -q main; echo m >> f2; git commit -q -a -m m; \
              git checkout -q topic; git rebase -q main >&2; git log --format=%s; git checkout -q main; git merge -q --ff-only topic >&2",
    );
}

#[test]
fn stash_and_pop() {
    let stash = "echo work >> f1; echo new > new; git add new; git stash -q; git status --porcelain; git stash list; \
                 echo 2 >> f2; git commit -q -a -m two; git stash pop -q --index; git status --porcelain; git commit -q -a -m popped";
    same("", stash);
    let untracked = "echo new > new; git stash -q -u; git status --porcelain; git stash pop -q; git status --porcelain; \
                     git clean -q -f -d; git status --porcelain";
    same("", untracked);
    same(
        "echo users >> f4; git stash -q; echo more >> f5",
        "git stash list; git stash -q; git stash pop -q; git status --porcelain",
    );
}

#[test]
fn bisect_run() {
    same(
        "for i in 1 2 3 4 5 6 7; do echo $i > n; [ $i -lt 4 ] || touch bad; git add .; git commit -q -m n$i; done",
        "git bisect start HEAD HEAD~6 >&2; git bisect run sh -c 'test ! -e bad' >&2; git log -1 --format=%s bisect/bad; git bisect reset >&2",
    );
}

#[test]
fn blame_log_and_diff() {
    same(
        "echo 2 >> f1; git commit -q -a -m second; git tag -a -m v1 v1; git notes add -m noted; echo 3 >> f1",
        "git blame -s f1; git log -p --stat; git diff; git diff --cached HEAD~1; git shortlog -s HEAD; git describe; git show v1; git grep -n 1; \
         git log --format='%s %N'; git reflog --format=%gs; git rev-parse HEAD@{1}",
    );
}

#[test]
fn merge_with_a_conflict_that_is_solved() {
    same(
        "git checkout -q -b side; echo side > f1; git commit -q -a -m side; git checkout -q main; echo main > f1; git commit -q -a -m main",
        "git merge -q side >&2 || true; git status --porcelain; echo both > f1; git add f1; git commit -q --no-edit; git log --format=%s; \
         git branch -d side >&2 || true; sleep 0.3; git branch side main^2 2>/dev/null || true",
    );
}

#[test]
fn cherry_pick_and_revert() {
    same(
        "git checkout -q -b side; echo side >> f1; git commit -q -a -m side; echo x > f1; git commit -q -a -m conflict; git checkout -q main; echo m > f1; git commit -q -a -m m",
        "git cherry-pick side~1 >&2 || true; echo solved > f1; git add f1; git -c core.editor=true cherry-pick --continue >&2; \
         git revert --no-edit HEAD~1 >&2 || { git checkout -q --ours f1; git add f1; git -c core.editor=true revert --continue >&2 || git revert --abort; }; git log --format=%s",
    );
}

#[test]
fn branches_are_made_switched_and_merged() {
    same(
        "git branch existing",
        "git switch -q -c topic; echo t > t; git add t; git commit -q -m t; git switch -q existing; echo e > e; git add e; git commit -q -m e; \
         git switch -q main; git merge -q --no-ff -m merged topic >&2; git branch -q -d topic; git switch -q existing",
    );
    same(
        "",
        "git checkout -q --detach; echo d > d; git add d; git commit -q -m d; git checkout -q -B main >&2",
    );
}

#[test]
fn worktrees_are_added_and_removed() {
    same(
        "echo /wt > .git/info/exclude",
        "git worktree add -q -b side wt; cd wt; echo w > w; git add w; git commit -q -m w; cd ..; git worktree remove wt; git merge -q --ff-only side >&2; git worktree list | wc -l",
    );
}

#[test]
fn submodules_are_updated_and_moved() {
    let before = "git init -q -b main ../up; cd ../up; git config user.name Up; git config user.email up@example.org; \
                  echo 1 > u; git add u; git commit -q -m u1; echo 2 > u; git commit -q -a -m u2; cd ../work; \
                  git -c protocol.file.allow=always submodule --quiet add ../up sub; git -C sub checkout -q HEAD~1; git add sub; \
                  git -C sub config user.name Ada; git -C sub config user.email ada@example.org; git commit -q -m sub";
    // To a commit that is there, back by `update`, and to one that is made inside.
    let work = "git -C sub checkout -q main; git submodule status | cut -c1,42-; git submodule --quiet update; git -C sub checkout -q main; \
                cd sub; echo 3 > u; git commit -q -a -m u3; cd ..; git add sub; git commit -q -m moved; git submodule status | cut -c1,42-46";
    same(before, work);
}

#[test]
fn hooks_that_are_installed_inside_run_there_and_not_on_the_host() {
    let home = Home::new("").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let folder = home.path("work");
    in_place(
        &folder,
        "git init -q -b main .; git config user.name Ada; git config user.email a@b; echo 1 > f; git add f; git commit -q -m first",
    );
    let script = "printf '#!/bin/sh\\necho ran >> /workspace/ran\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; \
                  echo 2 > f; git commit -q -a -m two; cat ran";
    let run = home.run(&["run", "--", "sh", "-ec", script]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "ran\n"), "{}", run.stderr);
    assert!(!folder.join(".git/hooks/pre-commit").exists());
    fs::remove_file(folder.join("ran")).expect("the hook made it");
    in_place(&folder, "echo 4 > f; git commit -q -a -m four; test ! -e ran");
}

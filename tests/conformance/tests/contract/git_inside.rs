//! Git inside: it knows its user, and a guard in front of it explains.

use belljar_spec::BackendName;
use belljar_tests_conformance::*;

for_every_backend! {
    everywhere:
        a_commit_has_an_author,
        what_would_skip_hooks_is_explained;
    each_kernel:
        everything_else_is_git_itself,
        the_guard_gives_way_to_any_git;
}

/// A repository in the private home, which is not protected.
const REPOSITORY: &str = "cd $HOME && git init -q -b main r && cd r && ";

async fn a_commit_has_an_author(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let author = fixture
        .answer(&format!("{REPOSITORY} git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"))
        .await;
    assert!(author.len() > 5 && author.contains('@'), "{author}");
    assert_eq!(fixture.answer("git config --show-scope safe.directory").await, "system\t*");
}

async fn what_would_skip_hooks_is_explained(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    for line in [
        "git commit --no-verify -m x",
        "git commit -anm x",
        "git push --no-veri origin main",
        "git -c core.hooksPath=/dev/null commit -m x",
        "HUSKY=0 git commit -m x",
    ] {
        let result = fixture.sh(line).await;
        let printed = text(&result.stderr);
        assert_eq!(result.exit_code, Some(1), "{line}: {printed}");
        assert!(
            printed.contains("is refused in this sandbox: it would") && printed.contains("\n  instead: "),
            "{line}: {printed}"
        );
    }
}

async fn everything_else_is_git_itself(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let both = |line: &str| format!("cd $HOME; mkdir -p t; cd t; git {line}");
    for line in [
        "--version",
        "nonsense",
        "-C /nonexistent status",
        "commit -m 'push --force -n'",
        "push -n",
        "hash-object --stdin < /dev/null",
    ] {
        let real = fixture
            .sh(&both(line).replace("git ", "$(PATH=/usr/local/bin:/usr/bin:/bin; command -v git) "))
            .await;
        let ours = fixture.sh(&both(line)).await;
        assert_eq!(
            (ours.exit_code, text(&ours.stdout), text(&ours.stderr)),
            (real.exit_code, text(&real.stdout), text(&real.stderr)),
            "{line}"
        );
    }
    let message = fixture.answer(&format!("{REPOSITORY} git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 'push --force' && git log -1 --format=%s")).await;
    assert_eq!(message, "push --force");
    // A signal that git gets is git's own end.
    let ended = fixture.sh("git -c alias.x='!kill -TERM $$' x; echo $?").await;
    let real = fixture.sh("/usr/bin/git -c alias.x='!kill -TERM $$' x; echo $?").await;
    assert_eq!(text(&ended.stdout), text(&real.stdout));
}

async fn the_guard_gives_way_to_any_git(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let script =
        "mkdir $HOME/bin; printf '#!/bin/sh\\necho mine \"$@\"' > $HOME/bin/git; chmod +x $HOME/bin/git
        PATH=/run/belljar/bin:$HOME/bin:$PATH git status 'a b'";
    assert_eq!(fixture.answer(script).await, "mine status a b");
    let alone = fixture.sh("PATH=/run/belljar/bin; git status").await;
    assert_eq!((alone.exit_code, text(&alone.stderr).as_str()), (Some(127), "git: command not found\n"));
}

//! What agents are told beside their repository: seen in its AGENTS.md, and nowhere on the host.

use belljar_engine::Engine;
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{ErrorCode, SandboxSpec};
use belljar_tests_conformance::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command as Program;
use tempfile::TempDir;

for_every_isolated_backend![
    it_comes_behind_what_the_repository_says,
    where_the_repository_says_nothing_nothing_is_left,
    an_empty_workspace_has_it_too,
    an_overlay_has_it_and_no_change,
    no_process_inside_changes_it,
    git_commits_what_the_repository_says_and_not_what_was_added,
    files_come_back_owned_by_who_owned_them,
    git_knows_who_commits_and_no_token,
];

fn context() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("20-later.md"), "LATER\n").unwrap();
    fs::write(directory.path().join("10-first.md"), "FIRST\n").unwrap();
    directory
}

async fn with_context(
    backend: BackendName,
    directory: &TempDir,
    change: impl FnOnce(&mut SandboxSpec),
) -> SandboxFixture {
    SandboxFixture::with(backend, |spec| {
        spec.agent_context = vec![directory.path().into()];
        change(spec);
    })
    .await
}

async fn it_comes_behind_what_the_repository_says(backend: BackendName) {
    let (directory, folder) = (context(), TempDir::new().unwrap());
    let own = folder.path().join("AGENTS.md");
    fs::write(&own, "OWN RULES\n").unwrap();
    let before = fs::metadata(&own).unwrap();
    let fixture = with_context(backend, &directory, |spec| spec.workspace = Some(folder.path().into())).await;
    let seen = fixture.answer("cat AGENTS.md").await;
    assert!(seen.starts_with("OWN RULES\n"), "{seen}");
    let at = |what: &str| seen.find(what).unwrap();
    assert!(at("OWN RULES") < at("FIRST") && at("FIRST") < at("LATER"), "{seen}");
    assert_eq!(fs::read_to_string(&own).unwrap(), "OWN RULES\n", "while it runs");
    fixture.dispose().await;
    let after = fs::metadata(&own).unwrap();
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    assert_eq!(fs::read_to_string(&own).unwrap(), "OWN RULES\n");
}

async fn where_the_repository_says_nothing_nothing_is_left(backend: BackendName) {
    let directory = context();
    let fixture = with_context(backend, &directory, |_| {}).await;
    assert!(fixture.answer("cat AGENTS.md").await.contains("FIRST"));
    fixture.sh("echo made > file").await;
    let (sandbox, folder) = fixture.into_parts();
    sandbox.dispose().await;
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
}

async fn an_empty_workspace_has_it_too(backend: BackendName) {
    let directory = context();
    let mut spec = spec(backend);
    spec.agent_context = vec![directory.path().into()];
    let sandbox = Engine::new().create(spec).await.unwrap_or_else(|error| panic!("{error} ({})", error.code));
    let result = sandbox.exec(&sh("ls -A; cat AGENTS.md; echo x > AGENTS.md")).await.unwrap();
    let printed = text(&result.stdout);
    assert!(printed.starts_with("AGENTS.md\n") && printed.contains("LATER"), "{printed}");
    assert_ne!(result.exit_code, Some(0), "it could be changed");
    sandbox.dispose().await;
}

async fn an_overlay_has_it_and_no_change(backend: BackendName) {
    let (directory, state) = (context(), TempDir::new().unwrap());
    for own in [None, Some("OWN\n")] {
        let folder = TempDir::new().unwrap();
        if let Some(own) = own {
            fs::write(folder.path().join("AGENTS.md"), own).unwrap();
        }
        let engine = Engine::new().with_state(state.path());
        let fixture = SandboxFixture::made_by(&engine, backend, |spec| {
            spec.agent_context = vec![directory.path().into()];
            spec.workspace = Some(folder.path().into());
            spec.mode = WorkspaceMode::Overlay { layer: None };
        })
        .await;
        let fixture = match fixture {
            Ok(fixture) => fixture,
            // Where layers are not available at all, another test reports it.
            Err(error) if error.code == ErrorCode::NotSupported => return,
            Err(error) => panic!("{error} ({})", error.code),
        };
        let seen = fixture.answer("cat AGENTS.md").await;
        assert!(seen.contains("FIRST") && seen.starts_with(own.unwrap_or("<!-- belljar")), "{seen}");
        fixture.dispose().await;
        let changes = fixture.changes().unwrap().unwrap();
        assert_eq!(changes, belljar_engine::Changes::None, "it counts as a change");
        assert_eq!(fs::read_to_string(folder.path().join("AGENTS.md")).ok().as_deref(), own);
    }
}

async fn no_process_inside_changes_it(backend: BackendName) {
    let directory = context();
    let fixture = with_context(backend, &directory, |_| {}).await;
    for attempt in [
        "echo x > AGENTS.md",
        "echo x >> AGENTS.md",
        "rm -f AGENTS.md",
        "mv AGENTS.md other",
        "echo x > other; mv -f other AGENTS.md",
        // A backend may accept a change of mode without effect: what counts is whether it opens anything.
        "chmod 666 AGENTS.md; echo x > AGENTS.md",
        "truncate -s 0 AGENTS.md",
    ] {
        assert_ne!(fixture.sh(attempt).await.exit_code, Some(0), "{attempt}");
    }
    assert!(fixture.answer("cat AGENTS.md").await.contains("LATER"));
    assert_eq!(fs::read_to_string(directory.path().join("10-first.md")).unwrap(), "FIRST\n");
}

async fn git_commits_what_the_repository_says_and_not_what_was_added(backend: BackendName) {
    let directory = context();
    for own in [None, Some("OWN RULES, no newline")] {
        let folder = TempDir::new().unwrap();
        let git = |words: &[&str]| -> String {
            let done = Program::new("git")
                .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
                .args(words)
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
            text(&done.stdout)
        };
        git(&["init", "-q", "-b", "main"]);
        fs::write(folder.path().join("file"), "one\n").unwrap();
        if let Some(own) = own {
            fs::write(folder.path().join("AGENTS.md"), own).unwrap();
        }
        git(&["add", "-A"]);
        git(&["commit", "-qm", "one"]);
        as_owner(folder.path());
        let fixture =
            with_context(backend, &directory, |spec| spec.workspace = Some(folder.path().into())).await;
        let done = fixture.sh("echo two > file && git add -A && git commit -qm two && git show --stat").await;
        assert_eq!(done.exit_code, Some(0), "{}", text(&done.stderr));
        let shown = text(&done.stdout);
        assert!(shown.contains("file") && !shown.contains("AGENTS.md"), "{shown}");
        // Another repository, made inside, has an AGENTS.md of its own like any other file.
        let other = "mkdir /tmp/o && cd /tmp/o && git init -q && echo mine > AGENTS.md && git add -A && git commit -qm x && git show HEAD:AGENTS.md";
        assert_eq!(fixture.answer(other).await, "mine");
        fixture.dispose().await;
        let kept = git(&["-c", "safe.directory=*", "ls-tree", "--name-only", "HEAD"]);
        assert_eq!(kept.contains("AGENTS.md"), own.is_some(), "{kept}");
        if let Some(own) = own {
            assert_eq!(git(&["-c", "safe.directory=*", "show", "HEAD:AGENTS.md"]), own);
        }
    }
}

async fn files_come_back_owned_by_who_owned_them(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let owner = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.gid())
    };
    if is_root() {
        std::os::unix::fs::chown(fixture.on_host(), Some(1234), Some(1235)).unwrap();
    }
    let ours = owner(fixture.on_host());
    fixture.dispose().await;
    let folder = fixture.on_host().to_path_buf();
    let again = Engine::new();
    let mut spec = spec(backend);
    spec.workspace = Some(folder.clone());
    let sandbox = again.create(spec).await.unwrap_or_else(|error| panic!("{error} ({})", error.code));
    // Asked of the shell: gVisor does not understand what a recent `stat` asks the kernel.
    let script =
        "test -O . && test -G . && echo own; mkdir d; echo x > d/file; ln -s file d/link; chmod 600 d/file";
    let done = sandbox.exec(&sh(script)).await.unwrap();
    assert_eq!(done.exit_code, Some(0), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "own\n", "inside, the workspace is the user's own");
    sandbox.dispose().await;
    for path in ["d", "d/file", "d/link"] {
        assert_eq!(owner(&folder.join(path)), ours, "{path}");
    }
}

async fn git_knows_who_commits_and_no_token(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let scope = fixture.answer("git config --show-scope --get user.name").await;
    assert!(scope.starts_with("system\t"), "{scope}");
    let helper = fixture.sh("git config --get-all credential.helper").await;
    assert_eq!(
        (helper.exit_code, text(&helper.stdout)),
        (Some(1), String::new()),
        "a helper could hold a token"
    );
    fixture.answer("git init -q r && cd r && git commit -q --allow-empty -m x").await;
}

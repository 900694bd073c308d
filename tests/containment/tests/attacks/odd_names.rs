//! Names that are not valid UTF-8, and names that other reasons could hide: git of the host must run nothing for them, and no commit
//! may be lost over them.

use crate::private_git::{spec, start};
use crate::protected_paths::Fixture;
use belljar_engine::{Changes, Engine, Sandbox};
use belljar_spec::{Command, ErrorCode};
use belljar_tests_containment::*;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const IDENTITY: &str =
    "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";

fn run(sandbox: &Sandbox, script: &str) {
    let script = format!("{IDENTITY}\nset -e\ncd /workspace\n{script}");
    let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script.as_str()]).unwrap())).unwrap();
    assert_eq!(result.exit_code, Some(0), "{script}\n{}", text(&result.stderr));
}

/// `caf\xe9`, as a name of Latin-1.
fn latin(place: &Fixture, folder: &str) -> PathBuf {
    place.path(folder).join(OsStr::from_bytes(b"caf\xe9"))
}

#[test]
fn a_repository_that_cannot_be_protected_is_refused() {
    for backend in gateway_backends() {
        let submodule = |place: &Fixture| {
            let script =
                "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),$(printf 'caf\\351')";
            let done =
                std::process::Command::new("sh").args(["-c", script]).current_dir(place.path("w")).status();
            assert!(done.unwrap().success());
        };
        let on_branch = |place: &Fixture| {
            submodule(place);
            place.git("-C w commit -qm sub").unwrap();
            place.git("-C w branch other").unwrap();
            place.git("-C w reset -q --hard HEAD~1").unwrap();
        };
        let nested = |place: &Fixture| {
            fs::create_dir(latin(place, "w")).unwrap();
            place.repository("in");
            fs::rename(place.path("in"), latin(place, "w").join("in")).unwrap();
        };
        let cases: [&dyn Fn(&Fixture); 3] = [&submodule, &on_branch, &nested];
        for (number, make) in cases.into_iter().enumerate() {
            let place = Fixture::new();
            place.repository("w");
            make(&place);
            let engine = Engine::new().with_state(place.path("state"));
            let Err(error) = engine.create_blocking(&spec(&place, *backend, "w")) else {
                panic!("{backend}: case {number} started")
            };
            assert_eq!(error.code, ErrorCode::PathRefused, "{backend}: case {number}: {error}");
            assert!(error.message.contains("not valid UTF-8"), "{backend}: case {number}: {error}");
        }
    }
}

#[test]
fn a_submodule_that_commits_make_is_always_told() {
    let evil = "git init -q evil; (cd evil; echo e > e; git add e; git commit -qm e)
        git update-index --add --cacheinfo 160000,$(git -C evil rev-parse HEAD),evil; echo g > g; git add g";
    let behind = format!("git reset -q --hard HEAD~1; {evil}; git commit -qm helpful");
    let tag = format!("{evil}; git commit -qm helpful; git tag -m x refs; git reset -q --hard HEAD~1");
    let stash = format!("{evil}; git stash -q");
    for backend in gateway_backends() {
        for (name, script) in
            [("refs/heads/trunk-w", &behind), ("refs/tags/refs", &tag), ("stash@{0}", &stash)]
        {
            let place = Fixture::new();
            place.repository("w");
            place.git("-C w commit -q --allow-empty -m two").unwrap();
            let sandbox = start(&place, &spec(&place, *backend, "w"));
            run(&sandbox, script);
            wait_for(sandbox.dispose());
            let Some(Ok(Changes::Folder { git, .. })) = sandbox.changes() else {
                panic!("{backend}: {:?}", sandbox.changes())
            };
            let one = git.set_aside.iter().find(|one| one.reference.to_string() == name);
            let one = one.unwrap_or_else(|| panic!("{backend}: {name}: {git:?}"));
            assert!(one.makes_submodule, "{backend}: {one:?}");
            assert!(one.reason.contains("`evil` a submodule"), "{backend}: {one:?}");
        }
    }
}

#[test]
fn commits_on_a_branch_with_an_odd_name_are_kept() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        // Without logs: nothing else inside has the commits.
        let script = "c() { git commit-tree -p HEAD -m $1 HEAD^{tree}; }
            git update-ref refs/heads/$(printf 'f\\374r') $(c loose)
            git update-ref refs/heads/$(printf 'p\\374t') $(c packed); git pack-refs --all
            git update-ref refs/heads/$(printf 'f\\374r') $(c loose)
            git update-ref refs/heads/$(printf 'l%.0s' $(seq 247)) $(c long); rm -rf .git/logs";
        run(&sandbox, script);
        wait_for(sandbox.dispose());
        let all = place.git("-C w for-each-ref --format=%(refname)+%(subject)").unwrap();
        for (name, subject) in [("fr", "loose"), ("pt", "packed"), ("llll", "long")] {
            let is_kept = |line: &str| {
                line.contains(&format!("odd-name-{name}")) && line.ends_with(&format!("+{subject}"))
            };
            assert!(all.lines().any(is_kept), "{backend}: {subject}: {all}");
        }
    }
}

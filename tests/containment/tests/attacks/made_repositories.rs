//! Repositories that an agent made, or can still write to, when the user starts a sandbox in them or clones them: they lead to other
//! repositories and folders of the host, keep git of the host waiting, or change while it works.

use crate::private_git::{spec, start};
use crate::protected_paths::{Fixture, script};
use belljar_engine::Engine;
use belljar_spec::workspace::{CloneSpec, WorkspaceMode};
use belljar_spec::{BackendName, Command, SandboxError, SandboxSpec};
use belljar_tests_containment::*;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

/// Runs a script in a sandbox of its own, and gives what it printed, or why there was none.
fn run(place: &Fixture, spec: &SandboxSpec, script: &str) -> Result<String, SandboxError> {
    let sandbox = Engine::new().with_state(place.path("state")).create_blocking(spec)?;
    let script = format!("cd /workspace\n{script}");
    let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script.as_str()]).unwrap())).unwrap();
    wait_for(sandbox.dispose());
    Ok(text(&result.stdout))
}

fn of_clone(place: &Fixture, backend: BackendName, folder: &str) -> SandboxSpec {
    let url = place.path(folder).display().to_string();
    SandboxSpec {
        mode: WorkspaceMode::Clone(CloneSpec { url, branch: None, depth: None }),
        workspace: None,
        ..spec(place, backend, folder)
    }
}

fn of_branch(place: &Fixture, backend: BackendName, folder: &str) -> SandboxSpec {
    let mode = WorkspaceMode::ManagedClone { branch: Some("agent/x".parse().unwrap()) };
    SandboxSpec { mode, ..spec(place, backend, folder) }
}

#[test]
fn submodules_of_another_repository_are_neither_shown_nor_moved() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        ["source", "other", "w"].into_iter().for_each(|name| place.repository(name));
        let source = place.path("source").display().to_string();
        place.git(&format!("-C other -c protocol.file.allow=always submodule add -q {source} sub")).unwrap();
        let before = place.git("-C other/sub for-each-ref").unwrap();
        // So many that not all of it is looked at.
        let modules = place.path("w/.git/modules");
        for folder in ["x/objects", "x/refs", "sub"] {
            fs::create_dir_all(modules.join(folder)).unwrap();
        }
        (0..300).for_each(|number| fs::write(modules.join(format!("f{number}")), "").unwrap());
        fs::write(modules.join("x/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(modules.join("sub/.git"), "gitdir: /nowhere\n").unwrap();
        symlink(place.path("other/.git/modules"), modules.join("x/modules")).unwrap();
        let commit = "export GIT_DIR=$PWD/.git/modules/x/modules/sub GIT_WORK_TREE=/tmp; git for-each-ref; \
                      c=$(git -c user.name=x -c user.email=x commit-tree -p HEAD -m x HEAD^{tree}); git update-ref HEAD $c";
        if let Ok(seen) = run(&place, &spec(&place, *backend, "w"), commit) {
            assert_eq!(seen, "", "{backend}");
        }
        assert_eq!(place.git("-C other/sub for-each-ref").unwrap(), before, "{backend}");
    }
}

#[test]
fn no_sandbox_starts_in_a_repository_that_another_one_can_write_to() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        place.repository("w/old");
        let around = start(&place, &spec(&place, *backend, "w"));
        let make = "cd /workspace; git init -q made; cd made; git -c user.name=x -c user.email=x commit -q --allow-empty -m s";
        wait_for(around.exec(&Command::new(["sh", "-c", make]).unwrap())).unwrap();
        let inside = [
            spec(&place, *backend, "w/made"),
            of_clone(&place, *backend, "w/made"),
            of_branch(&place, *backend, "w/made"),
        ];
        for spec in &inside {
            let Err(error) = run(&place, spec, "true") else {
                panic!("{backend}: started in a repository that changes: {:?}", spec.mode)
            };
            assert!(error.message.contains("is running in or around"), "{backend}: {error}");
        }
        // What was there before is read-only in the other one, and so is the folder's own.
        for folder in ["w/old", "w"] {
            assert_eq!(
                run(&place, &spec(&place, *backend, folder), "echo x").unwrap(),
                "x\n",
                "{backend}: {folder}"
            );
        }
        wait_for(around.dispose());
        assert_eq!(run(&place, &inside[0], "echo x").unwrap(), "x\n", "{backend}");
    }
}

#[test]
fn no_sandbox_starts_around_a_repository_that_another_one_works_in() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        // So far down that it is not found.
        fs::create_dir_all(place.path("w/a/b/c/d")).unwrap();
        place.repository("w/a/b/c/d/r");
        for inner in [spec(&place, *backend, "w/a/b/c/d/r"), of_branch(&place, *backend, "w/a/b/c/d/r")] {
            let inside = start(&place, &inner);
            let Err(error) = run(&place, &spec(&place, *backend, "w"), "mv a/b/c/d/r/.git x") else {
                panic!("{backend}: started around a repository that git works in: {:?}", inner.mode)
            };
            assert!(error.message.contains("is running in or around"), "{backend}: {error}");
            assert!(place.path("w/a/b/c/d/r/.git/HEAD").exists(), "{backend}: its command ran");
            wait_for(inside.dispose());
        }
        assert_eq!(run(&place, &spec(&place, *backend, "w"), "echo x").unwrap(), "x\n", "{backend}");
    }
}

#[test]
fn a_clone_or_a_branch_shows_nothing_of_another_repository() {
    for backend in gateway_backends() {
        for attack in ["alternates", "commondir", "link", "file"] {
            let place = Fixture::new();
            ["w", "other"].into_iter().for_each(|name| place.repository(name));
            fs::write(place.path("other/key"), "TOPSECRET\n").unwrap();
            place.git("-C other add key").unwrap();
            place.git("-C other commit -q -m key").unwrap();
            let tip = place.git("-C other rev-parse HEAD").unwrap();
            let other = place.path("other/.git");
            let own = place.path("w/.git");
            match attack {
                "alternates" => {
                    let list = format!("{}\n", other.join("objects").display());
                    fs::write(own.join("objects/info/alternates"), list).unwrap();
                    place.git(&format!("-C w update-ref refs/heads/main {}", tip.trim())).unwrap();
                }
                "commondir" => fs::write(own.join("commondir"), format!("{}\n", other.display())).unwrap(),
                "link" => {
                    fs::remove_dir_all(own.join("objects")).unwrap();
                    symlink(other.join("objects"), own.join("objects")).unwrap();
                }
                _ => {
                    fs::remove_dir_all(&own).unwrap();
                    fs::write(&own, format!("gitdir: {}\n", other.display())).unwrap();
                }
            }
            for spec in [
                of_clone(&place, *backend, "w"),
                of_branch(&place, *backend, "w"),
                spec(&place, *backend, "w"),
            ] {
                let seen = run(&place, &spec, "cat key; git log --all -p 2>/dev/null");
                let seen = seen.unwrap_or_default();
                assert!(!seen.contains("TOPSECRET"), "{backend}: {attack}: {:?}: {seen}", spec.mode);
            }
        }
    }
}

#[test]
fn a_submodule_that_any_commit_of_the_user_names_cannot_be_made_inside() {
    let states = [
        ("its removal is staged", "-C w rm -q --cached d/y", None),
        ("another branch has it", "-C w switch -q --orphan fresh", Some("main")),
    ];
    for backend in backends() {
        for (state, line, checkout) in states {
            let place = Fixture::new();
            place.repository("w");
            let canary = place.canary();
            script(&place.path("evil.sh"), &format!("#!/bin/sh\ntouch {}\n", canary.display()));
            let id = "1111111111111111111111111111111111111111";
            place.git(&format!("-C w update-index --add --cacheinfo 160000,{id},d/y")).unwrap();
            place.git("-C w commit -q -m link").unwrap();
            place.git(line).unwrap();
            let make = format!(
                "mkdir -p d/y; cd d/y; git init -q; git config core.fsmonitor {}; echo x > x",
                place.path("evil.sh").display()
            );
            run(&place, &spec(&place, *backend, "w"), &make).unwrap();
            assert!(!place.path("w/d/y/.git/config").exists(), "{backend}: {state}");
            match checkout {
                Some(branch) => drop(place.git(&format!("-C w checkout -q {branch}"))),
                None => drop(place.git("-C w reset -q")),
            }
            let _ = place.git("-C w status");
            assert!(!canary.exists(), "{backend}: {state}");
        }
    }
}

#[test]
fn files_of_a_git_directory_neither_hold_up_nor_fill_the_host() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        let id = "1111111111111111111111111111111111111111";
        place.git(&format!("-C w update-index --add --cacheinfo 160000,{id},sub")).unwrap();
        place.git("-C w commit -q -m link").unwrap();
        let own = place.path("w/.git");
        fs::create_dir_all(own.join("modules/q")).unwrap();
        fs::create_dir_all(own.join("worktrees/x")).unwrap();
        make_pipe(&own.join("modules/config"));
        (0..8).for_each(|number| symlink("..", own.join(format!("modules/q/{number}"))).unwrap());
        // So many that not all of it is looked at.
        (0..300).for_each(|number| fs::write(own.join(format!("modules/f{number}")), "").unwrap());
        // Read whole, it would be out of memory.
        File::create(own.join("worktrees/x/BISECT_START")).unwrap().set_len(1 << 40).unwrap();
        let commit = "git config user.name x; git config user.email x@x; \
                      git update-index --cacheinfo 160000,2222222222222222222222222222222222222222,sub; git commit -q -m moved; echo done";
        assert_eq!(run(&place, &spec(&place, *backend, "w"), commit).unwrap(), "done\n", "{backend}");
        // The same bytes under many names.
        File::create(own.join("sharedindex.0")).unwrap().set_len(100 << 20).unwrap();
        for number in 1..20 {
            fs::hard_link(own.join("sharedindex.0"), own.join(format!("sharedindex.{number}"))).unwrap();
        }
        let Err(error) = run(&place, &spec(&place, *backend, "w"), "true") else {
            panic!("{backend}: two gigabytes were copied")
        };
        assert!(error.message.contains("more than belljar copies"), "{backend}: {error}");
        let left = fs::read_dir(place.path("state/git")).into_iter().flatten().flatten();
        let left: Vec<_> = left.filter(|entry| entry.path().join("0").exists()).collect();
        assert!(left.is_empty(), "{backend}: {left:?}");
    }
}

fn make_pipe(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

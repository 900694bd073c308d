//! Git directories that an agent made, when the next sandbox works in the same folder: they name files and folders of the host, and git
//! of the host would write through them. And commits that were set aside, taken by another branch.

use crate::private_git::{spec, start};
use crate::protected_paths::{Fixture, all_output, script};
use belljar_engine::{Changes, Engine};
use belljar_spec::{BackendName, Command, ErrorCode};
use belljar_tests_containment::*;
use std::fs;
use std::time::Duration;

/// Runs a script in a sandbox of its own, and gives what it printed.
fn run(place: &Fixture, backend: BackendName, folder: &str, script: &str) -> String {
    let sandbox = start(place, &spec(place, backend, folder));
    let script = format!("cd /workspace\n{script}");
    let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script.as_str()]).unwrap())).unwrap();
    wait_for(sandbox.dispose());
    text(&result.stdout)
}

/// A repository made in the sandbox, `$S` is a folder of the host.
const MADE: &str = "git init -q n; cd n; git config user.name x; git config user.email x@x; git commit -q --allow-empty -m s";

#[test]
fn a_git_directory_that_an_agent_made_shows_nothing_of_the_host() {
    let attacks = [
        "echo $S > .git/objects/info/alternates",
        "ln -s $S .git/lfs",
        "git config core.excludesFile $S/key",
        "mkdir o; echo $S > o/list; ln -s /workspace/n/o/list .git/objects/info/alternates; \
         ln -sf ../../../o/list .git/objects/info/alternates",
        "printf '[core]\\n\\texcludesFile = %s/key\\n' $S > more; git config include.path ../more",
    ];
    for backend in gateway_backends() {
        for attack in attacks {
            let place = Fixture::new();
            place.repository("w");
            fs::create_dir(place.path("secret")).unwrap();
            fs::write(place.path("secret/key"), "TOPSECRET\n").unwrap();
            let secret = place.path("secret").display().to_string();
            run(&place, *backend, "w", &format!("S={secret}\n{MADE}\n{attack}"));
            let look = "ls -R /run/belljar; cat n/.git/info/exclude; find / -xdev -name key -exec cat {} + 2>/dev/null; \
                        find /run/belljar -name key -exec cat {} +";
            let seen = run(&place, *backend, "w", look);
            assert!(!seen.contains("TOPSECRET"), "{backend}: {attack}: {seen}");
        }
    }
}

#[test]
fn the_host_writes_through_no_link_of_a_git_directory_that_an_agent_made() {
    let attacks = [
        "rm -rf .git/logs; mkdir -p .git/logs/refs/heads; ln -s $S .git/logs/refs/heads/agent",
        "git pack-refs --all; rm -rf .git/logs .git/refs/heads; ln -s $S .git/refs/heads",
        "for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do for j in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do \
         ln -s $S .git/objects/$i$j; done; done",
    ];
    for backend in gateway_backends() {
        for attack in attacks {
            let place = Fixture::new();
            place.repository("w");
            fs::create_dir_all(place.path("secret")).unwrap();
            let secret = place.path("secret").display().to_string();
            run(&place, *backend, "w", &format!("S={secret}\n{MADE}\n{attack}"));
            let commit =
                "cd n; git checkout -q -b agent/x; echo x > f; git add f; git commit -q -m x; sleep 0.5";
            run(&place, *backend, "w", commit);
            assert_eq!(fs::read_dir(place.path("secret")).unwrap().count(), 0, "{backend}: {attack}");
        }
    }
}

#[test]
fn a_folders_own_repository_that_an_agent_made_borrows_from_nowhere() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        fs::create_dir(place.path("secret")).unwrap();
        let secret = place.path("secret").display().to_string();
        run(&place, *backend, "w", &format!("{MADE}\necho {secret} > .git/objects/info/alternates"));
        assert!(place.path("w/n/.git/objects/info/alternates").exists());
        let engine = Engine::new().with_state(place.path("state"));
        let Err(error) = engine.create_blocking(&spec(&place, *backend, "w/n")) else {
            panic!("{backend}: the list of alternates was believed")
        };
        assert!(error.to_string().contains("objects/info/alternates"), "{backend}: {error}");
        // Also where the user took it out of the folder that the agent worked in.
        fs::rename(place.path("w/n"), place.path("moved")).unwrap();
        let Err(error) = engine.create_blocking(&spec(&place, *backend, "moved")) else {
            panic!("{backend}: the list of alternates was believed in another folder")
        };
        assert_eq!(error.code, ErrorCode::NotSupported, "{backend}: {error}");
        fs::rename(place.path("moved"), place.path("w/n")).unwrap();
        fs::remove_file(place.path("w/n/.git/objects/info/alternates")).unwrap();
        run(&place, *backend, "w/n", "true");
    }
}

#[test]
fn a_repository_borrows_from_where_the_user_says() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("lender");
        let clone = ["clone", "-q", "--shared", "lender", "w"];
        let cloned = std::process::Command::new("git").current_dir(place.path("")).args(clone).status();
        assert!(cloned.unwrap().success());
        let mut spec = spec(&place, *backend, "w");
        let engine = Engine::new().with_state(place.path("state"));
        let Err(error) = engine.create_blocking(&spec) else {
            panic!("{backend}: borrowed without being named")
        };
        assert_eq!(error.code, ErrorCode::NotSupported, "{backend}: {error}");
        spec.alternates = vec![place.path("lender")];
        let sandbox = start(&place, &spec);
        let script = "cd /workspace; git fsck --connectivity-only && git log --oneline | wc -l";
        let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap())).unwrap();
        wait_for(sandbox.dispose());
        assert_eq!(result.exit_code, Some(0), "{backend}: {}", text(&result.stderr));
        assert_eq!(text(&result.stdout).trim(), "1", "{backend}");
    }
}

#[test]
fn commits_that_were_set_aside_run_nothing_on_the_host_when_another_branch_takes_them() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        let canary = place.canary();
        script(&place.path("w/evil.sh"), &format!("#!/bin/sh\ntouch {}\n", canary.display()));
        let evil = place.path("w/evil.sh").display().to_string();
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        let step = |script: &str| {
            let script = format!("cd /workspace\n{script}");
            wait_for(sandbox.exec(&Command::new(["sh", "-c", script.as_str()]).unwrap())).unwrap();
            std::thread::sleep(Duration::from_millis(700));
        };
        step(&format!(
            "git checkout -q -b x; git init -q sub; git -C sub commit -q --allow-empty -m s; \
             git -C sub config core.fsmonitor {evil}; git add sub; git commit -q -m gitlink"
        ));
        step("git checkout -q -");
        step("git merge -q --ff-only x");
        wait_for(sandbox.dispose());
        place.git("-C w status").unwrap();
        assert!(!place.git("-C w ls-files -s").unwrap().contains("160000"), "{backend}");
        assert!(!canary.exists(), "{backend}");
    }
}

#[test]
fn a_commit_that_changes_a_protected_path_is_named() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        fs::create_dir(place.path("w/.husky")).unwrap();
        fs::write(place.path("w/.husky/pre-commit"), "true\n").unwrap();
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        let script = "git config user.name a; git config user.email a@b; blob=$(echo evil | git hash-object -w --stdin); \
                      git update-index --add --cacheinfo 100755,$blob,.husky/pre-commit; git commit -q -m hook";
        let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap())).unwrap();
        assert_eq!(result.exit_code, Some(0), "{backend}: {}", all_output(&result));
        wait_for(sandbox.dispose());
        assert_eq!(fs::read_to_string(place.path("w/.husky/pre-commit")).unwrap(), "true\n", "{backend}");
        let Some(Ok(Changes::Folder { git, .. })) = sandbox.changes() else {
            panic!("{backend}: nothing was said")
        };
        assert!(git.notes.iter().any(|note| note.ends_with("`.husky/pre-commit`")), "{backend}: {git:?}");
    }
}

/// Starts in a folder whose repository an agent made, and gives what a script there printed; nothing where it is refused.
fn run_there(place: &Fixture, backend: BackendName, folder: &str, script: &str) -> Option<String> {
    let engine = Engine::new().with_state(place.path("state"));
    match engine.create_blocking(&spec(place, backend, folder)) {
        Err(error) => {
            assert_eq!(error.code, ErrorCode::NotSupported, "{backend}: {error}");
            None
        }
        Ok(sandbox) => {
            wait_for(sandbox.dispose());
            Some(run(place, backend, folder, script))
        }
    }
}

#[test]
fn an_object_of_git_lfs_is_written_through_no_link() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        fs::create_dir(place.path("target")).unwrap();
        let target = place.path("target").display().to_string();
        let made = format!(
            "{MADE}\nprintf payload > /tmp/p; S=$(sha256sum < /tmp/p | cut -c1-64); a=$(echo $S | cut -c1-2); b=$(echo $S | cut -c3-4)\n\
             mkdir -p .git/lfs/objects/$a; ln -s {target} .git/lfs/objects/$a/$b"
        );
        run(&place, *backend, "w", &made);
        let commit = "printf payload > /tmp/p; S=$(sha256sum < /tmp/p | cut -c1-64); a=$(echo $S | cut -c1-2); b=$(echo $S | cut -c3-4)\n\
             mkdir -p .git/lfs/objects/$a/$b; cp /tmp/p .git/lfs/objects/$a/$b/$S\n\
             printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize 7\\n' $S > f; git add f; git commit -q -m lfs";
        run(&place, *backend, "w", &format!("cd n\n{commit}"));
        run_there(&place, *backend, "w/n", commit);
        assert_eq!(fs::read_dir(place.path("target")).unwrap().count(), 0, "{backend}");
    }
}

#[test]
fn a_git_directory_that_an_agent_made_stands_for_no_other_repository() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        place.repository("w");
        place.repository("victim");
        let before = place.git("-C victim for-each-ref").unwrap();
        let victim = place.path("victim/.git").display().to_string();
        run(&place, *backend, "w", &format!("{MADE}\necho {victim} > .git/commondir"));
        let commit = "git checkout -q -b evil; echo y > y; git add y; git commit -q -m evil; sleep 0.3";
        run(&place, *backend, "w", &format!("cd n\n{commit}"));
        assert_eq!(run_there(&place, *backend, "w/n", commit), None, "{backend}");
        assert_eq!(place.git("-C victim for-each-ref").unwrap(), before, "{backend}");
    }
}

#[test]
fn alternates_show_no_git_directory_of_the_folder() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        place.git("-C w config remote.o.url https://user:ghp_TOPSECRET@git.example/x").unwrap();
        run(&place, *backend, "w", &format!("{MADE}\necho ../../../.git > .git/objects/info/alternates"));
        let look =
            "cat /run/belljar/objects/*/objects/config /run/belljar/objects/*/config 2>/dev/null; true";
        let seen = run(&place, *backend, "w", look);
        assert!(!seen.contains("TOPSECRET"), "{backend}: {seen}");
        assert_eq!(run_there(&place, *backend, "w/n", look), None, "{backend}");
    }
}

#[test]
fn repositories_further_down_are_read_only_inside() {
    for backend in backends() {
        let place = Fixture::new();
        fs::create_dir(place.path("projects")).unwrap();
        place.repository("projects/p");
        place.repository("w");
        place.repository("w/p");
        let clone = ["clone", "-q", "--shared", "w/p", "w/shared"];
        let cloned = std::process::Command::new("git").current_dir(place.path("")).args(clone).status();
        assert!(cloned.unwrap().success());
        let wreck = "git -C p log --oneline >/dev/null || echo unreadable; for d in p shared; do [ -d $d ] || continue; cd $d; \
                     rm -rf .git/refs .git/objects .git/HEAD; mv .git x; cd ..; done 2>/dev/null";
        for folder in ["projects", "w"] {
            assert_eq!(run(&place, *backend, folder, wreck), "", "{backend}: {folder}");
        }
        for repository in ["projects/p", "w/p", "w/shared"] {
            place.git(&format!("-C {repository} fsck --strict")).unwrap();
            place.git(&format!("-C {repository} log -1")).unwrap();
        }
    }
}

#[test]
fn pipes_in_a_git_directory_keep_nothing_waiting() {
    for backend in gateway_backends() {
        for pipe in ["config", "commondir", "HEAD", "objects/info/alternates", "packed-refs"] {
            let place = Fixture::new();
            place.repository("w");
            run(&place, *backend, "w", &format!("{MADE}\nrm -f .git/{pipe}; mkfifo .git/{pipe}"));
            assert_eq!(run(&place, *backend, "w", "echo alive"), "alive\n", "{backend}: {pipe}");
            run_there(&place, *backend, "w/n", "true");
        }
    }
}

#[test]
fn a_head_that_names_a_path_of_the_host_writes_nothing_there() {
    for backend in gateway_backends() {
        for way in ["", "refs/heads/../../../../../../../../../../../../.."] {
            let place = Fixture::new();
            place.repository("w");
            let target = place.path("made/by/start");
            let id = place.git("-C w rev-parse HEAD").unwrap();
            let name = format!("{way}{}", target.display());
            fs::write(place.path("w/.git/packed-refs"), format!("{} {name}\n", id.trim())).unwrap();
            fs::write(place.path("w/.git/HEAD"), format!("ref: {name}\n")).unwrap();
            assert_eq!(run_there(&place, *backend, "w", "true"), None, "{backend}: {way}");
            assert!(!place.path("made").exists(), "{backend}: {way}");
        }
    }
}

#[test]
fn config_that_the_repository_includes_from_elsewhere_is_not_shown() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        place.repository("other");
        place.git("-C other config remote.o.url https://git.example/TOPSECRET").unwrap();
        let other = place.path("other/.git/config").display().to_string();
        place.git(&format!("-C w config include.path {other}")).unwrap();
        place.git("-C w config remote.own.url https://git.example/own").unwrap();
        let seen = run(&place, *backend, "w", "cat .git/config");
        assert!(!seen.contains("TOPSECRET") && seen.contains("git.example/own"), "{backend}: {seen}");
    }
}

#[test]
fn commits_in_a_linked_worktree_below_the_folder_are_kept() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        place.git("-C w worktree add -q --detach wt").unwrap();
        // As newer versions of git write it; the same path inside has the same effect.
        fs::write(place.path("w/wt/.git"), "gitdir: ../.git/worktrees/wt\n").unwrap();
        let script = "cd wt; git reset -q; echo b > b; git add b; git -c user.name=x -c user.email=x@x commit -qm kept; git rev-parse HEAD";
        let made = run(&place, *backend, "w", script);
        place
            .git(&format!("-C w cat-file -e {}", made.trim()))
            .unwrap_or_else(|error| panic!("{backend}: {made}: {error}"));
    }
}

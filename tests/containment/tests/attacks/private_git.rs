//! The host's `.git` is out of reach: nothing inside changes a byte below it but through the import of commits. Judged by the files of
//! the host, and by a canary that appears if git of the host runs what was left for it.

use crate::protected_paths::{Fixture, all_output, script};
use belljar_engine::{Changes, Engine};
use belljar_spec::workspace::GitAccess;
use belljar_spec::{BackendChoice, BackendName, Command, SandboxSpec};
use belljar_tests_containment::*;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn spec(place: &Fixture, backend: BackendName, folder: &str) -> SandboxSpec {
    SandboxSpec {
        backend: BackendChoice::Named(backend),
        workspace: Some(place.path(folder)),
        ..SandboxSpec::default()
    }
}

pub(crate) fn start(place: &Fixture, spec: &SandboxSpec) -> belljar_engine::Sandbox {
    Engine::new().with_state(place.path("state")).create_blocking(spec).unwrap()
}

/// All that a git directory holds but for what an import writes: objects, refs and their logs, the index.
fn unchanging(place: &Fixture, folder: &str) -> std::collections::BTreeMap<std::path::PathBuf, String> {
    let names = [
        "HEAD",
        "config",
        "config.worktree",
        "description",
        "hooks",
        "info",
        "packed-refs",
        "remotes",
        "branches",
        "worktrees",
        "modules",
        "commondir",
        "gitdir",
        "shallow",
        "rebase-merge",
        "objects/info",
        "refs/replace",
    ];
    place.snapshot(&format!("{folder}/.git"), &names)
}

/// Nothing but files and folders.
fn plain(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        assert!(!kind.is_symlink() && !kind.is_fifo() && !kind.is_socket(), "{:?}", entry.path());
        if kind.is_dir() {
            plain(&entry.path());
        }
    }
}

/// What a user and their tools do afterwards.
fn use_git(place: &Fixture, folder: &str) {
    for line in ["status", "diff", "log --all --oneline", "stash list", "gc -q", "fsck", "add -u", "status"] {
        place.git(&format!("-C {folder} {line}")).unwrap_or_else(|error| panic!("git {line}: {error}"));
    }
    let branches =
        place.git(&format!("-C {folder} for-each-ref --format=%(refname:short) refs/heads")).unwrap();
    for branch in branches.lines() {
        place.git(&format!("-C {folder} checkout -q -f {branch}")).unwrap();
    }
}

#[test]
fn nothing_inside_reaches_the_hosts_git_directory() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        let canary = place.canary();
        script(&place.path("w/evil.sh"), &format!("#!/bin/sh\ntouch {}\n", canary.display()));
        let evil = place.path("w/evil.sh").display().to_string();
        let before = unchanging(&place, "w");
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        let run = |script: &str| {
            let script = format!("cd /workspace\nE={evil}\n{script}\ntrue");
            wait_for(sandbox.exec(&Command::new(["sh", "-c", script.as_str()]).unwrap())).unwrap()
        };
        for attack in ATTACKS {
            run(attack);
        }
        wait_for(sandbox.dispose());
        assert_eq!(unchanging(&place, "w"), before, "{backend}");
        plain(&place.path("w/.git"));
        use_git(&place, "w");
        assert!(!canary.exists(), "{backend}: git of the host ran what the sandbox left");
    }
}

/// Each leaves something in the sandbox's git directory that git of the host would run, believe, follow or wait for in its own.
const ATTACKS: [&str; 24] = [
    "git config core.fsmonitor $E; git config core.hooksPath /workspace; git config core.sshCommand $E",
    "git config alias.status !$E; git config core.pager $E; git config include.path /workspace/more",
    "for h in pre-commit post-checkout post-merge reference-transaction post-index-change; do cp evil.sh .git/hooks/$h; done",
    "echo '* filter=x diff=x' > .git/info/attributes; git config filter.x.clean $E; git config diff.x.textconv $E",
    "echo /workspace/other > .git/objects/info/alternates",
    "ln -sf /workspace/target .git/objects/info/commit-graph; rm -rf .git/objects/pack; ln -s /workspace .git/objects/pack",
    "mkdir .git/remotes .git/branches; printf 'URL: .git/foo\\n' > .git/remotes/origin; echo ext::$E > .git/branches/origin",
    "git init -q --bare .git/foo; cp evil.sh .git/foo/hooks/pre-receive",
    "git replace HEAD HEAD~0 2>/dev/null; mkdir -p .git/refs/replace; git rev-parse HEAD > .git/refs/replace/$(git rev-parse HEAD)",
    "git rev-parse HEAD > .git/info/grafts; git rev-parse HEAD > .git/shallow",
    "echo .. > .git/commondir; echo /workspace > .git/gitdir",
    "mkdir -p .git/worktrees/x .git/modules/m; echo /workspace > .git/worktrees/x/gitdir; cp .git/config .git/modules/m/config",
    "mkdir -p .git/rebase-merge; echo \"exec $E\" > .git/rebase-merge/git-rebase-todo",
    "ln -sf /workspace/target .git/logs/HEAD; ln -sf /workspace/target .git/COMMIT_EDITMSG",
    "ln -s /etc/passwd .git/refs/heads/link; mkfifo .git/refs/heads/pipe; ln -s / .git/refs/heads/folder",
    "head -c 1000000 /dev/zero > .git/refs/heads/huge; echo 'ref: refs/heads/loop' > .git/refs/heads/loop",
    "printf '%s refs/heads/../../config\\n%s refs/heads/a..b\\n' $(git rev-parse HEAD) $(git rev-parse HEAD) >> .git/packed-refs",
    "umount .git; umount -l .git; mount -t tmpfs x .git; mv .git .git2; rm -rf .git/hooks; rmdir .git",
    "O=$(echo /run/belljar/objects/0/objects); touch $O/evil; chmod 777 $O; rm -rf $O/pack; echo x > $O/info/commit-graph",
    "O=$(find /run/belljar/objects -type f | head -1); ln $O linked; echo evil >> $O; echo evil >> linked; chmod 666 $O; mv $O gone",
    "git init -q sub; git -C sub config core.fsmonitor $E; git -C sub commit -q --allow-empty -m s; git add sub; git commit -q -m gitlink",
    "git checkout -q -b hidden; git init -q sub2; git -C sub2 commit -q --allow-empty -m s; git -C sub2 config core.fsmonitor $E; \
     git add sub2; git commit -q -m gitlink2; git checkout -q -",
    "printf 'X' | dd of=.git/index bs=1 seek=80 conv=notrunc 2>/dev/null",
    "rm -f .git/HEAD; mkfifo .git/HEAD; rm -rf .git/refs; ln -s /workspace .git/refs",
];

#[test]
fn commits_come_out_at_once_with_index_and_author() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        place.git("-C w config user.name Ada").unwrap();
        place.git("-C w config user.email ada@example.org").unwrap();
        fs::write(place.path("w/staged"), "by the user\n").unwrap();
        place.git("-C w add staged").unwrap();
        fs::write(place.path("w/a"), "edited by the user\n").unwrap();
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        let commit = "echo new > new; git add new; git commit -q -m inside -- new";
        let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", commit]).unwrap())).unwrap();
        assert_eq!(result.exit_code, Some(0), "{backend}: {}", all_output(&result));
        let until = Instant::now() + Duration::from_secs(30);
        let log = || place.git("-C w log -1 --format=%an:%ae:%s").unwrap();
        while log() != "Ada:ada@example.org:inside\n" && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(log(), "Ada:ada@example.org:inside\n", "{backend}");
        assert_eq!(place.git("-C w status --porcelain").unwrap(), " M a\nA  staged\n", "{backend}");
        // What the user commits meanwhile is there at the next command.
        // The import may still hold the index.
        assert!(eventually(|| place.git("-C w commit -q -a -m outside").is_ok()), "{backend}");
        let seen = || {
            let look = Command::new(["sh", "-c", "git log -1 --format=%s; git status --porcelain"]).unwrap();
            text(&wait_for(sandbox.exec(&look)).unwrap().stdout)
        };
        while seen() != "outside\n" && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(seen(), "outside\n", "{backend}");
        wait_for(sandbox.dispose());
        assert_eq!(place.git("-C w status --porcelain").unwrap(), "", "{backend}");
        assert_eq!(place.git("-C w for-each-ref refs/belljar").unwrap(), "", "{backend}");
        place.git("-C w fsck").unwrap();
    }
}

#[test]
fn a_git_directory_that_the_host_makes_anew_is_not_written() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        let write = "while :; do echo '[core] fsmonitor = evil' >> .git/config; done";
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let _ = sender.send(wait_for(sandbox.exec(&Command::new(["sh", "-c", write]).unwrap())));
            });
            std::thread::sleep(Duration::from_millis(300));
            fs::rename(place.path("w/.git"), place.path("w-git")).unwrap();
            assert!(ended.recv_timeout(Duration::from_secs(60)).is_ok(), "{backend}: the sandbox goes on");
        });
        place.git("init -q w").unwrap();
        let config = fs::read_to_string(place.path("w/.git/config")).unwrap();
        assert!(!config.contains("evil"), "{backend}: {config}");
        let moved = fs::read_to_string(place.path("w-git/config")).unwrap();
        assert!(!moved.contains("evil"), "{backend}: {moved}");
        wait_for(sandbox.dispose());
        let Some(Ok(Changes::Folder { git, .. })) = sandbox.changes() else {
            panic!("{backend}: nothing was said")
        };
        assert!(git.notes.iter().any(|note| note.contains("replaced on the host")), "{backend}: {git:?}");
    }
}

#[test]
fn a_shared_git_directory_is_the_hosts_own() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        let sandbox = start(&place, &SandboxSpec { git: GitAccess::Share, ..spec(&place, *backend, "w") });
        let result = wait_for(sandbox.exec(&Command::new(["git", "tag", "mark"]).unwrap()));
        assert_eq!(result.unwrap().exit_code, Some(0), "{backend}");
        assert!(place.path("w/.git/refs/tags/mark").exists(), "{backend}");
        wait_for(sandbox.dispose());
    }
}

#[test]
fn submodules_of_another_branch_cannot_be_made_repositories() {
    for backend in backends() {
        let place = Fixture::new();
        place.repository("w");
        let canary = place.canary();
        script(&place.path("w/evil.sh"), &format!("#!/bin/sh\ntouch {}\n", canary.display()));
        let main = place.git("-C w symbolic-ref --short HEAD").unwrap();
        let commit = place.git("-C w rev-parse HEAD").unwrap();
        fs::create_dir(place.path("w/full")).unwrap();
        fs::write(place.path("w/full/file"), "x").unwrap();
        place.git("-C w add full").unwrap();
        place.git("-C w commit -q -m full").unwrap();
        place.git("-C w checkout -q -b other").unwrap();
        place.git("-C w rm -q -r full").unwrap();
        for path in ["missing/deep/sub", "full"] {
            let link = format!("-C w update-index --add --cacheinfo 160000,{},{path}", commit.trim());
            place.git(&link).unwrap();
        }
        place.git("-C w commit -q -m links").unwrap();
        place.git(&format!("-C w checkout -q -f {}", main.trim())).unwrap();
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        let evil = place.path("w/evil.sh").display().to_string();
        let attack = format!(
            "for s in missing/deep/sub full; do rm -rf $s; mv ${{s%%/*}} away; mkdir -p $s; git init -q $s; \
             git -C $s config core.fsmonitor {evil}; git -C $s -c core.fsmonitor=false commit -q --allow-empty -m s; \
             done; git status >/dev/null || exit 3; echo x > missing/deep/beside"
        );
        let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", attack.as_str()]).unwrap())).unwrap();
        assert_eq!(result.exit_code, Some(0), "{backend}: {}", all_output(&result));
        // While it lives, and afterwards.
        assert!(!place.path("w/missing/deep/sub/.git").exists(), "{backend}");
        assert!(!place.path("w/full/.git/config").exists(), "{backend}");
        wait_for(sandbox.dispose());
        place.git("-C w checkout -q -f other").unwrap();
        place.git("-C w status").unwrap();
        place.git("-C w diff").unwrap();
        assert!(!canary.exists(), "{backend}: git of the host ran what the sandbox left");
        assert!(!place.path("w/full/.git").exists(), "{backend}");
        assert_eq!(fs::read_to_string(place.path("w/missing/deep/beside")).unwrap(), "x\n", "{backend}");
    }
}

#[test]
fn submodules_of_linked_worktrees_and_of_submodules_work_inside() {
    for backend in linux_backends() {
        let place = Fixture::new();
        place.repository("inner");
        place.repository("lib");
        let allow = "-c protocol.file.allow=always";
        place.git(&format!("-C lib {allow} submodule add -q ../inner inner")).unwrap();
        place.git("-C lib commit -q -m inner").unwrap();
        place.repository("main");
        place.git(&format!("-C main {allow} submodule add -q ../lib sub")).unwrap();
        place.git("-C main commit -q -m sub").unwrap();
        place.git(&format!("-C main {allow} submodule update -q --init --recursive")).unwrap();
        place.git("-C main worktree add -q -b linked ../linked").unwrap();
        place.git(&format!("-C linked {allow} submodule update -q --init --recursive")).unwrap();
        for folder in ["main", "linked"] {
            let sandbox = start(&place, &spec(&place, *backend, folder));
            let work = "set -e; git status --porcelain; git submodule status --recursive >/dev/null; \
                cd sub/inner; git checkout -q -b work; echo x > new; git add new; git commit -q -m inner; \
                cd ..; git checkout -q -b work; git add inner; git commit -q -m lib; \
                cd ..; git add sub; git commit -q -m sub; git status --porcelain";
            let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", work]).unwrap())).unwrap();
            assert_eq!(result.exit_code, Some(0), "{backend} {folder}: {}", all_output(&result));
            assert_eq!(text(&result.stdout), "", "{backend} {folder}");
            wait_for(sandbox.dispose());
            for path in ["", "/sub", "/sub/inner"] {
                let status = place.git(&format!("-C {folder}{path} status --porcelain")).unwrap();
                assert_eq!(status, "", "{backend} {folder}{path}: {:?}", sandbox.changes());
            }
            let last = place.git(&format!("-C {folder} log -1 --format=%s")).unwrap();
            assert_eq!(last, "sub\n", "{backend} {folder}");
        }
    }
}

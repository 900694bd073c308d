//! What the host's git would run or believe stays as it is, in every mode, whether it is there or not. Judged by the files of
//! the host, and by a canary that appears if the host's git runs what was left for it.

use belljar_engine::{Changes, Engine, ExecResult};
use belljar_overlay::{Layers, Selection};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{BackendChoice, BackendName, Command, ErrorCode, SandboxError, SandboxSpec};
use belljar_tests_containment::*;
use belljar_workspace::protect::{Findings, LeftKind};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

#[test]
fn every_protected_path_stays_as_it_is() {
    each(backends(), |backend, mode| {
        let fixture = Fixture::new();
        fixture.repository("w");
        fixture.submodule("w", "sub");
        fixture.git("-C w worktree add -q ../other").unwrap();
        fixture.git("-C w config core.hooksPath .githooks").unwrap();
        fixture.git("-C w config --add include.path ../team.config").unwrap();
        fixture.git("-C w config filter.x.clean tools/clean.sh").unwrap();
        fs::create_dir(fixture.path("w/tools")).unwrap();
        fs::write(fixture.path("w/tools/clean.sh"), "cat\n").unwrap();
        fs::create_dir(fixture.path("w/.husky")).unwrap();
        fs::write(fixture.path("w/.husky/pre-commit"), "true\n").unwrap();
        fs::write(fixture.path("w/.git/hooks/pre-commit"), "true\n").unwrap();
        let paths = [
            ".git/hooks",
            ".git/config",
            ".git/config.worktree",
            ".git/info/attributes",
            ".git/commondir",
            ".git/modules/sub/hooks",
            ".git/modules/sub/config",
            ".git/modules/sub/commondir",
            ".git/worktrees/other",
            ".githooks",
            "team.config",
            "tools/clean.sh",
            "sub/.git",
            ".husky",
            ".belljar",
            ".github/workflows",
        ];
        let before = fixture.snapshot("w", &paths);
        let result = fixture.run(backend, mode, "w", &attacks(&paths)).unwrap();
        assert!(text(&result.stdout).ends_with("END\n"), "{}", all_output(&result));
        assert_eq!(fixture.snapshot("w", &paths), before, "{backend} {mode:?}: {}", all_output(&result));
    });
}

#[test]
fn no_mountpoint_stays_behind() {
    each(backends(), |backend, mode| {
        let fixture = Fixture::new();
        fixture.repository("w");
        fs::create_dir(fixture.path("plain")).unwrap();
        for folder in ["w", "plain"] {
            let before = fixture.tree(folder);
            let result = fixture.run(backend, mode, folder, "true").unwrap();
            assert_eq!(result.exit_code, Some(0));
            assert_eq!(fixture.tree(folder), before, "{backend} {mode:?}");
        }
    });
}

/// The folder itself, as with an overlay nothing gets to the host at all.
#[test]
fn the_hosts_git_runs_nothing_that_was_left_for_it() {
    for backend in linux_backends() {
        let fixture = Fixture::new();
        fixture.repository("w");
        fixture.submodule("w", "sub");
        fixture.git("-C w worktree add -q ../other").unwrap();
        let script = format!(
            r#"
cat > /workspace/run.sh <<'X'
#!/bin/sh
touch {canary}
X
chmod +x /workspace/run.sh
host={folder}
cd /workspace
evil=/workspace/evil; git init -q $evil
for g in .git .git/modules/sub $evil/.git .git/worktrees/other; do
  printf '[core]\n\tfsmonitor = %s/run.sh\n\thooksPath = %s/hooks-here\n[alias]\n\tst = !%s/run.sh\n' $host $host $host >> $g/config
  git config --file $g/config core.fsmonitor $host/run.sh
  git config --file $g/config.worktree core.fsmonitor $host/run.sh
  mkdir -p $g/hooks
  for h in pre-commit post-checkout post-commit reference-transaction post-index-change pre-push; do
    cp run.sh $g/hooks/$h
  done
  [ $g = $evil/.git ] || echo $host/evil/.git > $g/commondir
done
mkdir -p hooks-here .husky; cp run.sh hooks-here/pre-commit; cp run.sh .husky/pre-commit
echo "gitdir: $host/evil/.git" > sub/.git
rm -rf sub; mkdir sub; echo "gitdir: $host/evil/.git" > sub/.git
mv .git was; cp -r evil/.git .git; mv .git/config x; echo "gitdir: $host/evil/.git" > .git
echo "* filter=x" > .git/info/attributes
echo END
"#,
            canary = fixture.canary().display(),
            folder = fixture.path("w").display()
        );
        let result = fixture.run(*backend, &WorkspaceMode::Bind, "w", &script).unwrap();
        assert!(text(&result.stdout).ends_with("END\n"), "{}", all_output(&result));
        for line in [
            "status",
            "diff",
            "st",
            "add -A",
            "commit -m x --allow-empty",
            "checkout -q -B other-branch",
            "stash",
            "fetch --all",
            "submodule status",
            "worktree list",
            "gc --auto",
        ] {
            for folder in ["w", "other", "w/sub"] {
                let _ = fixture.git(&format!("-C {folder} {line}"));
                assert!(
                    !fixture.canary().exists(),
                    "{backend}: git {line} in {folder}: {}",
                    all_output(&result)
                );
            }
        }
    }
}

/// Links in directories of hooks, another name of a hook, scripts that a hook calls, and settings that programs of the host execute:
/// judged by their content, and by a canary of the host's git, of a stand-in for an agent, and of a shell.
#[test]
fn what_hooks_lead_to_and_what_programs_execute_stays_as_it_is() {
    each(linux_backends(), |backend, mode| {
        let fixture = Fixture::new();
        fixture.repository("w");
        for folder in ["w/scripts", "w/.husky"] {
            fs::create_dir(fixture.path(folder)).unwrap();
        }
        for name in ["linked", "husky", "twice", "called"] {
            script(&fixture.path("w/scripts").join(name), "#!/bin/sh\ntrue\n");
        }
        let hooks = fixture.path("w/.git/hooks");
        symlink("../../scripts/linked", hooks.join("pre-commit")).unwrap();
        symlink("../scripts/husky", fixture.path("w/.husky/pre-commit")).unwrap();
        fs::hard_link(fixture.path("w/scripts/twice"), hooks.join("post-commit")).unwrap();
        script(&hooks.join("commit-msg"), "#!/bin/sh\nexec ./scripts/called \"$@\"\n");
        symlink("../../scripts/none-yet", hooks.join("prepare-commit-msg")).unwrap();
        let paths = [
            "scripts/linked",
            "scripts/husky",
            "scripts/twice",
            "scripts/called",
            "scripts/none-yet",
            ".claude/settings.json",
            ".claude",
            ".mcp.json",
            ".codex/config.toml",
            ".vscode/tasks.json",
            ".envrc",
            ".devcontainer/devcontainer.json",
            ".git/remotes/origin",
        ];
        let before = fixture.snapshot("w", &paths);
        let evil = format!("#!/bin/sh\ntouch {}\n", fixture.canary().display());
        let plant = format!(
            "cd /workspace; for p in {}; do mkdir -p \"$(dirname $p)\"; printf '{}' > $p; printf '{}' > x; chmod +x x; mv -f x $p; chmod +x $p; done",
            paths.join(" "),
            evil.replace('\n', "\\n"),
            evil.replace('\n', "\\n"),
        );
        let result = fixture.run(backend, mode, "w", &format!("{plant}; {}", attacks(&paths))).unwrap();
        assert!(text(&result.stdout).ends_with("END\n"), "{}", all_output(&result));
        fixture.apply_all("w");
        assert_eq!(fixture.snapshot("w", &paths), before, "{backend} {mode:?}: {}", all_output(&result));
        let _ = fixture.git("-C w commit --allow-empty -q -m x");
        for executed in [".claude/settings.json", ".envrc", ".husky/pre-commit"] {
            let _ = std::process::Command::new("sh").arg(executed).current_dir(fixture.path("w")).output();
        }
        assert!(!fixture.canary().exists(), "{backend} {mode:?}: {}", all_output(&result));
    });
}

/// Seven at once in one folder, whose placeholders come and go, with a repository that was made a moment before.
#[test]
fn sandboxes_side_by_side_raise_no_alarm() {
    let backend = backends()[0];
    for is_repository in [true, false] {
        let fixture = Fixture::new();
        fs::create_dir(fixture.path("w")).unwrap();
        if is_repository {
            fixture.repository("w");
        }
        let one = || fixture.ended(backend, "w", "sleep 0.2");
        let all: Vec<Changes> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..7).map(|_| scope.spawn(one)).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(all.iter().all(|changes| *changes == Changes::None), "{all:?}");
        // And a real one is told.
        let changes = fixture.ended(backend, "w", "echo evil > Makefile; echo '{}' > opencode.json");
        let Changes::Folder { findings: Findings { left, executed, .. }, .. } = changes else {
            panic!("{changes:?}")
        };
        assert_eq!((left.len(), left[0].what), (1, LeftKind::Settings), "{left:?}");
        assert_eq!(executed[0].path, Path::new("Makefile"));
    }
}

/// In the folder itself: a layer is looked at when it is applied.
#[test]
fn repositories_further_down_are_protected_too() {
    for backend in linux_backends() {
        for is_repository in [false, true] {
            let fixture = Fixture::new();
            fs::create_dir_all(fixture.path("w/group/deeper")).unwrap();
            if is_repository {
                fixture.repository("w");
            }
            for name in ["w/app", "w/group/lib", "w/group/deeper/x"] {
                fixture.git(&format!("init -q {name}")).unwrap();
                fixture.git(&format!("-C {name} commit -q --allow-empty -m first")).unwrap();
            }
            fixture.git("-C w/app config core.hooksPath .githooks").unwrap();
            fixture.git("-C w/app worktree add -q ../group/linked").unwrap();
            let git = [
                "hooks",
                "config",
                "config.worktree",
                "commondir",
                "info/attributes",
                "objects/info/alternates",
            ];
            let mut paths: Vec<String> = ["app", "group/lib", "group/deeper/x"]
                .iter()
                .flat_map(|folder| git.map(|name| format!("{folder}/.git/{name}")))
                .collect();
            paths.extend(
                ["app/.githooks", "app/.git/worktrees/linked", "group/linked/.git"].map(String::from),
            );
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let before = fixture.snapshot("w", &paths);
            // First: what attacks leave of a repository is not much.
            let commit = "git -C app commit -q --allow-empty -m inside; git -C app log -1 --format=%s\n";
            let script = commit.to_string() + &attacks(&paths);
            let result = fixture.run(*backend, &WorkspaceMode::Bind, "w", &script).unwrap();
            assert_eq!(text(&result.stdout), "first\nEND\n", "{backend}: {}", all_output(&result));
            assert_eq!(fixture.snapshot("w", &paths), before, "{backend}: {}", all_output(&result));
        }
    }
}

#[test]
fn commits_work_beside_what_is_protected() {
    let script = "set -e
git config --get-regexp . > /dev/null
echo new > file; echo more > more; git add -A; git commit -q -m inside
git checkout -q -b branch; git commit -q --allow-empty -m again; git rebase -q HEAD~1; git checkout -q -; git branch -q -D branch
echo x >> file; git stash -q; git stash pop -q; git commit -q -a -m third; git tag -f t > /dev/null; git reset -q --hard HEAD~1; git repack -q -a -d
git log -1 --format=%s";
    each(linux_backends(), |backend, mode| {
        let fixture = Fixture::new();
        fixture.repository("main");
        fixture.git("-C main worktree add -q ../linked").unwrap();
        fixture.submodule("main", "sub");
        let folders: &[&str] = match mode {
            WorkspaceMode::Bind => &["main", "linked", "main/sub"],
            // Where the git directory is elsewhere there is no overlay.
            _ => &["main"],
        };
        for folder in folders {
            let head = || fixture.git(&format!("-C {folder} log -1 --format=%s")).unwrap();
            let before = head();
            let result = fixture.run(backend, mode, folder, script).unwrap();
            let output = all_output(&result);
            assert_eq!(text(&result.stdout), "inside\n", "{backend} {mode:?} {folder}: {output}");
            match mode {
                WorkspaceMode::Bind => assert_eq!(head(), "inside\n", "{backend} {folder}"),
                _ => assert_eq!(head(), before, "{backend} {folder}"),
            }
            let state = fixture.git(&format!("-C {folder} status --porcelain --ignore-submodules")).unwrap();
            assert_eq!(state, "", "{backend} {mode:?} {folder}");
        }
    });
}

#[test]
fn a_linked_worktree_changes_nothing_of_the_others() {
    each(linux_backends(), |backend, mode| {
        let fixture = Fixture::new();
        fixture.repository("main");
        fixture.git("-C main worktree add -q ../one").unwrap();
        fixture.git("-C main worktree add -q ../two").unwrap();
        let paths = [
            ".git/hooks",
            ".git/config",
            ".git/config.worktree",
            ".git/commondir",
            ".git/info/attributes",
            ".git/HEAD",
            ".git/index",
            ".git/worktrees/two",
            ".git/worktrees/one/gitdir",
            ".git/worktrees/one/commondir",
            ".git/worktrees/one/config.worktree",
        ];
        let before = (fixture.snapshot("main", &paths), fixture.snapshot("one", &[".git", ".husky"]));
        let inside: Vec<String> =
            paths.iter().map(|path| path.replacen(".git", "/run/belljar/git", 1)).collect();
        let inside: Vec<&str> = inside.iter().map(String::as_str).chain([".git", ".husky"]).collect();
        let outcome = fixture.run(backend, mode, "one", &attacks(&inside));
        let result = outcome.unwrap();
        assert!(text(&result.stdout).ends_with("END\n"), "{}", all_output(&result));
        let after = (fixture.snapshot("main", &paths), fixture.snapshot("one", &[".git", ".husky"]));
        assert_eq!(after, before, "{backend} {mode:?}: {}", all_output(&result));
    });
}

#[test]
fn a_git_file_of_an_agent_shares_nothing() {
    for backend in backends() {
        let fixture = Fixture::new();
        fixture.repository("secret");
        fs::create_dir(fixture.path("w")).unwrap();
        fs::write(fixture.path("w/.git"), format!("gitdir: {}\n", fixture.path("secret/.git").display()))
            .unwrap();
        let refusal = fixture.run(*backend, &WorkspaceMode::Bind, "w", "true").unwrap_err();
        assert_eq!(refusal.code, ErrorCode::PathRefused);
        fs::remove_file(fixture.path("w/.git")).unwrap();
        std::os::unix::fs::symlink(fixture.path("secret/.git"), fixture.path("w/.git")).unwrap();
        let refusal = fixture.run(*backend, &WorkspaceMode::Bind, "w", "true").unwrap_err();
        assert_eq!(refusal.code, ErrorCode::PathRefused);
    }
}

/// Everything that an attacker might do to a path, and to the folders on the way to it.
fn attacks(paths: &[&str]) -> String {
    let mut script = String::from("cd /workspace\n");
    for path in paths {
        script.push_str(&format!(
            r#"
p='{path}'; d=$(dirname "$p")
mkdir -p "$d"
echo evil >> "$p"; echo evil > "$p"; echo evil > "$p/pre-commit"; true > "$p"; truncate -s 0 "$p"
rm -rf "$p/"* "$p"; rmdir "$p"; mkdir "$p"; touch "$p"; chmod 777 "$p"; touch -d 2001-01-01 "$p"
ln -sf /tmp/evil "$p"; ln -sfn /tmp/evil "$p"; echo evil > /tmp/evil-file; mv -f /tmp/evil-file "$p"; cp -f /proc/self/cmdline "$p"
mkdir -p /workspace/.evil; mv -T /workspace/.evil "$p"; ln -f /workspace/a "$p"
mv "$d" "$d.moved" && mkdir "$d" && echo evil > "$p"
mv "$p" "$p.moved" && echo evil > "$p"
rm -rf "$d"
"#
        ));
    }
    // What a shell has no word for: exchanging, and another name.
    let words: Vec<String> = paths.iter().map(|path| format!("'{path}'")).collect();
    script.push_str(&format!("/usr/bin/python3 - {} <<'X'{EXCHANGES}X\n", words.join(" ")));
    // A script that stopped somewhere has attacked nothing.
    script.push_str("echo END\n");
    script
}

const EXCHANGES: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for path in map(os.path.abspath, sys.argv[1:]):
    for victim in [path, os.path.dirname(path)]:
        for kind in ['directory', 'file']:
            other = '/workspace/.other-' + kind
            try:
                os.makedirs(other) if kind == 'directory' else open(other, 'w').write('evil')
            except OSError:
                pass
            libc.renameat2(-100, other.encode(), -100, victim.encode(), 2)
            libc.renameat2(-100, other.encode(), -100, victim.encode(), 0)
        try:
            os.setxattr(victim, 'user.overlay.opaque', b'y')
            os.link(victim, '/workspace/second-name')
            open('/workspace/second-name', 'a').write('evil')
        except OSError:
            pass
"#;

/// Each of these backends, with the folder itself and with an overlay.
fn each(backends: &[BackendName], mut attempt: impl FnMut(BackendName, &WorkspaceMode)) {
    for backend in backends {
        for mode in [WorkspaceMode::Bind, WorkspaceMode::Overlay { layer: None }] {
            attempt(*backend, &mode);
        }
    }
}

/// Repositories outside, and a home that belongs to no real user.
pub(crate) struct Fixture {
    directory: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { directory: folder() };
        fs::create_dir(fixture.path("home")).unwrap();
        fs::create_dir(fixture.path("state")).unwrap();
        fixture
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(path)
    }

    pub(crate) fn canary(&self) -> PathBuf {
        self.path("canary")
    }

    pub(crate) fn repository(&self, name: &str) {
        self.git(&format!("init -q -b trunk-{name} {name}")).unwrap();
        fs::write(self.path(name).join("a"), "a\n").unwrap();
        self.git(&format!("-C {name} add a")).unwrap();
        self.git(&format!("-C {name} commit -q -m first")).unwrap();
    }

    fn submodule(&self, name: &str, path: &str) {
        self.repository("lib");
        let add = format!("-C {name} -c protocol.file.allow=always submodule add -q ../lib {path}");
        self.git(&add).unwrap();
        self.git(&format!("-C {name} commit -q -m submodule")).unwrap();
    }

    /// The host's git, as its user would run it.
    pub(crate) fn git(&self, line: &str) -> Result<String, String> {
        let Output { status, stdout, stderr } = std::process::Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(line.split(' '))
            .current_dir(self.path(""))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        if status.success() { Ok(text(&stdout)) } else { Err(text(&stderr)) }
    }

    /// Runs a script in a sandbox, which is gone afterwards.
    fn run(
        &self,
        backend: BackendName,
        mode: &WorkspaceMode,
        folder: &str,
        script: &str,
    ) -> Result<ExecResult, SandboxError> {
        let spec = SandboxSpec {
            backend: BackendChoice::Named(backend),
            workspace: Some(self.path(folder)),
            mode: mode.clone(),
            protected: vec![".github/workflows".parse().unwrap()],
            ..SandboxSpec::default()
        };
        let sandbox = Engine::new().with_state(self.path("state")).create_blocking(&spec)?;
        wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap()))
    }

    /// The same in the folder itself; says what became of it.
    fn ended(&self, backend: BackendName, folder: &str, script: &str) -> Changes {
        let spec = SandboxSpec {
            backend: BackendChoice::Named(backend),
            workspace: Some(self.path(folder)),
            ..SandboxSpec::default()
        };
        let sandbox = Engine::new().with_state(self.path("state")).create_blocking(&spec).unwrap();
        wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap())).unwrap();
        wait_for(sandbox.dispose());
        sandbox.changes().unwrap().unwrap()
    }

    /// Applies every layer of a folder, as its user would.
    fn apply_all(&self, folder: &str) {
        let layers = Layers::at(&self.path("state"));
        for layer in
            layers.beginning("").unwrap().into_iter().filter(|layer| layer.folder == self.path(folder))
        {
            layer.hold().unwrap().apply(&Selection::All).unwrap();
        }
    }

    /// What is at these paths, and below them.
    pub(crate) fn snapshot(&self, folder: &str, paths: &[&str]) -> BTreeMap<PathBuf, String> {
        let mut seen = BTreeMap::new();
        for path in paths {
            look(&self.path(folder).join(path), &mut seen);
        }
        seen
    }

    /// Everything in a folder.
    fn tree(&self, folder: &str) -> BTreeMap<PathBuf, String> {
        self.snapshot(folder, &["."])
    }
}

fn look(path: &Path, seen: &mut BTreeMap<PathBuf, String>) {
    let Ok(found) = path.symlink_metadata() else { return };
    if found.is_dir() {
        seen.insert(path.into(), "directory".into());
        for entry in fs::read_dir(path).unwrap() {
            look(&entry.unwrap().path(), seen);
        }
    } else {
        let content = fs::read(path).map(|bytes| text(&bytes)).unwrap_or_default();
        seen.insert(path.into(), format!("{:?} {content}", found.permissions()));
    }
}

pub(crate) fn script(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn all_output(result: &ExecResult) -> String {
    text(&result.stdout) + &text(&result.stderr)
}

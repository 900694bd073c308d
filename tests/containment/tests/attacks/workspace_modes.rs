//! Work beside the host's repository, from end to end: what comes back, what does not, and what an agent that worked in the folder
//! before has prepared. Judged by the host's refs and files.

use belljar_engine::{Changes, Engine, ExecResult};
use belljar_spec::workspace::{CloneSpec, WorkspaceMode};
use belljar_spec::{BackendChoice, BackendName, Command, SandboxError, SandboxSpec};
use belljar_tests_containment::{folder, text, wait_for, walls};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;

#[test]
fn a_push_from_a_shelf_arrives_once_and_only_on_its_branch() {
    for wall in walls() {
        let place = Place::new();
        let main = place.git("rev-parse main");
        let script = "echo x > x; git add x; git commit -q -m inside; git push 2>&1
            /usr/bin/git push -f host HEAD:main 2>&1; /usr/bin/git push host :main HEAD:other HEAD:refs/tags/t 2>&1; true";
        let (result, changes) = place.run(*wall, shelf("agent/x"), script).unwrap();
        let said = text(&result.stdout);
        assert!(said.contains("[new branch]") && !said.contains("Everything up-to-date"), "{wall}: {said}");
        assert!(matches!(changes, Changes::Shelf { pushed: true, .. }), "{wall}: {changes:?}");
        assert_eq!(place.git("log -1 --format=%s agent/x"), "inside", "{wall}");
        assert_eq!(place.git("rev-parse main"), main, "{wall}: {said}");
        assert_eq!(
            place.git("for-each-ref --format=%(refname)"),
            "refs/heads/agent/x\nrefs/heads/main",
            "{wall}"
        );
    }
}

#[test]
fn a_branch_that_follows_another_remote_still_works_in_an_overlay() {
    for wall in walls() {
        let place = Place::new();
        place.git("remote add origin /nowhere");
        place.git("config branch.main.remote origin");
        place.git("config branch.main.merge refs/heads/main");
        let script = "git commit -q --allow-empty -m inside; git status -sb 2>&1; git push host 2>&1";
        let (result, _) = place.run(*wall, WorkspaceMode::Overlay { layer: None }, script).unwrap();
        let said = text(&result.stdout);
        assert!(!said.contains("multiple upstream"), "{wall}: {said}");
        assert_eq!(place.git("log -1 --format=%s refs/belljar/main"), "inside", "{wall}: {said}");
        assert_eq!(place.git("log -1 --format=%s main"), "first", "{wall}");
    }
}

#[test]
fn what_was_planted_in_a_git_directory_leads_the_hosts_git_nowhere() {
    for wall in walls() {
        let place = Place::new();
        let victim = place.path("victim");
        fs::create_dir(&victim).unwrap();
        symlink(&victim, place.path("repo/.git/refs/heads/agent")).unwrap();
        let error = place.run(*wall, shelf("agent/x"), "true").unwrap_err();
        assert_eq!(error.code, "git_dir_has_links", "{wall}: {error}");
        // An overlay works, and has no way back to that repository.
        let script = "git commit -q --allow-empty -m x; git push host HEAD:agent/x; true";
        place.run(*wall, WorkspaceMode::Overlay { layer: None }, script).unwrap();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{wall}");
    }
}

#[test]
fn the_objects_of_another_repository_do_not_become_this_ones() {
    for wall in walls() {
        let place = Place::new();
        let script = "echo /elsewhere/objects > .git/objects/info/alternates; rm -f .git/objects/info/alternates; \
            mv .git/objects/info .git/objects/old; mv .git/objects .git/old; true";
        place.run(*wall, WorkspaceMode::Bind, script).unwrap();
        assert!(!place.path("repo/.git/objects/info/alternates").exists(), "{wall}");
        assert_eq!(place.git("log -1 --format=%s main"), "first", "{wall}");
    }
}

#[test]
fn nothing_that_happened_in_a_clone_is_thrown_away() {
    let clones = |place: &Place| fs::read_dir(place.path("state/clones")).map_or(0, Iterator::count);
    for wall in walls() {
        for (script, kept) in [
            ("cat a", 0),
            ("echo x > a; git stash -q", 1),
            ("git commit -q --allow-empty -m x; git tag t; git reset -q --hard HEAD~1", 1),
            ("git commit -q --allow-empty -m x", 1),
        ] {
            let place = Place::new();
            let (result, _) = place.run(*wall, clone(&place.path("repo")), script).unwrap();
            assert_eq!(result.exit_code, Some(0), "{wall} {script}: {}", text(&result.stderr));
            assert_eq!(clones(&place), kept, "{wall}: {script}");
        }
        // What cannot be cloned is an empty workspace, of which nothing stays.
        let place = Place::new();
        let (result, changes) = place.run(*wall, clone(&place.path("none")), "cat a").unwrap();
        assert_eq!((result.exit_code, changes), (Some(1), Changes::None), "{wall}");
        assert_eq!(clones(&place), 0, "{wall}");
    }
}

fn shelf(branch: &str) -> WorkspaceMode {
    WorkspaceMode::Shelf { branch: Some(branch.parse().unwrap()) }
}

fn clone(from: &std::path::Path) -> WorkspaceMode {
    WorkspaceMode::Clone(CloneSpec { url: from.to_str().unwrap().to_string(), branch: None, depth: None })
}

/// A repository `repo` on the host with one commit, and a state directory.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { directory: folder() };
        for name in ["repo", "state"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        fs::write(place.path("repo/a"), "a\n").unwrap();
        for line in ["init -q -b main", "add a", "commit -q -m first"] {
            place.git(line);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    /// The host's git, in `repo`.
    fn git(&self, line: &str) -> String {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(line.split(' '))
            .current_dir(self.path("repo"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        text(&output.stdout).trim_end().to_string()
    }

    /// Runs a script in a sandbox to its end, and gives what became of the workspace.
    fn run(
        &self,
        wall: BackendName,
        mode: WorkspaceMode,
        script: &str,
    ) -> Result<(ExecResult, Changes), SandboxError> {
        let is_clone = matches!(mode, WorkspaceMode::Clone(_));
        let spec = SandboxSpec {
            backend: BackendChoice::Named(wall),
            workspace: (!is_clone).then(|| self.path("repo")),
            mode,
            ..SandboxSpec::default()
        };
        let sandbox = Engine::new().with_state(self.path("state")).create_blocking(&spec)?;
        let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap()))?;
        sandbox.dispose_blocking();
        Ok((result, sandbox.changes().unwrap()?))
    }
}

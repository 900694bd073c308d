//! Commits in an overlay: the host's repository stays as it was until the layer is applied, and then follows. Judged by the host's
//! files and its git.

use crate::protected_paths::{Fixture, all_output};
use belljar_engine::{Changes, Engine, Sandbox, apply_layer, discard_layer};
use belljar_overlay::{Layer, Layers, RelPath, Selection};
use belljar_spec::workspace::{GitAccess, WorkspaceMode};
use belljar_spec::{BackendChoice, BackendName, Command, ErrorCode, SandboxSpec};
use belljar_tests_containment::folders::everything;
use belljar_tests_containment::*;
use std::fs;

fn spec(place: &Fixture, backend: BackendName, folder: &str) -> SandboxSpec {
    SandboxSpec {
        backend: BackendChoice::Named(backend),
        workspace: Some(place.path(folder)),
        mode: WorkspaceMode::Overlay { layer: None },
        ..SandboxSpec::default()
    }
}

fn start(place: &Fixture, spec: &SandboxSpec) -> Sandbox {
    Engine::new().with_state(place.path("state")).create_blocking(spec).unwrap()
}

fn sh(sandbox: &Sandbox, script: &str) -> String {
    let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap())).unwrap();
    assert_eq!(result.exit_code, Some(0), "{script}: {}", all_output(&result));
    text(&result.stdout)
}

/// Ends a sandbox, and gives its layer.
fn ended(place: &Fixture, sandbox: &Sandbox) -> Layer {
    wait_for(sandbox.dispose());
    let Some(Ok(Changes::Layer { id, .. })) = sandbox.changes() else { panic!("{:?}", sandbox.changes()) };
    Layers::at(&place.path("state")).beginning(&id.to_string()).unwrap().remove(0)
}

fn of_user(place: &Fixture) {
    place.repository("w");
    place.git("-C w branch -m main").unwrap();
    place.git("-C w config user.name Ada").unwrap();
    place.git("-C w config user.email ada@example.org").unwrap();
}

const COMMIT: &str = "echo new > new; git add new; git commit -q -m inside -- new; echo more > more";

#[test]
fn nothing_follows_until_the_layer_is_applied_and_then_all_does() {
    for backend in backends() {
        let place = Fixture::new();
        of_user(&place);
        let state = place.path("state");
        fs::write(place.path("w/staged"), "by the user\n").unwrap();
        place.git("-C w add staged").unwrap();
        let head = place.git("-C w rev-parse HEAD").unwrap();
        let status = place.git("-C w status --porcelain").unwrap();
        // All but what an import adds.
        let files = || {
            let mut all = everything(&place.path("w"));
            let added = [".git/refs/belljar", ".git/objects", ".git/logs/refs/belljar"];
            all.retain(|path, _| !added.iter().any(|part| path.starts_with(part)));
            all
        };
        let before = files();
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        assert_eq!(sh(&sandbox, "git status --porcelain"), "A  staged\n", "{backend}");
        sh(&sandbox, COMMIT);
        let layer = ended(&place, &sandbox);
        let kept = format!("refs/belljar/{}/heads/main", layer.id);
        assert_eq!(
            place.git(&format!("-C w log -1 --format=%an:%s {kept}")).unwrap(),
            "Ada:inside\n",
            "{backend}"
        );
        assert_eq!(files(), before, "{backend}");
        assert_eq!(place.git("-C w status --porcelain").unwrap(), status, "{backend}");
        assert_eq!(place.git("-C w rev-parse HEAD").unwrap(), head, "{backend}");
        // A part of it moves no branch.
        let (applied, report) = apply_layer(
            &state,
            &layer,
            &Selection::Paths(vec![RelPath::understand("more".as_ref()).unwrap()]),
        )
        .unwrap();
        assert!(applied.kept && report.followed.is_empty(), "{backend}: {report:?}");
        assert_eq!(place.git("-C w rev-parse HEAD").unwrap(), head, "{backend}");
        let (applied, report) = apply_layer(&state, &layer, &Selection::All).unwrap();
        assert!(!applied.kept && report.followed.len() == 1, "{backend}: {report:?}");
        assert_eq!(place.git("-C w log -1 --format=%s main").unwrap(), "inside\n", "{backend}");
        assert_eq!(place.git("-C w status --porcelain").unwrap(), "A  staged\n?? more\n", "{backend}");
        assert_eq!(place.git("-C w for-each-ref refs/belljar").unwrap(), "", "{backend}");
        place.git("-C w fsck").unwrap();
        assert!(!layer.directory.exists(), "{backend}");
    }
}

#[test]
fn commits_of_the_user_meanwhile_are_not_lost_and_those_inside_neither() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        of_user(&place);
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        sh(&sandbox, COMMIT);
        let layer = ended(&place, &sandbox);
        place.git("-C w commit -q --allow-empty -m outside").unwrap();
        let (_, report) = apply_layer(&place.path("state"), &layer, &Selection::All).unwrap();
        assert_eq!(report.notes.len(), 1, "{backend}: {report:?}");
        let log = place.git("-C w log --format=%s main").unwrap();
        assert!(log.contains("outside\n") && log.contains("inside\n"), "{backend}: {log}");
        assert_eq!(place.git("-C w status --porcelain").unwrap(), "?? more\n", "{backend}");
        // Where both changed the same lines, the branch stays the user's.
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        sh(&sandbox, "echo theirs > new; git commit -q -a -m theirs");
        let layer = ended(&place, &sandbox);
        let head = place.git("-C w rev-parse HEAD").unwrap();
        fs::write(place.path("w/new"), "ours\n").unwrap();
        place.git("-C w commit -q -a -m ours").unwrap();
        let refused = apply_layer(&place.path("state"), &layer, &Selection::All).unwrap_err();
        assert_eq!(refused.code, ErrorCode::WorkUnsaved, "{backend}");
        assert_eq!(place.git("-C w rev-parse HEAD~1").unwrap(), head, "{backend}");
        let kept = format!("refs/belljar/{}/heads/main", layer.id);
        assert_eq!(place.git(&format!("-C w log -1 --format=%s {kept}")).unwrap(), "theirs\n", "{backend}");
    }
}

#[test]
fn what_is_thrown_away_leaves_no_ref() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        of_user(&place);
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        sh(&sandbox, "git commit -q --allow-empty -m inside");
        let layer = ended(&place, &sandbox);
        assert_ne!(place.git("-C w for-each-ref refs/belljar").unwrap(), "", "{backend}");
        discard_layer(&place.path("state"), &layer).unwrap();
        assert_eq!(place.git("-C w for-each-ref refs/belljar").unwrap(), "", "{backend}");
        assert!(!layer.directory.exists(), "{backend}");
    }
}

#[test]
fn a_layer_continues_with_its_own_history() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        of_user(&place);
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        sh(&sandbox, "git switch -q -c topic; git commit -q --allow-empty -m one; git config x.y z");
        let layer = ended(&place, &sandbox);
        let again = SandboxSpec {
            mode: WorkspaceMode::Overlay { layer: Some(layer.id.to_string()) },
            ..spec(&place, *backend, "w")
        };
        let sandbox = start(&place, &again);
        assert_eq!(
            sh(&sandbox, "git log -1 --format=%s; git branch --show-current; git config x.y"),
            "one\ntopic\nz\n"
        );
        sh(&sandbox, "echo two > two; git add two; git commit -q -m two");
        let layer = ended(&place, &sandbox);
        apply_layer(&place.path("state"), &layer, &Selection::All).unwrap();
        assert_eq!(place.git("-C w log -2 --format=%s").unwrap(), "two\none\n", "{backend}");
        assert_eq!(place.git("-C w symbolic-ref --short HEAD").unwrap(), "topic\n", "{backend}");
        assert_eq!(place.git("-C w status --porcelain").unwrap(), "", "{backend}");
    }
}

/// A mount in an overlay stays when the directory below it goes: the sandbox never sees the new one.
#[test]
fn a_git_directory_that_the_host_makes_anew_is_out_of_sight() {
    for backend in backends() {
        let place = Fixture::new();
        of_user(&place);
        let sandbox = start(&place, &spec(&place, *backend, "w"));
        sh(&sandbox, "git log --oneline");
        for how in ["moved", "removed"] {
            match how {
                "moved" => fs::rename(place.path("w/.git"), place.path("aside")).unwrap(),
                _ => fs::remove_dir_all(place.path("w/.git")).unwrap(),
            }
            place.git("init -q w").unwrap();
            let config = fs::read(place.path("w/.git/config")).unwrap();
            sh(
                &sandbox,
                "echo '[x] evil = 1' >> .git/config; git config x.more evil; mkdir -p .git/hooks; echo x > .git/hooks/evil; true",
            );
            assert_eq!(fs::read(place.path("w/.git/config")).unwrap(), config, "{backend} {how}");
            assert!(!place.path("w/.git/hooks/evil").exists(), "{backend} {how}");
            assert!(
                !fs::read_to_string(place.path("aside/config")).unwrap().contains("evil"),
                "{backend} {how}"
            );
        }
        // The commits have no repository any more that they belong to: they stay in the layer.
        sh(&sandbox, "echo x > x");
        let layer = ended(&place, &sandbox);
        let (applied, report) = apply_layer(&place.path("state"), &layer, &Selection::All).unwrap();
        assert!(applied.kept && report.notes.len() == 1, "{backend}: {report:?}");
        assert_eq!(place.git("-C w for-each-ref").unwrap(), "", "{backend}");
    }
}

#[test]
fn an_overlay_shares_no_git_directory() {
    for backend in gateway_backends() {
        let place = Fixture::new();
        of_user(&place);
        let spec = SandboxSpec { git: GitAccess::Share, ..spec(&place, *backend, "w") };
        let refused = Engine::new().with_state(place.path("state")).create_blocking(&spec).err().unwrap();
        assert_eq!(refused.code, ErrorCode::RequestConflict, "{backend}");
    }
}

//! What is said of a sandbox beforehand is what it then is, and saying it leaves nothing behind.

use belljar_engine::Engine;
use belljar_spec::secret::{CredentialLocation, Forwarded};
use belljar_spec::workspace::{CloneSpec, WorkspaceMode};
use belljar_spec::{BackendName, ErrorCode, Nesting, SandboxSpec, Volume};
use belljar_tests_conformance::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

for_every_backend![
    what_is_described_is_what_is_made,
    a_description_starts_nothing_and_holds_no_secret,
    a_layer_is_described_without_leaving_one,
    a_kept_home_is_described_without_leaving_one,
    what_has_to_be_made_first_is_not_described,
];

fn engine(state: &TempDir) -> Engine {
    Engine::new().with_state(state.path()).with_records(state.path().join("audit"))
}

async fn what_is_described_is_what_is_made(backend: BackendName) {
    let state = TempDir::new().unwrap();
    let engine = engine(&state);
    let folder = TempDir::new().unwrap();
    if protects_paths(backend) {
        fs::create_dir(folder.path().join(".husky")).unwrap();
    }
    let mut spec = SandboxSpec {
        workspace: Some(folder.path().into()),
        env: vec![("A".parse().unwrap(), "b c".into())],
        ..spec(backend)
    };
    if is_isolated(backend) {
        spec.volumes = vec![Volume {
            source: state.path().join("fleet/volumes/v"),
            target: "/volumes/v".parse().unwrap(),
        }];
        // A container refuses it by name.
        if !is_docker(backend) {
            spec.nesting = Nesting::Allowed;
        }
    }
    spec.id = Some(belljar_state::new_id().unwrap());
    let description = engine.describe(&spec).unwrap();
    let reported = &description.json;
    assert_eq!(reported["backend"], backend.to_string());
    assert_eq!(reported["sandbox"], spec.id.unwrap().to_string());
    let sandbox = engine.create(spec).await.unwrap();
    assert_eq!(reported["workspace"]["inside"], sandbox.workspace());
    let listed = text(&sandbox.exec(&command(["env", "-0"])).await.unwrap().stdout);
    let real: BTreeMap<&str, &str> =
        listed.split_terminator('\0').map(|pair| pair.split_once('=').unwrap()).collect();
    let printed: BTreeMap<&str, &str> = reported["environment"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    assert_eq!(printed, real);
    let is_others_work = backend == BackendName::Bwrap || is_docker(backend);
    assert_eq!(description.command.is_some(), is_others_work);
    assert_eq!(reported["program"].is_object(), is_others_work);
    if !is_isolated(backend) {
        let privileges = if isolates(backend) { "dropped" } else { "unchanged" };
        assert_eq!(reported["seal"]["privileges"], privileges);
        return;
    }
    let (seccomp, loosened) = match is_docker(backend) {
        false => ("nested", serde_json::json!(["user namespaces inside"])),
        true => ("default", serde_json::json!([])),
    };
    assert_eq!(
        (&reported["seal"]["seccomp"], &reported["seal"]["privileges"]),
        (&seccomp.into(), &"dropped".into())
    );
    assert_eq!(reported["loosened"], loosened);
    assert!(
        reported["protected"].as_array().unwrap().contains(&".husky".into()),
        "{}",
        reported["protected"]
    );
    let mounts = text(&sandbox.exec(&command(["cat", "/proc/self/mounts"])).await.unwrap().stdout);
    let mounted: Vec<&str> = mounts.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    for mount in reported["mounts"].as_array().unwrap() {
        let target = mount["target"].as_str().unwrap();
        // The script in front of git is a file of the root, where that was prepared.
        let is_mounted = mounted.contains(&target) || mount["source"] == "git-guard.sh";
        assert!(is_mounted || !lists_every_mount(backend), "{mount}: {mounts}");
        assert!(sandbox.exists(target).await.unwrap(), "{mount}");
    }
    let marker =
        reported["steps"].as_array().unwrap().iter().find(|step| step["target"] == ".belljar").unwrap();
    let real = text(&sandbox.exec(&command(["cat", "/.belljar"])).await.unwrap().stdout);
    assert_eq!(marker["content"], real);
    let inside = text(&sandbox.exec(&command(["id", "-u"])).await.unwrap().stdout);
    assert_eq!(reported["user"]["inside"].to_string(), inside.trim());
}

async fn a_description_starts_nothing_and_holds_no_secret(backend: BackendName) {
    let state = TempDir::new().unwrap();
    let folder = TempDir::new().unwrap();
    let mut spec = SandboxSpec { workspace: Some(folder.path().into()), ..spec(backend) };
    spec.forwarded = vec![Forwarded {
        variable: "REAL".parse().unwrap(),
        source: "file:/nowhere/at/all".parse().unwrap(),
    }];
    if is_isolated(backend) {
        spec.credentials = vec![credential("service", "service.test", 443, [CredentialLocation::Bearer])];
    }
    let reported = engine(&state).describe(&spec).unwrap().json;
    assert_eq!(reported["environment"]["REAL"], "<the value of file:/nowhere/at/all>");
    if is_isolated(backend) {
        assert_eq!(reported["credentials"][0]["name"], "service");
        let placeholders: Vec<&Value> = reported["environment"]
            .as_object()
            .unwrap()
            .values()
            .filter(|value| value.as_str().is_some_and(|text| text.starts_with("<a placeholder for service")))
            .collect();
        assert_eq!(placeholders.len(), spec.credentials[0].variables.len());
    }
    // No record, no layer, no clone.
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

async fn a_kept_home_is_described_without_leaving_one(backend: BackendName) {
    let state = TempDir::new().unwrap();
    let sandbox_dir = state.path().join("fleet/sandboxes/one");
    let spec = SandboxSpec { home: Some(sandbox_dir.join("home")), ..spec(backend) };
    let described = engine(&state).describe(&spec);
    // Elsewhere it may be refused, and must not stay either.
    if backend == BackendName::Native {
        described.unwrap();
    }
    assert!(!sandbox_dir.exists());
    fs::create_dir_all(sandbox_dir.join("home")).unwrap();
    let _ = engine(&state).describe(&spec);
    assert!(sandbox_dir.join("home").exists(), "what was there stays");
}

async fn a_layer_is_described_without_leaving_one(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let state = TempDir::new().unwrap();
    let folder = TempDir::new().unwrap();
    let spec = SandboxSpec {
        workspace: Some(folder.path().into()),
        mode: WorkspaceMode::Overlay { layer: None },
        ..spec(backend)
    };
    let reported = engine(&state).describe(&spec).unwrap().json;
    assert!(reported["workspace"]["layer"].is_string());
    assert!(reported["steps"].as_array().unwrap().iter().any(|step| step["step"] == "overlay"));
    let left: Vec<_> =
        fs::read_dir(state.path().join("layers")).unwrap().flatten().map(|one| one.file_name()).collect();
    assert_eq!(left, ["lock"]);
}

async fn what_has_to_be_made_first_is_not_described(backend: BackendName) {
    let state = TempDir::new().unwrap();
    let clone = CloneSpec { url: "https://service.test/x".into(), branch: None, depth: None };
    let spec = SandboxSpec { mode: WorkspaceMode::Clone(clone), ..spec(backend) };
    let refused = engine(&state).describe(&spec).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotSupported);
    assert!(refused.hint.is_some());
}

fn is_docker(backend: BackendName) -> bool {
    matches!(backend, BackendName::Docker(_))
}

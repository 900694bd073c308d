use super::*;
use belljar_spec::request::EnvValue;
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{Admin, BackendChoice, BackendName, ErrorCode, WorkspacePath};

fn surroundings() -> Surroundings {
    Surroundings {
        name: "bj-web-3f2a9c04d1e7".into(),
        key: "web".into(),
        id: SandboxId::parse("00000000000000ff"),
        persistent: true,
        place: SandboxDir::new("/state/fleet/sandboxes/bj-web-3f2a9c04d1e7"),
        volumes: "/state/fleet/volumes".into(),
        is_owners: true,
    }
}

fn request(json: &str) -> SandboxRequest {
    serde_json::from_str(json).expect("a request")
}

fn error(json: &str) -> SandboxError {
    check(&request(json)).err().unwrap_or_else(|| panic!("{json} was not refused"))
}

#[test]
fn a_sandbox_of_which_nothing_is_said_works_in_a_folder_of_its_own() {
    let spec = understand(&SandboxRequest::default(), &surroundings()).expect("a request").spec;
    assert_eq!(spec.workspace, None);
    let place = PathBuf::from("/state/fleet/sandboxes/bj-web-3f2a9c04d1e7");
    assert_eq!(spec.mode, WorkspaceMode::Own(place.join("workspace")));
    assert_eq!(spec.home, Some(place.join("home")));
    assert_eq!(spec.backend, BackendChoice::Auto);
    assert_eq!(spec.admin, Admin::No);
    assert_eq!(spec.persistent.map(|identity| identity.name).as_deref(), Some("bj-web-3f2a9c04d1e7"));
}

#[test]
fn every_part_of_a_request_reaches_the_spec() {
    let request = request(
        r#"{
            "backend": "bwrap", "at_least": "namespace",
            "workspace": {"folder": "/srv/p", "overlay": true, "same_path": true, "ro": ["/data"], "rw": ["/out"],
                          "protect": ["Makefile"], "push": ["agent/*"]},
            "egress": {"mode": "strict", "allow": ["example.com"], "deny": ["bad.example.com"], "groups": ["github"]},
            "env": {"A": "1"},
            "limits": {"memory": "1g", "cpus": "0.5", "pids": 10, "open_files": 100, "disk": "1g", "timeout": "90s", "output": "1m"},
            "ports": [3000, 80, 3000], "nested": true, "volumes": {"b": "/volumes/b", "a": "/data/a"}
        }"#,
    );
    let ResolvedRequest { spec, ports, .. } =
        understand(&request, &Surroundings { persistent: false, ..surroundings() }).expect("a request");
    assert_eq!(spec.backend, BackendChoice::Named(BackendName::Bwrap));
    assert_eq!(spec.workspace.as_deref(), Some(Path::new("/srv/p")));
    assert_eq!(spec.mode, WorkspaceMode::Overlay { layer: None });
    assert_eq!(spec.workspace_path, WorkspacePath::SameAsHost);
    assert_eq!(spec.shared.len(), 2);
    let egress = spec.egress.expect("a policy");
    assert!(egress.allow.iter().any(|rule| rule.label.to_string() == "`example.com` (program)"));
    assert_eq!(spec.limits, request.limits);
    assert_eq!((spec.admin, spec.home), (Admin::No, None));
    let volumes: Vec<_> =
        spec.volumes.iter().map(|one| (one.source.display().to_string(), one.target.as_str())).collect();
    assert_eq!(
        volumes,
        [
            ("/state/fleet/volumes/a".to_string(), "/data/a"),
            ("/state/fleet/volumes/b".to_string(), "/volumes/b")
        ]
    );
    assert!(spec.env.contains(&("A".parse().unwrap(), "1".into())));
    assert_eq!(request.env.values().next(), Some(&EnvValue::Text("1".into())));
    assert_eq!(ports, [80, 3000]);
}

#[test]
fn what_is_out_of_range_is_named_with_its_field() {
    for (json, field) in [
        (r#"{"workspace": {"clone": "x", "depth": 0}}"#, "workspace.depth"),
        (r#"{"llm": {"key": "file:/etc/shadow"}}"#, "llm.key"),
        (r#"{"llm": {"key": "env:HOME"}}"#, "llm.key"),
        (r#"{"limits": {"pids": 0}}"#, "limits.pids"),
        (r#"{"limits": {"open_files": 2}}"#, "limits.open_files"),
        (r#"{"limits": {"ready": "601s"}}"#, "limits.ready"),
        (r#"{"ports": [0]}"#, "ports"),
    ] {
        let error = error(json);
        assert_eq!(error.code, ErrorCode::RequestValue, "{error}");
        assert!(error.message.starts_with(&format!("`{field}`: ")), "{error}");
        assert_eq!(error.hint, Some(format!("correct `sandbox.{field}`").into()), "{json}");
    }
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    for json in [
        r#"{"root": true}"#,
        r#"{"workspace": {"same_path": true}}"#,
        r#"{"workspace": {"same_path": true, "clone": "https://example.com/x"}}"#,
        r#"{"workspace": {"overlay": true}}"#,
        r#"{"workspace": {"branch": "a"}}"#,
        r#"{"workspace": {"depth": 3}}"#,
        r#"{"workspace": {"folder": "/a", "overlay": true, "branch": "b"}}"#,
        r#"{"workspace": {"overlay": true, "clone": "https://example.com/x"}}"#,
        r#"{"workspace": {"folder": "/a", "clone": "https://example.com/x"}}"#,
        r#"{"volumes": {"a": "/volumes/x", "b": "/volumes/x/"}}"#,
        r#"{"admin": true, "volumes": {"a": "/volumes/x"}}"#,
    ] {
        assert_eq!(error(json).code, ErrorCode::RequestConflict, "{json}");
    }
}

use super::*;
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{BackendChoice, BackendName, WorkspacePath};

fn surroundings() -> Surroundings {
    Surroundings {
        name: "bj-web-3f2a9c04d1e7".into(),
        key: "web".into(),
        id: SandboxId::parse("00000000000000ff"),
        persistent: true,
        place: Place::new("/state/fleet/sandboxes/bj-web-3f2a9c04d1e7"),
        volumes: "/state/fleet/volumes".into(),
    }
}

fn request(json: &str) -> SandboxRequest {
    serde_json::from_str(json).expect("a request")
}

fn error(json: &str) -> SandboxError {
    asked(&request(json), &surroundings()).err().unwrap_or_else(|| panic!("{json} was understood"))
}

#[test]
fn a_sandbox_of_which_nothing_is_said_works_in_a_folder_of_its_own() {
    let asked = asked(&SandboxRequest::default(), &surroundings()).expect("a request");
    assert_eq!(asked.folder, None);
    let place = PathBuf::from("/state/fleet/sandboxes/bj-web-3f2a9c04d1e7");
    assert_eq!(asked.mode, WorkspaceMode::Own(place.join("workspace")));
    assert_eq!(asked.home, Some(place.join("home")));
    assert_eq!(asked.backend, BackendChoice::Auto);
    assert_eq!(asked.admin, Admin::No);
    assert_eq!(asked.kept.map(|kept| kept.name).as_deref(), Some("bj-web-3f2a9c04d1e7"));
}

#[test]
fn every_word_is_understood() {
    let asked = asked(
        &request(
            r#"{
            "backend": "bwrap", "at_least": "namespace",
            "workspace": {"folder": "/srv/p", "overlay": true, "same_path": true, "ro": ["/data"], "rw": ["/out"],
                          "protect": ["Makefile"], "push": ["agent/*"]},
            "egress": {"mode": "strict", "allow": ["example.com"], "deny": ["bad.example.com"], "groups": ["github"]},
            "llm": {"url": "https://api.anthropic.com", "key": "secret:anthropic", "models": ["claude-*"], "budget": "usd=5"},
            "secrets": ["anthropic"], "web_search": "auto", "github": {"profile": "read", "repositories": ["a/b"]},
            "env": {"A": "1", "KEY": "secret:k"},
            "limits": {"memory": "1g", "cpus": "0.5", "pids": 10, "open_files": 100, "disk": "1g", "timeout": "90s", "output": "1m"},
            "ports": [3000, 80, 3000], "nested": true, "volumes": {"b": "/volumes/b", "a": "/data/a"}
        }"#,
        ),
        &Surroundings { persistent: false, ..surroundings() },
    )
    .expect("a request");
    assert_eq!(asked.backend, BackendChoice::Named(BackendName::Bwrap));
    assert_eq!(asked.folder.as_deref(), Some(Path::new("/srv/p")));
    assert_eq!(asked.mode, WorkspaceMode::Overlay { layer: None });
    assert_eq!(asked.workspace_path, WorkspacePath::SameAsHost);
    assert_eq!(asked.shared.len(), 2);
    assert_eq!((asked.egress.allow.len(), asked.egress.deny.len(), asked.egress.groups.len()), (1, 1, 1));
    assert_eq!(asked.secrets.web_search, Some(WebSearch::Detect));
    assert_eq!(asked.limits.pids, Some(10));
    assert_eq!(asked.admin, Admin::No);
    assert_eq!(asked.home, None);
    let volumes: Vec<_> =
        asked.volumes.iter().map(|one| (one.source.display().to_string(), one.target.as_str())).collect();
    assert_eq!(
        volumes,
        [
            ("/state/fleet/volumes/a".to_string(), "/data/a"),
            ("/state/fleet/volumes/b".to_string(), "/volumes/b")
        ]
    );
    assert_eq!(asked.env[0].1, Value::Text("1".into()));
    assert_eq!(asked.env[1].1, Value::Secret("k".parse().unwrap()));
    assert_eq!(ports(&[3000, 80, 3000]).unwrap(), [80, 3000]);

    let ephemeral = Surroundings { persistent: false, ..surroundings() };
    let admin = super::asked(&request(r#"{"admin": true, "root": true}"#), &ephemeral).expect("a request");
    assert_eq!(admin.admin, Admin::Root);
}

#[test]
fn what_makes_no_sense_is_named_with_its_field() {
    for (json, field) in [
        (r#"{"backend": "dock"}"#, "backend"),
        (r#"{"at_least": "strong"}"#, "at_least"),
        (r#"{"rootfs": "alpine"}"#, "rootfs"),
        (r#"{"workspace": {"folder": "here"}}"#, "workspace.folder"),
        (r#"{"workspace": {"ro": ["../x"]}}"#, "workspace.ro"),
        (r#"{"workspace": {"rw": [""]}}"#, "workspace.rw"),
        (r#"{"workspace": {"protect": ["/etc"]}}"#, "workspace.protect"),
        (r#"{"workspace": {"push": ["a..b"]}}"#, "workspace.push"),
        (r#"{"workspace": {"folder": "/a", "branch": "a..b"}}"#, "workspace.branch"),
        (r#"{"workspace": {"clone": "x", "depth": 0}}"#, "workspace.depth"),
        (r#"{"egress": {"mode": "wide"}}"#, "egress.mode"),
        (r#"{"egress": {"allow": ["*.com"]}}"#, "egress.allow"),
        (r#"{"egress": {"deny": ["1.2.3.4"]}}"#, "egress.deny"),
        (r#"{"egress": {"groups": ["none-such"]}}"#, "egress.groups"),
        (r#"{"llm": {"url": "ftp://x"}}"#, "llm.url"),
        (r#"{"llm": {"key": "sk-123"}}"#, "llm.key"),
        (r#"{"llm": {"key": "file:/etc/shadow"}}"#, "llm.key"),
        (r#"{"llm": {"key": "env:HOME"}}"#, "llm.key"),
        (r#"{"llm": {"kind": "oracle"}}"#, "llm.kind"),
        (r#"{"llm": {"budget": "much"}}"#, "llm.budget"),
        (r#"{"secrets": ["no such name"]}"#, "secrets"),
        (r#"{"web_search": "no such name"}"#, "web_search"),
        (r#"{"github": {"profile": "all"}}"#, "github.profile"),
        (r#"{"github": {"profile": "read", "repositories": ["a"]}}"#, "github.repositories"),
        (r#"{"env": {"A=B": "1"}}"#, "env"),
        (r#"{"env": {"A": "secret:no such name"}}"#, "env.A"),
        (r#"{"env": {"A": "a\u0000b"}}"#, "env.A"),
        (r#"{"limits": {"memory": "lots"}}"#, "limits.memory"),
        (r#"{"limits": {"cpus": "-1"}}"#, "limits.cpus"),
        (r#"{"limits": {"pids": 0}}"#, "limits.pids"),
        (r#"{"limits": {"open_files": 2}}"#, "limits.open_files"),
        (r#"{"limits": {"disk": ""}}"#, "limits.disk"),
        (r#"{"limits": {"timeout": "soon"}}"#, "limits.timeout"),
        (r#"{"limits": {"output": "x"}}"#, "limits.output"),
        (r#"{"limits": {"ready": "601s"}}"#, "limits.ready"),
        (r#"{"volumes": {"../x": "/volumes/x"}}"#, "volumes"),
        (r#"{"volumes": {"x": "/usr"}}"#, "volumes.x"),
        (r#"{"volumes": {"x": "/volumes/../proc"}}"#, "volumes.x"),
    ] {
        let error = error(json);
        assert_eq!(error.code, "request_value", "{error}");
        assert!(error.message.starts_with(&format!("`{field}`: ")), "{error}");
        assert_eq!(error.hint, Some(format!("correct `sandbox.{field}`")), "{json}");
    }
    assert_eq!(ports(&[0]).unwrap_err().code, "request_value");
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    for json in [
        r#"{"root": true}"#,
        r#"{"workspace": {"same_path": true}}"#,
        r#"{"workspace": {"overlay": true}}"#,
        r#"{"workspace": {"branch": "a"}}"#,
        r#"{"workspace": {"depth": 3}}"#,
        r#"{"workspace": {"folder": "/a", "overlay": true, "branch": "b"}}"#,
        r#"{"workspace": {"overlay": true, "clone": "https://example.com/x"}}"#,
        r#"{"workspace": {"folder": "/a", "clone": "https://example.com/x"}}"#,
        r#"{"volumes": {"a": "/volumes/x", "b": "/volumes/x/"}}"#,
    ] {
        assert_eq!(error(json).code, "request_conflict", "{json}");
    }
}

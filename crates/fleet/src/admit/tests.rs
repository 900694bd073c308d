use super::*;
use belljar_spec::ErrorCode;
use belljar_spec::egress::Mode;
use belljar_spec::parse_time;
use belljar_spec::request::{EnvValue, LlmRequest};
use std::os::unix::fs::symlink;
use std::time::Duration;

fn code<T>(outcome: Result<T, SandboxError>) -> Option<ErrorCode> {
    outcome.err().map(|error| error.code)
}

fn path(path: PathBuf) -> HostPath {
    path.try_into().unwrap()
}

#[test]
fn what_only_the_owner_may_say_is_refused() {
    let rules = GrantRules {
        hosts: vec!["*".parse().unwrap()],
        secrets: vec!["*".parse().unwrap()],
        ..GrantRules::default()
    };
    let asks: [fn(&mut SandboxRequest); 9] = [
        |ask| ask.github = Some(serde_json::from_str(r#"{"profile": "read"}"#).unwrap()),
        |ask| {
            ask.llm = Some(LlmRequest {
                url: Some("https://evil.example.com".parse().unwrap()),
                ..LlmRequest::default()
            })
        },
        |ask| {
            ask.llm =
                Some(LlmRequest { key: Some("file:/etc/shadow".parse().unwrap()), ..LlmRequest::default() })
        },
        |ask| ask.nested = Some(true),
        |ask| ask.admin = true,
        |ask| ask.root = true,
        |ask| ask.backend = Some("host".parse().unwrap()),
        |ask| ask.backend = Some("container".parse().unwrap()),
        |ask| ask.workspace.clone = Some("https://example.com/x".parse().unwrap()),
    ];
    for change in asks {
        let mut ask = SandboxRequest::default();
        change(&mut ask);
        assert_eq!(code(admit(&rules, ask.clone())), Some(ErrorCode::NotGranted), "{ask:?}");
    }
    let ask = SandboxRequest { backend: Some("native".parse().unwrap()), ..SandboxRequest::default() };
    assert!(admit(&rules, ask).is_ok());
}

#[test]
fn a_root_is_the_machines_or_an_image_that_was_granted() {
    let rules = GrantRules {
        images: vec!["alpine:3.22".parse().unwrap(), "ghcr.io/us/*".parse().unwrap()],
        folders: vec!["/srv".parse().unwrap()],
        ..GrantRules::default()
    };
    for (rootfs, outcome) in [
        ("host", None),
        ("golden", None),
        ("oci:alpine:3.22", None),
        ("oci:ghcr.io/us/tools:1", None),
        ("oci:alpine:3.21", Some(ErrorCode::NotGranted)),
        ("oci:10.0.0.1:5000/us/tools:1", Some(ErrorCode::NotGranted)),
        ("oci:ghcr.io/usual/tools:1", Some(ErrorCode::NotGranted)),
        ("/srv", Some(ErrorCode::NotGranted)),
        ("/", Some(ErrorCode::NotGranted)),
    ] {
        let ask = SandboxRequest { rootfs: Some(rootfs.parse().unwrap()), ..SandboxRequest::default() };
        assert_eq!(code(admit(&rules, ask)), outcome, "{rootfs}");
    }
}

#[test]
fn a_folder_is_judged_by_where_it_really_is() {
    let home = tempfile::tempdir().unwrap();
    let granted = home.path().join("granted");
    let beside = home.path().join("granted-not");
    std::fs::create_dir_all(granted.join("deep")).unwrap();
    std::fs::create_dir(&beside).unwrap();
    symlink(&beside, granted.join("out")).unwrap();
    symlink(&granted, home.path().join("in")).unwrap();
    let rules = GrantRules { folders: vec![path(granted.clone())], ..GrantRules::default() };
    let real = granted.canonicalize().unwrap();
    for (request, outcome) in [
        (granted.clone(), Some(real.clone())),
        (granted.join("deep"), Some(real.join("deep"))),
        (home.path().join("in/deep"), Some(real.join("deep"))),
        (granted.join("deep/../deep"), Some(real.join("deep"))),
        (granted.join("out"), None),
        (granted.join("../granted-not"), None),
        (beside.clone(), None),
        (granted.join("missing"), None),
        ("/".into(), None),
    ] {
        let mut ask = SandboxRequest::default();
        ask.workspace.folder = Some(path(request.clone()));
        let judged = admit(&rules, ask).map(|ask| ask.workspace.folder);
        match &outcome {
            Some(real) => assert_eq!(judged, Ok(Some(path(real.clone()))), "{request:?}"),
            None => assert_eq!(code(judged), Some(ErrorCode::NotGranted), "{request:?}"),
        }
        let mut ask = SandboxRequest::default();
        ask.workspace.rw = vec![path(request.clone())];
        assert_eq!(admit(&rules, ask).is_ok(), outcome.is_some(), "{request:?}");
    }
}

#[test]
fn names_are_covered_or_refused() {
    let rules = GrantRules {
        hosts: vec!["example.com".parse().unwrap(), "=api.test.org".parse().unwrap()],
        ..GrantRules::default()
    };
    for (request, allowed) in [
        ("example.com", true),
        ("=www.example.com:443", true),
        ("=api.test.org", true),
        ("api.test.org", false),
        ("notexample.com", false),
        ("test.org", false),
    ] {
        let mut ask = SandboxRequest::default();
        ask.egress.allow = vec![request.parse().unwrap()];
        assert_eq!(
            code(admit(&rules, ask)),
            if allowed { None } else { Some(ErrorCode::NotGranted) },
            "{request}"
        );
    }
    let mut ask = SandboxRequest::default();
    ask.egress.groups = vec!["github".parse().unwrap()];
    assert_eq!(code(admit(&rules, ask.clone())), Some(ErrorCode::NotGranted));
    assert!(admit(&GrantRules { hosts: vec!["*".parse().unwrap()], ..GrantRules::default() }, ask).is_ok());
}

#[test]
fn secrets_and_volumes_are_granted_by_name() {
    let rules = GrantRules {
        secrets: vec!["npm".parse().unwrap()],
        volumes: vec!["cache-*".parse().unwrap()],
        ..GrantRules::default()
    };
    let with = |change: fn(&mut SandboxRequest)| {
        let mut ask = SandboxRequest::default();
        change(&mut ask);
        code(admit(&rules, ask))
    };
    assert_eq!(with(|ask| ask.secrets = vec!["npm".parse().unwrap()]), None);
    assert_eq!(with(|ask| ask.secrets = vec!["anthropic".parse().unwrap()]), Some(ErrorCode::NotGranted));
    assert_eq!(
        with(|ask| _ =
            ask.env.insert("KEY".parse().unwrap(), EnvValue::parse("secret:anthropic".into()).unwrap())),
        Some(ErrorCode::NotGranted)
    );
    assert_eq!(
        with(|ask| _ = ask.env.insert("KEY".parse().unwrap(), EnvValue::parse("plain".into()).unwrap())),
        None
    );
    assert_eq!(
        with(|ask| _ = ask.volumes.insert("cache-npm".parse().unwrap(), "/volumes/cache".parse().unwrap())),
        None
    );
    assert_eq!(
        with(|ask| _ = ask.volumes.insert("history".parse().unwrap(), "/volumes/h".parse().unwrap())),
        Some(ErrorCode::NotGranted)
    );
    assert_eq!(with(|ask| ask.web_search = Some("auto".parse().unwrap())), Some(ErrorCode::NotGranted));
    assert_eq!(with(|ask| ask.web_search = Some("npm".parse().unwrap())), None);
    assert_eq!(with(|ask| ask.llm = Some(LlmRequest::default())), Some(ErrorCode::NotGranted));
    let off = |ask: &mut SandboxRequest| {
        ask.llm = Some(LlmRequest { url: Some("off".parse().unwrap()), ..LlmRequest::default() });
    };
    assert_eq!(with(off), None, "no route needs no grant");
}

#[test]
fn modes_hold_for_every_caller() {
    let mode = |egress: &[Mode], request: Option<Mode>| {
        let rules = GrantRules { egress: egress.to_vec(), ..GrantRules::default() };
        let mut ask = SandboxRequest::default();
        ask.egress.mode = request;
        ask.within(&rules, true).map(|made| made.egress.mode.unwrap()).map_err(|error| error.code)
    };
    assert_eq!(mode(&[], None), Ok(Mode::Strict), "never what the machine's settings say");
    assert_eq!(mode(&[], Some(Mode::None)), Ok(Mode::None));
    assert_eq!(mode(&[], Some(Mode::Open)), Err(ErrorCode::NotGranted));
    assert_eq!(mode(&[Mode::Open], Some(Mode::Open)), Ok(Mode::Open));
    assert_eq!(mode(&[Mode::Open], None), Ok(Mode::None));
    assert_eq!(mode(&[Mode::None], Some(Mode::Strict)), Err(ErrorCode::NotGranted));
    let open = GrantRules { egress: vec!["open".parse().unwrap()], ..GrantRules::default() };
    assert_eq!(
        code(SandboxRequest::default().within(&GrantRules::default(), false)),
        Some(ErrorCode::NotGranted)
    );
    let made = SandboxRequest::default().within(&open, false).unwrap();
    assert_eq!(made.egress.mode, None, "where nothing holds it, nothing is said of it");
}

#[test]
fn a_ceiling_is_what_is_had_if_nothing_is_asked_for() {
    let limits = LimitsRequest {
        memory: Some("1g".parse().unwrap()),
        cpus: Some("2".parse().unwrap()),
        pids: Some(100),
        open_files: Some(1000),
        timeout: parse_time("10m").ok(),
        ready: parse_time("30s").ok(),
        ..LimitsRequest::default()
    };
    let rules = GrantRules { limits, ..GrantRules::default() };
    let made = SandboxRequest::default().within(&rules, true).unwrap().limits;
    assert_eq!((made.memory, made.cpus, made.pids), ("1g".parse().ok(), "2".parse().ok(), Some(100)));
    assert_eq!(
        (made.timeout, made.disk, made.open_files),
        (Some(Duration::from_secs(600)), None, Some(1000))
    );
    type Change = fn(&mut LimitsRequest);
    let asks: [(Change, Option<ErrorCode>); 6] = [
        (|ask| ask.memory = Some("1024m".parse().unwrap()), None),
        (|ask| ask.memory = Some("1025m".parse().unwrap()), Some(ErrorCode::NotGranted)),
        (|ask| ask.pids = Some(101), Some(ErrorCode::NotGranted)),
        (|ask| ask.open_files = Some(1001), Some(ErrorCode::NotGranted)),
        (|ask| ask.timeout = parse_time("1h").ok(), Some(ErrorCode::NotGranted)),
        (|ask| ask.ready = parse_time("31s").ok(), Some(ErrorCode::NotGranted)),
    ];
    for (change, expected) in asks {
        let mut ask = SandboxRequest::default();
        change(&mut ask.limits);
        let outcome = ask.clone().within(&rules, true);
        if let Err(error) = &outcome
            && expected == Some(ErrorCode::NotGranted)
        {
            assert!(error.message.contains("limits."), "{error}");
        }
        assert_eq!(code(outcome), expected, "{ask:?}");
    }
}

#[test]
fn a_command_takes_no_more_than_the_grant_has() {
    let limits = LimitsRequest {
        timeout: parse_time("1m").ok(),
        output: Some("1k".parse().unwrap()),
        ..LimitsRequest::default()
    };
    for (timeout_s, max_output, expected) in [
        (None, None, None),
        (Some(60), Some(1024), None),
        (Some(61), None, Some(ErrorCode::NotGranted)),
        (None, Some(1025), Some(ErrorCode::NotGranted)),
        (Some(u64::MAX), None, Some(ErrorCode::NotGranted)),
        // Nothing at all is not too much; whether it makes sense is another's question.
        (Some(0), Some(0), None),
    ] {
        let outcome = limits.must_allow(timeout_s, max_output);
        assert_eq!(code(outcome), expected, "{timeout_s:?} {max_output:?}");
    }
    assert_eq!(code(LimitsRequest::default().must_allow(Some(1 << 40), Some(1 << 40))), None);
}

#[test]
fn a_branch_is_one_of_a_whole_repository() {
    let home = tempfile::tempdir().unwrap();
    let repository = home.path().canonicalize().unwrap();
    std::fs::create_dir_all(repository.join(".git")).unwrap();
    std::fs::create_dir_all(repository.join("part")).unwrap();
    let judged = |granted: PathBuf, folder: PathBuf| {
        let rules = GrantRules { folders: vec![path(granted)], ..GrantRules::default() };
        let mut ask = SandboxRequest::default();
        ask.workspace.folder = Some(path(folder));
        ask.workspace.branch = Some("agent/x".parse().unwrap());
        code(admit(&rules, ask))
    };
    assert_eq!(judged(repository.join("part"), repository.join("part")), Some(ErrorCode::NotGranted));
    assert_eq!(judged(repository.clone(), repository.join("part")), None);
}

#[test]
fn what_the_owner_names_is_taken_as_it_is_now() {
    let home = tempfile::tempdir().unwrap();
    let real = home.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("a")).unwrap();
    symlink(real.join("a"), real.join("link")).unwrap();
    let mut ask = SandboxRequest::default();
    ask.workspace.folder = Some(path(real.join("link")));
    ask.workspace.ro = vec![path(real.join("missing"))];
    let made = as_they_are(ask).workspace;
    assert_eq!(made.folder, Some(path(real.join("a"))));
    assert_eq!(made.ro, [path(real.join("missing"))]);
}

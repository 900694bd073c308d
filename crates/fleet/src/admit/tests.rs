use super::*;
use std::os::unix::fs::symlink;

fn code<T>(outcome: Result<T, SandboxError>) -> &'static str {
    outcome.err().map_or("", |error| error.code)
}

#[test]
fn what_only_the_owner_may_say_is_refused() {
    let rules = GrantRules { hosts: vec!["*".into()], secrets: vec!["*".into()], ..GrantRules::default() };
    let asks: [fn(&mut SandboxRequest); 9] = [
        |ask| ask.github = Some(belljar_api::GitHubRequest::default()),
        |ask| {
            ask.llm =
                Some(LlmRequest { url: Some("https://evil.example.com".into()), ..LlmRequest::default() })
        },
        |ask| ask.llm = Some(LlmRequest { key: Some("file:/etc/shadow".into()), ..LlmRequest::default() }),
        |ask| ask.nested = true,
        |ask| ask.admin = true,
        |ask| ask.root = true,
        |ask| ask.backend = Some("host".into()),
        |ask| ask.backend = Some("container".into()),
        |ask| ask.workspace.clone = Some("https://example.com/x".into()),
    ];
    for change in asks {
        let mut ask = SandboxRequest::default();
        change(&mut ask);
        assert_eq!(code(admit(&rules, ask.clone())), "owner_only", "{ask:?}");
    }
    let ask = SandboxRequest { backend: Some("native".into()), ..SandboxRequest::default() };
    assert!(admit(&rules, ask).is_ok());
}

#[test]
fn a_root_is_the_machines_or_an_image_that_was_granted() {
    let rules = GrantRules {
        images: vec!["alpine:3.22".into(), "ghcr.io/us/*".into()],
        folders: vec!["/srv".into()],
        ..GrantRules::default()
    };
    for (rootfs, outcome) in [
        ("host", ""),
        ("golden", ""),
        ("oci:alpine:3.22", ""),
        ("oci:ghcr.io/us/tools:1", ""),
        ("oci:alpine:3.21", "image_not_granted"),
        ("oci:10.0.0.1:5000/us/tools:1", "image_not_granted"),
        ("oci:ghcr.io/usual/tools:1", "image_not_granted"),
        ("/srv", "owner_only"),
        ("/", "owner_only"),
        ("alpine", "request_value"),
    ] {
        let ask = SandboxRequest { rootfs: Some(rootfs.into()), ..SandboxRequest::default() };
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
    let text = |path: PathBuf| path.to_str().unwrap().to_string();
    let rules = GrantRules { folders: vec![text(granted.clone())], ..GrantRules::default() };
    let real = granted.canonicalize().unwrap();
    for (asked, outcome) in [
        (text(granted.clone()), Some(real.clone())),
        (text(granted.join("deep")), Some(real.join("deep"))),
        (text(home.path().join("in/deep")), Some(real.join("deep"))),
        (text(granted.join("deep/../deep")), Some(real.join("deep"))),
        (text(granted.join("out")), None),
        (text(granted.join("../granted-not")), None),
        (text(beside.clone()), None),
        (text(granted.join("missing")), None),
        ("granted".into(), None),
        ("/".into(), None),
        ("".into(), None),
    ] {
        let mut ask = SandboxRequest::default();
        ask.workspace.folder = Some(asked.clone());
        let judged = admit(&rules, ask).map(|ask| ask.workspace.folder.map(PathBuf::from));
        match outcome {
            Some(path) => assert_eq!(judged, Ok(Some(path)), "{asked}"),
            None => assert_eq!(code(judged), "folder_not_granted", "{asked}"),
        }
        let mut ask = SandboxRequest::default();
        ask.workspace.rw = vec![asked.clone()];
        assert_eq!(
            admit(&rules, ask).is_ok(),
            asked != "/" && !asked.is_empty() && asked != "granted" && {
                Path::new(&asked).canonicalize().is_ok_and(|path| path.starts_with(&real))
            }
        );
    }
}

#[test]
fn names_are_covered_or_refused() {
    let rules =
        GrantRules { hosts: vec!["example.com".into(), "=api.test.org".into()], ..GrantRules::default() };
    for (asked, allowed) in [
        ("example.com", true),
        ("=www.example.com:443", true),
        ("=api.test.org", true),
        ("api.test.org", false),
        ("notexample.com", false),
        ("test.org", false),
    ] {
        let mut ask = SandboxRequest::default();
        ask.egress.allow = vec![asked.into()];
        assert_eq!(code(admit(&rules, ask)), if allowed { "" } else { "host_not_granted" }, "{asked}");
    }
    let mut ask = SandboxRequest::default();
    ask.egress.groups = vec!["github".into()];
    assert_eq!(code(admit(&rules, ask.clone())), "host_not_granted");
    assert!(admit(&GrantRules { hosts: vec!["*".into()], ..GrantRules::default() }, ask).is_ok());
}

#[test]
fn secrets_and_volumes_are_granted_by_name() {
    let rules =
        GrantRules { secrets: vec!["npm".into()], volumes: vec!["cache-*".into()], ..GrantRules::default() };
    let with = |change: fn(&mut SandboxRequest)| {
        let mut ask = SandboxRequest::default();
        change(&mut ask);
        code(admit(&rules, ask))
    };
    assert_eq!(with(|ask| ask.secrets = vec!["npm".into()]), "");
    assert_eq!(with(|ask| ask.secrets = vec!["anthropic".into()]), "secret_not_granted");
    assert_eq!(with(|ask| _ = ask.env.insert("KEY".into(), "secret:anthropic".into())), "secret_not_granted");
    assert_eq!(with(|ask| _ = ask.env.insert("KEY".into(), "plain".into())), "");
    assert_eq!(with(|ask| _ = ask.volumes.insert("cache-npm".into(), "/cache".into())), "");
    assert_eq!(with(|ask| _ = ask.volumes.insert("history".into(), "/h".into())), "volume_not_granted");
    assert_eq!(with(|ask| ask.web_search = Some("auto".into())), "secret_not_granted");
    assert_eq!(with(|ask| ask.web_search = Some("npm".into())), "");
    assert_eq!(with(|ask| ask.llm = Some(LlmRequest::default())), "llm_not_granted");
    let off = |ask: &mut SandboxRequest| {
        ask.llm = Some(LlmRequest { url: Some("off".into()), ..LlmRequest::default() });
    };
    assert_eq!(with(off), "", "no route needs no grant");
}

#[test]
fn modes_hold_whoever_asked() {
    let mode = |egress: &[&str], asked: Option<&str>| {
        let rules = GrantRules {
            egress: egress.iter().map(|mode| mode.to_string()).collect(),
            ..GrantRules::default()
        };
        let mut ask = SandboxRequest::default();
        ask.egress.mode = asked.map(String::from);
        confine(&rules, ask, true).map(|made| made.egress.mode.unwrap()).map_err(|error| error.code)
    };
    assert_eq!(mode(&[], None).as_deref(), Ok("strict"), "never what the machine's settings say");
    assert_eq!(mode(&[], Some("none")).as_deref(), Ok("none"));
    assert_eq!(mode(&[], Some("open")), Err("egress_not_granted"));
    assert_eq!(mode(&["open"], Some("open")).as_deref(), Ok("open"));
    assert_eq!(mode(&["open"], None).as_deref(), Ok("none"));
    assert_eq!(mode(&["none"], Some("strict")), Err("egress_not_granted"));
    assert_eq!(mode(&[], Some("wide")), Err("request_value"));
    let open = GrantRules { egress: vec!["open".into()], ..GrantRules::default() };
    assert_eq!(code(confine(&GrantRules::default(), SandboxRequest::default(), false)), "egress_not_granted");
    let made = confine(&open, SandboxRequest::default(), false).unwrap();
    assert_eq!(made.egress.mode, None, "where nothing holds it, nothing is said of it");
}

#[test]
fn a_ceiling_is_what_is_had_if_nothing_is_asked_for() {
    let limits = LimitsRequest {
        memory: Some("1g".into()),
        cpus: Some("2".into()),
        pids: Some(100),
        open_files: Some(1000),
        timeout: Some("10m".into()),
        ready: Some("30s".into()),
        ..LimitsRequest::default()
    };
    let rules = GrantRules { limits, ..GrantRules::default() };
    let made = confine(&rules, SandboxRequest::default(), true).unwrap().limits;
    assert_eq!((made.memory.as_deref(), made.cpus.as_deref(), made.pids), (Some("1g"), Some("2"), Some(100)));
    assert_eq!((made.timeout.as_deref(), made.disk, made.open_files), (Some("10m"), None, Some(1000)));
    type Change = fn(&mut LimitsRequest);
    let asks: [(Change, &str); 7] = [
        (|ask| ask.memory = Some("1024m".into()), ""),
        (|ask| ask.memory = Some("1025m".into()), "limit_over_grant"),
        (|ask| ask.pids = Some(101), "limit_over_grant"),
        (|ask| ask.open_files = Some(1001), "limit_over_grant"),
        (|ask| ask.timeout = Some("1h".into()), "limit_over_grant"),
        (|ask| ask.ready = Some("31s".into()), "limit_over_grant"),
        (|ask| ask.cpus = Some("lots".into()), "request_value"),
    ];
    for (change, expected) in asks {
        let mut ask = SandboxRequest::default();
        change(&mut ask.limits);
        let outcome = confine(&rules, ask.clone(), true);
        if let Err(error) = &outcome
            && expected == "limit_over_grant"
        {
            assert!(error.message.contains("limits."), "{error}");
        }
        assert_eq!(code(outcome), expected, "{ask:?}");
    }
}

#[test]
fn a_command_takes_no_more_than_the_grant_has() {
    let limits =
        LimitsRequest { timeout: Some("1m".into()), output: Some("1k".into()), ..LimitsRequest::default() };
    for (timeout_s, max_output, expected) in [
        (None, None, ""),
        (Some(60), Some(1024), ""),
        (Some(61), None, "limit_over_grant"),
        (None, Some(1025), "limit_over_grant"),
        (Some(u64::MAX), None, "limit_over_grant"),
        // Nothing at all is not too much; whether it makes sense is another's question.
        (Some(0), Some(0), ""),
    ] {
        let outcome = command_within(&limits, timeout_s, max_output);
        assert_eq!(code(outcome), expected, "{timeout_s:?} {max_output:?}");
    }
    assert_eq!(code(command_within(&LimitsRequest::default(), Some(1 << 40), Some(1 << 40))), "");
}

#[test]
fn a_branch_is_one_of_a_whole_repository() {
    let home = tempfile::tempdir().unwrap();
    let repository = home.path().canonicalize().unwrap();
    std::fs::create_dir_all(repository.join(".git")).unwrap();
    std::fs::create_dir_all(repository.join("part")).unwrap();
    let text = |path: PathBuf| path.to_str().unwrap().to_string();
    let judged = |granted: PathBuf, folder: PathBuf| {
        let rules = GrantRules { folders: vec![text(granted)], ..GrantRules::default() };
        let mut ask = SandboxRequest::default();
        ask.workspace.folder = Some(text(folder));
        ask.workspace.branch = Some("agent/x".into());
        code(admit(&rules, ask))
    };
    assert_eq!(judged(repository.join("part"), repository.join("part")), "folder_not_granted");
    assert_eq!(judged(repository.clone(), repository.join("part")), "");
}

#[test]
fn what_the_owner_names_is_taken_as_it_is_now() {
    let home = tempfile::tempdir().unwrap();
    let real = home.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("a")).unwrap();
    symlink(real.join("a"), real.join("link")).unwrap();
    let mut ask = SandboxRequest::default();
    let text = |path: PathBuf| path.to_str().unwrap().to_string();
    ask.workspace.folder = Some(text(real.join("link")));
    ask.workspace.ro = vec![text(real.join("missing")), "relative".into()];
    let made = as_they_are(ask).workspace;
    assert_eq!(made.folder, Some(text(real.join("a"))));
    assert_eq!(made.ro, [text(real.join("missing")), "relative".into()]);
}

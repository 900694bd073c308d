use super::*;
use belljar_spec::ErrorCode;

fn backends(working: &[BackendName]) -> Vec<BackendReport> {
    let report = |name: BackendName| BackendReport {
        backend: name,
        assurance: name.assurance(),
        outcome: match working.contains(&name) {
            true => Ok(()),
            false => Err(ErrorCode::BackendUnavailable.error("this machine does not allow it")),
        },
    };
    BackendName::ALL.into_iter().map(report).collect()
}

fn configured(name: &str, change: impl FnOnce(&mut SandboxRequest)) -> Profile {
    let mut base = SandboxRequest { nested: Some(false), ..SandboxRequest::default() };
    change(&mut base);
    Profile {
        name: name.into(),
        label: name.into(),
        description: None,
        remote: false,
        base,
        source: "config.toml".into(),
    }
}

#[test]
fn only_what_works_here_is_advertised() {
    let profiles =
        Profiles::new(&backends(&[BackendName::Bwrap, BackendName::Host]), Vec::new(), None).unwrap();
    let names: Vec<String> = profiles.advertised().into_iter().map(|profile| profile.name).collect();
    assert_eq!(names, ["default", "bwrap", "host"]);
    let default = &profiles.advertised()[0];
    assert!(default.default && default.backend == "bwrap" && default.assurance == "namespace");
    let error = profiles.choose(Some("native")).unwrap_err();
    assert_eq!(error.code, ErrorCode::ProfileUnavailable);
    assert!(error.message.contains("this machine does not allow it"), "{error}");
    assert_eq!(
        error.hint.as_ref().map(|hint| hint.to_string()).as_deref(),
        Some("on offer here: default, bwrap, host")
    );
}

#[test]
fn docker_and_gvisor_are_on_offer_where_the_daemon_has_them() {
    let offered = |working: &[BackendName], configured: Vec<Profile>| {
        let profiles = Profiles::new(&backends(working), configured, None).unwrap().advertised();
        let docker = |profile: &ProfileInfo| ["docker", "gvisor"].contains(&profile.name.as_str());
        let line = |profile: ProfileInfo| format!("{} {} {}", profile.name, profile.backend, profile.source);
        profiles.into_iter().filter(docker).map(line).collect::<Vec<_>>()
    };
    let (runc, runsc) = (BackendName::Docker(Runtime::Runc), BackendName::Docker(Runtime::Runsc));
    assert_eq!(offered(&[BackendName::Native], Vec::new()), Vec::<String>::new());
    assert_eq!(offered(&[BackendName::Native, runc], Vec::new()), ["docker docker built-in"]);
    let both = ["docker docker built-in", "gvisor docker+runsc built-in"];
    assert_eq!(offered(&[BackendName::Native, runc, runsc], Vec::new()), both);
    // A file's own takes the place.
    let own = configured("docker", |base| base.backend = Some(BackendChoice::Named(runc)));
    assert_eq!(offered(&[BackendName::Native, runc], vec![own]), ["docker docker config.toml"]);
}

#[test]
fn no_backend_is_never_chosen_by_itself() {
    let profiles = Profiles::new(&backends(&[BackendName::Host]), Vec::new(), None).unwrap();
    assert_eq!(profiles.choose(None).unwrap_err().code, ErrorCode::ProfileUnavailable);
    assert!(!profiles.choose(Some("host")).unwrap().is_isolated());
}

#[test]
fn an_unknown_one_is_told_with_what_there_is() {
    let profiles = Profiles::new(&backends(&[BackendName::Native]), Vec::new(), None).unwrap();
    let error = profiles.choose(Some("nativ")).unwrap_err();
    assert_eq!(error.code, ErrorCode::ProfileUnknown);
    assert_eq!(
        error.hint.as_ref().map(|hint| hint.to_string()).as_deref(),
        Some("did you mean `native`? on offer here: default, native")
    );
}

#[test]
fn names_are_unique_and_plain() {
    let new =
        |profile| Profiles::new(&backends(&[BackendName::Native]), vec![profile], None).unwrap_err().code;
    assert_eq!(new(configured("native", |_| {})), ErrorCode::RequestConflict);
    assert_eq!(new(configured("Big One", |_| {})), ErrorCode::RequestValue);
}

#[test]
fn a_configured_one_can_be_the_default() {
    let small = configured("small", |base| base.limits.memory = Some("256m".parse().unwrap()));
    let profiles =
        Profiles::new(&backends(&[BackendName::Native]), vec![small], Some(String::from("small"))).unwrap();
    assert_eq!(profiles.choose(None).unwrap().name, "small");
    let unknown =
        Profiles::new(&backends(&[BackendName::Native]), Vec::new(), Some(String::from("smal"))).unwrap_err();
    assert_eq!(unknown.code, ErrorCode::ProfileUnknown);
}

#[test]
fn a_level_that_no_backend_here_has_is_not_advertised() {
    let strong = configured("strong", |base| base.at_least = Some("microvm".parse().unwrap()));
    let profiles = Profiles::new(&backends(&BackendName::ALL), vec![strong], None).unwrap();
    let error = profiles.choose(Some("strong")).unwrap_err();
    assert!(error.message.contains("microvm is wanted"), "{error}");
}

#[test]
fn a_request_fills_in_and_replaces_but_never_widens() {
    let profile = configured("ci", |base| {
        base.backend = Some("native".parse().unwrap());
        base.at_least = Some("container".parse().unwrap());
        base.egress.mode = Some("strict".parse().unwrap());
        base.egress.allow = vec!["example.com".parse().unwrap()];
        base.egress.inspect = true;
        base.limits.memory = Some("1g".parse().unwrap());
    });
    let apply = |change: fn(&mut SandboxRequest)| {
        let mut request = SandboxRequest::default();
        change(&mut request);
        profile.apply(request)
    };
    let made = apply(|request| {
        request.limits.memory = Some("2g".parse().unwrap());
        request.egress.allow = vec!["example.org".parse().unwrap()];
        request.at_least = Some("namespace".parse().unwrap());
    })
    .unwrap();
    assert_eq!(made.limits.memory, "2g".parse().ok());
    assert_eq!(made.egress.allow, ["example.com", "example.org"].map(|rule| rule.parse().unwrap()));
    assert!(made.egress.inspect, "what the profile looks into, a request cannot hide");
    assert_eq!((made.backend, made.at_least), ("native".parse().ok(), Some(Assurance::Namespace)));
    let lower = apply(|request| request.at_least = Some("host".parse().unwrap())).unwrap();
    assert_eq!(lower.at_least, Some(Assurance::Container), "the stricter one counts");
    let narrower = apply(|request| request.egress.mode = Some("none".parse().unwrap())).unwrap();
    assert_eq!(narrower.egress.mode, Some(Mode::None));
    let widenings: [fn(&mut SandboxRequest); 4] = [
        |request| request.backend = Some("host".parse().unwrap()),
        |request| request.egress.mode = Some("open".parse().unwrap()),
        |request| request.nested = Some(true),
        |request| request.egress.allow = vec!["example.org:443/tcp".parse().unwrap()],
    ];
    for change in widenings {
        assert_eq!(apply(change).unwrap_err().code, ErrorCode::NotGranted);
    }
    assert!(
        apply(|request| request.backend = Some("auto".parse().unwrap())).unwrap().backend
            == "native".parse().ok()
    );
}

#[test]
fn what_can_never_start_is_not_offered() {
    let host = |change: fn(&mut SandboxRequest)| {
        configured("mine", |base| {
            base.backend = Some("host".parse().unwrap());
            change(base);
        })
    };
    let of = |profile| {
        Profiles::new(&backends(&[BackendName::Native, BackendName::Host]), vec![profile], None).unwrap()
    };
    assert!(of(host(|_| {})).choose(Some("mine")).is_ok());
    for change in
        [(|base| base.egress.mode = Some("none".parse().unwrap())) as fn(&mut SandboxRequest), |base| {
            base.egress.allow = vec!["a.example".parse().unwrap()]
        }]
    {
        let profiles = of(host(change));
        assert!(profiles.advertised().iter().all(|profile| profile.name != "mine"));
        let error = profiles.choose(Some("mine")).unwrap_err();
        assert_eq!(error.code, ErrorCode::ProfileUnavailable);
        assert!(error.message.contains("does not isolate the network"), "{error}");
    }
}

#[test]
fn a_profile_whose_limits_nothing_holds_does_not_work() {
    let backends = backends(&[BackendName::Native, BackendName::Docker(belljar_spec::Runtime::Runc)]);
    let of = |name: &str, backend: Option<&str>| {
        configured(name, |base| {
            base.backend = backend.map(|name| name.parse().unwrap());
            base.limits.memory = Some("1g".parse().unwrap());
        })
    };
    let configured = || vec![of("here", None), of("there", Some("docker"))];
    let held = Profiles::new(&backends, configured(), None).unwrap();
    assert!(held.choose(Some("here")).is_ok() && held.choose(Some("there")).is_ok());
    let by_docker = |limits: &LimitsRequest| limits.memory.iter().map(|_| "memory").collect();
    let profiles = Profiles::with_limits(&backends, configured(), None, by_docker).unwrap();
    let error = profiles.choose(Some("here")).unwrap_err();
    assert_eq!(error.code, ErrorCode::ProfileUnavailable);
    assert!(error.message.contains("native cannot hold its limit on memory here"), "{error}");
    assert!(profiles.advertised().iter().all(|profile| profile.name != "here"));
    assert!(profiles.choose(Some("there")).is_ok() && profiles.choose(Some("native")).is_ok());
}

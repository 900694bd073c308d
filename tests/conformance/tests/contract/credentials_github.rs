//! Tokens of a GitHub App: minted before a sandbox starts, cut down to its profile, given back at its end.

use belljar_engine::Engine;
use belljar_spec::secret::{GitHubApp, GitHubGrant, GitHubProfile, SecretSource};
use belljar_spec::{ErrorCode, Hint, SandboxError, SandboxSpec};
use belljar_tests_conformance::*;
use belljar_tests_hosts::GitHub;
use std::collections::BTreeMap;

for_every_isolated_backend! {
    everywhere:
        the_apps_key_is_inside_only_where_both_gates_are_open;
    once:
        a_token_is_minted_for_a_profile_and_given_back,
        an_app_that_is_refused_starts_nothing,
        a_token_of_a_sandbox_that_never_started_is_given_back;
}

fn grant(github: &GitHub, profile: GitHubProfile, repositories: &[&str]) -> GitHubGrant {
    GitHubGrant {
        app: GitHubApp {
            app: GitHub::APP,
            installation: GitHub::INSTALLATION,
            key: "secret:app".parse().unwrap(),
            api: github.url(),
            host: "github.com".parse().unwrap(),
        },
        profile,
        repositories: repositories.iter().map(|name| name.parse().unwrap()).collect(),
        danger_forward_key: false,
    }
}

fn with_token(spec: &mut SandboxSpec, grant: GitHubGrant) {
    let mut credential = belljar_spec::secret::built_in("github").unwrap().credential.clone();
    credential.source = SecretSource::GitHubApp;
    spec.credentials.push(credential);
    spec.github = Some(grant);
    spec.egress = Some(belljar_spec::egress::EgressPolicy::strict());
}

fn engine(world: &World, github: &GitHub) -> Engine {
    Engine::new().with_records(world.records()).with_secrets(Drawer::with([("secret:app", github.key_pem())]))
}

async fn make(
    world: &World,
    github: &GitHub,
    backend: BackendName,
    grant: GitHubGrant,
) -> Result<SandboxFixture, SandboxError> {
    SandboxFixture::made_by(&engine(world, github), backend, |spec| with_token(spec, grant)).await
}

async fn a_token_is_minted_for_a_profile_and_given_back(backend: BackendName) {
    let (world, github) = (World::new([]), GitHub::start(3600));
    for (number, profile) in GitHubProfile::ALL.into_iter().enumerate() {
        let fixture =
            make(&world, &github, backend, grant(&github, profile, &["acme/widgets"])).await.unwrap();
        let token = github.tokens().pop().unwrap();
        let requested: BTreeMap<String, String> =
            profile.permissions().map(|(what, how)| (what.into(), how.into())).into();
        assert_eq!(token.permissions, requested);
        assert_eq!(token.repositories, ["acme/widgets"]);
        assert_eq!((github.tokens().len(), token.revoked), (number + 1, false));
        let inside = fixture.answer("echo $GITHUB_TOKEN $GH_TOKEN $GIT_TOKEN; env").await;
        let placeholder = inside.split(' ').next().unwrap();
        assert!(placeholder.starts_with("ghs_") && placeholder.len() == token.text.len(), "{inside}");
        assert!(inside.starts_with(&format!("{placeholder} {placeholder} {placeholder}\n")), "{inside}");
        assert!(!inside.contains(&token.text) && !inside.contains("PRIVATE KEY"), "{inside}");
        fixture.dispose().await;
        assert!(github.tokens().pop().unwrap().revoked);
        let mut events = world.events(&fixture);
        events.retain(|event| !event["kind"].as_str().is_some_and(|kind| kind.starts_with("command_")));
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
        assert_eq!(kinds, ["sandbox_started", "token_minted", "token_revoked", "sandbox_ended"]);
        assert_eq!(events[1]["profile"], profile.as_str());
        assert_eq!(events[2]["error"], serde_json::Value::Null);
        assert!(!serde_json::to_string(&events).unwrap().contains(&token.text));
    }
    assert_eq!(github.complaints(), [""; 0]);
}

async fn an_app_that_is_refused_starts_nothing(backend: BackendName) {
    let (world, github) = (World::new([]), GitHub::start(3600));
    let read = |repositories: &[&str]| grant(&github, GitHubProfile::Read, repositories);
    let unknown = read(&["acme/secret-plans"]);
    let mut stranger = read(&[]);
    stranger.app.app = 1;
    let mut nowhere = read(&[]);
    nowhere.app.api = "http://127.0.0.1:1".into();
    let mut keyless = read(&[]);
    keyless.app.key = "secret:none".parse().unwrap();
    for (grant, says) in [
        (unknown, "There is at least one repository that does not exist or is not accessible (status 422)"),
        (stranger, "'Issuer' claim ('iss') must be this App (status 401)"),
        (nowhere, "cannot connect to 127.0.0.1"),
        (keyless, "there is no secret `secret:none`"),
        // The name is of a repository that there is, of another owner.
        (read(&["evil/widgets"]), "GitHub gave a token for `acme/widgets`, which was not asked for"),
    ] {
        let error = make(&world, &github, backend, grant).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::SecretFailed);
        assert!(error.message.contains(says), "{error}");
        assert!(error.hint.is_some_and(|hint| hint != Hint::default()));
    }
    assert_eq!(world.records().read_dir().unwrap().count(), 0, "nothing was started");
    assert!(github.tokens().iter().all(|token| token.revoked), "what came by mistake was given back");
}

async fn a_token_of_a_sandbox_that_never_started_is_given_back(backend: BackendName) {
    let (world, github) = (World::new([]), GitHub::start(3600));
    let granted = grant(&github, GitHubProfile::Read, &[]);
    let engine = engine(&world, &github);
    let made = SandboxFixture::made_by(&engine, backend, |spec| {
        with_token(spec, granted);
        spec.workspace = Some("/nowhere/at/all".into());
    });
    assert!(made.await.is_err());
    let tokens = github.tokens();
    assert_eq!((tokens.len(), tokens[0].revoked), (1, true));
}

async fn the_apps_key_is_inside_only_where_both_gates_are_open(backend: BackendName) {
    let (world, github) = (World::new([]), GitHub::start(3600));
    for is_open in [false, true] {
        let mut granted = grant(&github, GitHubProfile::RepoWrite, &["acme/widgets"]);
        granted.danger_forward_key = is_open;
        let fixture = make(&world, &github, backend, granted).await.unwrap();
        let inside = fixture.answer("printf '%s\\n' \"$GITHUB_APP_PRIVATE_KEY\"; env").await;
        assert_eq!(inside.starts_with(github.key_pem().trim_end()), is_open);
        assert_eq!(inside.contains("PRIVATE KEY"), is_open);
        let events = world.events(&fixture);
        let forwarded: Vec<_> = events.iter().filter(|event| event["kind"] == "secret_forwarded").collect();
        assert_eq!(forwarded.len(), usize::from(is_open));
        assert!(forwarded.iter().all(|event| event["variable"] == "GITHUB_APP_PRIVATE_KEY"), "{forwarded:?}");
        assert_eq!(events[0]["loosened"].to_string().contains("key"), is_open, "{}", events[0]);
        assert!(!serde_json::to_string(&events).unwrap().contains("PRIVATE KEY-"));
    }
}

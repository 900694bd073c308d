//! Git over https, with a token that the sandbox never had: to a real `git http-backend`, behind what GitHub would allow.

use belljar_engine::Engine;
use belljar_spec::secret::{
    Bodies, Credential, CredentialLocation, GitHubApp, GitHubGrant, GitHubProfile, SecretSource,
};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{GitHub, HttpServer, Request, Response, have, http_backend};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

for_every_isolated_backend! {
    everywhere:
        a_push_works_with_a_token_that_the_sandbox_never_had;
    once:
        a_profile_that_only_reads_cannot_push,
        a_token_is_renewed_while_the_sandbox_runs,
        a_token_serves_until_it_is_about_to_end;
}

/// GitHub: its API for Apps, and git at `git.test`.
struct Forge {
    world: World,
    github: GitHub,
    git: HttpServer,
    repositories: TempDir,
}

fn forge(life: u64) -> Forge {
    let world = World::new([("git.test", "127.0.0.1")]);
    let github = GitHub::start(life);
    let repositories = TempDir::new().unwrap();
    for arguments in [
        &["init", "-q", "--bare", "-b", "main", "acme/widgets"][..],
        &["-C", "acme/widgets", "config", "http.receivepack", "true"],
    ] {
        let done = Command::new("git").args(arguments).current_dir(repositories.path()).status().unwrap();
        assert!(done.success());
    }
    let (root, may) = (repositories.path().to_path_buf(), github.judge());
    let leaf = world.authority.leaf(["git.test"]);
    let git = HttpServer::start_tls(LOOPBACK, &leaf, move |request| guarded(&root, request, &may));
    Forge { world, github, git, repositories }
}

/// As GitHub does it: a token as the password, and a push only with the permission to write.
fn guarded(root: &Path, request: &Request, may: &impl Fn(&str, &str, &str, &str) -> bool) -> Response {
    let refused = || Response {
        status: 401,
        headers: vec![("www-authenticate".into(), "Basic realm=\"GitHub\"".into())],
        ..Response::ok("")
    };
    let Some(token) = request.header("authorization").and_then(password) else { return refused() };
    let access = if request.target.contains("git-receive-pack") { "write" } else { "read" };
    let known = may(&token, "acme/widgets", "contents", "read");
    match (known, may(&token, "acme/widgets", "contents", access)) {
        (false, _) => refused(),
        (true, false) => Response { status: 403, ..Response::ok("Write access to repository not granted.") },
        (true, true) => http_backend(root, request),
    }
}

fn password(authorization: &str) -> Option<String> {
    let coded = authorization.strip_prefix("Basic ")?;
    let output =
        Command::new("sh").args(["-c", "printf %s \"$1\" | base64 -d", "sh", coded]).output().ok()?;
    let pair = String::from_utf8(output.stdout).ok()?;
    Some(pair.strip_prefix("x-access-token:")?.to_string())
}

async fn fixture_with(forge: &Forge, backend: BackendName, profile: GitHubProfile) -> SandboxFixture {
    let drawer = Drawer::with([("secret:app", forge.github.key_pem())]);
    let engine = Engine::new().with_records(forge.world.records()).with_secrets(drawer);
    let port = forge.git.port();
    let mut policy = forge.world.policy([format!("git.test:{port}/tls")]);
    policy.authorities = forge.world.authority.pem().into_bytes();
    let made = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(policy);
        // The token is what is tried here, not the rules for branches.
        spec.pushes.branches = vec!["*".parse().unwrap()];
        spec.credentials = vec![Credential {
            name: "github".parse().unwrap(),
            source: SecretSource::GitHubApp,
            bindings: vec![binding("git.test", port, [CredentialLocation::basic("x-access-token").unwrap()])],
            variables: vec!["GITHUB_TOKEN".parse().unwrap()],
            bodies: Bodies::Watched,
        }];
        spec.github = Some(GitHubGrant {
            app: GitHubApp {
                app: GitHub::APP,
                installation: GitHub::INSTALLATION,
                key: "secret:app".parse().unwrap(),
                api: forge.github.url(),
                host: "git.test".parse().unwrap(),
            },
            profile,
            repositories: vec!["acme/widgets".parse().unwrap()],
            danger_forward_key: false,
        });
    });
    made.await.unwrap_or_else(|error| panic!("no sandbox: {error}"))
}

/// A commit, and what git says to a push of it to `url`.
fn push(url: &str) -> String {
    format!(
        "export GIT_TERMINAL_PROMPT=0
        rm -rf w && git init -q -b main w && cd w && git config user.name a && git config user.email a@b
        date > file && head -c 3000000 /dev/urandom > large && git add file large && git commit -q -m 'from inside' && git push {url} main 2>&1; echo code $?"
    )
}

fn commits(forge: &Forge) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-C", "acme/widgets", "log", "--format=%s", "main"])
        .current_dir(forge.repositories.path())
        .output()
        .unwrap();
    text(&output.stdout).trim_end().to_string()
}

async fn a_push_works_with_a_token_that_the_sandbox_never_had(backend: BackendName) {
    if !have(["git"]) {
        return;
    }
    let forge = forge(3600);
    let fixture = fixture_with(&forge, backend, GitHubProfile::RepoWrite).await;
    let port = forge.git.port();
    let printed = fixture.answer(&push(&format!("https://git.test:{port}/acme/widgets"))).await;
    assert!(printed.ends_with("code 0"), "{printed}");
    assert_eq!(commits(&forge), "from inside");
    // With the placeholder where people put a token.
    let url = format!("https://x-access-token:$GITHUB_TOKEN@git.test:{port}/acme/widgets");
    let printed = fixture.answer(&format!("git clone -q {url} c && git -C c log --format=%s")).await;
    assert_eq!(printed, "from inside");
    assert_eq!(forge.github.tokens().len(), 1, "one serves every request");
    let token = forge.github.tokens().pop().unwrap().text;
    let kept = fixture
        .answer("env; grep -rs . /workspace /home/agent /tmp --include=config --include='.git*' | head -100")
        .await;
    assert!(!kept.contains(&token), "{kept}");
    fixture.dispose().await;
    assert!(forge.github.tokens().iter().all(|token| token.revoked));
    let record = serde_json::to_string(&forge.world.events(&fixture)).unwrap();
    assert!(record.contains("credential_used") && !record.contains(&token));
}

async fn a_profile_that_only_reads_cannot_push(backend: BackendName) {
    if !have(["git"]) {
        return;
    }
    let forge = forge(3600);
    let url = format!("https://git.test:{}/acme/widgets", forge.git.port());
    let writer = fixture_with(&forge, backend, GitHubProfile::RepoWrite).await;
    assert!(writer.answer(&push(&url)).await.ends_with("code 0"));
    for profile in [GitHubProfile::Read, GitHubProfile::IssuesWrite, GitHubProfile::ReviewWrite] {
        let fixture = fixture_with(&forge, backend, profile).await;
        assert_eq!(
            fixture.answer(&format!("git clone -q {url} c && git -C c log --format=%s")).await,
            "from inside"
        );
        // It is the token itself that cannot: no rule of ours is asked.
        let printed = fixture.answer(&push(&url)).await;
        assert!(printed.contains("403") && !printed.ends_with("code 0"), "{profile}: {printed}");
    }
    assert_eq!(commits(&forge), "from inside");
}

async fn a_token_is_renewed_while_the_sandbox_runs(backend: BackendName) {
    if !have(["git"]) {
        return;
    }
    // With less than five minutes to live, a token is not begun with.
    let forge = forge(240);
    let fixture = fixture_with(&forge, backend, GitHubProfile::RepoWrite).await;
    let url = format!("https://git.test:{}/acme/widgets", forge.git.port());
    assert!(fixture.answer(&push(&url)).await.ends_with("code 0"));
    let tokens = forge.github.tokens();
    assert!(tokens.len() > 2, "each request had a new one: {}", tokens.len());
    let sent: Vec<String> = forge
        .git
        .requests()
        .iter()
        .filter_map(|request| password(request.header("authorization")?))
        .collect();
    assert!(sent.windows(2).all(|pair| pair[0] != pair[1]), "{sent:?}");
    fixture.dispose().await;
    assert!(forge.github.tokens().iter().all(|token| token.revoked));
    assert_eq!(forge.github.complaints(), [""; 0]);
}

/// How tokens are kept is the same with every backend, and takes a while to test.
async fn a_token_serves_until_it_is_about_to_end(backend: BackendName) {
    if backend != BackendName::Native || !have(["git"]) {
        return;
    }
    // For ten seconds it has five minutes to live and more.
    let forge = forge(310);
    let begun = Instant::now();
    let fixture = fixture_with(&forge, backend, GitHubProfile::Read).await;
    let ask = format!("git ls-remote https://git.test:{}/acme/widgets 2>&1", forge.git.port());
    let twice = format!("{ask}; {ask}");
    fixture.answer(&twice).await;
    let first = forge.github.tokens();
    if begun.elapsed() < Duration::from_secs(9) {
        assert_eq!(first.len(), 1, "it serves every request");
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    fixture.answer(&twice).await;
    let tokens = forge.github.tokens();
    assert!(tokens.len() > first.len(), "it was renewed with less than five minutes left");
    let last =
        forge.git.requests().iter().rev().find_map(|request| password(request.header("authorization")?));
    assert_eq!(last.as_ref(), tokens.last().map(|token| &token.text), "and the new one is used");
    // No new one can be minted: the old one is still valid, and stays in use.
    forge.github.go_down();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let printed = fixture.answer(&ask).await;
    assert!(!printed.contains("fatal"), "{printed}");
    assert_eq!(forge.github.tokens().len(), tokens.len());
}

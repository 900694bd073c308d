//! Requests with a placeholder arrive with the real value, at the one place where that belongs, and nothing of it comes
//! back.

use belljar_engine::Engine;
use belljar_spec::FetchRequest;
use belljar_spec::secret::{Credential, CredentialLocation};
use belljar_spec::{ErrorCode, Reason};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{HttpServer, Request, Response, have};
use std::sync::Arc;

for_every_isolated_backend! {
    everywhere:
        a_placeholder_arrives_as_the_real_key,
        a_forwarded_secret_is_inside_and_on_the_record;
    once:
        a_client_without_the_placeholder_gets_no_key,
        every_location_is_replaced,
        a_key_of_the_clients_own_is_left_alone,
        a_secret_that_changed_counts_for_the_next_request,
        a_secret_that_is_gone_is_a_refusal_that_says_so,
        what_a_server_echoes_is_redacted,
        a_stream_of_events_is_redacted_as_it_comes,
        a_secret_that_cannot_be_read_starts_nothing,
        a_variable_that_is_set_twice_starts_nothing,
        uses_are_on_the_record,
        a_fetch_by_the_host_gets_no_key;
}

pub(crate) const KEY: &str = "sk-real-0123456789abcdefABCDEF+/=";

/// A server at `api.test`, and a sandbox that may use a key there.
struct Scene {
    world: World,
    server: HttpServer,
    drawer: Arc<Drawer>,
    fixture: SandboxFixture,
}

async fn scene(
    backend: BackendName,
    locations: impl IntoIterator<Item = CredentialLocation>,
    handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Scene {
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = HttpServer::start_tls(LOOPBACK, &world.authority.leaf(["api.test"]), handler);
    let drawer = Drawer::with([("secret:model", KEY)]);
    let mut credential = credential("model", "api.test", server.port(), []);
    credential.bindings[0].locations = locations.into_iter().collect();
    let fixture = made(&world, backend, &drawer, server.port(), vec![credential]).await;
    Scene { world, server, drawer, fixture }
}

pub(crate) async fn made(
    world: &World,
    backend: BackendName,
    drawer: &Arc<Drawer>,
    port: u16,
    credentials: Vec<Credential>,
) -> SandboxFixture {
    let engine = Engine::new().with_records(world.records()).with_secrets(Arc::clone(drawer) as _);
    let mut policy = world.policy([format!("api.test:{port}/tls")]);
    policy.authorities = world.authority.pem().into_bytes();
    let fixture = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(policy);
        spec.credentials = credentials;
    });
    fixture.await.unwrap_or_else(|error| panic!("no sandbox: {error}"))
}

impl Scene {
    /// What curl got.
    async fn curl(&self, arguments: &str) -> String {
        let port = self.server.port();
        self.fixture.answer(&format!("curl -sS https://api.test:{port}/v1/x {arguments}")).await
    }

    async fn placeholder(&self) -> String {
        self.fixture.answer("printf %s \"$MODEL_KEY\"").await
    }

    fn last(&self, header: &str) -> Option<String> {
        self.server.requests().last().unwrap().header(header).map(String::from)
    }
}

pub(crate) fn x_api_key() -> CredentialLocation {
    CredentialLocation::header("x-api-key").unwrap()
}

fn ok(_: &Request) -> Response {
    Response::ok("fine")
}

async fn a_placeholder_arrives_as_the_real_key(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key(), CredentialLocation::Bearer], ok).await;
    let placeholder = scene.placeholder().await;
    assert!(placeholder.len() == KEY.len() && placeholder.starts_with("sk-") && placeholder != KEY);
    assert_eq!(scene.curl("-H \"x-api-key: $MODEL_KEY\"").await, "fine");
    assert_eq!(scene.last("x-api-key").as_deref(), Some(KEY));
    assert_eq!(scene.last("accept-encoding").as_deref(), Some("identity"));
    assert_eq!(scene.curl("-H \"Authorization: Bearer $MODEL_KEY\"").await, "fine");
    assert_eq!(scene.last("authorization"), Some(format!("Bearer {KEY}")));
    let port = scene.server.port();
    let script = format!(
        "
import urllib.request
request = urllib.request.Request('https://api.test:{port}/v1/x', headers={{'x-api-key': os.environ['MODEL_KEY']}}, data=b'{{}}')
print(urllib.request.urlopen(request).read().decode())"
    );
    assert_eq!(scene.fixture.python(&script).await, "fine");
    assert_eq!(scene.last("x-api-key").as_deref(), Some(KEY));
}

async fn a_client_without_the_placeholder_gets_no_key(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key(), CredentialLocation::Bearer], ok).await;
    assert_eq!(scene.curl("").await, "fine");
    assert_eq!((scene.last("x-api-key"), scene.last("authorization")), (None, None));
}

async fn every_location_is_replaced(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let basic = scene(backend, [CredentialLocation::basic("x-access-token").unwrap()], ok).await;
    // The pair as base64, which Python's own library reads.
    let decoded = |header: Option<String>| {
        let text = header.unwrap().strip_prefix("Basic ").unwrap().to_string();
        let script = format!("import base64; print(base64.b64decode('{text}').decode())");
        let output = std::process::Command::new("/usr/bin/python3").args(["-c", &script]).output().unwrap();
        text_of(&output.stdout)
    };
    basic.curl("-u \"me:$MODEL_KEY\"").await;
    assert_eq!(decoded(basic.last("authorization")), format!("me:{KEY}"));
    basic.curl("-u \"$MODEL_KEY:x-oauth-basic\"").await;
    assert_eq!(decoded(basic.last("authorization")), format!("{KEY}:x-oauth-basic"));
    let query = scene(backend, [CredentialLocation::query("key").unwrap()], ok).await;
    query.curl("-G --data-urlencode a=b --data-urlencode \"key=$MODEL_KEY\"").await;
    let target = |scene: &Scene| scene.server.requests().last().unwrap().target.clone();
    assert_eq!(target(&query), "/v1/x?a=b&key=sk-real-0123456789abcdefABCDEF%2B%2F%3D");
}

fn text_of(bytes: &[u8]) -> String {
    text(bytes).trim_end().to_string()
}

async fn a_key_of_the_clients_own_is_left_alone(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key(), CredentialLocation::Bearer], ok).await;
    assert_eq!(scene.curl("-H 'Authorization: Bearer mine'").await, "fine");
    assert_eq!(
        (scene.last("authorization").as_deref(), scene.last("x-api-key")),
        (Some("Bearer mine"), None)
    );
}

async fn a_secret_that_changed_counts_for_the_next_request(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key()], |request| {
        Response::ok(format!(
            "you sent {} and before {KEY}",
            request.header("x-api-key").unwrap_or("nothing")
        ))
    })
    .await;
    scene.curl("-H \"x-api-key: $MODEL_KEY\"").await;
    scene.drawer.set("secret:model", "sk-second-9876543210");
    let answer = scene.curl("-H \"x-api-key: $MODEL_KEY\"").await;
    assert_eq!(scene.last("x-api-key").as_deref(), Some("sk-second-9876543210"));
    assert!(answer.starts_with("you sent sk-"), "{answer}");
    assert!(!answer.contains("9876543210") && !answer.contains("0123456789"), "{answer}");
}

async fn a_secret_that_is_gone_is_a_refusal_that_says_so(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key()], ok).await;
    scene.drawer.remove("secret:model");
    let answer = scene.curl("-H \"x-api-key: $MODEL_KEY\" -w ' %{http_code}'").await;
    assert!(answer.contains("secret_unavailable"), "{answer}");
    assert_eq!(scene.server.requests().len(), 0);
}

async fn what_a_server_echoes_is_redacted(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    for chunks in [None, Some(1), Some(7), Some(1000)] {
        let scene = scene(backend, [x_api_key(), CredentialLocation::basic("me").unwrap()], move |request| {
            let sent = |name: &str| request.header(name).unwrap_or_default().to_string();
            let (key, pair) = (sent("x-api-key"), sent("authorization"));
            let status = if request.target.ends_with("wrong") { 401 } else { 200 };
            Response {
                status,
                headers: vec![("x-echo".into(), format!("{key}{pair}"))],
                chunks,
                ..Response::ok(format!("{{\"error\":\"bad key {key}{pair}\"}} {}", "and more. ".repeat(200)))
            }
        })
        .await;
        let placeholder = scene.placeholder().await;
        for target in ["", "--next -sS https://api.test:PORT/wrong"] {
            let target = target.replace("PORT", &scene.server.port().to_string());
            let key = scene.curl(&format!("-i -H \"x-api-key: $MODEL_KEY\" {target}")).await;
            assert!(!key.contains("0123456789"), "{chunks:?} {key}");
            assert!(key.contains(&format!("bad key {placeholder}")), "{chunks:?} {key}");
            assert!(key.contains(&format!("x-echo: {placeholder}")), "{chunks:?} {key}");
            assert!(key.ends_with("and more. ".trim_end()) || key.ends_with("and more. "), "{chunks:?}");
        }
        let pair = scene.curl("-i -u \"somebody:$MODEL_KEY\"").await;
        let encoded = scene.last("authorization").unwrap();
        // All of the value but four bits at each end, which belong to its neighbours too.
        let middle = &encoded[encoded.len() - 40..encoded.len() - 4];
        assert!(!pair.contains(middle), "{chunks:?} {pair}");
    }
}

async fn a_stream_of_events_is_redacted_as_it_comes(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key()], |_| Response {
        chunks: Some(13),
        headers: vec![("content-type".into(), "text/event-stream".into())],
        ..Response::ok(format!("data: 1\n\ndata: {KEY}\n\ndata: sk-real-0123\n\n"))
    })
    .await;
    let placeholder = scene.placeholder().await;
    let answer = scene.curl("-N").await;
    assert_eq!(answer.trim_end(), format!("data: 1\n\ndata: {placeholder}\n\ndata: sk-real-0123"));
}

async fn a_secret_that_cannot_be_read_starts_nothing(backend: BackendName) {
    let world = World::new([]);
    let engine = Engine::new().with_records(world.records()).with_secrets(Drawer::with([]));
    let made = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(world.policy([]));
        spec.credentials = vec![credential("model", "api.test", 443, [CredentialLocation::Bearer])];
    });
    let error = made.await.err().unwrap();
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::SecretFailed, "there is no secret `secret:model`")
    );
    assert_eq!(error.hint.as_ref().map(|hint| hint.to_string()).as_deref(), Some("keep one"));
    assert_eq!(world.records().read_dir().unwrap().count(), 0);
}

async fn a_variable_that_is_set_twice_starts_nothing(backend: BackendName) {
    let world = World::new([]);
    let engine =
        Engine::new().with_records(world.records()).with_secrets(Drawer::with([("secret:model", KEY)]));
    let made = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(world.policy([]));
        spec.env = vec![("MODEL_KEY".parse().unwrap(), "mine".into())];
        spec.credentials = vec![credential("model", "api.test", 443, [CredentialLocation::Bearer])];
    });
    assert_eq!(made.await.err().unwrap().code, ErrorCode::RequestConflict);
}

async fn a_forwarded_secret_is_inside_and_on_the_record(backend: BackendName) {
    let world = World::new([]);
    let engine =
        Engine::new().with_records(world.records()).with_secrets(Drawer::with([("secret:model", KEY)]));
    let fixture = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.forwarded = vec![belljar_spec::secret::Forwarded {
            variable: "REAL".parse().unwrap(),
            source: "secret:model".parse().unwrap(),
        }];
    });
    let fixture = fixture.await.unwrap();
    assert_eq!(fixture.answer("printf %s \"$REAL\"").await, KEY);
    let events = world.events(&fixture);
    let forwarded = events.iter().find(|event| event["kind"] == "secret_forwarded").unwrap();
    assert_eq!((&forwarded["variable"], &forwarded["source"]), (&"REAL".into(), &"secret:model".into()));
    assert!(events[0]["loosened"].to_string().contains("the real value of secret:model is inside"));
    assert!(!serde_json::to_string(&events).unwrap().contains(KEY));
}

async fn uses_are_on_the_record(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let scene = scene(backend, [x_api_key()], ok).await;
    let port = scene.server.port();
    scene
        .fixture
        .answer(&format!("for i in 1 2 3 4 5 6 7 8 9 10 11; do curl -sS -H \"x-api-key: $MODEL_KEY\" https://api.test:{port}/v1/$i; done"))
        .await;
    scene.fixture.dispose().await;
    let events = scene.world.events(&scene.fixture);
    let used: Vec<_> = events.iter().filter(|event| event["kind"] == "credential_used").collect();
    let seen: Vec<_> = used
        .iter()
        .map(|event| (event["times"].as_u64().unwrap(), event["path"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, [(1, "/v1/1"), (10, "/v1/10")]);
    assert_eq!((&used[0]["credential"], &used[0]["name"]), (&"model".into(), &"api.test".into()));
    assert!(!serde_json::to_string(&events).unwrap().contains(KEY));
}

async fn a_fetch_by_the_host_gets_no_key(backend: BackendName) {
    let scene = scene(backend, [x_api_key()], ok).await;
    let mut request = FetchRequest::get(format!("https://api.test:{}/v1/x", scene.server.port()));
    request.trust = scene.world.authority.pem().into_bytes();
    let answer = scene.fixture.fetch(request).await.unwrap();
    assert_eq!((answer.status, scene.last("x-api-key")), (200, None));
    // Nor does it carry a placeholder anywhere.
    let placeholder = scene.placeholder().await;
    let url = format!("https://api.test:{}/v1/x", scene.server.port());
    let mut in_header = FetchRequest::get(&url);
    in_header.headers = vec![("x-api-key".into(), placeholder.clone())];
    let mut in_body = FetchRequest::get(&url);
    (in_body.method, in_body.body) = ("POST".into(), placeholder.into_bytes());
    for mut request in [in_header, in_body] {
        request.trust = scene.world.authority.pem().into_bytes();
        let error = scene.fixture.fetch(request).await.unwrap_err();
        assert_eq!(refused_for(&error), Some(Reason::PlaceholderElsewhere));
    }
    assert_eq!(scene.server.requests().len(), 1);
}

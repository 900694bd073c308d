//! The route to a model: whatever a program says to loopback arrives at one upstream, with our key and our bill, and its
//! answer comes back as it is said.

use belljar_engine::Engine;
use belljar_spec::egress::EgressPolicy;
use belljar_spec::llm::{LlmRoute, UpstreamKind};
use belljar_spec::{BackendName, ErrorCode, SandboxError};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Model, Response};
use std::sync::Arc;
use std::thread;

for_every_isolated_backend! {
    everywhere:
        both_loopback_addresses_lead_to_the_model,
        a_sandbox_with_a_model_and_no_network_has_nothing_else;
    each_launcher:
        an_answer_arrives_as_it_is_said,
        a_model_is_there_beside_what_policy_allows,
        programs_are_told_where_the_model_is,
        the_port_can_be_another;
    once:
        the_key_and_the_bill_are_ours,
        every_dialect_is_served_and_counted,
        another_key_counts_from_the_next_call,
        a_key_that_is_gone_stops_the_next_call,
        a_key_that_the_upstream_does_not_take_ends_the_matter,
        a_web_socket_is_declined_at_once,
        a_large_question_arrives_whole,
        an_upstream_is_verified,
        an_upstream_that_is_not_there_is_a_bad_gateway,
        an_answer_that_echoes_the_key_is_blotted;
}

async fn an_answer_arrives_as_it_is_said(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    to.model.hold();
    let (model, folder) = (Arc::clone(&to.model), to.fixture.on_host().to_path_buf());
    // The next event leaves the server only after the client has told us, through a file, that it read the one before.
    let server = thread::spawn(move || {
        for number in 1..=8 {
            model.release(1);
            let seen = folder.join(format!("seen-{number}"));
            wait_until("the client to see an event", || seen.exists());
        }
    });
    let printed = to
        .ask(
            "
client = http.client.HTTPConnection('127.0.0.1', 14180, timeout=25)
client.request('POST', '/v1/messages', json.dumps(message(stream=True)), {'content-type': 'application/json'})
response = client.getresponse()
for number in range(1, 9):
    event = b''
    while not event.endswith(b'\\n\\n'): event += response.read1(1)
    print(event.decode().split('\\n')[0][7:], end=' ')
    open('seen-%d' % number, 'w').close()
print(response.read(), response.getheader('content-type'))",
        )
        .await;
    assert_eq!(
        printed,
        "message_start content_block_start content_block_delta content_block_delta content_block_delta content_block_stop message_delta message_stop b'' text/event-stream; charset=utf-8"
    );
    server.join().unwrap();
}

async fn the_key_and_the_bill_are_ours(backend: BackendName) {
    let to = routed(backend, UpstreamKind::LiteLlm, |route| {
        route.billing.end_user = Some("account-7".into());
        route.billing.session_id = Some("it's \"quoted\"".into());
    })
    .await;
    let printed = to
        .ask(
            "
forged = {'Authorization': 'Bearer mine', 'X-Api-Key': 'mine', 'x-goog-api-key': 'mine', 'Api-Key': 'mine',
    'Cookie': 'a=b', 'Proxy-Authorization': 'mine', 'X-LiteLLM-End-User-Id': 'other', 'x-litellm-tags': 'x',
    'x-litellm-spend-logs-metadata': '{\"run_id\":\"other\"}', 'X-LITELLM-TRACE-ID': 'x', 'x-litellm-call-id': 'x',
    'x-model': 'a litellm_call_id=- litellm_response_cost=0', 'User-Agent': 'cli/1', 'anthropic-beta': 'b'}
body = {'model': 'm', 'user': 'other', 'metadata': {'spend_logs_metadata': {'run_id': 'other'}}, 'messages': []}
print(ask('/v1/chat/completions', body, forged)[0])",
        )
        .await;
    assert_eq!(printed, "200");
    let request = &to.model.requests()[0];
    let mut headers: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    headers.sort_unstable();
    assert_eq!(
        headers,
        [
            "accept-encoding",
            "anthropic-beta",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-litellm-end-user-id",
            "x-litellm-spend-logs-metadata"
        ]
    );
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(request.header("host"), Some(to.model.authority().as_str()));
    assert_eq!(request.header("x-litellm-end-user-id"), Some("account-7"));
    let metadata: serde_json::Value =
        serde_json::from_str(request.header("x-litellm-spend-logs-metadata").unwrap()).unwrap();
    assert_eq!(
        metadata,
        serde_json::json!({ "run_id": to.fixture.id(), "attempt": 0, "session_id": "it's \"quoted\"" })
    );
    assert_eq!(request.body, br#"{"model":"m","messages":[]}"#.to_vec());
}

async fn every_dialect_is_served_and_counted(backend: BackendName) {
    let to = routed(backend, UpstreamKind::LiteLlm, |_| {}).await;
    let printed = to
        .ask(
            "
for path in ['/v1/messages', '/messages', '/v1/chat/completions', '/chat/completions', '/v1/responses',
        '/v1beta/models/claude-test:generateContent', '/v1beta/models/claude-test:streamGenerateContent?alt=sse&key=mine']:
    for stream in [False, True]:
        status, text = ask(path, message(stream=stream))
        assert status == 200, text
print(ask('/v1/models')[0], ask('/v1/messages/count_tokens', message())[0])",
        )
        .await;
    assert_eq!(printed, "200 200");
    to.fixture.dispose().await;
    let calls = to.events("model_called");
    assert_eq!(calls.len(), 16);
    for call in &calls[..14] {
        let tokens = ["input_tokens", "cache_write", "cache_read", "output_tokens"]
            .map(|name| call[name].as_u64().unwrap());
        let is_google = call["path"].as_str().unwrap().contains("models/");
        let expected = if is_google {
            // Google says nothing of what was written to a cache, and counts thoughts apart.
            [2100, 0, 7, 35]
        } else {
            [100, 2000, 7, 30]
        };
        assert_eq!((tokens, &call["ending"]), (expected, &"finished".into()), "{call}");
        assert!(
            call["message_id"].is_string()
                && call["upstream_id"].is_null() == is_google
                && call["status"] == 200,
            "{call}"
        );
        assert_eq!((&call["model"], &call["estimated"]), (&"claude-test".into(), &false.into()));
    }
    assert!(calls[14..].iter().all(|call| call["cost_source"] == "free" && call["input_tokens"] == 0));
    let totals = to.fixture.llm().unwrap();
    assert_eq!((totals.calls, totals.tokens(), totals.refused), (14, 14 * 2137 + 4 * 5, 0));
    assert_eq!(to.events("model_asked").len(), 16);
    let targets: Vec<String> = to.model.requests().into_iter().map(|request| request.target).collect();
    assert!(targets.iter().all(|target| !target.contains("mine")), "{targets:?}");
    assert_eq!((targets[2].as_str(), targets[6].as_str()), ("/v1/messages", "/v1/chat/completions"));
}

async fn both_loopback_addresses_lead_to_the_model(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    let printed = to
        .ask(
            "
for host in ['127.0.0.1', '::1', 'localhost']:
    print(ask('/v1/messages', message(), host=host)[0], end=' ')
try:
    socket.create_server(('127.0.0.1', 14180), reuse_port=True)
    print('taken')
except OSError as error: print(error.errno == 98)",
        )
        .await;
    assert_eq!(printed, "200 200 200 True");
}

async fn a_sandbox_with_a_model_and_no_network_has_nothing_else(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    let printed = to
        .ask(
            "
print(ask('/v1/messages', message())[0], [line.split()[0] for line in open('/proc/net/route')][1:])
for host in ['example.com', '192.0.2.1', '198.18.0.1']:
    try: socket.create_connection((host, 80), 5); print('reached', host)
    except OSError: pass
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', 53)); s.settimeout(1); s.recv(1)
    print('answered')
except OSError: print('nothing')",
        )
        .await;
    let printed = if has_own_network(backend) {
        printed
    } else {
        format!("200 []{}", &printed[printed.find('\n').unwrap()..])
    };
    assert_eq!(printed, "200 []\nnothing");
    let fetched = to.fixture.fetch(belljar_spec::FetchRequest::get("http://example.com/")).await;
    assert_eq!(fetched.err().map(|error| error.code), Some(ErrorCode::EgressRefused));
}

async fn a_model_is_there_beside_what_policy_allows(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let (model, web) = (model(), belljar_tests_hosts::HttpServer::start(LOOPBACK, |_| Response::ok("web")));
    let engine = Engine::new().with_records(world.records()).with_secrets(Keys::new(KEY));
    let policy = world.policy([format!("api.test:{}/http", web.port()), "api.test:14180/http".into()]);
    let fixture = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(policy);
        spec.llm = Some(LlmRoute::to(model.url().parse().unwrap()));
    });
    let fixture = fixture.await.unwrap();
    let script = format!(
        "
import http.client
def get(host, port, path):
    client = http.client.HTTPConnection(host, port, timeout=25)
    client.request('GET', path)
    response = client.getresponse()
    return response.status, response.read()[:20].decode()
print(get('api.test', {}, '/'), get('127.0.0.1', 14180, '/v1/models'), get('api.test', 14180, '/v1/models')[0])",
        web.port()
    );
    // The port of the route at another host is that host's, and no server listens there.
    assert_eq!(fixture.python(&script).await, "(200, 'web') (200, '{\"data\":[{\"created\":') 502");
    assert_eq!(model.requests().len(), 1);
}

async fn programs_are_told_where_the_model_is(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    let printed = to
        .fixture
        .answer(&format!("echo $OPENAI_BASE_URL $OPENAI_API_BASE $ANTHROPIC_BASE_URL $GOOGLE_GEMINI_BASE_URL; env | grep -c '_API_KEY=sk-'; grep -c 127.0.0.1:14180 {}/network.txt", own_files(backend)))
        .await;
    assert_eq!(
        printed,
        "http://127.0.0.1:14180/v1 http://127.0.0.1:14180 http://127.0.0.1:14180 http://127.0.0.1:14180\n3\n1"
    );
}

async fn another_key_counts_from_the_next_call(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    for key in [KEY, "sk-another-0123456789"] {
        to.keys.set(Some(key));
        assert_eq!(to.ask("print(ask('/v1/messages', message())[0])").await, "200");
        assert_eq!(to.model.requests().last().unwrap().header("x-api-key"), Some(key));
    }
}

async fn a_key_that_is_gone_stops_the_next_call(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    to.keys.set(None);
    let printed = to.ask("print(*ask('/v1/messages', message()))").await;
    assert!(printed.starts_with("400 ") && printed.contains("the key for the model"), "{printed}");
    assert_eq!(to.model.requests().len(), 0);
    assert_eq!(to.events("model_refused")[0]["reason"], "secret_unavailable");
}

async fn a_key_that_the_upstream_does_not_take_ends_the_matter(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    to.model.instead(|_| Some(Response { body: b"no".to_vec(), ..Response::status(401) }));
    let printed = to.ask("print(*ask('/v1/messages', message()))").await;
    assert!(printed.starts_with("400 ") && printed.contains("--llm-key"), "{printed}");
    assert_eq!(to.events("model_called")[0]["status"], 401);
}

async fn a_web_socket_is_declined_at_once(backend: BackendName) {
    let to = routed(backend, UpstreamKind::OpenAi, |_| {}).await;
    let printed = to
        .ask("print(ask('/v1/responses', None, {'Connection': 'Upgrade', 'Upgrade': 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'eA=='})[0])")
        .await;
    assert_eq!((printed.as_str(), to.model.requests().len()), ("426", 0));
}

async fn a_large_question_arrives_whole(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    let printed = to
        .ask("print(ask('/v1/messages', message(x='a' * 20000000))[0], ask('/v1/messages', message(x='a' * 70000000))[0])")
        .await;
    assert_eq!(printed, "200 400");
    let lengths: Vec<usize> = to.model.requests().iter().map(|request| request.body.len()).collect();
    assert!(lengths.len() == 1 && lengths[0] > 20_000_000, "{lengths:?}");
}

async fn an_upstream_is_verified(backend: BackendName) {
    let world = World::new([]);
    let model = Model::start_tls(LOOPBACK, &world.authority.leaf(["localhost"]));
    let port = model.authority().rsplit_once(':').unwrap().1.to_string();
    for (trust, expected) in [(world.authority.pem().as_bytes().to_vec(), "200"), (Vec::new(), "502")] {
        let mut route = LlmRoute::to(format!("https://localhost:{port}").parse().unwrap());
        route.trust = trust;
        let engine = Engine::new().with_records(world.records());
        let fixture = SandboxFixture::made_by(&engine, backend, |spec| spec.llm = Some(route)).await.unwrap();
        let printed =
            fixture.answer("curl -sS -o /dev/null -w '%{http_code}' http://127.0.0.1:14180/v1/models").await;
        assert_eq!(printed, expected);
    }
}

async fn an_upstream_that_is_not_there_is_a_bad_gateway(backend: BackendName) {
    let to =
        routed(backend, UpstreamKind::OpenAi, |route| route.upstream = "http://127.0.0.1:9".parse().unwrap())
            .await;
    let printed = to.ask("print(*ask('/v1/chat/completions', message()))").await;
    assert!(printed.starts_with("502 ") && printed.contains("server_error"), "{printed}");
    let call = &to.events("model_called")[0];
    assert_eq!((&call["status"], &call["cost_source"]), (&0.into(), &"free".into()));
    // What never left is not used up.
    assert_eq!(to.fixture.llm().map(|totals| (totals.calls, totals.refused)), Some((0, 1)));
}

async fn an_answer_that_echoes_the_key_is_blotted(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    to.model.instead(|request| {
        let body = format!("{{\"echo\":\"{}\"}}", request.header("x-api-key").unwrap_or_default());
        let headers = vec![("x-echo".into(), body.clone()), ("set-cookie".into(), "a=b".into())];
        Some(Response { headers, chunks: Some(7), ..Response::ok(body) })
    });
    let script =
        "curl -sS -i $ANTHROPIC_BASE_URL/v1/messages -H content-type:application/json -d '{\"model\":\"m\"}'";
    let printed = to.fixture.answer(script).await;
    assert!(
        printed.contains("echo") && !printed.contains("0123456789") && !printed.contains("set-cookie"),
        "{printed}"
    );
    assert_eq!(printed.matches(&"*".repeat(KEY.len())).count(), 2, "{printed}");
}

async fn the_port_can_be_another(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| route.port = 9999).await;
    let printed =
        to.ask("print(os.environ['ANTHROPIC_BASE_URL'], ask('/v1/messages', message(), port=9999)[0])").await;
    assert_eq!(printed, "http://127.0.0.1:9999 200");
}

#[test]
fn without_isolation_there_is_no_route() {
    run(BackendName::Host, async |backend| {
        let made = SandboxFixture::try_with(backend, |spec| {
            spec.egress = None;
            spec.llm = Some(LlmRoute::to("http://127.0.0.1:9".parse().unwrap()));
        });
        let refused: Option<SandboxError> = made.await.err();
        assert_eq!(refused.map(|error| error.code), Some(ErrorCode::NotSupported));
    });
}

#[test]
fn a_sandbox_without_a_route_has_no_listener() {
    run(BackendName::Native, async |backend| {
        let fixture = SandboxFixture::with(backend, |spec| spec.egress = Some(EgressPolicy::strict())).await;
        assert_eq!(fixture.answer("curl -s http://127.0.0.1:14180/ || echo $?").await, "7");
        assert!(fixture.llm().is_none());
    });
}

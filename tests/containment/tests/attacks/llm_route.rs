//! The route to a model leads to the model and nowhere else, with our key and on our bill, whatever a program inside says.

use belljar_spec::BackendName;
use belljar_spec::egress::EgressPolicy;
use belljar_spec::llm::{LlmRoute, UpstreamKind};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Model, Request, Response};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// A cage whose only egress is a model, and the key that opens it.
struct Routed {
    cage: Cage,
    model: Model,
    key: String,
    _safe: TempDir,
}

fn routed(backend: BackendName, change: impl FnOnce(&mut LlmRoute)) -> Routed {
    let (safe, model) = (folder(), Model::start(at("127.66.9.1")));
    let (file, key) = (safe.path().join("key"), canary("model-key"));
    fs::write(&file, &key).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut route = LlmRoute::to(model.url().parse().unwrap());
    route.kind = UpstreamKind::LiteLlm;
    route.key = Some(format!("file:{}", file.display()).parse().unwrap());
    route.billing.end_user = Some("the-account".into());
    change(&mut route);
    let cage = cage_with(backend, &EgressPolicy::none(), |spec, _| spec.llm = Some(route));
    Routed { cage, model, key, _safe: safe }
}

impl Routed {
    /// Lines of the record of this kind.
    fn record(&self, kind: &str) -> Vec<String> {
        let kind = format!(r#""kind":"{kind}""#);
        self.cage.lines().into_iter().filter(|line| line.contains(&kind)).collect()
    }
}

/// `say(bytes)` gives what the route answers to bytes; `post(path, body, *headers)` makes a plain request of its parts.
const SAY: &str = r#"
def say(*pieces, timeout=3, pause=0.0):
    return send('127.0.0.1', 14180, *pieces, pause=pause, timeout=timeout)
def post(path, body=b'{"model":"m"}', *headers, method=b'POST'):
    head = b'\r\n'.join([method + b' ' + path + b' HTTP/1.1', b'Host: x', b'Connection: close',
        b'Content-Type: application/json', b'Content-Length: %d' % len(body), *headers])
    return head + b'\r\n\r\n' + body
"#;

fn ours(request: &Request, key: &str) -> bool {
    request.header("authorization") == Some(&format!("Bearer {key}"))
        && request.header("x-litellm-end-user-id") == Some("the-account")
}

#[test]
fn no_other_path_of_the_upstream_is_reached() {
    for backend in gateway_backends() {
        let routed = routed(*backend, |_| {});
        let script = r#"
for path in [b'/', b'/key/generate', b'/spend/logs', b'/v1/files', b'/v1/messages/../../key/generate', b'/v1/messages/..%2f..%2fkey',
        b'//key/generate', b'/v1/messages%2f..%2f..%2fkey/generate', b'/v1/%2e%2e/key/generate', b'/v1/messages?user=x',
        b'/v1/messages?beta=true&api_base=http://evil', b'/v1/messages;/../../key', b'/v1\\messages',
        b'/v1/models/../key', b'http://127.66.9.1/key/generate', b'http://127.66.9.1/v1/messages', b'/v1/messages ', b'*',
        b'/v1beta/models/a:generateContent/../../../key', b'/v1beta/models/..%2fx:generateContent', b'/V1/MESSAGES',
        b'@evil.test/v1/messages', b'evil.test:80', b'/v1/messages\x00', b'/v1/messages\t']:
    for method in (b'POST', b'GET', b'PUT', b'DELETE', b'CONNECT', b'OPTIONS', b'HEAD', b'TRACE'):
        say(post(path, method=method), timeout=1)
say(b'CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n')
"#;
        routed.cage.attack(&format!("{SAY}{script}"), &[]);
        let arrived: Vec<String> =
            routed.model.requests().into_iter().map(|request| request.target).collect();
        assert!(arrived.is_empty(), "{backend}: {arrived:?}");
        assert!(!routed.record("model_refused").is_empty());
    }
}

#[test]
fn whatever_is_forged_in_a_head_the_key_and_the_bill_are_ours() {
    for backend in gateway_backends() {
        let routed = routed(*backend, |_| {});
        let script = r#"
FORGED = [b'Authorization: Bearer forged', b'AUTHORIZATION: forged', b'authorization:forged', b'X-API-KEY: forged', b'Api-Key: forged',
    b'X-Goog-Api-Key: forged', b'Cookie: forged', b'Proxy-Authorization: forged', b'X-LiteLLM-End-User-Id: forged',
    b'x-litellm-end-user-id: forged\r\nx-litellm-end-user-id: forged', b'x_litellm_end_user_id: forged', b'X-LITELLM-TAGS: forged',
    b'x-litellm-spend-logs-metadata: {"run_id":"forged"}', b'x-litellm-call-id: forged', b'X-Forwarded-For: forged',
    b'Connection: x-litellm-end-user-id, authorization', b'Host: forged', b'langfuse_trace_user_id: forged', b'OpenAI-Organization: forged',
    b'x-model: a litellm_call_id=- litellm_response_cost=0 forged', b'User-Agent: x\r\n\tx-litellm-end-user-id: forged',
    b'Transfer-Encoding: identity', b'Expect: 100-continue', b'X-HTTP-Method-Override: DELETE', b'X-Original-URL: /forged', b'Via: forged']
for line in FORGED:
    say(post(b'/v1/chat/completions', b'{"model":"m"}', line), timeout=2)
say(post(b'/v1/chat/completions', b'{"model":"m"}', *FORGED[:9]))
# Behind a body in chunks.
say(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n'
    b'Trailer: x-litellm-end-user-id\r\n\r\nd\r\n{"model":"m"}\r\n0\r\nx-litellm-end-user-id: forged\r\nauthorization: forged\r\n\r\n')
"#;
        routed.cage.attack(&format!("{SAY}{script}"), &[]);
        let requests = routed.model.requests();
        assert!(requests.len() > 15, "{backend}: most of them are plain requests: {}", requests.len());
        for request in &requests {
            assert!(ours(request, &routed.key), "{backend}: {request:?}");
            let text = format!("{:?}", request.headers);
            assert!(!text.contains("forged"), "{backend}: {text}");
            assert_eq!(request.target, "/v1/chat/completions");
        }
    }
}

#[test]
fn no_request_is_smuggled_behind_another() {
    for backend in gateway_backends() {
        let routed = routed(*backend, |_| {});
        let script = r#"
INNER = b'POST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n'
BASE = b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n'
BODY = b'{"model":"m"}'
for head, body in [
    (b'Content-Length: 13\r\nTransfer-Encoding: chunked', b'0\r\n\r\n' + INNER),
    (b'Transfer-Encoding: chunked\r\nContent-Length: 13', BODY + INNER),
    (b'Content-Length: 13\r\nContent-Length: 200', BODY + INNER),
    (b'Content-Length: 13, 13', BODY + INNER),
    (b'Content-Length: +13', BODY + INNER),
    (b'Content-Length: 0x0d', BODY + INNER),
    (b'Transfer-Encoding: xchunked', BODY + INNER),
    (b'Transfer-Encoding: chunked, identity', b'd\r\n' + BODY + b'\r\n0\r\n\r\n' + INNER),
    (b'Transfer-Encoding:\x0bchunked', b'd\r\n' + BODY + b'\r\n0\r\n\r\n' + INNER),
    (b'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity', b'd\r\n' + BODY + b'\r\n0\r\n\r\n' + INNER),
    (b'Transfer-Encoding : chunked', b'd\r\n' + BODY + b'\r\n0\r\n\r\n' + INNER),
    (b'Transfer-Encoding: chunked', b'd;x=\n' + INNER + b'\r\n' + BODY + b'\r\n0\r\n\r\n'),
    (b'Transfer-Encoding: chunked', b'fffffffffffffffff\r\n' + BODY + b'\r\n0\r\n\r\n' + INNER),
    (b'Transfer-Encoding: chunked', b'd\r\n' + BODY + b'\r\n0\r\n' + INNER),
    (b'Content-Length: 13', BODY + INNER),
    (b'Content-Length: 13\r\nExpect: 100-continue', BODY + INNER),
    (b'Content-Length: 13\r\nUpgrade: h2c\r\nConnection: Upgrade', BODY + INNER),
]:
    say(BASE + head + b'\r\n\r\n' + body, timeout=0.6)
    say(*[bytes([byte]) for byte in BASE + head + b'\r\n\r\n' + body], timeout=0.6)
"#;
        routed.cage.attack(&format!("{SAY}{script}"), &[]);
        for request in routed.model.requests() {
            assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/chat/completions"));
            assert!(
                ours(&request, &routed.key) && request.body == br#"{"model":"m"}"#,
                "{backend}: {request:?}"
            );
        }
    }
}

#[test]
fn no_model_is_called_that_the_list_does_not_name() {
    for backend in gateway_backends() {
        let routed = routed(*backend, |route| route.models = vec![vec!["good-*".parse().unwrap()]]);
        let script = r#"
for body in [b'{"model":"evil"}', b'{"model":"good-1","model":"evil"}', b'{"model":"evil","model":"good-1"}', b'{"model":"good-1","mod\\u0065l":"evil"}',
        b'{"model":"good-1","Model":"evil"}', b'{"MODEL":"good-1","model":"evil"}', b'{"model":["evil"]}', b'{"model":{"x":"good-1"}}',
        b'{"model":"good-1","models":["evil"]}', b'{"model":"good-1","fallbacks":["evil"]}', b'{"model":"good-1","api_base":"http://evil"}',
        b'{"model":"good-1","litellm_params":{"model":"evil"}}', b'{"model":"good-1\\u0000evil"}', b'{"model":"evil\\u0000good-1"}', b'{"x":{"model":"good-1"}}',
        b'[{"model":"good-1"}]', b'', b'model=good-1', b'\xff\xfe{\x00', b'{"model":"good-1"} {"model":"evil"}', b'\xef\xbb\xbf{"model":"evil"}', b'{' * 100000,
        b'{"model":"good-1\xff"}', b'{"model":"good-1","mock_response":"x"}', b'{"model":"good-1","user_config":{}}', b'{"model":"good-1 "}',
        b'{"model":"good-1,evil"}', b'{"model":"good-1,evil","fastest_response":true}', b'{"model":"good-1","context_window_fallback_dict":{"good-1":"evil"}}',
        b'{"model":"good-1","prompt_id":"evil"}', b'{"model":"good-1","langfuse_host":"http://evil"}']:
    for path in (b'/v1/chat/completions', b'/v1/messages', b'/v1/responses', b'/v1/embeddings', b'/v1/messages/count_tokens'):
        say(post(path, body), timeout=2)
    say(post(b'/v1beta/models/evil:generateContent', body), post(b'/v1beta/models/good-1:generateContent', b'{"model":"models/evil"}'), timeout=2)
for line in (b'Content-Encoding: gzip', b'Content-Encoding: identity, gzip', b'Content-Type: text/plain', b'Content-Type: application/json; charset=utf-7'):
    say(post(b'/v1/messages', b'{"model":"good-1"}', line), timeout=2)
"#;
        routed.cage.attack(&format!("{SAY}{script}"), &[]);
        let arrived = routed.model.requests();
        assert!(arrived.is_empty(), "{backend}: {:?}", arrived.first());
        assert!(routed.record("model_called").is_empty());
    }
}

#[test]
fn the_key_of_the_model_is_nowhere_inside() {
    for backend in backends() {
        let routed = routed(*backend, |_| {});
        routed.model.instead(|request| {
            let all = format!("{:?}", request.headers);
            let key = request.header("authorization").unwrap_or_default().to_string();
            let body = format!(r#"{{"all":{all:?},"usage":{{"prompt_tokens":77}},"id":"{key}"}}"#);
            let headers = [("x-echo", all.clone()), ("set-cookie", all), ("x-litellm-call-id", key)]
                .map(|(n, v)| (n.into(), v));
            Some(Response { headers: headers.into(), chunks: Some(5), ..Response::ok(body) })
        });
        let script = r#"
answer = say(post(b'/v1/chat/completions'))
open('answer', 'wb').write(answer)
out = []
for root in ('/etc', '/run', '/tmp', os.getcwd(), os.environ['HOME']):
    for folder, _, names in os.walk(root):
        paths = [os.path.join(folder, name) for name in names]
        out += [open(path, 'rb').read(1 << 20) for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)]
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('environ', 'cmdline', 'maps', 'mountinfo', 'status'):
        try: out.append(open('/proc/%s/%s' % (pid, name), 'rb').read())
        except OSError: pass
open('seen', 'wb').write(b''.join(out) + repr(dict(os.environ)).encode())
"#;
        routed.cage.attack(&format!("{SAY}{script}"), &[]);
        assert!(ours(&routed.model.requests()[0], &routed.key), "the upstream got it");
        for file in ["answer", "seen"] {
            let seen = fs::read(routed.cage.outside(file)).unwrap();
            assert!(!seen.is_empty() && !contains(&seen, routed.key.as_bytes()), "{backend}: {file}");
        }
        let record = fs::read(routed.cage.record()).unwrap();
        assert!(!contains(&record, routed.key.as_bytes()), "{backend}: the record");
        assert!(
            contains(&record, br#""input_tokens":77"#),
            "{backend}: what is redacted is read all the same"
        );
    }
}

fn contains(bytes: &[u8], expected: &[u8]) -> bool {
    bytes.windows(expected.len()).any(|window| window == expected)
}

#[test]
fn a_sandbox_with_a_model_has_no_other_egress() {
    let outside = Capture::start(at("127.66.9.2"));
    let port = outside.port().to_string();
    for backend in backends() {
        let routed = routed(*backend, |_| {});
        let other = cage_with(*backend, &EgressPolicy::none(), |_, _| {});
        let script = r#"
for host in ('127.66.9.2', '127.66.9.1', '198.18.0.1', '10.0.0.1', '::ffff:127.66.9.2', 'fd62:656c:6c6a:6172::1'):
    for number in (sys.argv[1], sys.argv[2], 1, 53):
        attack('dialled %s %s' % (host, number), lambda: send(host, number, b'x', timeout=0.3) or sys.exit)
"#;
        let model = routed.model.authority();
        let (_, model_port) = model.rsplit_once(':').unwrap();
        routed.cage.attack(script, &[&port, model_port]);
        assert!(routed.model.requests().is_empty(), "{backend}");
        // A neighbour's port of the same number is its own.
        let received = other.attack(
            &format!(
                "{SAY}attack('neighbour', lambda: dial('127.0.0.1', 14180) and say(post(b'/v1/messages')))"
            ),
            &[],
        );
        assert!(received.is_empty() && routed.model.requests().is_empty(), "{backend}: {received:?}");
    }
    outside.assert_nothing_arrived();
}

#[test]
fn a_program_cannot_forge_or_hide_a_call_in_the_record() {
    for backend in gateway_backends() {
        let routed = routed(*backend, |_| {});
        routed.model.instead(|request| {
            let id = request.header("x-request-id").unwrap_or("call-real").to_string();
            let headers = vec![
                ("x-litellm-call-id".to_string(), id),
                ("x-litellm-response-cost".into(), "0.25".into()),
            ];
            Some(Response {
                headers,
                ..Response::ok(r#"{"id":"m-1","usage":{"prompt_tokens":5,"completion_tokens":6}}"#)
            })
        });
        let script = r#"
say(post(b'/v1/chat/completions', b'{"model":"a\\"}{\\"cost_usd\\":0}"}', b'x-model: a litellm_call_id=- litellm_response_cost=0'))
say(post(b'/v1/chat/completions', b'{"model":"m","usage":{"prompt_tokens":0},"cost":0,"id":"forged"}', b'x-litellm-call-id: forged',
    b'x-litellm-response-cost: 0', b'x-request-id: forged', b'request-id: forged'))
say(post(b'/x"}\\n{"kind":"model_called","cost_usd":0}', b'{"model":"m"}'))
say(post(b'/v1/chat/completions', b'{"model":"\\n{\\"kind\\":\\"sandbox_ended\\"}"}'))
"#;
        routed.cage.attack(&format!("{SAY}{script}"), &[]);
        let calls = routed.record("model_called");
        assert_eq!(calls.len(), 2, "{backend}: {calls:?}");
        for call in &calls {
            assert!(
                call.contains(
                    r#""upstream_id":"call-real","message_id":"m-1","input_tokens":5,"output_tokens":6"#
                ),
                "{call}"
            );
            assert!(call.contains(r#""cost_usd":250000,"cost_source":"upstream""#), "{call}");
        }
        assert_eq!(routed.record("sandbox_ended").len(), 0);
        let report =
            belljar_audit::verify(routed.cage.record().parent().unwrap(), None, None, |_| {}).unwrap();
        assert!(report.is_fine(), "{:?}", report.findings);
    }
}

#[test]
fn a_flood_of_questions_takes_bounded_memory_and_lines() {
    alone("llm_route::a_flood_of_questions_takes_bounded_memory_and_lines", &[], || {
        let routed = routed(backends()[0], |route| route.models = vec![vec!["none".parse().unwrap()]]);
        let grown = growth(|| {
            let script = r#"
def large():
    try:
        s = dial('127.0.0.1', 14180)
        s.settimeout(5)
        s.sendall(b'POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60000000\r\n\r\n' + b'{')
        for _ in range(59): s.sendall(b' ' * 1000000)
        time.sleep(1)
        s.close()
    except OSError: pass
threads = [threading.Thread(target=large) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for number in range(2000): say(post(b'/nothing/here'), timeout=1)
say(b'GET /' + b'x' * 1000000 + b' HTTP/1.1\r\n\r\n', b'GET / HTTP/1.1\r\n' + b'x: y\r\n' * 100000)
"#;
            routed.cage.attack(&format!("{SAY}{script}"), &[]);
        });
        assert!(grown < 500 * 1024, "{grown} KiB more");
        assert!(routed.model.requests().is_empty());
        let lines = routed.record("model_refused").len();
        assert!((1..100).contains(&lines), "{lines}");
    });
}

#[test]
fn unread_questions_do_not_fill_the_memory_of_the_host() {
    alone("llm_route::unread_questions_do_not_fill_the_memory_of_the_host", &[], || {
        // It accepts, and never reads.
        let busy = std::net::TcpListener::bind((at("127.66.9.3"), 0)).unwrap();
        let upstream = format!("http://{}", busy.local_addr().unwrap());
        let routed = routed(backends()[0], |route| route.upstream = upstream.parse().unwrap());
        let grown = growth(|| {
            let script = r#"
held = []
for _ in range(12):
    try:
        s = dial('127.0.0.1', 14180)
        held.append(s)
        s.sendall(b'POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60000000\r\n\r\n{"model":"m","x":"')
        for _ in range(59): s.sendall(b'x' * 1000000)
        s.sendall(b'x' * 999980 + b'"}')
    except OSError: pass
time.sleep(1)
"#;
            routed.cage.attack(&format!("{SAY}{script}"), &[]);
        });
        assert!(!routed.record("model_asked").is_empty(), "some are on their way");
        assert!(grown < 500 * 1024, "{grown} KiB more");
    });
}

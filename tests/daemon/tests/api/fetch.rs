//! `POST …/fetch`: requests for a sandbox, made outside of it, under its policy.

use belljar_tests_daemon::{Home, Sandbox};
use belljar_tests_hosts::{Dns, HttpServer, Response};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

#[test]
fn a_request_for_a_sandbox_is_held_to_its_policy_and_recorded() {
    let server = HttpServer::start(Ipv4Addr::LOCALHOST, |request| match request.target.as_str() {
        "/bytes" => Response::ok(vec![b'a', 0xff]),
        "/elsewhere" => Response {
            status: 302,
            headers: vec![("Location".into(), "http://other.example/".into())],
            ..Response::ok("")
        },
        _ => Response {
            status: 404,
            headers: vec![("X-Method".into(), request.method.clone())],
            ..Response::ok(request.body.clone())
        },
    });
    let names = Dns::of([("files.example", Ipv4Addr::LOCALHOST.into())]);
    let home = Home::new()
        .operator(&format!("[egress]\nprivate = [\"127.0.0.0/8\"]\nresolvers = [\"{}\"]\n", names.address()));
    let daemon = home.start();
    let port = server.address().port();
    let allowed = format!("files.example:{port}/http");
    let request = json!({ "sandbox": { "egress": { "mode": "strict", "allow": [allowed] } } });
    let sandbox = Sandbox::create(&home.client(), &request);
    let fetch = |body: Value| home.client().post(&sandbox.path("/fetch"), &body);
    let at = |path: &str| format!("http://files.example:{port}{path}");

    let echoed = fetch(json!({
        "url": at("/echo"), "method": "POST", "body": "hello",
        "headers": [{ "name": "X-Mine", "value": "yes" }],
    }))
    .ok();
    assert_eq!((&echoed["status"], &echoed["body"]), (&json!(404), &json!("hello")), "{echoed}");
    assert!(echoed["headers"].to_string().contains(r#"{"name":"x-method","value":"POST"}"#), "{echoed}");
    assert_eq!(server.requests()[0].header("x-mine"), Some("yes"));
    let bytes = fetch(json!({ "url": at("/bytes") })).ok();
    assert_eq!((&bytes["body"], &bytes["body_base64"]), (&Value::Null, &json!("Yf8=")));

    for (body, status, code) in [
        (json!({ "url": "http://other.example/" }), 422, "egress_refused"),
        (json!({ "url": at("/elsewhere") }), 422, "egress_refused"),
        (json!({ "url": at("/"), "max_bytes": 17_000_000 }), 422, "request_value"),
        (json!({ "url": at("/"), "max_bytes": 0 }), 422, "request_value"),
        (json!({ "url": at("/"), "timeout_s": 601 }), 422, "request_value"),
        (json!({ "url": at("/"), "body": "a", "body_base64": "YQ==" }), 422, "request_value"),
        (json!({ "url": at("/"), "trust": "x" }), 400, "request_invalid"),
        (json!({}), 422, "request_value"),
    ] {
        let answer = fetch(body.clone());
        assert_eq!((answer.status, answer.code()), (status, code.to_string()), "{body}");
    }
    let as_it_is = fetch(json!({ "url": at("/elsewhere"), "max_redirects": 0 })).ok();
    assert_eq!(as_it_is["status"], 302);
    let recorded = home.client().get(&sandbox.path("/egress?limit=1000")).ok().to_string();
    assert!(recorded.contains("other.example") && recorded.contains("files.example"), "{recorded}");
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

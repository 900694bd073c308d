//! Callers without permission, and invalid requests: refused with a status and a code, and nothing else happens.

use crate::front::daemon::{Daemon, answer_of, code, request};
use belljar_server::front::{AllowedHosts, description};
use serde_json::{Value, json};

#[tokio::test]
async fn every_operation_needs_a_grant_also_where_it_would_stream() {
    let daemon = Daemon::start().await;
    let ended = daemon.grant(json!({ "name": "ended", "allow_sandbox": true, "valid_s": 0 })).await;
    let nothing = daemon.grant(json!({ "name": "nothing" })).await;
    let document = serde_json::to_value(description()).unwrap();
    let mut tried = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace("{name}", "bj-x-000000000000").replace(['{', '}'], "");
        for method in item.as_object().unwrap().keys().filter(|key| METHODS.contains(&key.as_str())) {
            let method = method.to_uppercase();
            if path == "/v1/health" {
                continue;
            }
            for token in ["", "bjt_000000000000_00", &ended.token] {
                let answer = daemon.ask(token, &method, &path, Value::Null).await;
                assert_eq!(answer.0, 401, "{method} {path}: {}", answer.1);
                tried += 1;
            }
            if !["/v1/capabilities", "/v1/profiles", "/v1/openapi.json", "/v1/agents"]
                .contains(&path.as_str())
            {
                let answer = daemon.ask(&nothing.token, &method, &path, Value::Null).await;
                assert_eq!(answer.0, 403, "{method} {path}: {}", answer.1);
            }
        }
    }
    assert!(tried > 60, "{tried}");
    assert_eq!(code(&daemon.ask("", "GET", "/nothing/here", Value::Null).await).0, 401);
    daemon.end().await;
}

#[tokio::test]
async fn a_token_counts_over_the_socket_too() {
    let daemon = Daemon::start().await;
    let nothing = daemon.grant(json!({ "name": "nothing" })).await;
    let answer =
        answer_of(daemon.send(request("GET", "/v1/sandboxes", Some(&nothing.token), Value::Null)).await)
            .await;
    assert_eq!(code(&answer), (403, "not_granted"));
    let answer =
        answer_of(daemon.send(request("GET", "/v1/sandboxes", Some("wrong"), Value::Null)).await).await;
    assert_eq!(code(&answer), (401, "token_invalid"));
    daemon.end().await;
}

#[tokio::test]
async fn other_names_and_other_pages_are_refused() {
    let origins = vec!["https://app.example.com".to_string()];
    let daemon = Daemon::with(|settings| {
        settings.allowed_hosts = AllowedHosts { names: vec!["box.test".into()], origins }
    })
    .await;
    let with = |name: &'static str, value: &'static str, method: &str| {
        let mut request_with = request(method, "/v1/health", None, Value::Null);
        request_with.headers_mut().insert(name, value.parse().unwrap());
        request_with
    };
    let answer = answer_of(daemon.send(with("host", "evil.example.com", "GET")).await).await;
    assert_eq!(code(&answer), (403, "not_granted"));
    assert_eq!(daemon.send(with("host", "box.test:7070", "GET")).await.status(), 200);
    let answer = answer_of(daemon.send(with("origin", "https://evil.example.com", "GET")).await).await;
    assert_eq!(code(&answer), (403, "not_granted"));
    let allowed = daemon.send(with("origin", "https://app.example.com", "GET")).await;
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example.com");
    let mut preflight = with("origin", "https://app.example.com", "OPTIONS");
    preflight.headers_mut().insert("access-control-request-method", "POST".parse().unwrap());
    let answer = daemon.send(preflight).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["access-control-allow-methods"]),
        (204, &"POST".parse().unwrap())
    );
    daemon.end().await;
}

#[tokio::test]
async fn nonsense_is_answered_in_the_same_words_everywhere() {
    let daemon = Daemon::start().await;
    let nowhere = "/v1/sandboxes/bj-x-000000000000";
    for (method, path, body, expected) in [
        ("GET", "/v1/nothing", Value::Null, (404, "not_found")),
        ("PATCH", "/v1/sandboxes", Value::Null, (405, "method_not_allowed")),
        ("POST", "/v1/sandboxes", json!([]), (400, "request_invalid")),
        ("POST", "/v1/sandboxes", json!({ "kee": 1 }), (400, "request_invalid")),
        ("POST", "/v1/grants", json!({ "name": "x", "hots": ["*"] }), (400, "request_invalid")),
        ("POST", "/v1/sandboxes", json!({ "key": "k", "scope": "entity" }), (422, "request_conflict")),
        ("POST", "/v1/sandboxes", json!({ "key": "k", "owner": false }), (404, "sandbox_not_alive")),
        ("POST", "/v1/sandboxes", json!({ "profile": "defalt" }), (422, "profile_unknown")),
        ("POST", "/v1/sandboxes", json!({ "lease_s": 0 }), (422, "request_value")),
        (
            "POST",
            "/v1/sandboxes",
            json!({ "sandbox": { "limits": { "memory": "much" } } }),
            (422, "request_value"),
        ),
        ("GET", "/v1/sandboxes?state=odd", Value::Null, (400, "request_invalid")),
        ("GET", nowhere, Value::Null, (404, "sandbox_not_found")),
        ("DELETE", nowhere, Value::Null, (404, "sandbox_not_found")),
        ("DELETE", "/v1/grants/x", Value::Null, (404, "name_unknown")),
        ("POST", "/v1/grants", json!({ "name": "" }), (422, "request_value")),
    ] {
        let answer = daemon.owner(method, path, body).await;
        assert_eq!(code(&answer), expected, "{method} {path}: {}", answer.1);
    }
    daemon.end().await;
}

#[test]
fn the_description_names_every_refusal() {
    let document = serde_json::to_value(description()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in
            item.as_object().unwrap().iter().filter(|(key, _)| METHODS.contains(&key.as_str()))
        {
            let responses = operation["responses"].as_object().unwrap();
            let needed: &[&str] = if path == "/v1/health" {
                &["403"]
            } else {
                &["400", "401", "403", "404", "409", "422", "429"]
            };
            for status in needed {
                assert!(responses.contains_key(*status), "{method} {path} does not say {status}");
            }
        }
    }
    for path in ["/v1/sandboxes/{name}/commands", "/v1/sandboxes/{name}/files", "/v1/sandboxes/{name}/audit"]
    {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
}

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "patch", "head", "options", "trace"];

//! No grant, no sandbox: every way into the daemon over TCP, tried by those who may not.

use belljar_tests_daemon::{Answer, Client, Home, Sandbox};
use serde_json::{Value, json};

#[test]
fn every_path_is_closed_to_those_without_a_grant() {
    let home = Home::new().listening();
    let daemon = home.start();
    let owner = home.client();
    let sandbox = Sandbox::create(&owner, &json!({ "key": "mine", "sandbox": { "ports": [8080] } }));
    let command = sandbox.start("sleep 1000");
    let revoked = grant(&owner, json!({ "name": "revoked", "allow_sandbox": true, "keys": ["*"] }));
    let id = revoked["grant"]["id"].as_str().unwrap();
    owner.delete(&format!("/v1/grants/{id}")).ok();
    let token = revoked["token"].as_str().unwrap().to_string();
    let wrong = grant(&owner, json!({ "name": "wrong", "allow_sandbox": true }))["token"]
        .as_str()
        .unwrap()
        .to_string();
    let wrong = wrong[..wrong.len() - 4].to_string() + "0000";
    let made = grant(&owner, json!({ "name": "nothing" }));
    let [nothing, nothing_id] =
        [&made["token"], &made["grant"]["id"]].map(|text| text.as_str().unwrap().to_string());

    let stranger = home.stranger();
    let unknown = [
        ("no token", stranger.clone()),
        ("a wrong token", stranger.clone().token(&wrong)),
        ("a revoked token", stranger.clone().token(&token)),
        ("no token at all", stranger.clone().with("authorization", "Basic b3duZXI6b3duZXI=")),
        ("an empty token", stranger.clone().with("authorization", "Bearer ")),
        ("only the owner asks for others", stranger.clone().with("x-belljar-for-grant", &nothing_id)),
        ("a revoked grant, asked for by the owner", owner.clone().with("x-belljar-for-grant", id)),
    ];
    let powerless =
        [stranger.clone().token(&nothing), owner.clone().with("x-belljar-for-grant", &nothing_id)];
    let document = owner.get("/v1/openapi.json").ok();
    let mut tried = 0;
    for (method, path) in operations(&document) {
        let path = filled(&path, &sandbox.name, &command.id);
        for how in Manner::ALL {
            if OPEN.contains(&path.as_str()) {
                continue;
            }
            for (who, client) in &unknown {
                let answer = how.ask(client, &method, &path);
                assert_eq!(answer.status, 401, "{who}, {method} {path} {how:?}: {}", answer.text());
                assert!(
                    !answer.code().is_empty() && answer.header("www-authenticate").is_some(),
                    "{answer:?}"
                );
                tried += 1;
            }
            if !PUBLIC_PATHS.contains(&path.as_str()) {
                for powerless in &powerless {
                    let answer = how.ask(powerless, &method, &path);
                    assert_eq!(answer.status, 403, "{method} {path} {how:?}: {}", answer.text());
                }
            }
        }
    }
    assert!(tried > 500, "the description has few operations: {tried}");
    // Nothing of that had an effect.
    assert_eq!(sandbox.info()["commands"], 1);
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn ports_are_closed_to_those_without_a_grant() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let owner = home.client();
    let sandbox = Sandbox::create(&owner, &json!({ "key": "mine", "sandbox": { "ports": [8080] } }));
    sandbox.start("python3 -m http.server 8080");
    let other = grant(&owner, json!({ "name": "other", "allow_sandbox": true }))["token"]
        .as_str()
        .unwrap()
        .to_string();
    let clients = [(401, home.stranger()), (404, home.stranger().token(&other))];
    for (status, client) in clients {
        for how in Manner::ALL {
            for path in ["/ports/8080", "/ports/8080/", "/ports/8080/file?a=b", "/ports/22/", "/ports/99999/"]
            {
                for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
                    let answer = how.ask(&client, method, &sandbox.path(path));
                    assert_eq!(answer.status, status, "{method} {path} {how:?}: {}", answer.text());
                }
            }
        }
    }
    sandbox.delete();
}

/// Where nothing listens, an open port answers in other words than a closed one.
#[test]
fn a_port_that_was_not_named_is_open_to_the_owner_alone() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let owner = home.client();
    let rules = json!({ "name": "one", "allow_sandbox": true, "keys": ["one/*"] });
    let holder = home.stranger().token(grant(&owner, rules)["token"].as_str().unwrap());
    let sandbox = Sandbox::create(&holder, &json!({ "key": "one/a" }));
    let bytes = |client: &Client| {
        let client = client.clone().with("connection", "upgrade").with("upgrade", "tcp");
        client.get(&sandbox.path("/ports/9999"))
    };
    for client in [holder.clone(), holder.clone().with("x-belljar-caller", "owner")] {
        let answer = bytes(&client);
        assert_eq!(answer.code(), "permission_denied", "{}", answer.text());
    }
    assert_ne!(bytes(&owner).code(), "permission_denied");
    // A page is another matter: a browser could ask for it on behalf of any site.
    assert_eq!(owner.get(&sandbox.path("/ports/9999")).code(), "permission_denied");
    sandbox.delete();
}

#[test]
fn another_grants_key_is_no_capability() {
    let home = Home::new().listening();
    let daemon = home.start();
    let owner = home.client();
    let token = |rules: Value| grant(&owner, rules)["token"].as_str().unwrap().to_string();
    let [one, other, joined] = [
        json!({ "name": "one", "allow_sandbox": true, "keys": ["one/*"] }),
        json!({ "name": "other", "allow_sandbox": true, "keys": ["other/*"] }),
        json!({ "name": "joined", "allow_sandbox": true, "keys": ["one/shared"] }),
    ]
    .map(|rules| home.stranger().token(&token(rules)));
    let sandbox = Sandbox::create(&one, &json!({ "key": "one/shared" }));
    sandbox.run("echo secret > file");
    for request in [
        json!({ "key": "one/shared" }),
        json!({ "key": "one/shared", "owner": false }),
        json!({ "entity": "one/shared" }),
        json!({ "key": "one/*" }),
        json!({ "key": "elsewhere" }),
    ] {
        let answer = other.post("/v1/sandboxes", &request);
        assert_eq!(answer.status, 403, "{request}: {}", answer.text());
    }
    // Its name is easily found out, and opens nothing.
    for (method, path) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("GET", "/commands"),
        ("GET", "/files?path=file"),
        ("GET", "/egress"),
        ("GET", "/audit"),
    ] {
        let answer = other.ask(method, &sandbox.path(path)).send();
        let absent = other.ask(method, &format!("/v1/sandboxes/bj-absent-000000000000{path}")).send();
        // The same as of a sandbox that is not there: who asks does not learn which keys are in use.
        assert_eq!((answer.status, answer.code()), (absent.status, absent.code()), "{method} {path}");
        assert_eq!((answer.status, answer.code()), (404, "sandbox_not_found".into()), "{method} {path}");
        let shape = |answer: &Answer, name: &str| {
            let error = answer.json()["error"].clone();
            (error["message"].to_string().replace(name, ""), error["hint"].clone())
        };
        assert_eq!(shape(&answer, &sandbox.name), shape(&absent, "bj-absent-000000000000"));
    }
    other.post("/v1/sandboxes", &json!({ "inherit": sandbox.name })).refused(404, "sandbox_not_found");
    assert_eq!(other.get("/v1/sandboxes").ok()["items"], json!([]), "others' sandboxes are listed");
    assert_eq!(other.post(&sandbox.path("/commands"), &json!({ "shell": "true" })).status, 404);
    // Who may join, joins; and is no owner.
    let guest = Sandbox::create(&joined, &json!({ "key": "one/shared", "owner": false }));
    assert_eq!(guest.run("cat file"), ("secret\n".into(), 0));
    assert_eq!(joined.delete(&guest.path("")).status, 403, "a guest took the house down");
    // Nor by asking for more: what a grant is to a sandbox is not the caller's to choose.
    joined.post("/v1/sandboxes", &json!({ "key": "one/shared", "owner": true })).refused(403, "not_granted");
    let requested = joined.post("/v1/sandboxes", &json!({ "key": "one/shared" })).ok();
    assert_eq!(requested["lease"]["owner"], false, "{requested}");
    assert_eq!(
        requested["sandbox"]["leases"].as_array().map(Vec::len),
        Some(2),
        "its own alone are told: {requested}"
    );
    joined.delete(&guest.path("")).refused(403, "not_granted");
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn a_grant_allows_what_it_says_and_no_more() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let owner = home.client();
    let folder = home.folder("work");
    let few = grant(
        &owner,
        json!({ "name": "few", "allow_sandbox": true, "sandboxes": 1, "limits": { "timeout": "60s" } }),
    );
    let client = home.stranger().token(few["token"].as_str().unwrap());
    for sandbox in [
        json!({ "workspace": { "folder": folder } }),
        json!({ "workspace": { "clone": folder } }),
        json!({ "workspace": { "ro": [folder] } }),
        json!({ "workspace": { "rw": [folder] } }),
        json!({ "egress": { "mode": "open" } }),
        json!({ "egress": { "mode": "strict", "allow": ["example.com"] } }),
        json!({ "egress": { "groups": ["github"] } }),
        json!({ "secrets": ["anthropic"] }),
        json!({ "env": { "KEY": "secret:anthropic" } }),
        json!({ "llm": { "url": "https://api.anthropic.com" } }),
        json!({ "limits": { "timeout": "2m" } }),
        json!({ "backend": "host" }),
        json!({ "admin": true }),
        json!({ "admin": true, "root": true }),
        json!({ "volumes": { "history": "/home/agent/history" } }),
    ] {
        let answer = client.post("/v1/sandboxes", &json!({ "sandbox": sandbox }));
        assert_eq!(answer.status, 403, "{sandbox}: {}", answer.text());
    }
    assert_eq!(client.get("/v1/grants").status, 403);
    assert_eq!(client.post("/v1/grants", &json!({ "name": "more", "allow_sandbox": true })).status, 403);
    assert_eq!(client.post("/v1/sweep", &json!({})).status, 403);
    let one = Sandbox::create(&client, &json!({}));
    assert_eq!(client.post("/v1/sandboxes", &json!({})).status, 403, "more than it may hold");
    one.delete();
}

#[test]
fn a_revoked_grant_ends_what_it_opened() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let owner = home.client();
    let made = grant(&owner, json!({ "name": "short", "allow_sandbox": true }));
    let client = home.stranger().token(made["token"].as_str().unwrap());
    let sandbox = Sandbox::create(&client, &json!({}));
    let command = sandbox.start("while true; do echo tick; sleep 0.1; done");
    let mut events = command.follow("0").unwrap();
    events.next().unwrap();
    owner.delete(&format!("/v1/grants/{}", made["grant"]["id"].as_str().unwrap())).ok();
    assert_eq!(client.get(&sandbox.path("")).status, 401);
    assert!(belljar_tests_daemon::eventually(|| events.next().is_none()), "who may not listens on");
    owner.delete(&sandbox.path("")).ok();
}

/// A page in a browser can send requests to loopback; it cannot choose these headers.
#[test]
fn pages_of_other_sites_are_refused_whatever_they_know() {
    let home =
        Home::new().listening().args(&["--host-name", "box.example", "--origin", "https://app.example"]);
    let _daemon = home.start();
    let all = grant(&home.client(), json!({ "name": "all", "allow_sandbox": true }));
    let token = all["token"].as_str().unwrap();
    let port = home.tcp().port();
    for (client, where_from) in [(home.client(), "socket"), (home.stranger().token(token), "TCP")] {
        for path in
            ["/v1/sandboxes", "/v1/capabilities", "/v1/sandboxes/bj-x-000000000000/ports/80/", "/v1/nothing"]
        {
            for host in [
                "evil.example",
                "evil.example:80",
                &format!("evil.example:{port}"),
                "localhost.evil.example",
                "127.0.0.1.evil.example",
                "127.0.0.1@evil.example",
                "box.example.evil.example",
                "8.8.8.8",
                "0.0.0.0",
                "[2001:db8::1]:80",
                "",
            ] {
                for how in Manner::ALL {
                    let answer = how.ask(&client.clone().with("host", host), "GET", path);
                    assert!(
                        matches!(answer.status, 400 | 403 | 421),
                        "{where_from} {host} {path} {how:?}: {answer:?}"
                    );
                }
            }
            for origin in [
                "https://evil.example",
                "null",
                "http://localhost:3000",
                "https://app.example.evil.example",
                "http://app.example",
            ] {
                for how in Manner::ALL {
                    let answer = how.ask(&client.clone().with("origin", origin), "GET", path);
                    assert_eq!(answer.status, 403, "{where_from} {origin} {path} {how:?}: {answer:?}");
                    assert_eq!(answer.header("access-control-allow-origin"), None, "{answer:?}");
                }
            }
        }
        for host in ["localhost", "127.0.0.1", "[::1]", "box.example", &format!("localhost:{port}")] {
            assert_eq!(
                client.clone().with("host", host).get("/v1/capabilities").status,
                200,
                "{where_from} {host}"
            );
        }
        let known = client.clone().with("origin", "https://app.example").get("/v1/capabilities");
        assert_eq!(known.status, 200, "{known:?}");
    }
}

#[test]
fn a_caller_who_shows_nothing_learns_nothing() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let health = home.stranger().get("/v1/health");
    assert_eq!(health.status, 200);
    assert!(!health.text().contains(env!("CARGO_PKG_VERSION")), "{}", health.text());
    for path in [
        "/",
        "/v1",
        "/v1/nothing",
        "/v1/../v1/sandboxes",
        "/keeper/status",
        "/v1/sandboxes/bj-x-000000000000",
    ] {
        assert_eq!(home.stranger().get(path).status, 401, "{path}");
    }
}

#[track_caller]
fn grant(owner: &Client, rules: Value) -> Value {
    owner.post("/v1/grants", &rules).ok()
}

/// What a request says it wants.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Plain,
    Events,
    WebSocket,
    Tcp,
}

impl Manner {
    const ALL: [Manner; 4] = [Manner::Plain, Manner::Events, Manner::WebSocket, Manner::Tcp];

    fn ask(self, client: &Client, method: &str, path: &str) -> Answer {
        let ask = client.ask(method, path);
        let ask = match self {
            Manner::Plain => ask,
            Manner::Events => ask.with("accept", "text/event-stream"),
            Manner::WebSocket => ask
                .with("connection", "upgrade")
                .with("upgrade", "websocket")
                .with("sec-websocket-version", "13")
                .with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            Manner::Tcp => ask.with("connection", "upgrade").with("upgrade", "tcp"),
        };
        match method {
            "POST" | "PUT" | "PATCH" => ask.json(&json!({})).send(),
            _ => ask.send(),
        }
    }
}

/// Methods and paths of a description.
fn operations(document: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if ["get", "put", "post", "delete", "patch", "head", "options"].contains(&method.as_str()) {
                all.push((method.to_uppercase(), path.clone()));
            }
        }
    }
    all
}

/// A path with what is really there in it.
fn filled(path: &str, name: &str, command: &str) -> String {
    let mut filled = String::new();
    for part in path.split('/').skip(1) {
        filled.push('/');
        let is_variable = part.starts_with('{');
        filled.push_str(match part.trim_matches(['{', '}', '*']) {
            _ if !is_variable => part,
            "name" => name,
            "cid" | "command" => command,
            "port" => "8080",
            "id" | "agent" => "claude",
            _ => "x",
        });
    }
    filled
}

/// Answers only that a daemon is there.
const OPEN: [&str; 1] = ["/v1/health"];
/// What every grant may look at.
const PUBLIC_PATHS: [&str; 3] = ["/v1/openapi.json", "/v1/profiles", "/v1/capabilities"];

//! Requests that no SDK makes: without a key, with another's, with a name that is not ours. Nothing is open without a token.

use crate::daemon::{DOMAIN, Served};
use belljar_tests_daemon::Client;
use serde_json::{Value, json};

/// Every refusal is JSON with the status in it; what it says is nothing about what is there.
#[track_caller]
fn is_refused(answer: &belljar_tests_daemon::Answer, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    let code = &answer.json()["code"];
    assert!(*code == status || code.is_string(), "{what}: {}", answer.text());
}

#[test]
fn nothing_opens_without_its_own_token() {
    let served = Served::new();
    let (own, other) = (served.key("own"), served.key("other"));
    let (id, token) = served.sandbox(&own, json!({}));
    let (other_id, other_token) = served.sandbox(&other, json!({}));
    let client = served.client();

    // The control API: no key, one of nothing, and another grant's.
    let control = [
        ("POST", "/sandboxes"),
        ("POST", "/v2/sandboxes"),
        ("GET", "/sandboxes"),
        ("GET", "/v2/sandboxes"),
        ("GET", "/sandboxes/metrics"),
        ("GET", "/templates"),
        ("GET", "/templates/aliases/base"),
        ("POST", "/v3/templates"),
        ("GET", "/volumes"),
        ("GET", "/secrets"),
        ("GET", "/snapshots"),
        ("GET", "/nothing"),
    ];
    let of_sandbox = [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/connect"),
        ("POST", "/resume"),
        ("POST", "/timeout"),
        ("POST", "/refreshes"),
        ("POST", "/pause"),
        ("POST", "/snapshots"),
        ("POST", "/fork"),
        ("PUT", "/network"),
        ("GET", "/metrics"),
        ("GET", "/logs"),
    ];
    let forged = format!("{}{}", &own[..own.len() - 1], if own.ends_with('0') { '1' } else { '0' });
    let crossed = format!("{}{}", &own[..16], &other[16..]);
    for key in [None, Some(""), Some("e2b_"), Some("e2b_00"), Some("owner"), Some(&*forged), Some(&*crossed)]
    {
        let asking = key.map_or(client.clone(), |key| client.clone().with("x-api-key", key));
        let paths = of_sandbox.map(|(method, path)| (method, format!("/sandboxes/{id}{path}")));
        for (method, path) in
            control.map(|(method, path)| (method, path.to_string())).into_iter().chain(paths)
        {
            let answer = asking.ask(method, &path).json(&json!({ "timeout": 1 })).send();
            is_refused(&answer, 401, &format!("{key:?} {method} {path}"));
        }
    }
    let stranger = client.clone().with("x-api-key", &other);
    for (method, path) in of_sandbox {
        let answer =
            stranger.ask(method, &format!("/sandboxes/{id}{path}")).json(&json!({ "timeout": 1 })).send();
        is_refused(&answer, 404, &format!("another's key: {method} {path}"));
    }
    let listed = stranger.get("/v2/sandboxes").ok();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(
        stranger.get(&format!("/sandboxes/metrics?sandbox_ids={id}")).ok(),
        json!({ "sandboxes": {} })
    );

    // The data plane: no token, another sandbox's, the key.
    let data = [
        ("POST", "/process.Process/List"),
        ("POST", "/process.Process/Start"),
        ("POST", "/process.Process/StreamInput"),
        ("POST", "/filesystem.Filesystem/Stat"),
        ("POST", "/filesystem.Filesystem/WatchDir"),
        ("GET", "/files?path=/etc/passwd"),
        ("POST", "/files?path=/tmp/x"),
        ("GET", "/files?path=/etc/passwd&signature=v1_x"),
        ("GET", "/envs"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
    ];
    let named = client.clone().with("e2b-sandbox-id", &id).with("e2b-sandbox-port", "49983");
    for shown in [None, Some(""), Some(&*other_token), Some(&*own)] {
        let asking = shown.map_or(named.clone(), |token| named.clone().with("x-access-token", token));
        for (method, path) in data {
            let answer = asking.ask(method, path).json(&json!({})).send();
            is_refused(&answer, 401, &format!("{shown:?} {method} {path}"));
        }
    }
    let list = |client: &Client| client.post("/process.Process/List", &json!({})).status;
    assert_eq!(list(&named.clone().with("x-access-token", &token)), 200);
    for path in ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw"] {
        let answer = named.clone().with("x-access-token", &token).post(path, &json!({}));
        is_refused(&answer, 403, path);
    }

    // A host that is not ours: a page that has its own name lead here gets nothing.
    let evil = named.clone().with("x-access-token", &token).with("host", "evil.example");
    is_refused(&evil.ask("POST", "/process.Process/List").json(&json!({})).send(), 400, "a foreign host");
    let evil = client.clone().with("x-api-key", &own).with("host", "evil.example");
    is_refused(&evil.get("/v2/sandboxes"), 400, "a foreign host");
    // A name of the domain says which sandbox; headers do not say otherwise.
    let by_name = client.clone().with("host", &format!("49983-{other_id}.{DOMAIN}"));
    let mixed = by_name.with("e2b-sandbox-id", &id).with("x-access-token", &token);
    assert_eq!(list(&mixed), 401);

    // Templates and their files are one key's; the address of an upload is for one template, its files and an hour.
    let asked = client.clone().with("x-api-key", &own).post("/v3/templates", &json!({ "name": "mine" })).ok();
    let (template, build) = (asked["templateID"].as_str().unwrap(), asked["buildID"].as_str().unwrap());
    let (files, others) = ("0".repeat(64), "1".repeat(64));
    let link = format!("/templates/{template}/files/{files}");
    for (method, path) in [
        ("GET", link.clone()),
        ("POST", format!("/v2/templates/{template}/builds/{build}")),
        ("GET", format!("/templates/{template}/builds/{build}/status")),
        ("GET", format!("/templates/{template}/builds/{build}/logs")),
        ("GET", "/templates/mine/tags".into()),
        ("GET", "/templates/aliases/mine".into()),
        ("DELETE", format!("/templates/{template}")),
    ] {
        is_refused(
            &stranger.ask(method, &path).json(&json!({})).send(),
            404,
            &format!("another's key: {method} {path}"),
        );
        is_refused(
            &client.ask(method, &path).json(&json!({})).send(),
            401,
            &format!("no key: {method} {path}"),
        );
    }
    let told = client.clone().with("x-api-key", &own).get(&link).json();
    let (_, query) = told["url"].as_str().unwrap().split_once('?').unwrap();
    let later = query.replace("until=", "until=1");
    for (path, status) in [
        (format!("{link}?{query}"), 200),
        (link.clone(), 401),
        (format!("{link}?{later}"), 401),
        (format!("/templates/{template}/files/{others}?{query}"), 401),
        (format!("/templates/{template}/files/..%2F..%2Fx?{query}"), 400),
    ] {
        let answer = client.ask("PUT", &path).bytes(b"files").send();
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }

    // A grant that is revoked opens nothing: not its key, and not the sandboxes that it made.
    let grant = &own["e2b_".len()..][..12];
    served.home.client().delete(&format!("/v1/grants/{grant}")).ok();
    is_refused(&client.clone().with("x-api-key", &own).get("/v2/sandboxes"), 401, "a revoked key");
    assert_eq!(list(&named.clone().with("x-access-token", &token)), 401, "a sandbox of a revoked key");
    let answer = client.ask("PUT", &format!("{link}?{query}")).bytes(b"files").send();
    is_refused(&answer, 401, "an upload for a revoked key");
}

#[test]
fn what_makes_no_sense_is_refused_in_json() {
    let served = Served::new();
    let key = served.key("own");
    let (id, token) = served.sandbox(&key, json!({}));
    let control = served.client().with("x-api-key", &key);
    let sandbox = |path: &str| format!("/sandboxes/{id}{path}");
    for (method, path, body, status) in [
        ("POST", "/v2/sandboxes".to_string(), "{", 400),
        ("POST", "/v2/sandboxes".into(), r#"{"templateID":"base","timeout":99999999999}"#, 400),
        ("POST", "/v2/sandboxes".into(), r#"{"templateID":"base","envVars":{"A=B":"x"}}"#, 400),
        ("POST", "/v2/sandboxes".into(), r#"{"templateID":"none"}"#, 404),
        ("POST", "/v2/sandboxes".into(), r#"{"templateID":"base","mcp":{"x":{}}}"#, 501),
        (
            "POST",
            "/v2/sandboxes".into(),
            r#"{"templateID":"base","network":{"rules":{"a.example":[{}]}}}"#,
            501,
        ),
        ("POST", sandbox("/timeout"), "{}", 400),
        ("POST", sandbox("/refreshes"), r#"{"duration":3601}"#, 400),
        ("PUT", sandbox("/network"), "{}", 501),
        ("GET", "/v2/sandboxes?limit=0".into(), "", 400),
        ("GET", "/v2/sandboxes?nextToken=x".into(), "", 400),
        ("GET", "/sandboxes/zzz".into(), "", 404),
        ("GET", "/nothing".into(), "", 404),
        ("POST", "/v3/templates".into(), "{}", 400),
        ("POST", "/v3/templates".into(), r#"{"name":"../x"}"#, 400),
        ("POST", "/v3/templates".into(), r#"{"name":"base"}"#, 409),
        ("POST", "/v3/templates".into(), r#"{"name":"x","tags":["a/b"]}"#, 400),
        ("POST", "/v2/templates/none/builds/none".into(), "{}", 404),
        ("GET", format!("/templates/none/files/{}", "0".repeat(64)), "", 404),
        ("GET", "/templates/none/builds/none/status".into(), "", 404),
        ("POST", "/templates/tags".into(), r#"{"target":"none:a","tags":["b"]}"#, 404),
        ("GET", "/v2/templates/none".into(), "", 501),
    ] {
        let answer = control.ask(method, &path).bytes(body.as_bytes()).send();
        is_refused(&answer, status, &format!("{method} {path} {body}"));
    }
    let data = served.client().with("e2b-sandbox-id", &id).with("x-access-token", &token);
    // Unary calls answer with a code of the protocol; streams answer 200, and end with it.
    let frame = |body: &str| [&[0, 0, 0, 0, body.len() as u8], body.as_bytes()].concat();
    let start = |body: &[u8]| data.ask("POST", "/process.Process/Start").bytes(body).send();
    for (body, code) in [
        (frame("{"), "invalid_argument"),
        (frame("{}"), "invalid_argument"),
        (frame(r#"{"process":{"cmd":"/none"}}"#), "invalid_argument"),
        (frame(r#"{"process":{"cmd":"sh"},"pty":{"size":{"rows":0,"cols":1}}}"#), "invalid_argument"),
        (vec![0, 0xff, 0xff, 0xff, 0xff], "invalid_argument"),
        (vec![1, 0, 0, 0, 0], "invalid_argument"),
        (vec![0, 0, 0, 0, 9, b'{'], "invalid_argument"),
        (Vec::new(), "invalid_argument"),
    ] {
        let answer = start(&body);
        assert_eq!((answer.status, answer.body[0]), (200, 2), "{body:?}: {}", answer.text());
        let end: Value = serde_json::from_slice(&answer.body[5..]).unwrap();
        assert_eq!(end["error"]["code"], code, "{body:?}: {end}");
    }
    for (path, body, status, code) in [
        ("/process.Process/SendInput", json!({ "process": { "pid": 99999 } }), 404, "not_found"),
        ("/process.Process/SendInput", json!({}), 400, "invalid_argument"),
        ("/process.Process/Nothing", json!({}), 501, "unimplemented"),
        ("/filesystem.Filesystem/Stat", json!({ "path": "/none" }), 404, "not_found"),
        ("/filesystem.Filesystem/ListDir", json!({ "path": "/etc/passwd" }), 400, "invalid_argument"),
        ("/filesystem.Filesystem/MakeDir", json!({ "path": "/usr/x" }), 403, "permission_denied"),
        ("/filesystem.Filesystem/GetWatcherEvents", json!({ "watcherId": "x" }), 404, "not_found"),
    ] {
        let answer = data.post(path, &body);
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (status, Some(code)),
            "{path}: {}",
            answer.text()
        );
    }
    let files = |query: &str, kind: &str, body: &[u8]| {
        data.ask("POST", &format!("/files{query}")).with("content-type", kind).bytes(body).send()
    };
    for (query, kind, body, status) in [
        ("", "application/octet-stream", &b"x"[..], 400),
        ("?path=/tmp/x", "text/plain", b"x", 415),
        ("?path=/usr/x", "application/octet-stream", b"x", 403),
        ("?path=/tmp/x&username=root", "application/octet-stream", b"x", 401),
        ("", "multipart/form-data; boundary=b", b"--b--", 400),
        (
            "",
            "multipart/form-data; boundary=b",
            b"--b\r\ncontent-disposition: form-data; name=file; filename=cut\r\n\r\nx",
            400,
        ),
    ] {
        is_refused(&files(query, kind, body), status, &format!("{query} {kind}"));
    }
    let left = data.post("/filesystem.Filesystem/Stat", &json!({ "path": "cut" }));
    assert_eq!(left.status, 404, "a file that was cut is not there: {}", left.text());
}

/// What was paused without its memory does not run, and takes a place when it runs again.
#[test]
fn a_key_resumes_no_more_sandboxes_than_it_may_have() {
    let served = Served::new();
    let words = ["daemon", "grants", "create", "one", "--e2b", "--sandboxes", "1"];
    let made = served.home.belljar().args(words).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = String::from_utf8(made.stdout).unwrap().trim().to_string();
    let asking = served.client().with("x-api-key", &key);
    let (first, _) = served.sandbox(&key, json!({}));
    let new = json!({ "templateID": "base", "timeout": 120 });
    assert_eq!(asking.post("/v2/sandboxes", &new).status, 403);
    assert_eq!(asking.post(&format!("/sandboxes/{first}/pause"), &json!({ "memory": false })).status, 204);
    let (second, _) = served.sandbox(&key, json!({}));
    let connect = || asking.post(&format!("/v2/sandboxes/{first}/connect"), &json!({ "timeout": 60 }));
    is_refused(&connect(), 403, "a second one");
    assert_eq!(asking.delete(&format!("/sandboxes/{second}")).status, 204);
    assert_eq!(connect().status, 201);
}

/// A daemon that is killed while sandboxes are made, run and have ended: nothing that a client was told is lost, and nothing is left.
#[test]
fn a_daemon_that_is_killed_forgets_no_sandbox_and_leaves_none() {
    let mut served = Served::new();
    let key = served.key("own");
    let (lives, token) = served.sandbox(&key, json!({ "metadata": { "a": "b" } }));
    let (short, _) = served.sandbox(&key, json!({ "timeout": 1 }));
    let asking = || served.client().with("x-api-key", &key);
    let again = json!({ "templateID": "base", "timeout": 100 });
    let once = |client: &Client| {
        client.ask("POST", "/v2/sandboxes").with("idempotency-key", "same").json(&again).send().ok()
    };
    let first = once(&asking());
    drop(served.started.take());
    std::thread::sleep(std::time::Duration::from_millis(1100));
    served.start();
    let asking = || served.client().with("x-api-key", &key);
    assert_eq!(once(&asking())["sandboxID"], first["sandboxID"], "the same request is the same sandbox");
    let found = asking().get(&format!("/sandboxes/{lives}")).ok();
    assert_eq!((&found["metadata"], &found["envdAccessToken"]), (&json!({ "a": "b" }), &json!(token)));
    let is_gone = || asking().get(&format!("/sandboxes/{short}")).status == 404;
    assert!(belljar_tests_daemon::eventually(is_gone), "its time was over while no daemon was there");
    for id in [lives, first["sandboxID"].as_str().unwrap().to_string()] {
        assert_eq!(asking().delete(&format!("/sandboxes/{id}")).status, 204);
        assert_eq!(asking().delete(&format!("/sandboxes/{id}")).status, 404);
    }
    // The same request again makes another sandbox, under the same id: what opened the first one opens it not.
    let successor = once(&asking());
    assert_eq!(successor["sandboxID"], first["sandboxID"]);
    let id = first["sandboxID"].as_str().unwrap();
    let listing = |sandbox: &Value| {
        let data = served.client().with("e2b-sandbox-id", id).with("e2b-sandbox-port", "49983");
        let data = data.with("x-access-token", sandbox["envdAccessToken"].as_str().unwrap());
        data.post("/process.Process/List", &json!({})).status
    };
    assert_eq!((listing(&first), listing(&successor)), (401, 200));
    assert_eq!(asking().delete(&format!("/sandboxes/{id}")).status, 204);
    let places = || std::fs::read_dir(served.home.places()).unwrap().count();
    assert!(belljar_tests_daemon::eventually(|| places() == 0), "files of sandboxes are left");
    served.home.is_clean(&[], &[], served.started.as_ref());
}

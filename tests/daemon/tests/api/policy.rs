//! The policy of a sandbox that lives, over the API: what a grant may change, and that nothing else does.

use belljar_tests_daemon::{Client, Home, Sandbox, eventually};
use serde_json::{Value, json};

fn grant(owner: &Client, requested: Value) -> String {
    owner.post("/v1/grants", &requested).ok()["token"].as_str().unwrap().to_string()
}

#[test]
fn a_grant_steers_its_own_sandboxes_and_never_beyond_its_names() {
    let home = Home::new().listening();
    let daemon = home.start();
    let owner = home.client();
    let one = grant(
        &owner,
        json!({ "name": "one", "allow_sandbox": true, "keys": ["one*"], "hosts": ["a.example"] }),
    );
    let other =
        grant(&owner, json!({ "name": "other", "allow_sandbox": true, "keys": ["*"], "hosts": ["*"] }));
    let one = home.stranger().token(&one);
    let other = home.stranger().token(&other);
    let sandbox = Sandbox::create(&one, &json!({ "key": "one" }));
    let path = sandbox.path("/policy");
    let before = one.get(&path).ok();
    assert_eq!((&before["mode"], &before["version"]), (&json!("strict"), &json!(0)));
    let change = |effect: &str, rule: &str| json!({ "effect": effect, "rule": rule });
    let changed = one.post(&path, &change("allow", "b.a.example")).ok();
    assert_eq!((&changed["version"], &changed["ended"]), (&json!(1), &json!(0)));
    assert_eq!(sandbox.run("getent hosts b.a.example > /dev/null").1, 0);
    one.post(&path, &change("allow", "b.example")).refused(403, "not_granted");
    one.post(&path, &change("allow", "*")).refused(422, "request_value");
    one.post(&path, &json!({ "effect": "allow", "rule": "a.example", "for_s": 0 }))
        .refused(400, "request_invalid");
    one.post(&path, &json!({ "effect": "allow", "rule": "a.example", "for_s": 9, "once": true }))
        .refused(422, "request_conflict");
    one.post(&path, &json!({ "effect": "deny", "rule": "a.example", "once": true }))
        .refused(422, "request_conflict");
    // Another grant may join such a sandbox, and change nothing of it.
    let refused = other.post(&path, &change("allow", "a.example"));
    assert!([403, 404].contains(&refused.status), "{}", refused.text());
    one.post(&sandbox.path("/questions/1"), &json!({ "verdict": "sandbox" })).refused(404, "name_unknown");
    let after = one.get(&path).ok();
    assert_eq!(after["version"], 1, "what was refused changed nothing");
    owner.post(&path, &change("deny", "a.example")).ok();
    assert_eq!(sandbox.run("getent hosts b.a.example > /dev/null").1, 2);
    let log = owner.get(&sandbox.path("/egress")).ok();
    let by: Vec<&Value> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|record| record["event"]["kind"] == "policy_changed")
        .map(|record| &record["event"]["by"])
        .collect();
    assert!(by.len() >= 2 && by[0].as_str().unwrap().starts_with("grant "), "{by:?}");
    assert_eq!(by[by.len() - 1], "the owner, over the API");
    drop(daemon);
}

#[test]
fn a_question_is_told_and_answered_over_the_api() {
    let home = Home::new().listening();
    let daemon = home.start();
    let owner = home.client();
    let requested = json!({ "name": "asks", "allow_sandbox": true, "keys": ["*"], "hosts": ["yes.example"], "egress": ["ask"] });
    let asks = home.stranger().token(&grant(&owner, requested));
    let sandbox =
        Sandbox::create(&asks, &json!({ "key": "asks", "sandbox": { "egress": { "mode": "ask" } } }));
    let mut events = asks.events("/v1/questions?follow=true").unwrap();
    let script =
        "for name in yes no; do (exec 3<>/dev/tcp/$name.example/443) 2>> said; echo $name $? >> said; done";
    let command = sandbox.start(&format!("bash -c '{script}'"));
    let question = |name: &str| -> Value {
        let mut found = Value::Null;
        eventually(|| {
            let all = asks.get("/v1/questions").ok();
            let mut items = all["items"].as_array().unwrap().iter();
            found = items.find(|one| one["question"]["name"] == name).cloned().unwrap_or_default();
            !found.is_null()
        });
        found
    };
    let first = question("yes.example");
    assert_eq!(first["sandbox"], sandbox.name.as_str());
    let reported = events.next().unwrap().json();
    assert_eq!(reported["question"]["name"], "yes.example", "{reported}");
    let answer = |one: &Value, verdict: &str| {
        let path = sandbox.path(&format!("/questions/{}", one["question"]["id"]));
        asks.post(&path, &json!({ "verdict": verdict }))
    };
    // A page that shows the question of an earlier life names that one.
    let path = sandbox.path(&format!("/questions/{}", first["question"]["id"]));
    asks.post(&path, &json!({ "verdict": "sandbox", "rule": "=other.example" })).refused(404, "name_unknown");
    answer(&first, "sandbox").ok();
    // The name resolves nowhere, and the program tries the next one.
    let second = question("no.example");
    answer(&second, "sandbox").refused(403, "not_granted");
    answer(&second, "deny").ok();
    answer(&second, "deny").refused(404, "name_unknown");
    command.wait();
    let policy = asks.get(&sandbox.path("/policy")).ok();
    let rules: Vec<(&str, &str)> = policy["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (rule["effect"].as_str().unwrap(), rule["rule"].as_str().unwrap()))
        .collect();
    assert_eq!(rules, [("allow", "=yes.example"), ("deny", "=no.example:443")]);
    drop(daemon);
}

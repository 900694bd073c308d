//! `/metrics`: text that a strict reader takes, numbers that only grow, and nothing of anybody's in a label.

use belljar_tests_daemon::{Client, Home, Sandbox, eventually};
use belljar_tests_hosts::{Dns, HttpServer, Response};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;

#[test]
fn numbers_only_grow_and_carry_no_names() {
    let server = HttpServer::start(Ipv4Addr::LOCALHOST, |_| Response::ok("0123456789"));
    let names = Dns::of([("files.example", Ipv4Addr::LOCALHOST.into())]);
    let home = Home::new()
        .operator(&format!("[egress]\nprivate = [\"127.0.0.0/8\"]\nresolvers = [\"{}\"]\n", names.address()));
    let daemon = home.start();
    let client = home.client();
    assert_eq!(scrape(&client)["belljar_shims"], 0.0);
    let port = server.address().port();
    let request = json!({ "key": "secret-key", "persistent": false, "sandbox": {
        "workspace": { "folder": home.folder("work") },
        "egress": { "mode": "strict", "allow": [format!("files.example:{port}/http")] },
    }});
    let sandbox = Sandbox::create(&client, &request);
    assert_eq!(sandbox.run(&format!("curl -sS http://files.example:{port}/")).0, "0123456789");
    assert_ne!(sandbox.run("curl -sS http://secret-name.example/").1, 0);
    assert_eq!(sandbox.run("sleep 0.3; exit 3").1, 3);
    let live = format!(
        "belljar_sandboxes{{state=\"live\",backend=\"{}\"}}",
        sandbox.info()["backend"].as_str().unwrap()
    );
    let expected = [
        (live.as_str(), 1.0),
        ("belljar_shims", 1.0),
        (r#"belljar_execs_total{outcome="ok"}"#, 1.0),
        (r#"belljar_execs_total{outcome="failed"}"#, 2.0),
        ("belljar_exec_duration_seconds_count", 3.0),
        ("belljar_start_duration_seconds_count", 1.0),
        ("belljar_egress_connections_total", 1.0),
        ("belljar_llm_calls_total", 0.0),
    ];
    // A connection is counted when it is closed, a moment later than curl ends.
    let received = r#"belljar_egress_bytes_total{direction="received"}"#;
    assert!(eventually(|| scrape(&client)[received] > 10.0));
    let first = scrape(&client);
    for (series, value) in expected {
        assert_eq!(first[series], value, "{series}: {first:#?}");
    }
    assert!(first[r#"belljar_egress_refusals_total{reason="name_not_allowed"}"#] >= 1.0);
    assert!(first["belljar_exec_duration_seconds_sum"] >= 0.3);
    assert!(first["belljar_shim_resident_memory_bytes"] > 1e6);

    // What a sandbox counted outlives it, also one that is killed, and one that was a run.
    client.post("/v1/run-once", &json!({ "argv": ["true"] })).ok();
    let other = Sandbox::create(&client, &json!({}));
    other.run("true");
    sandbox.delete();
    let shim = home.shim(&other.name).unwrap();
    belljar_tests_daemon::kill(shim);
    assert!(eventually(|| scrape(&client)["belljar_shims"] == 0.0));
    let second = scrape(&client);
    has_grown(&first, &second);
    assert_eq!(second[r#"belljar_execs_total{outcome="ok"}"#], 3.0);
    assert_eq!(second["belljar_start_duration_seconds_count"], 3.0);

    // A new daemon begins at zero, whatever lives on from before.
    let kept = Sandbox::create(&client, &json!({}));
    kept.run("true");
    daemon.kill();
    let daemon = home.start();
    let third = scrape(&client);
    assert!(third["process_start_time_seconds"] > first["process_start_time_seconds"]);
    assert_eq!((third["belljar_shims"], third["belljar_exec_duration_seconds_count"]), (1.0, 0.0));
    kept.run("true");
    assert_eq!(scrape(&client)["belljar_exec_duration_seconds_count"], 1.0);
    kept.delete();
    let fourth = scrape(&client);
    has_grown(&third, &fourth);
    assert_eq!((fourth["belljar_shims"], fourth["belljar_exec_duration_seconds_count"]), (0.0, 1.0));
    drop(daemon);
}

#[test]
fn metrics_need_a_grant_that_says_so() {
    let home = Home::new().listening();
    let _daemon = home.start();
    home.stranger().get("/metrics").refused(401, "token_invalid");
    for (allowed, status) in [(false, 403), (true, 200)] {
        let rules = json!({ "name": "prometheus", "allow_metrics": allowed });
        let token = home.client().post("/v1/grants", &rules).ok()["token"].as_str().unwrap().to_string();
        let stranger = home.stranger().token(&token);
        assert_eq!(stranger.get("/metrics").status, status);
        assert_eq!(stranger.post("/v1/sandboxes", &json!({})).status, 403);
    }
}

#[test]
fn a_daemon_and_its_shims_log_what_they_are_told_to() {
    let home = Home::new().env("BELLJAR_LOG", "debug").args(&["--log-format", "json"]);
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    assert_eq!(sandbox.run("env | grep -c BELLJAR_LOG").0, "0\n");
    let shim = fs::read_to_string(home.places().join(&sandbox.name).join("keeper.log")).unwrap();
    for (log, span) in [(&home.log(), "request"), (&shim, "exec")] {
        for line in log.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
        assert!(log.contains(&format!(r#""name":"{span}"}}"#)), "{log}");
    }
    assert!(shim.contains(&format!(r#""sandbox.id":"{}""#, sandbox.id())), "{shim}");
    // By its template: a path has names of sandboxes.
    assert!(home.log().contains(r#""http.route":"/v1/sandboxes/{name}/commands""#), "{}", home.log());
    assert!(!home.log().contains(&sandbox.path("/commands")), "{}", home.log());
    sandbox.delete();
    drop(daemon);
}

/// Every series and its value, of text that is as OpenMetrics 1.0 says.
#[track_caller]
fn scrape(client: &Client) -> BTreeMap<String, f64> {
    let answer = client.get("/metrics");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(kind));
    let text = answer.text();
    assert!(!text.contains("secret-"), "{text}");
    let body = text.strip_suffix("# EOF\n").unwrap();
    let mut series = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    let mut bucket = (f64::NEG_INFINITY, 0.0);
    for line in body.lines() {
        if let Some(printed) = line.strip_prefix("# ") {
            let [word, name, rest] = printed.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            match word {
                "TYPE" => {
                    assert!(families.insert(name.to_string()), "twice: {line}");
                    (family, kind, bucket) = (name.into(), rest.into(), (f64::NEG_INFINITY, 0.0));
                    assert!(["gauge", "counter", "histogram", "info"].contains(&rest), "{line}");
                }
                "UNIT" => assert!(name == family && name.ends_with(&format!("_{rest}")), "{line}"),
                "HELP" => assert!(name == family && !rest.is_empty(), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let (base, labels) = name.split_once('{').map_or((name, None), |(base, labels)| (base, Some(labels)));
        let suffix = base.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("no family: {line}"));
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{line}");
        for label in
            labels.map(|labels| labels.strip_suffix('}').unwrap()).iter().flat_map(|all| all.split(','))
        {
            let (name, value) = label.split_once("=\"").unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            assert!(!value.strip_suffix('"').unwrap().contains(['"', '\\', '\n']), "{line}");
            if let ("_bucket", Some(bound)) = (suffix, value.strip_suffix('"')) {
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                assert!(bound > bucket.0 && value_of(line) >= bucket.1, "{line}");
                bucket = (bound, value_of(line));
            }
        }
        if suffix == "_count" {
            assert_eq!((bucket.0, bucket.1), (f64::INFINITY, value), "{line}");
        }
        assert!(series.insert(name.to_string(), value).is_none(), "twice: {line}");
    }
    series
}

fn value_of(line: &str) -> f64 {
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// No counter is smaller than before.
#[track_caller]
fn has_grown(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) {
    let is_counter =
        |name: &&String| ["_total", "_bucket", "_sum", "_count"].iter().any(|word| name.contains(word));
    for name in before.keys().filter(is_counter) {
        assert!(after[name] >= before[name], "{name}: {} and then {}", before[name], after[name]);
    }
}

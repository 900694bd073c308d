//! A proxy that the gateway dials through is told of what policy allowed, and of nothing else.

use belljar_spec::egress::{EgressPolicy, Mode, ProxyResolve, UpstreamProxy};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns, Server};
use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Mutex};

/// Says yes to everything, answers as the server would, and keeps what it was asked for.
struct Proxy {
    server: Server,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start() -> Proxy {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&requests);
        let server = Server::start(at("127.0.0.1"), move |mut stream| {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            known.lock().unwrap().extend(lines.next());
            lines.by_ref().find(String::is_empty);
            let _ = stream.write_all(b"HTTP/1.1 200 fine\r\n\r\n");
            let _ = stream.write_all(lines.next().unwrap_or_default().as_bytes());
        });
        Proxy { server, requests }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn through(proxy: &Proxy, resolve: ProxyResolve, policy: EgressPolicy) -> EgressPolicy {
    let at = format!("http://127.0.0.1:{}", proxy.server.port()).parse().unwrap();
    let except = vec!["direct.test".parse().unwrap()];
    EgressPolicy { proxy: Some(UpstreamProxy { at, secret: None, resolve, except }), ..policy }
}

const SEND: &str = r#"
for name in sys.argv[1:]:
    attack(name, lambda: answered(name, 7, b'hello\n'))
"#;

#[test]
fn a_proxy_is_asked_for_judged_addresses_of_allowed_names_alone() {
    let proxy = Proxy::start();
    let dns = Dns::start(|query| match query.name.as_str() {
        "good.test" | "both.test" | "denied.test" => vec![at("93.184.216.34")],
        "metadata.test" => vec![at("169.254.169.254")],
        "mixed.test" => vec![at("93.184.216.34"), at("10.0.0.5")],
        _ => vec![at("127.0.0.1")],
    });
    for backend in gateway_backends() {
        let mut policy = policy(
            &dns,
            &[
                "good.test:7/tcp",
                "metadata.test:7/tcp",
                "mixed.test:7/tcp",
                "loopback.test:7/tcp",
                "host.belljar.internal:7/tcp",
            ],
        );
        policy.private = Vec::new();
        let cage = cage(*backend, &through(&proxy, ProxyResolve::Here, policy));
        let names = [
            "good.test",
            "metadata.test",
            "mixed.test",
            "loopback.test",
            "denied.test",
            "host.belljar.internal",
            "93.184.216.34",
            "127.0.0.1",
        ];
        assert_eq!(cage.attack(SEND, &names), ["good.test b'hello'"], "{backend}");
        assert_eq!(proxy.requests(), ["CONNECT 93.184.216.34:7 HTTP/1.1"], "{backend}");
        let opened: Vec<String> =
            cage.lines().into_iter().filter(|line| line.contains("connection_opened")).collect();
        assert!(
            opened.len() == 1
                && opened[0].contains(r#""address":"93.184.216.34","proxy":"http://127.0.0.1:"#),
            "{opened:?}"
        );
    }
}

#[test]
fn a_proxy_that_looks_names_up_is_told_names_that_a_rule_has() {
    let (proxy, dns, direct) =
        (Proxy::start(), Dns::of([("direct.test", at("127.0.0.1"))]), Capture::start(at("127.0.0.1")));
    for backend in gateway_backends() {
        for mode in [Mode::Strict, Mode::Open] {
            let rules = [
                "good.test:7/tcp",
                "localhost:7/tcp",
                "host.belljar.internal:7/tcp",
                &format!("direct.test:{}/tcp", direct.port()),
            ];
            let mut policy = EgressPolicy { mode, ..policy(&dns, &rules) };
            policy.private = Vec::new();
            let cage = cage(*backend, &through(&proxy, ProxyResolve::Proxy, policy));
            let names = ["good.test", "other.test", "localhost", "host.belljar.internal", "93.184.216.34"];
            assert_eq!(cage.attack(SEND, &names), ["good.test b'hello'"], "{backend} {mode}");
            let script =
                "attack('direct', lambda: answered('direct.test', sys.argv[1], b'hello', timeout=0.3))";
            assert!(cage.attack(script, &[&direct.port().to_string()]).is_empty(), "{backend} {mode}");
            assert_eq!(proxy.requests(), ["CONNECT good.test:7 HTTP/1.1"], "{backend} {mode}");
        }
    }
    // What is dialled without it is judged here.
    direct.assert_nothing_arrived();
    assert!(dns.queries().iter().all(|query| query.name == "direct.test"), "{:?}", dns.queries());
}

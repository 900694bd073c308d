//! What the host fetches for a sandbox goes where the sandbox itself may go, and every redirect is judged anew.

use belljar_spec::FetchRequest;
use belljar_spec::egress::{EgressPolicy, Mode, RequestFilter};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns, HttpServer, Response};
use std::sync::atomic::{AtomicUsize, Ordering};

fn names(turn: &'static AtomicUsize) -> Dns {
    Dns::start(move |query| match query.name.as_str() {
        "good.test" => vec![at("127.66.8.1")],
        "evil.test" => vec![at("127.99.8.1")],
        "meta.test" => vec![at("169.254.169.254")],
        // Public at first, and private as soon as a check has passed.
        "turncoat.test" if turn.fetch_add(1, Ordering::SeqCst) < 2 => vec![at("127.66.8.1")],
        "turncoat.test" => vec![at("127.99.8.1")],
        _ => Vec::new(),
    })
}

#[test]
fn no_redirect_leads_where_the_sandbox_may_not_go() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let dns = names(&TURN);
    let behind = Capture::start(at("127.99.8.1"));
    let loopback = Capture::start(at("127.0.0.1"));
    let (evil, local) = (behind.port(), loopback.port());
    let redirecting = HttpServer::start(at("127.66.8.1"), move |request| {
        let to = match request.target.trim_start_matches('/') {
            "name" => format!("http://evil.test:{evil}/secret"),
            "address" => format!("http://127.99.8.1:{evil}/secret"),
            "decimal" => format!("http://2136135681:{evil}/secret"),
            "hex" => format!("http://0x7f.0x63.8.1:{evil}/secret"),
            "octal" => format!("http://0177.0143.010.01:{evil}/secret"),
            "mapped" => format!("http://[::ffff:127.99.8.1]:{evil}/secret"),
            "loopback" => format!("http://127.0.0.1:{local}/secret"),
            "zero" => format!("http://0.0.0.0:{local}/secret"),
            "localhost" => format!("http://localhost:{local}/secret"),
            "without-a-scheme" => format!("//evil.test:{evil}/secret"),
            "other-port" => format!("http://good.test:{local}/secret"),
            "userinfo" => format!("http://good.test@evil.test:{evil}/secret"),
            "backslash" => format!("http:\\\\evil.test:{evil}\\secret"),
            "wide" => format!("http://\u{ff45}vil.test:{evil}/secret"),
            "metadata" => "http://169.254.169.254/latest/meta-data/".to_string(),
            "name-of-metadata" => "http://meta.test/latest/meta-data/".to_string(),
            "turncoat" => format!("http://turncoat.test:{evil}/secret"),
            "file" => "file:///etc/passwd".to_string(),
            "gopher" => format!("gopher://evil.test:{evil}/x"),
            "tls" => format!("https://evil.test:{evil}/secret"),
            _ => return Response::ok("here"),
        };
        Response::redirect(302, &to)
    });
    let roads = [
        "name",
        "address",
        "decimal",
        "hex",
        "octal",
        "mapped",
        "loopback",
        "zero",
        "localhost",
        "without-a-scheme",
        "other-port",
        "userinfo",
        "backslash",
        "wide",
        "metadata",
        "name-of-metadata",
        "turncoat",
        "file",
        "gopher",
        "tls",
    ];
    for backend in gateway_backends() {
        let mut policy = policy(
            &dns,
            &[
                &format!("=good.test:{}/http", redirecting.port()),
                &format!("=turncoat.test:{evil}/http"),
                "=meta.test",
            ],
        );
        policy.private = vec!["127.66.8.1/32".parse().unwrap()];
        for mode in [Mode::Strict, Mode::Open] {
            TURN.store(0, Ordering::SeqCst);
            let cage = cage(*backend, &EgressPolicy { mode, ..policy.clone() });
            for road in roads {
                let url = format!("http://good.test:{}/{road}", redirecting.port());
                let outcome = wait_for(cage.sandbox.fetch(FetchRequest::get(url)));
                // One that cannot be followed is given back as it is.
                assert!(
                    !outcome.as_ref().is_ok_and(|got| got.status != 302),
                    "{backend}: {mode}: {road}: {outcome:?}"
                );
            }
            behind.assert_nothing_arrived();
            loopback.assert_nothing_arrived();
            let fine = FetchRequest::get(format!("http://good.test:{}/fine", redirecting.port()));
            assert_eq!(wait_for(cage.sandbox.fetch(fine)).unwrap().body, b"here", "{backend}: {mode}");
        }
    }
}

#[test]
fn what_is_fetched_cannot_say_for_whom_it_is() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let dns = names(&TURN);
    let server = Capture::start(at("127.66.8.1"));
    let backend = backends()[0];
    let cage = cage(backend, &policy(&dns, &[&format!("=good.test:{}/http", server.port())]));
    let url = format!("http://good.test:{}/", server.port());
    for (name, value) in [
        ("Host", "evil.test"),
        ("host", "evil.test"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "0"),
        ("Connection", "upgrade"),
        ("Upgrade", "h2c"),
        ("X\r\nHost", "evil.test"),
        ("X", "y\r\nHost: evil.test"),
        ("X", "y\nHost: evil.test"),
        ("X ", "y"),
        ("", "y"),
    ] {
        let mut request = FetchRequest::get(&url);
        request.timeout = std::time::Duration::from_millis(300);
        request.headers = vec![(name.into(), value.into())];
        assert!(wait_for(cage.sandbox.fetch(request)).is_err(), "{name}: {value}");
    }
    for method in ["CONNECT", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\nGET", "", "G T"] {
        let mut request = FetchRequest::get(&url);
        request.timeout = std::time::Duration::from_millis(300);
        request.method = method.into();
        assert!(wait_for(cage.sandbox.fetch(request)).is_err(), "{method}");
    }
    server.assert_nothing_arrived();
}

#[test]
fn what_is_fetched_names_no_other_method_or_path_where_rules_limit_them() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let dns = names(&TURN);
    let server = Capture::start(at("127.66.8.1"));
    let backend = backends()[0];
    let mut policy = policy(&dns, &[&format!("=good.test:{}/http", server.port())]);
    policy.private = vec!["127.66.8.1/32".parse().unwrap()];
    policy.allow[0].requests = Some(RequestFilter {
        methods: vec!["POST".parse().unwrap()],
        paths: vec!["/in/**".parse().unwrap()],
    });
    let cage = cage(backend, &policy);
    for (header, query) in [
        (Some(("X-HTTP-Method-Override", "DELETE")), ""),
        (Some(("X-Original-URL", "/out/x")), ""),
        (Some(("X-Forwarded-Host", "evil.test")), ""),
        (None, "?_method=DELETE"),
    ] {
        let mut request = FetchRequest::get(format!("http://good.test:{}/in/x{query}", server.port()));
        request.timeout = std::time::Duration::from_millis(300);
        request.method = "POST".into();
        request.headers = header.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let error = wait_for(cage.sandbox.fetch(request)).unwrap_err().to_string();
        assert!(error.contains("more than one way"), "{header:?} {query}: {error}");
    }
    server.assert_nothing_arrived();
}

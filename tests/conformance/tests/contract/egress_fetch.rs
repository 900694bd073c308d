//! `fetch`: the host gets something for the sandbox, by the same policy and with the same record.

use belljar_spec::egress::{EgressPolicy, Mode, Reason};
use belljar_spec::{BackendName, ErrorCode, ErrorKind, SandboxError};
use belljar_spec::{FetchRequest, FetchResponse};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{HttpServer, Response, Server};
use std::time::{Duration, Instant};

for_every_isolated_backend! {
    each_launcher:
        an_allowed_name_is_fetched,
        a_name_that_is_not_allowed_is_not_fetched,
        a_disposed_sandbox_fetches_nothing;
    once:
        https_is_checked_against_what_is_trusted,
        a_body_and_headers_are_sent,
        a_response_comes_back_whole,
        an_address_is_not_fetched,
        a_redirect_to_an_allowed_host_is_followed,
        a_redirect_to_a_refused_host_is_refused,
        redirects_end_somewhere,
        a_redirect_can_be_left_alone,
        secrets_for_one_host_are_not_told_another,
        a_body_for_one_host_is_not_sent_to_another,
        a_fetch_takes_the_place_of_a_connection,
        a_post_that_is_redirected_becomes_a_get,
        a_body_that_is_too_large_is_refused,
        an_answer_that_is_too_slow_is_refused,
        a_request_that_makes_no_sense_is_said_to,
        without_egress_nothing_is_fetched,
        a_fetch_is_recorded;
}

async fn an_allowed_name_is_fetched(backend: BackendName) {
    let (_world, web, fixture) =
        web(backend, |request| Response::ok(format!("{} {}", request.method, request.target))).await;
    let fetched = get(&fixture, &url(&web, "/a/b?c=d%20e#f")).await.expect("it is allowed");
    assert_eq!((fetched.status, text(&fetched.body).as_str()), (200, "GET /a/b?c=d%20e"));
    assert_eq!(web.requests()[0].header("host"), Some(format!("api.test:{}", web.port()).as_str()));
}

async fn https_is_checked_against_what_is_trusted(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let web = HttpServer::start_tls(LOOPBACK, &world.authority.leaf(["api.test"]), |_| Response::ok("hello"));
    let rules = [format!("api.test:{}", web.port()), format!("other.test:{}", web.port())];
    let fixture = world.fixture(backend, world.policy(rules)).await;
    let trusting = |name: &str| FetchRequest {
        trust: world.authority.pem().into_bytes(),
        ..FetchRequest::get(format!("https://{name}:{}/", web.port()))
    };
    assert_eq!(fixture.fetch(trusting("api.test")).await.expect("it is trusted").body, b"hello");
    // The first request does not trust that authority, and the certificate is not for the name of the second.
    let untrusted = FetchRequest::get(format!("https://api.test:{}/", web.port()));
    for request in [untrusted, trusting("other.test")] {
        let error = fixture.fetch(request).await.expect_err("it is not");
        assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::ConnectionFailed), "{error}");
    }
    assert_eq!(web.requests().len(), 1);
}

async fn a_body_and_headers_are_sent(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| Response::ok(request.body.clone())).await;
    let request = FetchRequest {
        method: "POST".into(),
        headers: vec![("Authorization".into(), "Bearer x".into()), ("X-Y".into(), "z".into())],
        body: vec![7; 100_000],
        ..FetchRequest::get(url(&web, "/"))
    };
    assert_eq!(fixture.fetch(request).await.expect("it is allowed").body, vec![7; 100_000]);
    let request = &web.requests()[0];
    assert_eq!((request.method.as_str(), request.header("x-y")), ("POST", Some("z")));
    assert_eq!(request.header("authorization"), Some("Bearer x"));
}

async fn a_response_comes_back_whole(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| match request.target.as_str() {
        "/missing" => {
            Response { status: 404, headers: vec![("X-Why".into(), "gone".into())], ..Response::ok("no") }
        }
        _ => Response { chunks: Some(777), ..Response::ok(vec![b'x'; 3_000_000]) },
    })
    .await;
    let missing = get(&fixture, &url(&web, "/missing")).await.expect("an answer is an answer");
    assert_eq!((missing.status, missing.body.as_slice()), (404, b"no".as_slice()));
    assert!(missing.headers.contains(&("x-why".into(), b"gone".to_vec())), "{:?}", missing.headers);
    assert_eq!(get(&fixture, &url(&web, "/")).await.expect("it is allowed").body.len(), 3_000_000);
    let head = FetchRequest { method: "HEAD".into(), ..FetchRequest::get(url(&web, "/missing")) };
    assert_eq!(fixture.fetch(head).await.expect("it is allowed").body, b"");
}

async fn a_name_that_is_not_allowed_is_not_fetched(backend: BackendName) {
    let (world, web, fixture) = web(backend, |_| Response::ok("")).await;
    let refused =
        refusal(get(&fixture, &format!("http://other.test:{}/", web.port())).await, Reason::NameNotAllowed);
    assert!(refused.hint.is_some_and(|hint| hint.to_string().contains("--allow other.test")));
    refusal(get(&fixture, "http://api.test:1/").await, Reason::PortNotAllowed);
    refusal(get(&fixture, &format!("https://api.test:{}/", web.port())).await, Reason::ProtocolNotAllowed);
    assert_eq!((web.accepted(), world.dns.queries().len()), (0, 0));
    let names: Vec<String> = fixture.refusals().into_iter().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["other.test", "api.test", "api.test"]);
}

async fn an_address_is_not_fetched(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |_| Response::ok("")).await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0177.0.0.1",
        "169.254.169.254",
    ] {
        refusal(get(&fixture, &format!("http://{host}:{}/", web.port())).await, Reason::DirectAddress);
    }
    assert_eq!(web.accepted(), 0);
}

async fn a_redirect_to_an_allowed_host_is_followed(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let target = HttpServer::start(LOOPBACK, |request| Response::ok(request.target.as_str()));
    let to = format!("http://other.test:{}/there", target.port());
    let web = HttpServer::start(LOOPBACK, move |request| match request.target.as_str() {
        "/" => Response::redirect(302, "/nearer"),
        _ => Response::redirect(307, &to),
    });
    let rules = [format!("api.test:{}", web.port()), format!("other.test:{}", target.port())];
    let fixture = world.fixture(backend, world.policy(rules)).await;
    let fetched = get(&fixture, &url(&web, "/")).await.expect("both are allowed");
    assert_eq!((fetched.status, fetched.body.as_slice()), (200, b"/there".as_slice()));
    assert_eq!(fetched.url, format!("http://other.test:{}/there", target.port()));
}

async fn a_redirect_to_a_refused_host_is_refused(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let target = HttpServer::start(LOOPBACK, |_| Response::ok("secret"));
    let port = target.port();
    let web = HttpServer::start(LOOPBACK, move |request| match request.target.as_str() {
        "/name" => Response::redirect(302, &format!("http://other.test:{port}/")),
        "/address" => Response::redirect(301, &format!("http://127.0.0.1:{port}/")),
        _ => Response::redirect(308, &format!("http://api.test:{port}/")),
    });
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", web.port())])).await;
    refusal(get(&fixture, &url(&web, "/name")).await, Reason::NameNotAllowed);
    refusal(get(&fixture, &url(&web, "/address")).await, Reason::DirectAddress);
    refusal(get(&fixture, &url(&web, "/port")).await, Reason::PortNotAllowed);
    assert_eq!(target.accepted(), 0);
}

async fn redirects_end_somewhere(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |_| Response::redirect(302, "/")).await;
    let request = FetchRequest { max_redirects: 3, ..FetchRequest::get(url(&web, "/")) };
    refusal(fixture.fetch(request).await, Reason::TooManyRedirects);
    assert_eq!(web.requests().len(), 4);
}

async fn a_redirect_can_be_left_alone(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |_| Response::redirect(302, "http://other.test/")).await;
    let request = FetchRequest { max_redirects: 0, ..FetchRequest::get(url(&web, "/")) };
    assert_eq!(fixture.fetch(request).await.expect("it is an answer").status, 302);
}

async fn secrets_for_one_host_are_not_told_another(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let target = HttpServer::start(LOOPBACK, |_| Response::ok(""));
    let to = format!("http://other.test:{}/", target.port());
    let web = HttpServer::start(LOOPBACK, move |_| Response::redirect(307, &to));
    let rules = [format!("api.test:{}", web.port()), format!("other.test:{}", target.port())];
    let fixture = world.fixture(backend, world.policy(rules)).await;
    let secrets = [
        ("Authorization", "Bearer x"),
        ("Cookie", "a=b"),
        ("Proxy-Authorization", "c"),
        ("X-Api-Key", "d"),
        ("Private-Token", "e"),
        ("X-Y", "z"),
    ];
    let reported = [("Accept", "text/plain"), ("Accept-Language", "de"), ("User-Agent", "me")];
    let headers = secrets.iter().chain(&reported);
    let request = FetchRequest {
        headers: headers.map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..FetchRequest::get(url(&web, "/"))
    };
    fixture.fetch(request).await.expect("both are allowed");
    let (first, second) = (&web.requests()[0], &target.requests()[0]);
    for (name, value) in secrets {
        assert_eq!(first.header(&name.to_lowercase()), Some(value), "{name}");
        assert_eq!(second.header(&name.to_lowercase()), None, "{name}");
    }
    for (name, value) in reported {
        assert_eq!(second.header(&name.to_lowercase()), Some(value), "{name}");
    }
}

async fn a_body_for_one_host_is_not_sent_to_another(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let target = HttpServer::start(LOOPBACK, |_| Response::ok("there"));
    let to = format!("http://other.test:{}/", target.port());
    let web = HttpServer::start(LOOPBACK, move |request| {
        Response::redirect(request.target[1..].parse().unwrap_or(500), &to)
    });
    let rules = [format!("api.test:{}", web.port()), format!("other.test:{}", target.port())];
    let fixture = world.fixture(backend, world.policy(rules)).await;
    let post = |path: &str| FetchRequest {
        method: "POST".into(),
        body: b"for api.test".to_vec(),
        headers: vec![("Content-Type".into(), "text/plain".into())],
        ..FetchRequest::get(url(&web, path))
    };
    for status in [307, 308] {
        let answer = fixture.fetch(post(&format!("/{status}"))).await.expect("the redirect is the answer");
        assert_eq!((answer.status, answer.url), (status, url(&web, &format!("/{status}"))));
    }
    assert_eq!(target.accepted(), 0);
    // It continues without the body where it becomes a GET.
    assert_eq!(fixture.fetch(post("/303")).await.expect("both are allowed").body, b"there");
    let reported = &target.requests()[0];
    assert_eq!((reported.method.as_str(), reported.body.as_slice()), ("GET", &b""[..]));
    assert_eq!(reported.header("content-type"), None);
}

async fn a_fetch_takes_the_place_of_a_connection(backend: BackendName) {
    let silent = Server::start(LOOPBACK, |stream| {
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    });
    let web = HttpServer::start(LOOPBACK, |request| match request.target.as_str() {
        "/" => Response::redirect(302, "/end"),
        _ => Response::ok("end"),
    });
    let world = World::new([("api.test", "127.0.0.1")]);
    let rules = [format!("api.test:{}", silent.port()), format!("api.test:{}", web.port())];
    let mut policy = world.policy(rules);
    policy.limits.connections = 1;
    let fixture = world.fixture(backend, policy).await;
    // A redirect needs no second one.
    assert_eq!(get(&fixture, &url(&web, "/")).await.expect("there is a place").body, b"end");
    let waiting = format!("http://api.test:{}/", silent.port());
    let meanwhile = async {
        while silent.accepted() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        refusal(get(&fixture, &url(&web, "/end")).await, Reason::TooManyConnections);
    };
    tokio::select! {
        _ = get(&fixture, &waiting) => panic!("no server answers it"),
        () = meanwhile => {}
    }
}

async fn a_post_that_is_redirected_becomes_a_get(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| match request.target.as_str() {
        "/other" => Response::redirect(303, "/end"),
        "/same" => Response::redirect(307, "/end"),
        _ => Response::ok(format!("{} {}", request.method, request.body.len())),
    })
    .await;
    for (path, expected) in [("/other", "GET 0"), ("/same", "POST 3")] {
        let request = FetchRequest {
            method: "POST".into(),
            body: b"abc".to_vec(),
            ..FetchRequest::get(url(&web, path))
        };
        assert_eq!(text(&fixture.fetch(request).await.expect("it is allowed").body), expected);
    }
}

async fn a_body_that_is_too_large_is_refused(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| match request.target.as_str() {
        "/told" => Response::ok(vec![0; 10_001]),
        "/untold" => Response { chunks: Some(1000), ..Response::ok(vec![0; 10_001]) },
        _ => Response::ok(vec![0; 10_000]),
    })
    .await;
    let limited = |path: &str| FetchRequest { max_bytes: 10_000, ..FetchRequest::get(url(&web, path)) };
    refusal(fixture.fetch(limited("/told")).await, Reason::TooLarge);
    refusal(fixture.fetch(limited("/untold")).await, Reason::TooLarge);
    assert_eq!(fixture.fetch(limited("/fits")).await.expect("it fits").body.len(), 10_000);
}

async fn an_answer_that_is_too_slow_is_refused(backend: BackendName) {
    let silent = Server::start(LOOPBACK, |stream| {
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    });
    let world = World::new([("api.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", silent.port())])).await;
    for scheme in ["http", "https"] {
        let request = FetchRequest {
            timeout: Duration::from_millis(300),
            ..FetchRequest::get(format!("{scheme}://api.test:{}/", silent.port()))
        };
        let start = Instant::now();
        refusal(fixture.fetch(request).await, Reason::TooSlow);
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

async fn a_request_that_makes_no_sense_is_said_to(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |_| Response::ok("")).await;
    for address in ["", "api.test", "ftp://api.test/", "file:///etc/passwd", "http://"] {
        let error = get(&fixture, address).await.expect_err("it makes no sense");
        assert_eq!(error.code, ErrorCode::ConnectionFailed, "{address}: {error}");
    }
    let strange =
        [("Host", "other.test"), ("Transfer-Encoding", "chunked"), ("Bad Name", "x"), ("X", "a\r\nb: c")];
    for (name, value) in strange {
        let headers = vec![(name.to_string(), value.to_string())];
        let request = FetchRequest { headers, ..FetchRequest::get(url(&web, "/")) };
        assert_eq!(fixture.fetch(request).await.expect_err(name).code, ErrorCode::ConnectionFailed);
    }
    for method in ["", "GE T", "CONNECT", "GET / HTTP/1.1\r\n"] {
        let request = FetchRequest { method: method.into(), ..FetchRequest::get(url(&web, "/")) };
        assert_eq!(fixture.fetch(request).await.expect_err(method).code, ErrorCode::ConnectionFailed);
    }
    assert_eq!(web.accepted(), 0);
}

async fn without_egress_nothing_is_fetched(backend: BackendName) {
    let world = World::new([]);
    let fixture = world.fixture(backend, EgressPolicy { mode: Mode::None, ..world.policy([]) }).await;
    let error = get(&fixture, "http://api.test/").await.expect_err("it is refused");
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::EgressRefused, Reason::EgressOff.sentence())
    );
}

async fn a_fetch_is_recorded(backend: BackendName) {
    let (world, web, fixture) = web(backend, |_| Response::ok("12345")).await;
    get(&fixture, &url(&web, "/")).await.expect("it is allowed");
    let _ = get(&fixture, "http://other.test/").await;
    fixture.dispose().await;
    let events = world.events(&fixture);
    let of = |kind: &str| events.iter().find(|event| event["kind"] == *kind).cloned().unwrap_or_default();
    let fetched = of("fetched");
    assert_eq!((&fetched["name"], &fetched["status"]), (&"api.test".into(), &200.into()), "{events:?}");
    assert_eq!((&fetched["method"], &fetched["received"]), (&"GET".into(), &5.into()));
    let refused = of("fetch_refused");
    assert_eq!(
        (&refused["destination"], &refused["reason"]),
        (&"other.test".into(), &"name_not_allowed".into())
    );
    assert_eq!(world.connections(&fixture).len(), 1);
}

async fn a_disposed_sandbox_fetches_nothing(backend: BackendName) {
    let (world, web, fixture) = web(backend, |_| Response::ok("")).await;
    fixture.dispose().await;
    let error = get(&fixture, &url(&web, "/")).await.expect_err("it is gone");
    assert_eq!(error.code, ErrorCode::SandboxNotAlive, "{error}");
    assert_eq!((web.accepted(), world.dns.queries().len()), (0, 0));
    // One that is on its way ends with it.
    let silent = Server::start(LOOPBACK, |stream| {
        let _ = std::io::copy(&mut &stream, &mut std::io::sink());
    });
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", silent.port())])).await;
    let request = FetchRequest::get(format!("http://api.test:{}/", silent.port()));
    let dispose = async {
        while silent.accepted() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fixture.dispose().await;
    };
    let start = Instant::now();
    let (fetched, ()) = tokio::join!(fixture.fetch(request), dispose);
    assert_eq!(fetched.expect_err("it is gone").kind(), ErrorKind::Runtime);
    assert!(start.elapsed() < Duration::from_secs(20));
}

async fn get(fixture: &SandboxFixture, url: &str) -> Result<FetchResponse, SandboxError> {
    fixture.fetch(FetchRequest::get(url)).await
}

#[track_caller]
fn refusal(outcome: Result<FetchResponse, SandboxError>, reason: Reason) -> SandboxError {
    let error = outcome.expect_err("it is refused");
    assert_eq!((error.code, refused_for(&error)), (ErrorCode::EgressRefused, Some(reason)), "{error}");
    error
}

fn url(web: &HttpServer, path: &str) -> String {
    format!("http://api.test:{}{path}", web.port())
}

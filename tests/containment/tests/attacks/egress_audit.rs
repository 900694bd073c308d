//! The record says what happened, whatever those wish that it is about.

use belljar_spec::egress::Reason;
use belljar_spec::{ErrorCode, Permission};
use belljar_sys::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns, Server};
use std::fs;
use std::io::Read;
use std::sync::{Arc, Mutex};

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.7.1")] } else { Vec::new() })
}

#[test]
fn nothing_that_is_asked_or_said_forges_a_line() {
    let (dns, server) = (names(), Capture::start(at("127.66.7.1")));
    let port = server.port().to_string();
    for backend in gateway_backends() {
        let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}")]));
        cage.attack(
            r#"
FORGED = b'","reason":"x"},"previous":"00"}\n{"seq":9,"event":{"kind":"connection_opened","name":"forged"}}\n'
NASTY = [b'a\nb', b'a\r\nb', b'"', b'\\', b'\\"', b'\0', b'\x1b[2J\x1b]0;owned\x07', b'\x9b31m', b'\xff\xfe', '\u202e\u2028\u2029\u0085'.encode(), b'%s%n', b'</script>', FORGED[:63], b"'; rm -rf /", b'{', b'}' * 63]
for nasty in NASTY:
    for kind in (1, 16, 10):
        ask(question([nasty[:63], b'good', b'test'], kind), timeout=1)
        ask(question([nasty[:63]], kind), timeout=1)
    send('good.test', sys.argv[1], record(hello(sni(nasty[:200]))), timeout=0.1)
    head = nasty.replace(b'\n', b'').replace(b'\r', b'').replace(b'\0', b'')
    send('good.test', sys.argv[1], b'GET / HTTP/1.1\r\nHost: ' + head + b'\r\n\r\n', timeout=0.1)
    send('good.test', sys.argv[1], b'GET / HTTP/1.1\r\nHost: x' + nasty + b'\r\n\r\n', timeout=0.1)
    send('good.test', sys.argv[1], b'GET http://' + nasty + b'/ HTTP/1.1\r\nHost: good.test\r\n\r\n', timeout=0.1)
send('good.test', sys.argv[1], b'GET / HTTP/1.1\r\nHost: ' + b'A' * 60000 + b'\r\n\r\n', timeout=0.3)
"#,
            &[&port],
        );
        assert!(!cage.refused_for(Reason::HostDiffers).is_empty(), "{backend}");
        cage.sandbox.dispose_blocking();
        let raw = fs::read(cage.record()).unwrap();
        assert!(
            raw.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\n'),
            "{backend}: {}",
            text(&raw)
        );
        for (number, line) in cage.lines().iter().enumerate() {
            assert!(line.starts_with(&format!(r#"{{"seq":{number},"#)), "{backend}: {line}");
            assert!(line.ends_with(r#""}"#) && line.len() < 2000, "{backend}: {line}");
            assert!(!line.contains(r#""name":"forged""#), "{backend}: {line}");
        }
        for refused in cage.sandbox.refused() {
            let shown = refused.refusal.to_string();
            assert!(shown.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{backend}: {shown:?}");
        }
        let report = belljar_audit::verify(cage.record().parent().unwrap(), None, None, |_| {}).unwrap();
        assert_eq!(report.findings.len(), 0, "{backend}: {report:?}");
    }
}

/// Its own record, by way of a folder that was given to it.
#[test]
fn a_sandbox_cannot_rewrite_its_record_through_what_is_shared_with_it() {
    let dns = names();
    for backend in backends() {
        for road in [
            "workspace",
            "share",
            "by a link",
            "before there is a record",
            "by a link before there is a record",
        ] {
            let (place, elsewhere) = (folder(), folder());
            let link = elsewhere.path().join("link");
            std::os::unix::fs::symlink(place.path(), &link).unwrap();
            let by_link = road.contains("link");
            let records = if by_link { link.join("state/audit") } else { place.path().join("state/audit") };
            if !road.contains("before") {
                fs::create_dir_all(&records).unwrap();
            }
            let mut spec = belljar_spec::SandboxSpec {
                backend: belljar_spec::BackendChoice::Named(*backend),
                egress: Some(policy(&dns, &["=good.test"])),
                ..Default::default()
            };
            match road {
                "share" => spec.shared = vec![share(place.path(), Permission::Write)],
                _ => spec.workspace = Some(place.path().to_path_buf()),
            }
            let engine = belljar_engine::Engine::new().with_records(&records);
            // Refusing to start is an answer too, if that is why.
            let sandbox = match engine.create_blocking(&spec) {
                Ok(sandbox) => sandbox,
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::PathRefused, "{backend}: {road}: {error}");
                    continue;
                }
            };
            let jail = Jail { sandbox, workspace: folder() };
            let root =
                if road == "share" { place.path().display().to_string() } else { "/workspace".to_string() };
            jail.successes(
                r#"
for directory, _, files in os.walk(sys.argv[1]):
    for name in files:
        path = os.path.join(directory, name)
        attack(path, lambda: open(path, 'a').write('forged\n') and None)
        attack(path, lambda: os.truncate(path, 0))
        attack(path, lambda: os.rename(path, path + '.old'))
"#,
                &[&root],
            );
            let id = jail.sandbox.id();
            jail.sandbox.dispose_blocking();
            let log = records.join(format!("{id}.jsonl"));
            let printed = fs::read_to_string(&log).unwrap_or_default();
            assert!(
                printed.contains("sandbox_started") && !printed.contains("forged"),
                "{backend}: {road}: {printed:?}"
            );
        }
    }
}

#[test]
fn what_cannot_be_recorded_is_not_let_out() {
    // A file at its limit takes no more, as on a full disk; who does not ignore the signal would die of it.
    let ignoring = ["--core=0", "sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    alone("egress_audit::what_cannot_be_recorded_is_not_let_out", &ignoring, || {
        let (dns, received) = (names(), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&received);
        let server = Server::start(at("127.66.7.1"), move |mut stream| {
            let mut buffer = [0; 100];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        let port = server.port().to_string();
        for backend in gateway_backends() {
            let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/tcp")]));
            let say = |word: &str| {
                cage.attack(
                    "send('good.test', sys.argv[1], sys.argv[2].encode(), timeout=0.5)",
                    &[&port, word],
                );
            };
            say("before");
            assert!(eventually(|| text(&received.lock().unwrap()).contains("before")), "{backend}");
            files_grow_to(Some(fs::metadata(cage.record()).unwrap().len()));
            say("meanwhile");
            assert_eq!(cage.refused_for(Reason::NotRecorded), ["good.test"], "{backend}");
            files_grow_to(None);
            say("after");
            assert!(eventually(|| text(&received.lock().unwrap()).contains("after")), "{backend}");
            assert!(!text(&received.lock().unwrap()).contains("meanwhile"), "{backend}");
            assert!(cage.lines().iter().any(|line| line.contains("records_lost")), "{backend}");
            received.lock().unwrap().clear();
        }
    });
}

/// No file of this process beyond so many bytes.
fn files_grow_to(current: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: current.or(maximum), maximum }).unwrap();
}

//! Who serves may be killed, or be short of what it needs: then less gets out, never more, and nothing stays behind.

use belljar_spec::BackendName;
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Dns, HttpServer, Response, Server};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.10.1")] } else { Vec::new() })
}

/// Holds what it gets, and counts who is there.
fn holding() -> (Server, Arc<AtomicUsize>) {
    let present = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&present);
    let server = Server::start(at("127.66.10.1"), move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        while let Ok(1..) = stream.read(&mut [0; 4096]) {}
        count.fetch_sub(1, Ordering::SeqCst);
    });
    (server, present)
}

/// Tells a child process to hold a sandbox: backend, resolver, port, marker.
const HOLD: &str = "BELLJAR_TEST_HOLD";

#[test]
fn killing_who_serves_ends_every_connection_and_leaves_no_network_behind() {
    if let Ok(reported) = std::env::var(HOLD) {
        return hold(&reported);
    }
    let (dns, (server, present)) = (names(), holding());
    // Who is killed takes none of its folders away.
    let place = folder();
    let own = network_of("self").unwrap();
    for backend in backends() {
        for _ in 0..kills(*backend) {
            let marker = canary("hold");
            let mut holder = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "egress_ends::killing_who_serves_ends_every_connection_and_leaves_no_network_behind",
                    "--nocapture",
                ])
                .env(HOLD, format!("{backend} {} {} {marker}", dns.address(), server.port()))
                .env("TMPDIR", place.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.ends_with("holding")), "{backend}");
            assert!(eventually(|| present.load(Ordering::SeqCst) == 20), "{backend}: {present:?}");
            let networks = networks_of(&marker, &own);
            holder.kill().unwrap();
            holder.wait().unwrap();
            assert!(eventually(|| present.load(Ordering::SeqCst) == 0), "{backend}: some go on");
            assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}: some live on");
            // Without the host's rights the network of another user's container cannot be read.
            assert!(!networks.is_empty() || !is_root(), "{backend}: a sandbox has a network of its own");
            for network in networks {
                assert!(
                    eventually(|| holders_of(&network).is_empty()),
                    "{backend}: {:?}",
                    holders_of(&network)
                );
            }
        }
    }
}

/// Docker takes a hundred times as long to start one.
fn kills(backend: BackendName) -> usize {
    if is_docker(backend) { 2 } else { 8 }
}

/// A process's network namespace, as the kernel writes it: `net:[4026531840]`.
fn network_of(process: &str) -> Option<String> {
    Some(fs::read_link(format!("/proc/{process}/ns/net")).ok()?.to_str()?.to_string())
}

/// The networks of a sandbox's processes. A process in a sentry has that of the kernel around it.
fn networks_of(marker: &str, own: &str) -> BTreeSet<String> {
    let processes = processes_with(marker).into_iter();
    let on_host = processes.flat_map(|pid| if is_inside(pid) { around(pid) } else { vec![pid] });
    on_host.filter_map(|pid| network_of(&pid.to_string())).filter(|network| network != own).collect()
}

/// What keeps a network alive: processes in it, descriptors and mounts of it.
fn holders_of(network: &str) -> Vec<String> {
    let mut holders = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) =
            process.file_name().to_str().filter(|name| name.parse::<u32>().is_ok()).map(String::from)
        else {
            continue;
        };
        let name = || fs::read_to_string(process.path().join("comm")).unwrap_or_default().trim().to_string();
        if network_of(&pid).as_deref() == Some(network) {
            holders.push(format!("process {pid} ({})", name()));
        }
        let descriptors = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let targets = descriptors.filter_map(|fd| fs::read_link(fd.path()).ok());
        if targets.into_iter().any(|target| target.as_os_str() == network) {
            holders.push(format!("a descriptor of {pid} ({})", name()));
        }
        let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
        if mounts.contains(&format!(" {network} ")) {
            holders.push(format!("a mount of {pid} ({})", name()));
        }
    }
    holders
}

#[expect(clippy::print_stdout, reason = "it is how the process says that it is ready")]
fn hold(reported: &str) {
    let [backend, resolver, port, marker] = reported.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{reported}")
    };
    let unused = Dns::of([]);
    let mut policy = policy(&unused, &[&format!("=good.test:{port}/tcp")]);
    policy.resolvers = vec![resolver.parse().unwrap()];
    let backend = backends().iter().find(|known| known.as_str() == backend).unwrap();
    let cage = cage(*backend, &policy);
    let script = format!(
        "{PRELUDE}{NET}\nkept = [dial('good.test', {port}) for _ in range(20)]\n[s.sendall(b'x') for s in kept]\nopen('/workspace/up', 'w')\ntime.sleep(1000)"
    );
    let _held = HeldCommandFor::start(&cage, &["/usr/bin/python3", "-c", &script, marker]);
    assert!(eventually(|| cage.outside("up").exists()));
    println!("holding");
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn one_sandbox_cannot_take_all_descriptors_of_who_serves() {
    // As few as a process has on the meanest of systems.
    alone(
        "egress_ends::one_sandbox_cannot_take_all_descriptors_of_who_serves",
        &["--nofile=1024:1024"],
        || {
            let dns = names();
            let web = HttpServer::start(at("127.66.10.1"), |_| Response::ok("here"));
            for backend in backends() {
                let greedy = cage(*backend, &policy(&dns, &[&format!("=good.test:{}/tls", web.port())]));
                let modest = cage(*backend, &policy(&dns, &[&format!("=good.test:{}/http", web.port())]));
                // Silent ones, each of which is waited for.
                let script = format!(
                    "{PRELUDE}{NET}
os.fork()
os.fork()
kept = []
while True:
    for _ in range(400):
        try:
            kept.append(dial('good.test', sys.argv[1], 0.5))
        except OSError:
            pass
    kept = kept[-400:]
    open('/workspace/up', 'w')
"
                );
                let _held = HeldCommandFor::start(
                    &greedy,
                    &["/usr/bin/python3", "-c", &script, &web.port().to_string()],
                );
                assert!(eventually(|| greedy.outside("up").exists()), "{backend}");
                let served = modest.attack(
                    r#"
request = b'GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n'
answer = send('good.test', sys.argv[1], request, timeout=5)
print('served' if b'here' in answer else answer)
"#,
                    &[&web.port().to_string()],
                );
                assert_eq!(served, ["served"], "{backend}");
            }
        },
    );
}

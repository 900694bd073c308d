//! What is kept between the starts of a sandbox, and administrator mode: neither opens a way to escape.

use belljar_engine::Engine;
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{Admin, BackendChoice, ErrorCode, SandboxError, SandboxSpec, Volume, VolumePath};
use belljar_tests_containment::*;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn an_administrator_reaches_nothing_more_than_an_agent() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for backend in backends() {
        for admin in [Admin::User, Admin::Root] {
            // A container refuses it by name.
            if admin == Admin::Root && is_docker(*backend) {
                continue;
            }
            let jail = jail_with(*backend, |spec, _| spec.admin = admin);
            // Whatever is dialled ends at the gateway, which has nothing to say.
            let reached = jail.successes(
                r#"
def ask(host):
    s = socket.create_connection((host, int(sys.argv[1])), 1)
    s.settimeout(1)
    s.sendall(b'GET / HTTP/1.0\r\n\r\n')
    if not s.recv(1):
        raise OSError('nobody there')
for host in ['127.0.0.1', '0.0.0.0', '10.0.0.1', '169.254.169.254', 'example.com']:
    attack(host, lambda: ask(host))
"#,
                &[&port],
            );
            assert!(reached.is_empty(), "{backend} {admin:?}: {reached:?}");
            let succeeded = jail.successes(
                r#"
for switch in ['net/ipv4/ip_forward', 'net/ipv4/ip_unprivileged_port_start', 'net/ipv4/conf/all/route_localnet',
               'user/max_user_namespaces', 'kernel/core_pattern', 'kernel/hostname']:
    attack(switch, lambda: open('/proc/sys/' + switch, 'w').write('1'))
attack('mount', lambda: os.mkdir('/usr/x'))
attack('raw socket', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attack('low port', lambda: socket.socket().bind(('127.0.0.1', 80)))
attack('become another', lambda: os.setuid(0 if os.getuid() else 1000))
attack('memory', lambda: open('/dev/mem', 'rb').read(1))
attack('remount', lambda: subprocess.run(['mount', '-o', 'remount,rw', '/proc/sys'], check=True))
attack('namespace', lambda: subprocess.run(['unshare', '-Ur', 'true'], check=True))
"#,
                &[],
            );
            let is_its_own = |line: &&String| line.starts_with("low port ") && !guards_low_ports(*backend);
            let others = succeeded.iter().filter(|line| !is_its_own(line)).count();
            assert_eq!(others, 0, "{backend} {admin:?}: {succeeded:?}");
            let arrived = listener.accept();
            assert!(
                matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock),
                "{backend} {admin:?}: {arrived:?}"
            );
        }
    }
}

#[test]
fn root_inside_is_not_root_outside() {
    for backend in backends() {
        if is_docker(*backend) {
            let refused = try_jail(*backend, |spec, _| spec.admin = Admin::Root).err().unwrap();
            assert_eq!(refused.code, ErrorCode::NotSupported);
            continue;
        }
        let jail = jail_with(*backend, |spec, _| spec.admin = Admin::Root);
        let marker = canary("root");
        let held = HeldCommand::start(&jail, &marker);
        for pid in held.pids() {
            let status = process_file(pid, "status").unwrap();
            let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_string();
            let uid: u32 = line("Uid:").split_whitespace().nth(1).unwrap().parse().unwrap();
            assert!(uid != 0, "{backend}: {}", line("Uid:"));
            for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
                assert!(line(set).ends_with("0000000000000000"), "{backend}: {}", line(set));
            }
        }
    }
}

#[test]
fn a_volume_covers_nothing_of_the_system() {
    for target in [
        "/",
        "/usr",
        "/usr/local/x",
        "/bin",
        "/lib",
        "/etc",
        "/etc/ssl",
        "/proc",
        "/proc/self",
        "/sys",
        "/dev",
        "/dev/shm",
        "/run",
        "/run/belljar",
        "/tmp",
        "/opt/x",
        "/workspace",
        "/workspace/x",
        "/home/agent",
        "/.belljar",
        "/root",
        "/volumes",
        "/volumes/../usr",
        "volumes/x",
    ] {
        assert!(target.parse::<VolumePath>().is_err(), "{target}");
    }
}

/// A state directory with a secret in it, and an engine that keeps everything there.
fn make(
    backend: belljar_spec::BackendName,
    state: &Path,
    change: impl FnOnce(&mut SandboxSpec),
) -> Result<Jail, SandboxError> {
    let workspace = folder();
    let mut spec = SandboxSpec {
        backend: BackendChoice::Named(backend),
        workspace: Some(workspace.path().into()),
        ..SandboxSpec::default()
    };
    change(&mut spec);
    let engine = Engine::new().with_state(state).with_records(state.join("audit"));
    Ok(Jail { sandbox: engine.create_blocking(&spec)?, workspace })
}

fn volume(source: &Path) -> Vec<Volume> {
    vec![Volume { source: source.into(), target: "/volumes/v".parse().unwrap() }]
}

#[test]
fn nothing_of_the_state_directory_is_a_volume_a_home_or_a_workspace() {
    for backend in backends() {
        let state = folder();
        let state = state.path();
        let home = state.join("fleet/sandboxes/bj-a/home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::create_dir_all(state.join("fleet/volumes")).unwrap();
        std::fs::create_dir_all(state.join("vault")).unwrap();
        symlink(state.join("vault"), state.join("fleet/volumes/link")).unwrap();
        symlink(state.join("vault"), state.join("fleet/sandboxes/bj-a/workspace")).unwrap();
        for source in [
            "",
            "vault",
            "fleet",
            "fleet/volumes",
            "fleet/sandboxes/bj-a",
            "fleet/volumes/../../vault",
            "fleet/volumes/link",
            "audit",
            "layers",
        ] {
            let refused = make(*backend, state, |spec| spec.volumes = volume(&state.join(source)));
            assert!(refused.is_err(), "{backend}: a volume at {source}");
            let refused = make(*backend, state, |spec| spec.home = Some(state.join(source)));
            assert!(refused.is_err(), "{backend}: a home at {source}");
            let refused = make(*backend, state, |spec| {
                (spec.workspace, spec.mode) = (None, WorkspaceMode::Own(state.join(source)));
            });
            assert!(refused.is_err(), "{backend}: a workspace at {source}");
        }
        let own = WorkspaceMode::Own(state.join("fleet/sandboxes/bj-a/workspace"));
        let refused = make(*backend, state, |spec| (spec.workspace, spec.mode) = (None, own));
        assert!(refused.is_err(), "{backend}: a workspace that is a link");
        // And by another way: what was named by its path is refused as ever.
        let refused = make(*backend, state, |spec| spec.volumes = volume(Path::new("/etc")));
        assert_eq!(refused.err().unwrap().code, ErrorCode::PathRefused, "{backend}");
    }
}

#[test]
fn what_an_agent_left_in_a_volume_or_a_home_leads_nowhere() {
    for backend in backends() {
        let state = folder();
        let state = state.path();
        let home = state.join("fleet/sandboxes/bj-a/home");
        let with = |spec: &mut SandboxSpec| {
            spec.home = Some(home.clone());
            spec.volumes = vec![Volume {
                source: state.join("fleet/volumes/v"),
                target: "/home/agent/cache/v".parse().unwrap(),
            }];
        };
        let jail = make(*backend, state, with).unwrap();
        assert_eq!(jail.sh("mkfifo ~/p; ln -s / ~/cache/v/root").exit_code, Some(0), "{backend}");
        drop(jail);
        std::fs::remove_dir_all(home.join("cache")).unwrap();
        symlink("/", home.join("cache")).unwrap();
        let refused = make(*backend, state, with);
        assert_eq!(refused.err().unwrap().code, ErrorCode::PathRefused, "{backend}");
        assert!(!Path::new("/v").exists(), "{backend}: made on the host");
    }
}

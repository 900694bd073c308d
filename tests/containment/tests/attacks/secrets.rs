//! Nothing that the caller holds is handed in: environment, arguments, keys, descriptors. And nothing that the guest
//! holds is handed on.

use belljar_spec::{Command, EnvName};
use belljar_tests_containment::*;
use std::fs;
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// Prints all that a process can read about itself and others.
const LOOK: &str = r#"
import glob, re
out = []
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/task/*/environ') + ['/proc/keys', '/proc/key-users', '/proc/cmdline']:
    try:
        out.append(open(path, 'rb').read())
    except OSError:
        pass
out.append(repr(dict(os.environ)).encode())
out.append(repr(sys.argv).encode())
found = re.findall(rb'canary-(?:environment|command)-[-0-9a-f]{36}', b'\n'.join(out))
print(found[:3])
"#;

#[test]
fn the_callers_environment_and_arguments_are_not_visible() {
    for backend in backends() {
        let secret = canary("environment");
        let workspace = folder();
        let output = std::process::Command::new(belljar())
            .arg0(format!("belljar-{secret}"))
            .args(["run", "--backend", backend.as_str(), "--workspace"])
            .arg(workspace.path())
            .args(["--", "/usr/bin/python3", "-c", &format!("{PRELUDE}{LOOK}")])
            .env("SECRET_TOKEN", &secret)
            .env("LD_PRELOAD_NOT", &secret)
            .env("AWS_SECRET_ACCESS_KEY", &secret)
            .output()
            .unwrap();
        assert!(output.status.success(), "{backend}: {}", text(&output.stderr));
        assert!(!text(&output.stdout).contains(&secret), "{backend}");
    }
}

#[test]
fn the_environment_of_one_command_is_not_readable_by_process_one_or_after_its_end() {
    for backend in backends() {
        let jail = jail(*backend);
        let secret = canary("command");
        let mut command = Command::new(["true"]).unwrap();
        command.env = vec!["TOKEN".parse::<EnvName>().map(|name| (name, secret.clone().into())).unwrap()];
        wait_for(jail.sandbox.exec(&command)).unwrap();
        let seen = jail.python(LOOK, &[]);
        assert!(!text(&seen.stdout).contains(&secret), "{backend}");
    }
}

#[test]
fn open_files_of_the_caller_are_not_inherited() {
    for backend in backends() {
        let secret = canary("descriptor");
        let place = folder();
        let path = place.path().join("secret");
        fs::write(&path, &secret).unwrap();
        let workspace = folder();
        // Descriptors 3 to 9, without close-on-exec, as a shell opens them.
        let script = format!("exec 3<{0} 4<>{0} 5<{0} 9<{0}; exec \"$@\"", path.display());
        let output = std::process::Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(belljar())
            .args(["run", "--backend", backend.as_str(), "--workspace"])
            .arg(workspace.path())
            .args([
                "--",
                "/usr/bin/python3",
                "-c",
                &format!(
                    "{PRELUDE}
for pid in os.listdir('/proc'):
    if pid.isdigit():
        for n in range(3, 64):
            try:
                path = '/proc/%s/fd/%d' % (pid, n)
                status = os.stat(path)
                if status.st_mode & 0o170000 == 0o100000 and status.st_size < 200:
                    print(open(path, 'rb').read())
            except OSError:
                pass
"
                ),
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{backend}: {}", text(&output.stderr));
        assert!(!text(&output.stdout).contains(&secret), "{backend}");
    }
}

/// The guest's control socket, its program, other commands' pipes: a command has none of them, but three descriptors.
#[test]
fn a_command_starts_with_three_descriptors_and_no_more() {
    for backend in backends() {
        let jail = jail(*backend);
        // A neighbour whose pipes could leak.
        let _neighbour = HeldCommand::start(&jail, &canary("neighbour"));
        // The shell's own: by the time it is listed, `ls` is another process.
        let result = jail.sh("cd /proc/self/fd && ls");
        assert_eq!(text(&result.stdout), "0\n1\n2\n", "{backend}");
    }
}

/// With the guest's end of the control socket, a command could take the requests that are meant for the guest.
#[test]
fn a_command_cannot_take_the_requests_of_others() {
    for backend in backends() {
        let jail = jail(*backend);
        let secret = canary("request");
        let thief = r#"
import array
def steal():
    for n in range(3, 64):
        try:
            s = socket.socket(fileno=os.dup(n))
        except OSError:
            continue
        def take(s):
            while True:
                try:
                    data, control, _, _ = s.recvmsg(4096, 4096)
                except OSError:
                    return
                if not data:
                    return
                for level, kind, content in control:
                    for fd in array.array('i', content):
                        stream = socket.socket(fileno=fd)
                        with open('/workspace/stolen', 'ab') as f:
                            f.write(stream.recv(65536))
        for _ in range(8):
            threading.Thread(target=take, args=(s,)).start()
if os.fork() == 0:
    os.close(0); os.close(1); os.close(2)
    steal()
    time.sleep(1000)
"#;
        jail.python(thief, &[]);
        for _ in 0..20 {
            let mut command = Command::new(["true"]).unwrap();
            command.env = vec![("TOKEN".parse::<EnvName>().unwrap(), secret.clone().into())];
            command.timeout = Some(Duration::from_millis(500));
            let _ = wait_for(async {
                tokio::time::timeout(Duration::from_millis(700), jail.sandbox.exec(&command)).await
            });
            if jail.outside("stolen").exists() {
                break;
            }
        }
        let stolen = fs::read(jail.outside("stolen")).unwrap_or_default();
        assert!(!text(&stolen).contains(&secret), "{backend}: the command's environment was stolen");
        assert!(stolen.is_empty(), "{backend}: a request was stolen");
    }
}

#[test]
fn keyrings_of_the_host_are_out_of_reach() {
    let secret = canary("key");
    // add_key("user", name, secret) into the user and the session keyring.
    let owner = HostProgram::start(
        std::path::Path::new("/"),
        r#"
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
for ring in (-4, -3, -5):
    libc.syscall(248, b'user', sys.argv[1].encode(), sys.argv[1].encode(), len(sys.argv[1]), ring)
print('ready', flush=True)
time.sleep(1000)
"#,
        &[&secret],
    );
    assert!(owner.pid() > 0);
    for backend in backends() {
        let seen = jail(*backend).python(
            r#"
for ring in (-1, -2, -3, -4, -5, -6, -7, -8):
    attack('join', lambda: syscall(250, 1, None))
    attack('link %d' % ring, lambda: syscall(250, 8, ring, -2))
    attack('search %d' % ring, lambda: syscall(250, 10, ring, b'user', sys.argv[1].encode(), 0))
attack('request', lambda: syscall(249, b'user', sys.argv[1].encode(), None, 0))
attack('add', lambda: syscall(248, b'user', b'x', b'y', 1, -4))
attack('describe', lambda: [open('/proc/keys').read()] if open('/proc/keys').read() else (_ for _ in ()).throw(OSError()))
"#,
            &[&secret],
        );
        assert_eq!(text(&seen.stdout), "", "{backend}");
    }
}

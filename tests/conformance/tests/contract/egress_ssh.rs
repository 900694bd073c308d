//! Where the server may speak first: ssh, and whatever greets its clients.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Child, Server, have, own_address};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

for_every_isolated_backend! {
    everywhere:
        ssh_runs_a_command_by_name;
    each_kernel:
        a_greeting_arrives_under_a_rule_for_tcp;
    once:
        git_clones_over_ssh,
        a_client_of_ssh_may_wait_for_the_server,
        only_ssh_is_spoken_where_only_ssh_is_allowed,
        a_client_that_waits_where_it_has_to_begin_is_let_go,
        ssh_carries_files_both_ways,
        ssh_fails_fast_when_not_allowed,
        a_greeting_arrives_in_open_mode;
}

async fn ssh_runs_a_command_by_name(backend: BackendName) {
    let Some((world, sshd)) = sshd() else { return };
    let fixture = sshd.fixture(&world, backend).await;
    assert_eq!(
        fixture.answer(&format!("{} git.test 'echo hello from $((6*7))'", sshd.ssh())).await,
        "hello from 42"
    );
    assert_eq!(fixture.refusals(), []);
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!((connections[0].protocol.as_str(), connections[0].name.as_str()), ("ssh", "git.test"));
}

async fn ssh_carries_files_both_ways(backend: BackendName) {
    let Some((world, sshd)) = sshd() else { return };
    let fixture = sshd.fixture(&world, backend).await;
    let script = format!(
        "head -c 5000000 /dev/urandom > sent && {0} git.test 'cat > {1}' < sent && {0} git.test 'cat {1}' | cmp - sent && echo same",
        sshd.ssh(),
        sshd.folder.path().join("file").display()
    );
    assert_eq!(fixture.answer(&script).await, "same");
}

async fn ssh_fails_fast_when_not_allowed(backend: BackendName) {
    let Some((world, sshd)) = sshd() else { return };
    let fixture = world.fixture(backend, world.policy(["git.test:22/ssh".into()])).await;
    fs::copy(sshd.folder.path().join("key"), fixture.host("key")).unwrap();
    for name in ["other.test", "git.test", "192.0.2.1"] {
        let start = Instant::now();
        let result = fixture.sh(&format!("{} {name} true", sshd.ssh())).await;
        assert_eq!(result.exit_code, Some(255), "{name}: {}", text(&result.stderr));
        assert!(start.elapsed() < FAST, "{name}: {:?}", start.elapsed());
    }
    let reasons: Vec<Reason> = fixture.refusals().into_iter().map(|(_, _, reason)| reason).collect();
    let mut expected = vec![Reason::NameNotAllowed, Reason::PortNotAllowed, Reason::DirectAddress];
    expected.retain(|reason| is_recorded(backend, *reason));
    assert_eq!(reasons, expected);
}

async fn git_clones_over_ssh(backend: BackendName) {
    let Some((world, sshd)) = sshd() else { return };
    if !have(["git"]) {
        return;
    }
    let repository = sshd.folder.path().join("project");
    let script = format!(
        "git init --quiet {0} && cd {0} && echo hello > file && git add . && git -c user.email=a@b.c -c user.name=a commit --quiet -m first",
        repository.display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let fixture = sshd.fixture(&world, backend).await;
    let script = format!(
        "GIT_SSH_COMMAND=\"{}\" git clone --quiet git.test:{} copy && cat copy/file",
        sshd.ssh(),
        repository.display()
    );
    assert_eq!(fixture.answer(&script).await, "hello");
}

async fn a_client_of_ssh_may_wait_for_the_server(backend: BackendName) {
    let server = greeting("SSH-2.0-test server");
    let world = World::new([("git.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("git.test:{}/ssh", server.port())])).await;
    let script = format!(
        "
s = dial('git.test', {})
f = s.makefile('rb')
print(f.readline().decode().strip())
s.sendall(b'SSH-2.0-patient client\\r\\n')
print(f.readline().decode().strip())",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "SSH-2.0-test server\nyou said SSH-2.0-patient client");
}

async fn only_ssh_is_spoken_where_only_ssh_is_allowed(backend: BackendName) {
    let server = greeting("SSH-2.0-test server");
    let world = World::new([("git.test", "127.0.0.1")]);
    let port = server.port();
    let fixture = world.fixture(backend, world.policy([format!("git.test:{port}/ssh")])).await;
    for (wait, words) in
        [(false, "GET / HTTP/1.1"), (false, "hello"), (true, "hello"), (true, "GET / HTTP/1.1")]
    {
        let script = format!(
            "
s = dial('git.test', {port})
if {}: print(s.recv(1000))
try:
    s.sendall(b'{words}\\r\\n\\r\\n')
    print(b'you said' in everything(s))
except ConnectionError:
    print(False)",
            if wait { "True" } else { "False" }
        );
        let answer = fixture.python(&script).await;
        assert!(answer.ends_with("False"), "{words}: {answer}");
    }
    let refusals = fixture.refusals();
    assert_eq!(refusals, [("git.test".into(), Some(port), Reason::ProtocolNotAllowed)]);
}

async fn a_greeting_arrives_under_a_rule_for_tcp(backend: BackendName) {
    let server = greeting("220 mail.test ESMTP");
    let world = World::new([("mail.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("mail.test:{}/tcp", server.port())])).await;
    assert_eq!(fixture.python(&greeted(server.port())).await, "220 mail.test ESMTP\nyou said EHLO me");
}

async fn a_greeting_arrives_in_open_mode(backend: BackendName) {
    let server = greeting("220 mail.test ESMTP");
    let world = World::new([("mail.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.open_policy(backend, [server.port()])).await;
    assert_eq!(fixture.python(&greeted(server.port())).await, "220 mail.test ESMTP\nyou said EHLO me");
}

async fn a_client_that_waits_where_it_has_to_begin_is_let_go(backend: BackendName) {
    let server = greeting("220 mail.test ESMTP");
    let world = World::new([("mail.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("mail.test:{}/tls", server.port())])).await;
    let script = format!(
        "
s = dial('mail.test', {})
try: print(everything(s))
except ConnectionError: print('reset')",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "reset");
    assert_eq!(fixture.refusals(), [("mail.test".into(), Some(server.port()), Reason::SilentClient)]);
    assert_eq!(server.accepted(), 0);
}

/// Greets, and answers one line.
fn greeting(words: &'static str) -> Server {
    Server::start(LOOPBACK, move |mut stream| {
        let _ = stream.write_all(format!("{words}\r\n").as_bytes());
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_ok_and(|length| length > 0) {
            let _ = stream.write_all(format!("you said {line}").as_bytes());
        }
    })
}

fn greeted(port: u16) -> String {
    format!(
        "
s = dial('mail.test', {port})
f = s.makefile('rb')
print(f.readline().decode().strip())
s.sendall(b'EHLO me\\r\\n')
print(f.readline().decode().strip())"
    )
}

/// A real sshd, run by the test's user, with a key of its own.
struct Sshd {
    folder: TempDir,
    port: u16,
    user: String,
    _child: Child,
}

fn sshd() -> Option<(World, Sshd)> {
    if !have(["ssh", "ssh-keygen", SSHD]) {
        return None;
    }
    let folder = TempDir::new().unwrap();
    for name in ["host", "key"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(name));
        assert!(keygen.status().unwrap().success());
    }
    if is_root() {
        // Where root's sshd puts the part of it that talks to strangers; its package makes it at boot.
        fs::create_dir_all("/run/sshd").unwrap();
    }
    let address = own_address();
    let path = folder.path().display();
    let settings = format!(
        "ListenAddress {address}\nHostKey {path}/host\nAuthorizedKeysFile {path}/key.pub\nPidFile none\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nLogLevel ERROR\n"
    );
    fs::write(folder.path().join("settings"), settings).unwrap();
    let mut command = Command::new(SSHD);
    command.arg("-D").arg("-e").arg("-f").arg(folder.path().join("settings"));
    let child = Child::start(command.stdin(Stdio::null()));
    wait_until("sshd to listen", || {
        let greeted = TcpStream::connect(address).and_then(|mut stream| stream.read(&mut [0; 4]));
        greeted.is_ok_and(|length| length == 4)
    });
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout).trim().to_string();
    Some((
        World::new([("git.test", &address.ip().to_string())]),
        Sshd { folder, port: address.port(), user, _child: child },
    ))
}

impl Sshd {
    async fn fixture(&self, world: &World, backend: BackendName) -> SandboxFixture {
        let fixture = world.fixture(backend, world.policy([format!("git.test:{}/ssh", self.port)])).await;
        fs::copy(self.folder.path().join("key"), fixture.host("key")).unwrap();
        fs::set_permissions(fixture.host("key"), fs::Permissions::from_mode(0o600)).unwrap();
        fixture
    }

    /// The client, with no configuration or key of the test's user.
    fn ssh(&self) -> String {
        format!(
            "ssh -F none -p {} -l {} -i $PWD/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=$PWD/known -o LogLevel=ERROR",
            self.port, self.user
        )
    }
}

const SSHD: &str = "/usr/sbin/sshd";
const FAST: Duration = Duration::from_secs(30);

//! What stands outside of the sandbox while it is attacked: canaries that nothing inside may find, reach, change or end, and that say
//! so themselves when it did.

use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::new_id;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Everything that an attack is about. Dropped, nothing of it is left.
pub(super) struct Scene {
    /// A word that no one can guess: who shows it has found a canary.
    pub(super) secret: String,
    /// Frames the output of each attack.
    pub(super) token: String,
    /// In each call to a canary; it may be known.
    pub(super) call: String,
    root: PathBuf,
    pub(super) port: u16,
    pub(super) resolver: u16,
    pub(super) abstract_name: String,
    /// What arrived at a canary, as it was said.
    arrived: Arc<Mutex<Vec<String>>>,
    canary: Child,
}

impl Scene {
    /// Sets it up. `beside` says in which folder of the host.
    pub(super) fn set() -> Result<Scene, SandboxError> {
        let failed = |what: &str, error: io::Error| {
            ErrorCode::Internal.error(format!("{what}: {error}")).caused_by(error)
        };
        let (id, call) = (new_id()?.to_string(), new_id()?.to_string());
        let secret = format!("{id}{}", new_id()?);
        let token = new_id()?.to_string();
        let root = std::env::temp_dir().join(format!("belljar-verify-{}", new_id()?));
        let made = fs::DirBuilder::new().mode(0o755).create(&root).and_then(|()| furnish(&root, &secret));
        made.map_err(|error| failed("the folder for the attacks cannot be made", error))?;
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let outcome = (|| {
            let port = listen(&arrived)?;
            let resolver = resolve(&arrived)?;
            let abstract_name = format!("belljar-verify-{call}");
            let address = SocketAddr::from_abstract_name(&abstract_name)?;
            take(UnixListener::bind_addr(&address)?, &arrived);
            let path = root.join("outside/service.sock");
            take(UnixListener::bind(&path)?, &arrived);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
            let canary = Command::new("sleep")
                .arg(format!("{CANARY_LIFE}.{}", digits(&call)))
                .env("BELLJAR_VERIFY_SECRET", &secret)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            Ok((port, resolver, abstract_name, canary))
        })();
        match outcome {
            Ok((port, resolver, abstract_name, canary)) => {
                Ok(Scene { secret, token, call, root, port, resolver, abstract_name, arrived, canary })
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&root);
                Err(failed("the canaries cannot be set up", error))
            }
        }
    }

    /// The folder that the sandbox works on.
    pub(super) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// A folder beside it, which it must not see; any user could write there.
    pub(super) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    /// The process that must not be found or ended.
    pub(super) fn canary(&self) -> u32 {
        self.canary.id()
    }

    pub(super) fn canary_lives(&mut self) -> bool {
        matches!(self.canary.try_wait(), Ok(None))
    }

    /// Whether an attack of this name reached a canary.
    pub(super) fn was_reached(&self, attack: &str) -> bool {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        // Said in a line, or as labels of a name.
        let call = format!("{}/{attack}", self.call);
        let is_call = |bytes: &str| bytes.split_whitespace().any(|word| word == call);
        let is_name = |bytes: &str| bytes.contains(attack) && bytes.contains(&format!("{} ", self.call));
        arrived.iter().any(|bytes| is_call(bytes) || is_name(bytes))
    }

    /// The addresses of this machine, which a sandbox must not reach.
    pub(super) fn own_addresses() -> Vec<Ipv4Addr> {
        let text = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let mut own = Vec::new();
        let mut last = None;
        for line in text.lines() {
            if let Some(address) = line.trim_start().strip_prefix("|-- ") {
                last = address.trim().parse::<Ipv4Addr>().ok();
            } else if line.contains("/32 host LOCAL") {
                own.extend(last.filter(|address| !address.is_loopback()));
            }
        }
        own.sort_unstable();
        own.dedup();
        own.truncate(MAX_ADDRESSES);
        own
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.canary.kill();
        let _ = self.canary.wait();
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Digits that no other process has among its arguments.
pub(super) fn digits(call: &str) -> String {
    call.bytes().map(|byte| char::from(b'0' + byte % 10)).collect()
}

fn furnish(root: &Path, secret: &str) -> io::Result<()> {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    let outside = root.join("outside");
    fs::create_dir(&outside)?;
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777))?;
    File::create(outside.join("canary"))?.write_all(format!("{secret}\n").as_bytes())?;
    fs::set_permissions(outside.join("canary"), fs::Permissions::from_mode(0o666))?;
    let workspace = root.join("workspace");
    fs::create_dir(&workspace)?;
    std::os::unix::fs::symlink(outside.join("canary"), workspace.join("link"))?;
    // As much as git takes for a repository.
    for part in [".git/objects/info", ".git/refs/heads"] {
        fs::create_dir_all(workspace.join(part))?;
    }
    for (path, content) in PROTECTED {
        let path = workspace.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&workspace))?;
        fs::write(path, content)?;
    }
    Ok(())
}

/// Takes what is said over TCP, by any address of this machine.
fn listen(arrived: &Arc<Mutex<Vec<String>>>) -> io::Result<u16> {
    let both = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
    let port = both.local_addr()?.port();
    let arrived = Arc::clone(arrived);
    thread::spawn(move || {
        for stream in both.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(SPEAKS_WITHIN));
            note(stream, &arrived);
        }
    });
    Ok(port)
}

fn take(listener: UnixListener, arrived: &Arc<Mutex<Vec<String>>>) {
    let arrived = Arc::clone(arrived);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(SPEAKS_WITHIN));
            note(stream, &arrived);
        }
    });
}

fn note(stream: impl Read + Send + 'static, arrived: &Arc<Mutex<Vec<String>>>) {
    let arrived = Arc::clone(arrived);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.take(MAX_REQUEST_BYTES).read_to_end(&mut bytes);
        add(&arrived, &bytes);
    });
}

/// A resolver that knows no name and notes what it was asked.
fn resolve(arrived: &Arc<Mutex<Vec<String>>>) -> io::Result<u16> {
    let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
    let port = socket.local_addr()?.port();
    let arrived = Arc::clone(arrived);
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            // The labels of a name, as text: their lengths are no letters.
            let bytes: Vec<u8> = buffer[..length]
                .iter()
                .map(|byte| if byte.is_ascii_graphic() { *byte } else { b' ' })
                .collect();
            add(&arrived, &bytes);
            if length > 3 {
                // No such name (RFC 1035, 4.1.1).
                (buffer[2], buffer[3]) = (0x81, 0x83);
                let _ = socket.send_to(&buffer[..length], client);
            }
        }
    });
    Ok(port)
}

fn add(arrived: &Mutex<Vec<String>>, bytes: &[u8]) {
    let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
    if arrived.len() < MAX_ARRIVED {
        arrived.push(String::from_utf8_lossy(bytes).into_owned());
    }
}

/// Files of a work tree that programs on the host would execute or obey, and what they say.
pub(super) const PROTECTED: [(&str, &str); 5] = [
    (".git/config", "[core]\n\trepositoryformatversion = 0\n"),
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/hooks/pre-commit", "#!/bin/sh\n"),
    (".envrc", "# as it was\n"),
    (".vscode/tasks.json", "{}\n"),
];
/// Longer than all attacks together.
const CANARY_LIFE: &str = "600";
const SPEAKS_WITHIN: Duration = Duration::from_secs(5);
const MAX_REQUEST_BYTES: u64 = 4096;
const MAX_ARRIVED: usize = 10_000;
/// A machine with many networks: each is one more attack.
const MAX_ADDRESSES: usize = 4;

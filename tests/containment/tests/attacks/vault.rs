//! The vault, its key, and the memory of the process that has opened it are out of a sandbox's reach, whatever it is given.

#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "tests speak and stop")]

use belljar_engine::Engine;
use belljar_spec::secret::SecretName;
use belljar_spec::{BackendChoice, BackendName, Command, SandboxSpec};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_containment::*;
use belljar_vault::Secret;
use belljar_vault::{HostSecrets, Vault};
use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Output, Stdio};
use tempfile::TempDir;

/// A home with a vault in it, and a key elsewhere.
struct Home {
    folder: TempDir,
    value: String,
}

impl Home {
    fn new() -> Home {
        let home = Home { folder: folder(), value: canary("secret") };
        fs::create_dir(home.path("elsewhere")).unwrap();
        fs::write(home.path("elsewhere/key"), format!("{}\n", "5eC2e7".repeat(11).split_at(64).0)).unwrap();
        fs::set_permissions(home.path("elsewhere/key"), PermissionsExt::from_mode(0o600)).unwrap();
        let mut set = home.belljar(&["secrets", "set", "canary"]).stdin(Stdio::piped()).spawn().unwrap();
        set.stdin.take().unwrap().write_all(home.value.as_bytes()).unwrap();
        assert!(set.wait().unwrap().success());
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn belljar(&self, args: &[&str]) -> process::Command {
        let mut command = process::Command::new(belljar());
        command.args(args).env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// What no process inside may have: a piece of each file of the vault.
    fn treasures(&self) -> Vec<(PathBuf, String)> {
        let vault = self.path("state/belljar/vault");
        let treasure = |path: PathBuf, key: &str| {
            let printed = fs::read_to_string(&path).unwrap();
            let at = printed.find(key).map_or(0, |at| at + key.len());
            (path, printed[at..].chars().take(24).collect())
        };
        vec![
            treasure(vault.join("key"), ""),
            treasure(vault.join("secrets.json"), r#""nonce": ""#),
            treasure(self.path("elsewhere/key"), ""),
        ]
    }
}

/// Copies into the workspace what it finds: at the places that are named, through processes, and anywhere under a name
/// that the vault has.
const STEAL: &str = r#"
stolen = open('/workspace/stolen', 'ab')
def take(path):
    try:
        with open(path, 'rb') as f:
            stolen.write(f.read(1 << 20))
    except OSError:
        pass
names = ('secrets.json', 'key', 'secrets.new', 'lock')
def walk(root):
    for directory, _, files in os.walk(root, followlinks=True):
        if directory.count('/') > 12:
            continue
        for name in files:
            if name in names:
                take(os.path.join(directory, name))
for path in sys.argv[1:]:
    take(path)
    walk(path)
    for pid in [p for p in os.listdir('/proc') if p.isdigit()] + ['self']:
        for link in ('root', 'cwd'):
            take('/proc/%s/%s%s' % (pid, link, path))
            walk('/proc/%s/%s%s' % (pid, link, path))
for root in ('/workspace', '/home', '/tmp', '/var', '/root', '/mnt', '/srv', '/etc'):
    walk(root)
stolen.close()
"#;

fn attempt(home: &Home, backend: BackendName, workspace: &Path, flags: &[&str]) -> Output {
    let script = format!("{PRELUDE}{STEAL}");
    let places =
        [home.path("state/belljar/vault"), home.path("state"), home.path("elsewhere/key"), home.path("")];
    home.belljar(&["run", "--backend", backend.as_str(), "--workspace"])
        .arg(workspace)
        .args(flags)
        .args(["--", "/usr/bin/python3", "-c", &script])
        .args(&places)
        .env("BELLJAR_VAULT_KEY_FILE", home.path("elsewhere/key"))
        .output()
        .unwrap()
}

#[test]
fn the_vault_and_its_key_cannot_be_shared() {
    let home = Home::new();
    let links = folder();
    let state = home.path("state/belljar/vault");
    for (name, to) in [("vault", state.as_path()), ("file", &state.join("secrets.json"))] {
        symlink(to, links.path().join(name)).unwrap();
    }
    let roads: Vec<PathBuf> = vec![
        state.clone(),
        state.join("secrets.json"),
        state.join("key"),
        home.path("state/belljar"),
        home.path("state"),
        home.path(""),
        home.path("elsewhere"),
        home.path("elsewhere/key"),
        links.path().join("vault"),
        links.path().join("file"),
        links.path().join("vault/key"),
        links.path().join("vault/.."),
    ];
    for backend in backends() {
        for road in roads.iter().take(first_of(*backend, roads.len())) {
            let road_text = road.to_str().unwrap();
            for flag in ["--ro", "--rw"] {
                let workspace = folder();
                let output = attempt(&home, *backend, workspace.path(), &[flag, road_text]);
                refused(&home, &output, workspace.path(), &format!("{backend}: {flag} {road_text}"));
            }
            if road.is_dir() {
                let output = attempt(&home, *backend, road, &[]);
                refused(&home, &output, road, &format!("{backend}: --workspace {road_text}"));
            }
        }
    }
}

/// How many paths are tried with a backend. belljar decides what may be shared before it asks a backend: to see that it does so for
/// each of them, one path is enough.
fn first_of(backend: BackendName, roads: usize) -> usize {
    if gateway_backends().contains(&backend) { roads } else { 1 }
}

fn refused(home: &Home, output: &Output, workspace: &Path, what: &str) {
    assert_eq!(output.status.code(), Some(126), "{what}: {}", text(&output.stderr));
    assert!(!workspace.join("stolen").exists(), "{what}: something ran");
    for (_, treasure) in home.treasures() {
        assert!(!text(&output.stderr).contains(&treasure), "{what}");
    }
}

#[test]
fn the_file_of_a_secret_cannot_be_shared() {
    let home = Home::new();
    let (inside, link, outside) = (home.path("inside"), home.path("links/key"), home.path("elsewhere/key"));
    for name in ["inside", "links"] {
        fs::create_dir(home.path(name)).unwrap();
    }
    fs::copy(&outside, inside.join("key")).unwrap();
    symlink(&outside, &link).unwrap();
    for backend in backends() {
        let shares = [(inside.join("key"), &inside), (link.clone(), &home.path("links"))];
        let count = first_of(*backend, shares.len());
        for (file, shared) in shares.into_iter().take(count) {
            let key = format!("file:{}", file.display());
            let route = ["--llm", "http://127.66.9.4:1", "--llm-key", &key];
            let output = attempt(&home, *backend, shared, &route);
            refused(&home, &output, shared, &format!("{backend}: the workspace, {key}"));
            for flag in ["--ro", "--rw"] {
                let workspace = folder();
                let flags = [&route[..], &[flag, shared.to_str().unwrap()]].concat();
                let output = attempt(&home, *backend, workspace.path(), &flags);
                refused(&home, &output, workspace.path(), &format!("{backend}: {flag}, {key}"));
            }
        }
        let workspace = folder();
        let route = ["--llm", "http://127.66.9.4:1", "--llm-key", &format!("file:{}", outside.display())];
        let output = attempt(&home, *backend, workspace.path(), &route);
        assert!(output.status.success(), "{backend}: {}", text(&output.stderr));
    }
}

#[test]
fn a_link_to_the_vault_leads_nowhere() {
    let home = Home::new();
    for backend in backends() {
        let (workspace, shared) = (folder(), folder());
        for (place, name, to) in [
            (workspace.path(), "vault", home.path("state/belljar/vault")),
            (workspace.path(), "all", home.path("")),
            (workspace.path(), "key", home.path("elsewhere/key")),
            (shared.path(), "secrets.json", home.path("state/belljar/vault/secrets.json")),
        ] {
            symlink(to, place.join(name)).unwrap();
        }
        // What it may have, to see that it looks.
        fs::write(workspace.path().join("lock"), "in the workspace").unwrap();
        // The workspace has to be open to the user that runs inside.
        fs::set_permissions(workspace.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let output = attempt(&home, *backend, workspace.path(), &["--rw", shared.path().to_str().unwrap()]);
        assert!(output.status.success(), "{backend}: {}", text(&output.stderr));
        let stolen = fs::read(workspace.path().join("stolen")).unwrap();
        assert!(text(&stolen).contains("in the workspace"), "{backend}: the attack looks nowhere");
        for (path, treasure) in home.treasures() {
            assert!(!text(&stolen).contains(&treasure), "{backend}: {} was read", path.display());
            assert!(!text(&output.stdout).contains(&treasure), "{backend}");
        }
        assert!(!text(&stolen).contains(&home.value), "{backend}");
    }
}

/// Who is told to hold a secret, and how.
const HOLDER: &str = "BELLJAR_TEST_HOLDER";

/// A crash of the process that holds a secret leaves nothing of it: judged by what the kernel reports and by the files that are left.
#[test]
fn a_crash_leaves_no_secret_behind() {
    if let Ok(role) = std::env::var(HOLDER) {
        return hold(&role);
    }
    let value = canary("core");
    let (control, found) = crash("control", &value);
    if !(control && found) {
        eprintln!("skipped: this machine writes no core files to the folder of a process");
    }
    assert_eq!(crash("secrets", &value), (false, false));
}

/// Crashes a holder: whether the kernel made an image of its memory, and whether the value is in what lies there.
fn crash(role: &str, value: &str) -> (bool, bool) {
    let place = folder();
    let test = std::env::current_exe().unwrap();
    let mut holder = process::Command::new("sh")
        // As much as we may ask for.
        .args(["-c", "ulimit -c unlimited 2>/dev/null || ulimit -c \"$(ulimit -H -c)\"; exec \"$@\"", "sh"])
        .arg(test)
        .args(["--exact", "vault::a_crash_leaves_no_secret_behind", "--nocapture"])
        .env(HOLDER, role)
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    holder.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("holding")), "{role}: it holds nothing");
    kill_process(Pid::from_child(&holder), Signal::ABORT).unwrap();
    let status = holder.wait().unwrap();
    assert_eq!(status.signal(), Some(6), "{role}");
    let files = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let found = files.filter(|path| path.is_file()).any(|path| {
        let image = fs::read(path).unwrap();
        image.windows(value.len()).any(|window| window == value.as_bytes())
    });
    (status.core_dumped(), found)
}

/// Holds the value that comes on standard input until it is killed; with `secrets`, as belljar does, and with a sandbox
/// running beside it: a process that leaves no core dump can still start a sandbox.
#[expect(clippy::print_stdout, reason = "the other process waits for it")]
fn hold(role: &str) {
    let mut value = Vec::new();
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut value).unwrap();
    if role == "secrets" {
        let name: SecretName = "held".parse().unwrap();
        let vault = Vault::in_folder("vault");
        // Found out before, when nothing is in their way yet.
        let backends = backends();
        let _store = HostSecrets::with_vault(vault.clone());
        vault.set(&name, &Secret::new(value.clone())).unwrap();
        let _held = vault.read(&name).unwrap();
        for backend in backends {
            let spec = SandboxSpec { backend: BackendChoice::Named(*backend), ..SandboxSpec::default() };
            let engine = Engine::new().with_records(std::env::current_dir().unwrap().join("records"));
            let sandbox = engine.create_blocking(&spec).unwrap();
            let result = wait_for(sandbox.exec(&Command::new(["true"]).unwrap())).unwrap();
            assert_eq!(result.exit_code, Some(0), "{backend}");
        }
    }
    println!("holding");
    std::thread::sleep(std::time::Duration::from_secs(60));
    black_box(&value);
}

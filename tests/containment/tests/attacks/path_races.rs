//! A path is judged, and another one is mounted: a living sandbox changes a folder for a link and back, as fast as it can, while
//! the caller starts other sandboxes with that folder. Whatever they are given is what was judged.
//!
//! `BELLJAR_RACE_STARTS` sets how many starts there are for each backend; some dozens find a gap of the size that there once was,
//! which a quarter of all starts fell into.

use belljar_engine::{Engine, Sandbox};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{BackendChoice, BackendName, Command, Permission, SandboxError, SandboxSpec, Volume};
use belljar_tests_containment::*;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

#[test]
fn what_is_shown_is_what_was_judged() {
    for backend in backends().iter().filter(|backend| !is_docker(**backend)) {
        let forbidden = Forbidden::make();
        let attacker = jail_with(*backend, |spec, _| spec.home = Some(forbidden.persistent.home.clone()));
        let folder = attacker.workspace.path().canonicalize().unwrap();
        for name in ["sub", "other"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        fs::write(folder.join("sub/key"), "harmless").unwrap();
        fs::create_dir(forbidden.persistent.home.join("sub")).unwrap();
        for swapped in [&folder, &forbidden.persistent.home] {
            symlink(&forbidden.folder, swapped.join("link")).unwrap();
        }
        let script = format!("{PRELUDE}{SWAP}");
        let _swapping = HeldCommandFor::start(&attacker, &["/usr/bin/python3", "-c", &script]);
        assert!(eventually(|| folder.join("swapping").exists()), "{backend}: the attack did not begin");

        let mut outcomes: BTreeMap<String, u32> = BTreeMap::new();
        for start in 0..starts() {
            let way = Way::ALL[start as usize % Way::ALL.len()];
            let outcome = match way.victim(*backend, &folder, &forbidden.persistent) {
                Ok(sandbox) => forbidden.reached_by(&sandbox, way, &folder.join("sub")),
                Err(refused) => refused.code.to_string(),
            };
            *outcomes.entry(format!("{way:?}: {outcome}")).or_default() += 1;
            let left = forbidden.strangers();
            assert!(left.is_empty(), "{backend}: start {start} ({way:?}) wrote to what is refused: {left:?}");
        }
        let _ = writeln!(std::io::stderr(), "{backend}: {outcomes:#?}");
        // Some are refused, since the path leads to what is forbidden or has just moved; of every way some start.
        let won: Vec<_> = outcomes.keys().filter(|outcome| outcome.ends_with(WON)).collect();
        assert!(won.is_empty(), "{backend}: {outcomes:?}");
        if starts() >= 1000 {
            for way in Way::ALL {
                let held = format!("{way:?}: {HELD}");
                assert!(outcomes.contains_key(&held), "{backend}: none of {way:?} started: {outcomes:?}");
            }
        }
    }
}

/// What the folder that changes is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    SharedToWrite,
    SharedToRead,
    Workspace,
    Overlay,
    /// A protected path below it is missing, and a placeholder is made there on the host.
    Placeholder,
    /// A volume is to be mounted below it in a kept home, and a mount point is made there on the host.
    Volume,
    /// A command starts in it.
    WorkingDirectory,
}

impl Way {
    const ALL: [Way; 7] = [
        Way::SharedToWrite,
        Way::SharedToRead,
        Way::Workspace,
        Way::Overlay,
        Way::Placeholder,
        Way::Volume,
        Way::WorkingDirectory,
    ];

    /// A sandbox that is given the folder that changes.
    fn victim(
        self,
        backend: BackendName,
        folder: &Path,
        persistent: &PersistentPaths,
    ) -> Result<Sandbox, SandboxError> {
        let swapped = folder.join("sub");
        let mut spec = SandboxSpec {
            backend: BackendChoice::Named(backend),
            workspace: Some(folder.join("other")),
            ..SandboxSpec::default()
        };
        match self {
            Way::SharedToWrite => spec.shared = vec![share(&swapped, Permission::Write)],
            Way::SharedToRead => spec.shared = vec![share(&swapped, Permission::Read)],
            Way::Workspace => spec.workspace = Some(swapped),
            Way::Overlay => {
                spec.workspace = Some(swapped);
                spec.mode = WorkspaceMode::Overlay { layer: None };
            }
            Way::Placeholder => {
                spec.workspace = Some(folder.to_path_buf());
                spec.protected = vec!["sub/settings/hook".parse().unwrap(), "sub/file".parse().unwrap()];
            }
            Way::Volume => {
                spec.home = Some(persistent.home.clone());
                let target = "/home/agent/sub/volume".parse().unwrap();
                spec.volumes = vec![Volume { source: persistent.volume.clone(), target }];
            }
            Way::WorkingDirectory => spec.workspace = Some(folder.to_path_buf()),
        }
        Engine::new().create_blocking(&spec)
    }

    /// Where a command starts, if not in the workspace.
    fn working_directory(self) -> Option<String> {
        (self == Way::WorkingDirectory).then(|| "sub".into())
    }
}

/// A place in belljar's own state, which no sandbox is ever given, over no path.
struct Forbidden {
    folder: PathBuf,
    canary: String,
    persistent: PersistentPaths,
}

/// What belljar keeps for sandboxes with more than one life, and may be given to them.
struct PersistentPaths {
    home: PathBuf,
    volume: PathBuf,
}

impl Forbidden {
    fn make() -> Forbidden {
        let canary = canary("race");
        let state = belljar_state::state_directory().unwrap();
        let folder = state.join(&canary);
        fs::create_dir_all(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        fs::write(folder.join("key"), &canary).unwrap();
        let persistent = PersistentPaths {
            home: state.join("fleet/sandboxes").join(&canary).join("home"),
            volume: state.join("fleet/volumes").join(&canary),
        };
        Forbidden { folder, canary, persistent }
    }

    /// What a sandbox that started finds where it was given something.
    fn reached_by(&self, sandbox: &Sandbox, way: Way, share: &Path) -> String {
        // Placeholders are there as long as the sandbox is.
        if !self.strangers().is_empty() {
            return WON.into();
        }
        let script = "for place in \"$@\"; do cat \"$place/key\"; echo won > \"$place/won\"; done";
        let argv = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), "sh".as_ref(), share.as_os_str()];
        let places = [".", "sub", "/home/agent/sub"].map(OsStr::new);
        let argv = argv.into_iter().chain(places).chain([self.folder.as_os_str()]);
        let mut command = Command::new(argv).unwrap();
        command.cwd = way.working_directory();
        match wait_for(sandbox.exec(&command)) {
            Ok(result) if text(&result.stdout).contains(&self.canary) => WON.into(),
            Ok(_) => HELD.into(),
            Err(error) => error.code.to_string(),
        }
    }

    /// What lies there and was not there at first.
    fn strangers(&self) -> Vec<OsString> {
        let names = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != "key").collect()
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        let sandbox = self.persistent.home.parent().unwrap();
        for made in [&self.folder, &self.persistent.volume, sandbox] {
            let _ = fs::remove_dir_all(made);
        }
    }
}

fn starts() -> u32 {
    std::env::var("BELLJAR_RACE_STARTS").ok().and_then(|count| count.parse().ok()).unwrap_or(42)
}

const WON: &str = "reached what is refused";
const HELD: &str = "held";
/// renameat2(2) with RENAME_EXCHANGE. Sometimes what is there stays for as long as some steps of a start take, so that starts come
/// through some of the checks.
const SWAP: &str = r#"
import random
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
open('swapping', 'w').close()
while True:
    for place in [b'', os.path.expanduser('~/').encode()]:
        libc.renameat2(-100, place + b'sub', -100, place + b'link', 2)
    time.sleep(random.choice([0.0003, 0.003, 0.03]))
"#;

//! A path is judged, and another one is mounted: a living sandbox changes a folder for a link and back, as fast as it can, while
//! the caller starts other sandboxes with that folder. Whatever they are given is what was judged.
//!
//! `BELLJAR_RACE_STARTS` says how many starts there are for each wall; some dozens find a gap of the size that there once was,
//! which a quarter of all starts fell into.

use belljar_engine::{Engine, Sandbox};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{BackendChoice, BackendName, Command, Permission, SandboxError, SandboxSpec};
use belljar_tests_containment::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

#[test]
fn what_is_shown_is_what_was_judged() {
    for wall in walls().iter().filter(|wall| !is_docker(**wall)) {
        let forbidden = Forbidden::make();
        let attacker = jail(*wall);
        let folder = attacker.workspace.path().canonicalize().unwrap();
        for name in ["sub", "other"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        fs::write(folder.join("sub/key"), "harmless").unwrap();
        symlink(&forbidden.folder, folder.join("link")).unwrap();
        let script = format!("{PRELUDE}{SWAP}");
        let _swapping = HeldCommandFor::start(&attacker, &["/usr/bin/python3", "-c", &script]);
        assert!(eventually(|| folder.join("swapping").exists()), "{wall}: the attack did not begin");

        let mut outcomes: BTreeMap<String, u32> = BTreeMap::new();
        for start in 0..starts() {
            let outcome = match victim(*wall, &folder, start) {
                Ok(sandbox) => forbidden.reached_by(&sandbox, &folder.join("sub")),
                Err(refused) => refused.code.to_string(),
            };
            *outcomes.entry(outcome).or_default() += 1;
            let left: Vec<_> = fs::read_dir(&forbidden.folder).unwrap().flatten().collect();
            assert_eq!(left.len(), 1, "{wall}: start {start} wrote to what is refused: {left:?}");
        }
        // Some are refused, since the path leads to what is forbidden or has just moved.
        assert_eq!(outcomes.get(READ), None, "{wall}: {outcomes:?}");
    }
}

/// A sandbox that is given the folder that changes: to write to, as its workspace, below a layer.
fn victim(wall: BackendName, folder: &Path, start: u32) -> Result<Sandbox, SandboxError> {
    let swapped = folder.join("sub");
    let mut spec = SandboxSpec { backend: BackendChoice::Named(wall), ..SandboxSpec::default() };
    match start % 4 {
        0 | 1 => {
            spec.workspace = Some(folder.join("other"));
            let permission = if start.is_multiple_of(4) { Permission::Write } else { Permission::Read };
            spec.shared = vec![share(&swapped, permission)];
        }
        2 => spec.workspace = Some(swapped),
        _ => {
            spec.workspace = Some(swapped);
            spec.mode = WorkspaceMode::Overlay { layer: None };
        }
    }
    Engine::new().create_blocking(&spec)
}

/// A place in belljar's own state, which no sandbox is ever given, over no path.
struct Forbidden {
    folder: PathBuf,
    canary: String,
}

impl Forbidden {
    fn make() -> Forbidden {
        let canary = canary("race");
        let folder = belljar_audit::state_directory().unwrap().join(&canary);
        fs::create_dir_all(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        fs::write(folder.join("key"), &canary).unwrap();
        Forbidden { folder, canary }
    }

    /// What a sandbox that started finds where it was given something.
    fn reached_by(&self, sandbox: &Sandbox, share: &Path) -> String {
        let script = "for place in \"$@\"; do cat \"$place/key\"; echo won > \"$place/won\"; done";
        let argv = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), "sh".as_ref(), share.as_os_str()];
        let argv = argv.into_iter().chain([".".as_ref(), self.folder.as_os_str()]);
        let result = wait_for(sandbox.exec(&Command::new(argv).unwrap()));
        match result {
            Ok(result) if text(&result.stdout).contains(&self.canary) => READ.into(),
            Ok(_) => "held".into(),
            Err(error) => error.code.into(),
        }
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn starts() -> u32 {
    std::env::var("BELLJAR_RACE_STARTS").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

const READ: &str = "read what is refused";
/// renameat2(2) with RENAME_EXCHANGE.
const SWAP: &str = r#"
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
open('swapping', 'w').close()
while True:
    libc.renameat2(-100, b'sub', -100, b'link', 2)
    time.sleep(0.0003)
"#;

//! A protected path that does not exist has a mount point in the folder for as long as a sandbox needs it, and for no moment longer,
//! whichever process is killed. Judged by the host's own files.

use belljar_spec::BackendName;
use belljar_spec::workspace::{Shield, Shielded, View};
use belljar_tests_containment::folders::*;
use belljar_tests_containment::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is protected, missing or not, in a folder with nothing but the folder itself to hold it.
fn bound(workspace: &Path, shields: &[Shield]) -> View {
    View { shields: [shields, &missing()].concat(), ..View::plain(workspace.into()) }
}

const MISSING: [&str; 3] = [".git/commondir", ".git/info/attributes", ".husky"];

fn is_there(folder: &Path) -> [bool; 3] {
    MISSING.map(|path| folder.join(path).exists())
}

#[test]
fn what_is_protected_and_missing_stays_missing() {
    for backend in backends() {
        let (workspace, shields) = repository();
        let before = everything(workspace.path());
        let view = bound(workspace.path(), &shields);
        let jail = viewed(*backend, workspace, view, |_| {}).unwrap();
        assert_eq!(is_there(jail.workspace.path()), [true; 3], "{backend}");
        let owner = fs::metadata(jail.workspace.path()).unwrap().uid();
        assert_eq!(fs::metadata(jail.outside(".husky")).unwrap().uid(), owner, "{backend}");
        let worked = attack_all(&jail, &["/workspace"], &MISSING);
        assert_eq!(worked, Vec::<String>::new(), "{backend}");
        drop(jail.sandbox);
        assert_eq!(everything(jail.workspace.path()), before, "{backend}");
    }
}

#[test]
fn a_mountpoint_stays_as_long_as_one_sandbox_needs_it() {
    for backend in backends() {
        let (workspace, shields) = repository();
        let before = everything(workspace.path());
        let first = viewed(*backend, folder(), bound(workspace.path(), &shields), |_| {}).unwrap();
        // The next one finds what the first one made, and takes it for what was always there.
        let found: Vec<Shield> = MISSING.iter().map(|path| shield(path, Shielded::Existing)).collect();
        let view =
            View { shields: [shields.clone(), found].concat(), ..View::plain(workspace.path().into()) };
        let second = viewed(*backend, folder(), view, |_| {}).unwrap();
        let third = viewed(*backend, folder(), bound(workspace.path(), &shields), |_| {}).unwrap();
        drop(first);
        drop(third);
        assert_eq!(is_there(workspace.path()), [true; 3], "{backend}");
        let worked = attack_all(&second, &["/workspace"], &MISSING);
        assert_eq!(worked, Vec::<String>::new(), "{backend}");
        drop(second);
        assert_eq!(everything(workspace.path()), before, "{backend}");
    }
}

#[test]
fn a_mountpoint_that_two_folders_know_stays_as_long_as_one_sandbox_needs_it() {
    for backend in linux_backends() {
        // Moments in which Docker, which takes a hundred times as long, has not even begun.
        let rounds = if is_docker(*backend) { 4 } else { 40 };
        for round in 0..rounds {
            let (workspace, shields) = repository();
            let before = everything(workspace.path());
            let git = workspace.path().join(".git");
            // The repository, and its git directory as a linked worktree sees it: both find nothing there.
            let of_main = bound(workspace.path(), &shields);
            let of_git = View {
                shields: vec![
                    shield("commondir", Shielded::MissingFile(".\n")),
                    shield("info/attributes", Shielded::MissingFile("")),
                ],
                ..View::plain(git.clone())
            };
            let (first, second) = if round % 2 == 0 { (of_main, of_git) } else { (of_git, of_main) };
            let path = if round % 2 == 0 { "commondir" } else { ".git/commondir" };
            let survivor = std::thread::scope(|scope| {
                let survivor = scope.spawn(|| viewed(*backend, folder(), second, |_| {}).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(round / 2 % 9));
                drop(viewed(*backend, folder(), first, |_| {}).unwrap());
                survivor.join().unwrap()
            });
            survivor.sh(&format!("echo z > {path}; rm -f {path}; echo z > {path}; true"));
            assert_eq!(fs::read_to_string(git.join("commondir")).unwrap(), ".\n", "{backend}, {round}");
            drop(survivor);
            assert_eq!(everything(workspace.path()), before, "{backend}, {round}");
        }
    }
}

#[test]
fn files_that_were_put_into_a_mountpoint_are_kept() {
    for backend in backends() {
        let (workspace, shields) = repository();
        let view = bound(workspace.path(), &shields);
        let jail = viewed(*backend, workspace, view, |_| {}).unwrap();
        fs::write(jail.outside(".husky/pre-commit"), "mine").unwrap();
        fs::write(jail.outside(".git/info/attributes"), "* mine").unwrap();
        drop(jail.sandbox);
        assert_eq!(is_there(jail.workspace.path()), [false, true, true], "{backend}");
        assert_eq!(fs::read_to_string(jail.workspace.path().join(".husky/pre-commit")).unwrap(), "mine");
    }
}

/// Another user's, or a daemon's: it has other notes, and knows nothing of ours.
#[test]
fn a_mountpoint_stays_as_long_as_a_sandbox_with_another_state_needs_it() {
    for backend in backends() {
        for is_killed in [false, true] {
            let (workspace, shields) = repository();
            let before = everything(workspace.path());
            let state = folder();
            let mut first = start_with(workspace.path(), state.path(), *backend)
                .env("BELLJAR_HOLD_OPEN", "1")
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            assert!(eventually(|| is_there(workspace.path()) == [true; 3]), "{backend}");
            let found: Vec<Shield> = MISSING.iter().map(|path| shield(path, Shielded::Existing)).collect();
            let view = View { shields: [shields, found].concat(), ..View::plain(workspace.path().into()) };
            let second = viewed(*backend, folder(), view, |_| {}).unwrap();
            if is_killed {
                first.kill().unwrap();
            }
            drop(first.stdin.take());
            assert_eq!(first.wait().unwrap().success(), !is_killed, "{backend}");
            assert!(eventually(|| !cleaners(workspace.path()).is_empty()), "{backend}: who waits?");
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert_eq!(is_there(workspace.path()), [true; 3], "{backend}");
            let worked = attack_all(&second, &["/workspace"], &MISSING);
            assert_eq!(worked, Vec::<String>::new(), "{backend}");
            drop(second);
            assert!(eventually(|| cleaners(workspace.path()).is_empty()), "{backend}");
            assert_eq!(everything(workspace.path()), before, "{backend}");
            assert_eq!(fs::read_dir(state.path().join("belljar/stubs")).unwrap().count(), 0, "{backend}");
        }
    }
}

/// A process that makes one sandbox after the other, to be killed.
fn holder(workspace: &Path, state: &Path, backend: BackendName) -> std::process::Child {
    start_with(workspace, state, backend).spawn().unwrap()
}

fn start_with(workspace: &Path, state: &Path, backend: BackendName) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        // The folder is no test: a word by which it is found among all processes.
        .args(["--ignored", "--exact", "workspace_mountpoints::hold_a_sandbox_with_mountpoints"])
        .arg(workspace)
        .env("BELLJAR_HOLD_WORKSPACE", workspace)
        .env("BELLJAR_HOLD_BACKEND", backend.as_str())
        .env("XDG_STATE_HOME", state)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

/// Not a test: what others start and kill.
#[test]
#[ignore = "started by another test"]
fn hold_a_sandbox_with_mountpoints() {
    let (Ok(workspace), Ok(backend)) =
        (std::env::var("BELLJAR_HOLD_WORKSPACE"), std::env::var("BELLJAR_HOLD_BACKEND"))
    else {
        return;
    };
    let (_, shields) = repository();
    let backend = BackendName::ALL.into_iter().find(|name| name.as_str() == backend).unwrap();
    let is_set = |name: &str| std::env::var(name).is_ok();
    let once = is_set("BELLJAR_HOLD_ONCE") || is_set("BELLJAR_HOLD_OPEN");
    for _ in 0..if once { 1 } else { 1000 } {
        let view = bound(Path::new(&workspace), &shields);
        let jail = viewed(backend, folder(), view, |_| {}).unwrap();
        jail.sh("true");
        if is_set("BELLJAR_HOLD_OPEN") {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        }
    }
}

/// The reapers of sandboxes on this folder, waiting or cleaning up: they have the arguments of the process that started
/// them, or the folder's name as the kernel knows it.
fn reapers(folder: &Path) -> Vec<u32> {
    [processes_with(folder.to_str().unwrap()), cleaners(folder)].concat()
}

fn cleaners(folder: &Path) -> Vec<u32> {
    let found = fs::metadata(folder).unwrap();
    processes_with(&format!("{:x}-{:x}", found.dev(), found.ino()))
}

#[test]
fn killed_at_random_moments_no_mountpoint_is_left() {
    let (workspace, _) = repository();
    let before = everything(workspace.path());
    let state = folder();
    let bytes = canary("seed").into_bytes();
    for round in 0..60 {
        let mut child = holder(workspace.path(), state.path(), backends()[round % backends().len()]);
        let dice = u64::from(bytes[bytes.len() - 1 - round % 30]) * 131 + round as u64 * 977;
        std::thread::sleep(std::time::Duration::from_micros(8000 + dice % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Not at first sight: a process that is just becoming another one has no words for a moment.
    let is_over = || reapers(workspace.path()).is_empty() && everything(workspace.path()) == before;
    assert!(eventually(is_over), "{:?}", reapers(workspace.path()));
    assert_eq!(everything(workspace.path()), before);
    // A process that was killed with a note created and no reaper started yet has written nothing in the note, and made nothing. The
    // next start removes the note.
    let notes = || fs::read_dir(state.path().join("belljar/stubs")).into_iter().flatten().flatten();
    let printed: Vec<Vec<u8>> = notes().map(|note| fs::read(note.path()).unwrap()).collect();
    assert!(printed.iter().all(Vec::is_empty), "{printed:?}");
    start_once(repository().0.path(), state.path(), backends()[0]);
    assert_eq!(notes().count(), 0, "notes");
}

/// Starts a sandbox on this folder in a process of its own, and ends it.
fn start_once(workspace: &Path, state: &Path, backend: BackendName) {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "workspace_mountpoints::hold_a_sandbox_with_mountpoints"])
        .env("BELLJAR_HOLD_WORKSPACE", workspace)
        .env("BELLJAR_HOLD_BACKEND", backend.as_str())
        .env("BELLJAR_HOLD_ONCE", "1")
        .env("XDG_STATE_HOME", state)
        .status()
        .unwrap();
    assert!(status.success(), "{backend}");
}

#[test]
fn where_the_reaper_is_killed_too_the_next_start_takes_mountpoints_away() {
    for backend in backends() {
        let (workspace, _) = repository();
        let before = everything(workspace.path());
        let (state, elsewhere) = (folder(), repository().0);
        let mut child = holder(workspace.path(), state.path(), *backend);
        assert!(eventually(|| is_there(workspace.path()) == [true; 3]), "{backend}");
        let stop = |pid: u32| {
            use belljar_sys::rustix::process::{Pid, Signal, kill_process};
            let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
        };
        reapers(workspace.path()).into_iter().filter(|pid| *pid != child.id()).for_each(stop);
        child.kill().unwrap();
        child.wait().unwrap();
        reapers(workspace.path()).into_iter().for_each(stop);
        start_once(elsewhere.path(), state.path(), *backend);
        assert_eq!(everything(workspace.path()), before, "{backend}");
    }
}

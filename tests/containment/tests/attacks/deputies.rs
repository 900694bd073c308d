//! The host never runs what an agent wrote, and is not talked into it by where it left things.

use belljar_tests_containment::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who activated a virtual environment has a folder of the workspace in front of PATH.
#[test]
fn a_program_that_an_agent_left_on_path_is_not_run_by_the_host() {
    let workspace = folder();
    let bin = workspace.path().join(".venv/bin");
    fs::create_dir_all(&bin).unwrap();
    let traces = folder();
    fs::set_permissions(traces.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let trace = traces.path().join("ran-outside");
    let programs = [
        "bwrap",
        "newuidmap",
        "newgidmap",
        "sh",
        "git",
        "ip",
        "mount",
        "systemd-run",
        "docker",
        "python3",
        "node",
        "id",
    ];
    for name in programs {
        let script = format!("#!/bin/sh\necho \"$0 $(/usr/bin/id -u)\" >> {}\nexit 1\n", trace.display());
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for backend in ["auto", "native", "bwrap"] {
        let _ = std::process::Command::new(belljar())
            .args(["run", "--backend", backend, "--workspace"])
            .arg(workspace.path())
            .args(["--", "/usr/bin/true"])
            .env("PATH", &path)
            .current_dir(workspace.path())
            .output()
            .unwrap();
        let ran = fs::read_to_string(&trace).unwrap_or_default();
        assert_eq!(ran, "", "--backend {backend}: the host ran what the agent wrote");
    }
    let _ = std::process::Command::new(belljar()).arg("doctor").env("PATH", &path).output().unwrap();
    assert_eq!(
        fs::read_to_string(&trace).unwrap_or_default(),
        "",
        "doctor: the host ran what the agent wrote"
    );
}

/// The state directory is this user's, and so is every process that escapes from a sandbox: no program in it is ever run outside.
#[test]
fn a_program_in_the_state_directory_is_not_run_by_the_host() {
    let (state, workspace) = (folder(), folder());
    let run = || {
        std::process::Command::new(belljar())
            .args(["run", "--backend", "native", "--", "true"])
            .env("XDG_STATE_HOME", state.path())
            .current_dir(workspace.path())
            .status()
            .unwrap()
    };
    assert!(run().success());
    // As the guest's first words are, this makes a file that is called `network`.
    let touch = fs::read("/usr/bin/touch").unwrap();
    let mut replaced = Vec::new();
    let mut left = vec![state.path().to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let found = entry.metadata().unwrap();
            if found.is_dir() {
                left.push(entry.path());
            } else if found.is_file() && found.permissions().mode() & 0o111 != 0 {
                let mut program = touch.clone();
                program.resize(found.len() as usize, 0);
                fs::remove_file(entry.path()).unwrap();
                fs::write(entry.path(), program).unwrap();
                fs::set_permissions(entry.path(), found.permissions()).unwrap();
                replaced.push(entry.path());
            }
        }
    }
    let ran = run();
    assert!(!workspace.path().join("network").exists(), "the host ran one of {replaced:?}");
    assert!(ran.success(), "{replaced:?}");
}

/// File operations of the host run in process 1: a link of the agent's to `/proc/self` would mean process 1 itself.
#[test]
fn file_operations_show_nothing_of_process_one() {
    for backend in backends() {
        let jail = jail(*backend);
        let mut shown = Vec::new();
        let names = ["maps", "environ", "mem", "auxv", "smaps", "stack", "syscall", "io", "pagemap"];
        for base in ["/proc/self", "/proc/thread-self", "/proc/1"] {
            for name in names {
                let link = format!("{}-{name}", base.replace('/', "_"));
                std::os::unix::fs::symlink(Path::new(base).join(name), jail.outside(&link)).unwrap();
                if let Ok(content) = wait_for(jail.sandbox.read_file(&link))
                    && !content.is_empty()
                {
                    shown.push(format!("{base}/{name}"));
                }
            }
            let link = format!("{}-fd", base.replace('/', "_"));
            std::os::unix::fs::symlink(Path::new(base).join("fd"), jail.outside(&link)).unwrap();
            if wait_for(jail.sandbox.readdir(&format!("{link}/"))).is_ok_and(|entries| !entries.is_empty()) {
                shown.push(format!("{base}/fd"));
            }
        }
        assert_eq!(shown, Vec::<String>::new(), "{backend}");
    }
}

/// Pipes, devices and endless files that an agent put where the host reads must not hold it up.
#[test]
fn a_pipe_in_the_workspace_does_not_hold_up_the_host() {
    for backend in backends() {
        let jail = jail(*backend);
        jail.sh("mkfifo pipe; ln -s /dev/zero endless; ln -s /dev/tty terminal");
        for name in ["pipe", "endless", "terminal"] {
            let read = wait_for(async {
                tokio::time::timeout(std::time::Duration::from_secs(20), jail.sandbox.read_file(name)).await
            });
            assert!(matches!(read, Ok(Err(_))), "{backend}: {name}");
        }
    }
}

//! Bad input: what happened, to what, what to do next, the right exit code; and nothing left behind.

use belljar_tests_cli::left::{self, eventually};
use belljar_tests_cli::{Home, Run, belljar, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Arguments, exit code, what standard error must say.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

fn check(cases: &[Case<'_>]) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let before = left::empty_cgroups();
    for (args, code, sayings) in cases {
        let result = run(folder.path(), *args);
        assert_eq!(result.code, *code, "{args:?}: {}", result.stderr);
        for saying in *sayings {
            assert!(
                result.stderr.contains(saying),
                "{args:?} should say {saying:?}, said: {}",
                result.stderr
            );
        }
        assert_eq!(result.stdout, "", "{args:?}");
        nothing_is_in(folder.path());
    }
    let mut new: Vec<_> = left::empty_cgroups().difference(&before).cloned().collect();
    let all_gone = || {
        new.retain(|path| path.exists());
        new.is_empty()
    };
    assert!(eventually(all_gone), "cgroups are left: {new:?}");
}

/// Neither a file in the workspace nor a process that has it.
fn nothing_is_in(folder: &Path) {
    let names: Vec<_> =
        fs::read_dir(folder).expect("it is ours").flatten().map(|entry| entry.path()).collect();
    assert!(names.is_empty(), "files are left: {names:?}");
    let mark = folder.to_str().expect("a plain path");
    assert!(eventually(|| left::of_run(mark, None).is_empty()), "processes: {:?}", left::of_run(mark, None));
}

#[test]
fn words_that_are_not_understood() {
    check(&[
        (
            &["run", "--backend", "nope", "--", "true"],
            125,
            &["there is no backend `nope`", "auto, native, bwrap, landlock, docker,"],
        ),
        (&["run", "--root", "alpine:3.22", "--", "true"], 125, &["`alpine:3.22` is no root", "oci:IMAGE"]),
        (
            &["run", "--root", "oci:alpine", "--", "true"],
            125,
            &["neither a digest nor a tag", "alpine:latest"],
        ),
        (&["run", "--image", "Alpine:3", "--", "true"], 125, &["not the name of an image"]),
        (&["run", "--image", "a:1", "--root", "golden", "--", "true"], 125, &["--image", "--root"]),
        (&["run", "--runtime", "runsc", "--", "true"], 126, &["`--backend docker --runtime runsc`"]),
        (&["run", "--backend", "docker", "--runtime", "crun", "--", "true"], 125, &["use runc or runsc"]),
        (
            &["run", "--backend", "docker+kata", "--", "true"],
            125,
            &["runtime `kata`", "`--backend docker+runsc`"],
        ),
        (&["run", "--at-least", "wood", "--", "true"], 125, &["`wood` is not a level", "namespace"]),
        (&["run", "--memory", "2gigs", "--", "true"], 125, &["`2gigs` is not a size", "`512m` or `2g`"]),
        (&["run", "--timeout", "soon", "--", "true"], 125, &["`soon` is not a time", "`90s`"]),
        (&["run", "--cpus", "two", "--", "true"], 125, &["`two` is not a number of processors"]),
        (&["run", "--cpus", "0.0001", "--", "true"], 125, &["`0.0001` is not a number of processors"]),
        (&["run", "--pids", "0", "--", "true"], 125, &["--pids"]),
        (&["run", "--frobnicate", "--", "true"], 125, &["--frobnicate"]),
        (&["frobnicate"], 125, &["frobnicate"]),
    ]);
}

#[test]
fn commands_that_cannot_be_run() {
    check(&[
        (&["run"], 126, &["the command is empty", "belljar run -- make test"]),
        (&["run", "--"], 126, &["the command is empty"]),
        (&["run", "--", ""], 126, &["empty string"]),
        (
            &["run", "--", "no-such-program-anywhere"],
            127,
            &["`no-such-program-anywhere` was not found inside the sandbox"],
        ),
        (&["run", "--", "/etc/passwd"], 126, &["`/etc/passwd` is not executable"]),
        (&["run", "--", "/usr"], 126, &["/usr"]),
        (&["run", "--cwd", "nowhere", "--", "true"], 126, &["cannot enter nowhere"]),
    ]);
}

#[test]
fn paths_that_cannot_be_shared() {
    check(&[
        (
            &["run", "--workspace", "/no/such/folder", "--", "true"],
            126,
            &["the workspace `/no/such/folder` does not exist", "hint"],
        ),
        // Nothing in a name moves the cursor.
        (
            &["run", "--workspace", "/no\u{1b}[31m", "--", "true"],
            126,
            &["the workspace `/no^[[31m` does not exist"],
        ),
        (&["run", "--workspace", "/etc/passwd", "--", "true"], 126, &["is a file", "--workspace DIR"]),
        (&["run", "--workspace", "/", "--", "true"], 126, &["holds a whole home"]),
        (&["run", "--workspace", "/home", "--", "true"], 126, &["holds a whole home"]),
        (&["run", "--ro", "/no/such/path", "--", "true"], 126, &["the path `/no/such/path` does not exist"]),
        (&["run", "--rw", "/proc", "--", "true"], 126, &["belongs to the running system"]),
        (&["run", "--ro", "/run", "--", "true"], 126, &["belongs to the running system"]),
        (&["run", "--ro", "/dev/null", "--", "true"], 126, &["belongs to the running system"]),
    ]);
}

/// Whatever HOME is: root's home is root's, and a folder that is another user's home is theirs.
#[test]
fn the_home_of_another_user_cannot_be_shared() {
    // What only root can read, or mount, is refused or not there for others already.
    if fs::read_dir("/root").is_err() {
        return;
    }
    let home = Home::new("");
    for way in ["--ro", "--rw", "--workspace"] {
        let result = home.run(&["run", way, "/root", "--", "true"]);
        assert_eq!(result.code, 126, "{way}: {}", result.stderr);
        assert!(result.stderr.contains("`/root` holds a whole home"), "{way}: {}", result.stderr);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().canonicalize().unwrap();
    fs::create_dir_all(elsewhere.join("homes/ada/project")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("homes/ada"), elsewhere.join("ada")).unwrap();
    std::os::unix::fs::chown(elsewhere.join("homes/ada"), Some(1000), Some(1000)).unwrap();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let ada = format!("{passwd}ada:x:1000:1000::{}:/bin/sh\n", elsewhere.join("ada").display());
    home.write("etc/passwd", &ada);
    for (folder, code) in [("homes/ada", 126), ("ada", 126), ("homes", 126), ("homes/ada/project", 0)] {
        let folder = elsewhere.join(folder);
        let result = home.run(&["run", "--ro", folder.to_str().unwrap(), "--", "true"]);
        assert_eq!(result.code, code, "{}: {}", folder.display(), result.stderr);
    }
}

#[test]
fn a_socket_cannot_be_shared() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("service.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let work = tempfile::tempdir().unwrap();
    let result = run(work.path(), ["run", "--rw", socket.to_str().unwrap(), "--", "true"]);
    assert_eq!(result.code, 126);
    assert!(result.stderr.contains("is a socket"), "{}", result.stderr);
}

#[test]
fn what_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&closed).is_ok() {
        // Root reads everything.
        return;
    }
    let secret = folder.path().join("secret");
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let behind = closed.join("behind");
    let work = tempfile::tempdir().unwrap();
    for (flag, path) in [
        ("--workspace", &closed),
        ("--ro", &closed),
        ("--rw", &closed),
        ("--ro", &secret),
        ("--rw", &secret),
        ("--ro", &behind),
    ] {
        let result = run(work.path(), ["run", flag, path.to_str().unwrap(), "--", "true"]);
        assert_eq!(result.code, 126, "{flag} {path:?}: {}", result.stderr);
        assert!(result.stderr.contains("cannot be read by you"), "{flag} {path:?}: {}", result.stderr);
        nothing_is_in(work.path());
    }
}

#[test]
fn variables_that_are_none() {
    check(&[
        (
            &["run", "--env", "NO_SUCH_VARIABLE_HERE", "--", "true"],
            126,
            &["`NO_SUCH_VARIABLE_HERE` is not set", "--env NO_SUCH_VARIABLE_HERE=VALUE"],
        ),
        (&["run", "--env", "=x", "--", "true"], 126, &["not the name of an environment variable"]),
    ]);
}

#[test]
fn backends_that_cannot_be_had() {
    check(&[
        (
            &["run", "--at-least", "microvm", "--", "true"],
            125,
            &["no backend here has the assurance microvm", "--at-least"],
        ),
        (
            &["run", "--backend", "host", "--at-least", "container", "--", "true"],
            125,
            &["gives the assurance host, below container"],
        ),
    ]);
}

/// Runs belljar as root of mounts of its own, after `preparation`, which finds the folder in `$1` and belljar in `$2`. Nothing where
/// mounts are not ours to make.
fn run_after(preparation: &str, flags: &[&str], folder: &Path) -> Option<Run> {
    let is_root = Command::new("unshare").args(["--mount", "true"]).output();
    if !is_root.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(flags).args(["--mount", "sh", "-ec", preparation, "sh"]).arg(folder).arg(belljar());
    let Output { status, stdout, stderr } = command.current_dir(folder).output().expect("util-linux is here");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Run { code: status.code().unwrap_or(-1), stdout: text(&stdout), stderr: text(&stderr) })
}

#[test]
fn bubblewrap_that_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let preparation = r#"
        for bwrap in /usr/bin/bwrap /bin/bwrap /usr/local/bin/bwrap; do
            if [ -f "$bwrap" ]; then mount --bind /dev/null "$bwrap"; fi
        done
        exec "$2" run --backend bwrap -- true"#;
    let Some(result) = run_after(preparation, &[], folder.path()) else { return };
    assert_eq!((result.code, &*result.stdout), (125, ""), "{}", result.stderr);
    assert!(result.stderr.contains("bubblewrap (`bwrap`) is not installed"), "{}", result.stderr);
    assert!(result.stderr.contains("--backend native"), "{}", result.stderr);
}

/// As root the folder's files would have to be shown under another user, which ramfs cannot.
#[test]
fn a_folder_that_cannot_be_shown_under_another_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let with = |backend: &str, words: &str| {
        let script = format!(
            r#"mkdir "$1/x"; mount -t ramfs ramfs "$1/x"; mkdir "$1/x/y"; "$2" run --backend {backend} {words} -- touch y/made && exit
            code=$?; rmdir "$1/x/y" || code=99; exit $code"#
        );
        let result = run_after(&script, &[], folder.path());
        fs::remove_dir(folder.path().join("x")).ok();
        result
    };
    for backend in ["native", "bwrap", "auto"] {
        for words in [r#"--workspace "$1/x""#, r#"--rw "$1/x""#] {
            let Some(result) = with(backend, words) else { return };
            assert_eq!((result.code, &*result.stdout), (125, ""), "{backend} {words}: {}", result.stderr);
            let printed = "cannot show its files under another user";
            assert!(result.stderr.contains(printed), "{backend} {words}: {}", result.stderr);
            assert!(
                result.stderr.contains("as the owner of the folder"),
                "{backend} {words}: {}",
                result.stderr
            );
        }
    }
}

/// On a machine that is no container, whatever the environment says. Its `/` is a plain tmpfs, and process 1 ours.
#[test]
fn variables_do_not_make_a_container() {
    let folder = tempfile::tempdir().unwrap();
    let preparation = r#"
        root="$1/root"; mkdir "$root"; mount -t tmpfs root "$root"; cd "$root"
        mkdir -p usr etc dev proc tmp work state opt root
        mount --rbind /usr usr; mount --rbind /etc etc; mount --rbind /dev dev; mount -t proc proc proc
        for name in bin sbin lib lib64; do ln -s usr/$name $name; done
        cp "$2" belljar; cd /
        container=podman KUBERNETES_SERVICE_HOST=10.0.0.1 CODESPACES=true GITPOD_WORKSPACE_ID=x HOME=/root             XDG_STATE_HOME=/state chroot "$root" /belljar run --backend container --workspace /work -- echo inside"#;
    let flags = ["--pid", "--fork", "--cgroup"];
    let Some(result) = run_after(preparation, &flags, folder.path()) else { return };
    assert_eq!((result.code, &*result.stdout), (125, ""), "{}", result.stderr);
    assert!(result.stderr.contains("does not run inside a container"), "{}", result.stderr);
}

/// In a user namespace of its own that may have none below it, so that neither native nor bubblewrap works; and Landlock is weaker than
/// what is asked for.
#[test]
fn where_no_backend_works_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo 0 > /proc/sys/user/max_user_namespaces || exit 99
exec "$0" run --at-least namespace -- touch ran"#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(belljar()).current_dir(folder.path());
    let Output { status, stdout, stderr } = command.output().expect("unshare starts");
    let printed = String::from_utf8_lossy(&stderr);
    if status.code() == Some(99) || printed.starts_with("unshare:") {
        // This machine gives no user a user namespace to try it in.
        return;
    }
    assert_eq!((status.code(), stdout.as_slice()), (Some(125), &b""[..]), "{printed}");
    for saying in ["no backend works here", "native: ", "bwrap: ", "hint: "] {
        assert!(printed.contains(saying), "{printed}");
    }
    nothing_is_in(folder.path());
}

/// The sandbox's user would be root outside, who may write to `/proc/sys` even without capabilities.
#[test]
fn root_without_other_ids_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"grep -q "^ *0  *0  *1$" /proc/self/uid_map || exit 99
exec "$0" run --backend "$1" -- sh -c 'echo 60 > /proc/sys/vm/swappiness; touch ran'"#;
    for backend in ["native", "bwrap"] {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(belljar()).arg(backend);
        let Output { status, stderr, .. } =
            command.current_dir(folder.path()).output().expect("unshare starts");
        let printed = String::from_utf8_lossy(&stderr);
        if status.code() == Some(99) || printed.starts_with("unshare:") {
            // Who starts this test is not root, or gets no user namespace.
            return;
        }
        assert_eq!(status.code(), Some(125), "{backend}: {printed}");
        assert!(
            printed.contains("bwrap` is not installed") || printed.contains("would be root"),
            "{backend}: {printed}"
        );
        nothing_is_in(folder.path());
    }
}

/// It has so little of a processor that it can be killed before it is ready.
#[test]
fn a_guest_that_dies_while_it_is_set_up_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(belljar());
    command.args(["run", "--backend", "native", "--cpus", "0.001", "--", "touch", "ran"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let belljar = command.spawn().expect("belljar starts");
    let guest = || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.find(|pid| is_guest(*pid, belljar.id()))
    };
    let is_over = || !left::is_alive(belljar.id());
    let mut found = None;
    assert!(eventually(|| is_over() || guest().inspect(|pid| found = Some(*pid)).is_some()));
    let killed =
        found.map(|pid| Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    let Output { status, stdout, stderr } = belljar.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&stderr);
    if printed.contains("no cgroup is delegated to belljar") {
        // An ordinary user without delegated cgroups.
        return;
    }
    assert_eq!(killed, Some(true), "{printed}");
    assert_eq!((status.code(), stdout.as_slice()), (Some(125), &b""[..]), "{printed}");
    assert!(printed.contains("the sandbox's first process died while it was set up"), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    nothing_is_in(folder.path());
}

/// A child of belljar's that is in a cgroup of its own.
fn is_guest(pid: u32, parent: u32) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // proc_pid_stat(5): what follows the name is the state, and then the parent.
    let of = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1)?.parse().ok());
    of == Some(parent) && read("cgroup").contains("/belljar-")
}

#[test]
fn a_full_disk_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let result = run(
        folder.path(),
        ["run", "--disk", "2m", "--", "dd", "if=/dev/zero", "of=/tmp/fill", "bs=1M", "count=9"],
    );
    assert_eq!(result.code, 1);
    assert!(result.stderr.contains("No space left on device"), "{}", result.stderr);
    assert!(result.stderr.contains("(disk_full)") && result.stderr.contains("--disk"), "{}", result.stderr);
    nothing_is_in(folder.path());
}

#[test]
fn a_timeout_is_124_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let result = run(folder.path(), ["run", "--timeout", "200ms", "--", "sleep", "60"]);
    assert_eq!(result.code, 124);
    assert!(result.stderr.contains("(timeout)") && result.stderr.contains("--timeout"), "{}", result.stderr);
}

#[test]
fn a_supervisor_that_is_killed_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let result = run(folder.path(), ["run", "--", "sh", "-c", "kill -9 $PPID; sleep 60"]);
    assert_eq!(result.code, 125);
    assert!(result.stderr.contains("killed its own supervisor"), "{}", result.stderr);
}

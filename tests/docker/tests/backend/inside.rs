//! belljar inside of a container, as devcontainers and jobs of CI start one: it isolates, or it says why not and runs nothing.

use belljar_tests_cli::belljar;
use belljar_tests_docker::{Dockerd, busybox};
use std::process::{Command, Output};

/// Root, and a user that no file of the image names.
const USERS: [&str; 2] = ["0:0", "1000:1000"];
/// What the refusals name, and all that native needs.
const OPENED: [&str; 4] =
    ["--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"];

/// `docker run` with these words before the image, and a script in it. belljar is at `/belljar`, and the folder is `/work`.
fn inside(daemon: &Dockerd, user: &str, words: &[&str], script: &str) -> (Option<i32>, String, String) {
    let program = format!("{}:/belljar:ro", belljar().display());
    let Output { status, stdout, stderr } = Command::new("docker")
        .args([
            "run",
            "--rm",
            "--network",
            "none",
            "--tmpfs",
            "/work:mode=1777",
            "--tmpfs",
            "/state:mode=1777,exec",
        ])
        .args(["--user", user, "--volume", &program])
        .args(["--env", "HOME=/state", "--env", "XDG_STATE_HOME=/state", "--env", "XDG_CONFIG_HOME=/state"])
        .args(words)
        .args(["busybox:test", "sh", "-c", &format!("cd /work; {script}")])
        .env("DOCKER_HOST", daemon.host())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn in_a_plain_container_it_isolates_without_namespaces_or_says_why_not() {
    let Some(daemon) = Dockerd::start() else { return };
    busybox(&daemon.host(), "busybox:test");
    for user in USERS {
        // The container's files beside the workspace are closed, and so is its network.
        let script = "echo kept > /state/other; /belljar run -- sh -c \
             'echo ran; echo made > made; cat /state/other; echo gone > /state/other; cat /proc/1/environ; nc -w 1 127.0.0.1 9'; \
             cat /work/made /state/other";
        let (code, stdout, stderr) = inside(&daemon, user, &[], script);
        assert_eq!((code, &*stdout), (Some(0), "ran\nmade\nkept\n"), "{user}: {stderr}");
        assert!(stderr.contains("isolated by Landlock"), "{user}: {stderr}");
        let (code, stdout, stderr) =
            inside(&daemon, user, &[], "/belljar run --at-least namespace -- echo ran; echo $?");
        assert_eq!((code, &*stdout), (Some(0), "125\n"), "{user}: {stderr}");
        for printed in [
            "no backend works here",
            "\n  native: ",
            "\n  bwrap: ",
            "\n  landlock: the backend landlock gives the assurance landlock, below namespace",
            "\n  docker: there is no Docker daemon at ",
            "hint: ",
            "--security-opt systempaths=unconfined",
            "--backend container",
        ] {
            assert!(stderr.contains(printed), "{user}: {printed} is not in {stderr}");
        }
        assert!(!stderr.contains("older than"), "{user}: {stderr}");
        // Knowingly, it does.
        let knowingly = "/belljar run --backend container -- echo ran";
        let (code, stdout, stderr) = inside(&daemon, user, &[], knowingly);
        assert_eq!((code, &*stdout), (Some(0), "ran\n"), "{user}: {stderr}");
        let (code, stdout, stderr) = inside(&daemon, user, &[], "/belljar doctor");
        assert_eq!(code, Some(0), "{user}: {stdout} {stderr}");
        for printed in
            ["Inside a container (Docker)", "A sandbox here (landlock, landlock)", "isolates nothing"]
        {
            assert!(stdout.contains(printed), "{user}: {printed} is not in {stdout}");
        }
        for lie in ["older than", "no Landlock", "network      none"] {
            assert!(!stdout.contains(lie), "{user}: {stdout}");
        }
    }
    // As an ordinary user the kernel is asked, and a filter answers.
    let (_, stdout, _) = inside(&daemon, USERS[1], &[], "/belljar doctor");
    assert!(stdout.contains("refused here by a seccomp filter"), "{stdout}");
}

/// The `docker run` lines of the hint, as a person copies them.
#[test]
fn each_line_of_the_refusal_works_as_it_is_copied() {
    let Some(daemon) = Dockerd::start() else { return };
    busybox(&daemon.host(), "busybox:test");
    let (_, _, stderr) = inside(&daemon, USERS[0], &[], "/belljar run --at-least namespace -- true");
    let lines: Vec<&str> =
        stderr.lines().map(str::trim).filter(|line| line.starts_with("docker run ")).collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    let folder = daemon.folder().join("project");
    std::fs::create_dir(&folder).unwrap();
    for line in lines {
        let script = r#"cd /work 2>/dev/null || { mkdir /state/w && cd /state/w; }; HOME=/state /belljar run -- id -un"#;
        let rest = format!(
            "--volume '{}:/belljar:ro' --rm --network none --tmpfs /state:mode=1777 busybox:test sh -c '{script}'",
            belljar().display()
        );
        let copied = line.strip_suffix(" IMAGE").expect(line);
        let output = Command::new("sh")
            .args(["-c", &format!("{copied} {rest}")])
            .current_dir(&folder)
            .env("DOCKER_HOST", daemon.host())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), &*output.stdout),
            (Some(0), &b"agent\n"[..]),
            "{copied}: {printed}"
        );
    }
}

#[test]
fn with_what_the_refusal_names_native_works() {
    let Some(daemon) = Dockerd::start() else { return };
    busybox(&daemon.host(), "busybox:test");
    let script = "/belljar run -- sh -c 'echo made > made; ls /belljar 2>/dev/null; true' && cat made";
    let (code, stdout, stderr) = inside(&daemon, USERS[1], &OPENED, script);
    assert_eq!((code, &*stdout), (Some(0), "made\n"), "{stderr}");
    assert_eq!(stderr, "");
    // Where clone3 alone is missing, clone makes the same namespaces.
    let profile = daemon.folder().join("no-clone3.json");
    let rule = r#"{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}"#;
    std::fs::write(&profile, format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rule}]}}"#))
        .unwrap();
    let filter = format!("seccomp={}", profile.display());
    let words = ["--security-opt", &filter, "--security-opt", "systempaths=unconfined"];
    let (code, stdout, stderr) = inside(&daemon, USERS[1], &words, script);
    assert_eq!((code, &*stdout), (Some(0), "made\n"), "{stderr}");
    // Root of a container may not mount, and says so: with a remedy that is enough.
    let (_, stdout, stderr) =
        inside(&daemon, USERS[0], &OPENED, "/belljar run --at-least namespace -- echo ran; echo $?");
    assert_eq!(stdout, "125\n", "{stderr}");
    assert!(stderr.contains("CAP_SYS_ADMIN") && stderr.contains("--user 1000:1000"), "{stderr}");
}

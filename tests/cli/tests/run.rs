//! `belljar run`.

use belljar_tests_cli::{Home, belljar, run, run_with_input};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

#[test]
fn a_sandbox_is_shown_without_being_made() {
    let folder = folder();
    let shown =
        run(folder.path(), ["show-run", "--backend", "native", "--egress", "none", "--open-files", "512"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("one JSON object");
    assert_eq!((&shown["backend"], &shown["egress"]["mode"]), (&"native".into(), &"none".into()));
    assert_eq!(shown["limits"]["open_files"], 512);
    assert!(shown["steps"][0]["step"].is_string());
    let refused = run(folder.path(), ["show-run", "--backend", "native", "--command-line"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""));
    assert!(refused.stderr.contains("belljar does it itself"), "{}", refused.stderr);
}

#[test]
fn the_command_that_is_shown_for_bwrap_can_be_run() {
    let folder = folder();
    // With a git directory of the sandbox's own, which is only made for a start.
    let made = Command::new("git").args(["init", "--quiet"]).current_dir(folder.path()).status();
    assert!(made.expect("git").success());
    let shown = run(folder.path(), ["show-run", "--backend", "bwrap", "--command-line"]);
    if shown.code == 125 {
        return; // Bubblewrap does not work here.
    }
    let mut shell = Command::new("sh")
        .args(["-c", &shown.stdout])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    shell.stdin.take().expect("a pipe").write_all(b"id -u\nls -d /bin/sh\n").expect("it listens");
    let output = shell.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1000\n/bin/sh\n", "{}", shown.stdout);
}

#[test]
fn the_main_job_works() {
    let folder = folder();
    let result = run(
        folder.path(),
        ["run", "--", "sh", "-c", "id -un; pwd; cat /proc/net/route | wc -l; echo made > file"],
    );
    assert_eq!((result.code, result.stdout.as_str()), (0, "agent\n/workspace\n1\n"), "{}", result.stderr);
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "made\n");
    assert_eq!(result.stderr, "");
}

/// Root there is one user without a range of ids to give: belljar's users have to be that one.
#[test]
fn root_of_a_rootless_container_gets_a_sandbox() {
    let folder = folder();
    if fs::metadata(folder.path()).expect("ours").uid() == 0 {
        // Root there would be root outside too, which is refused (`root_without_other_ids_is_refused`).
        return;
    }
    for backend in ["native", "bwrap"] {
        let result = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount"])
            .arg(belljar())
            .args(["run", "--backend", backend, "--", "sh", "-c", "id -un; echo made > \"$0\"", backend])
            .current_dir(folder.path())
            .output()
            .expect("util-linux is everywhere");
        let printed = String::from_utf8_lossy(&result.stderr);
        assert_eq!(String::from_utf8_lossy(&result.stdout), "agent\n", "{backend}: {printed}");
        let made = fs::metadata(folder.path().join(backend)).expect("the command's file");
        assert_eq!(made.uid(), fs::metadata(folder.path()).expect("ours").uid(), "{backend}");
    }
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let folder = folder();
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        assert_eq!(run(folder.path(), ["run", "--", "sh", "-c", script]).code, code, "{script}");
    }
}

#[test]
fn standard_input_reaches_the_command() {
    let folder = folder();
    let input = vec![b'x'; 300_000];
    let result = run_with_input(folder.path(), ["run", "--", "wc", "-c"], &input);
    assert_eq!((result.code, result.stdout.trim()), (0, "300000"));
}

#[test]
fn streams_stay_apart() {
    let folder = folder();
    let result = run(folder.path(), ["run", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn json_holds_the_whole_result() {
    let folder = folder();
    let result = run(folder.path(), ["run", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 4"]);
    assert_eq!(result.code, 4);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("one JSON object");
    assert_eq!((json["ok"].clone(), json["exitCode"].clone()), (false.into(), 4.into()));
    assert_eq!(json["stdout"], "out\n");
    assert_eq!(json["stderr"], "err\n");
    assert_eq!(json["errorCode"], serde_json::Value::Null, "it ended by itself");
    assert!(json["backend"].is_string() && json["assurance"].is_string());
    assert_eq!(json["runId"].as_str().map(str::len), Some(16));
}

#[test]
fn json_names_the_limit_that_was_hit() {
    let folder = folder();
    let result = run(folder.path(), ["run", "--json", "--timeout", "200ms", "--", "sleep", "60"]);
    assert_eq!(result.code, 124);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("one JSON object");
    assert_eq!((json["errorCode"].clone(), json["exitCode"].clone()), ("timeout".into(), 124.into()));
    let result = run(folder.path(), ["run", "--json", "--output", "10", "--", "seq", "100"]);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("one JSON object");
    assert_eq!(
        (json["output_truncated"].clone(), json["errorCode"].clone()),
        (true.into(), "output_truncated".into())
    );
    assert_eq!(json["stdout"], "1\n2\n3\n4\n5\n");
}

#[test]
fn json_is_one_result_whatever_happens() {
    let folder = folder();
    for (words, code, error) in [
        (vec!["--", "true"], 0, None),
        (vec!["--", "sh", "-c", "kill -9 $$"], 137, None),
        (vec!["--", "no-such-program"], 127, Some("not_started")),
        (vec!["--cwd", "nowhere", "--", "true"], 126, Some("not_started")),
        (vec!["--ro", "/no/such/path", "--", "true"], 126, Some("refused")),
        (vec!["--env", "NOT_SET_ANYWHERE", "--", "true"], 126, Some("refused")),
        (vec!["--at-least", "microvm", "--", "true"], 125, Some("sandbox_failed")),
        // No shell: what a shell would make of it stays as it is.
        (vec!["--", "test", "$HOME; exit 9", "=", "$HOME; exit 9"], 0, None),
    ] {
        let words = [vec!["run", "--json"], words].concat();
        let result = run(folder.path(), &words);
        let json: serde_json::Value = serde_json::from_str(&result.stdout)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", result.stdout));
        assert_eq!(result.code, code, "{words:?}: {json:#}");
        assert_eq!(json["exitCode"], code, "{words:?}");
        assert_eq!(json["errorCode"].as_str(), error, "{words:?}: {json:#}");
        assert_eq!(json["ok"], code == 0, "{words:?}");
        for key in ["runId", "stdout", "stderr"] {
            assert!(json[key].is_string(), "{words:?} has no {key}");
        }
        assert_eq!(
            json["error"].is_object(),
            code >= 125 && code != 127 && code != 137,
            "{words:?}: {json:#}"
        );
    }
}

#[test]
fn the_workspace_can_keep_its_path() {
    let folder = folder();
    let path = folder.path().canonicalize().unwrap();
    let result = run(&path, ["run", "--workspace-path", "same", "--", "sh", "-c", "pwd; echo made > file"]);
    assert_eq!((result.code, result.stdout.trim()), (0, path.to_str().unwrap()), "{}", result.stderr);
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "made\n");
}

#[test]
fn shared_paths_are_what_they_were_shared_as() {
    let folder = folder();
    let read = tempfile::tempdir().unwrap();
    let write = tempfile::tempdir().unwrap();
    fs::write(read.path().join("in"), "data\n").unwrap();
    let script = format!(
        "cat {read}/in; echo no > {read}/out; echo yes > {write}/out",
        read = read.path().display(),
        write = write.path().display()
    );
    let args = [
        "run",
        "--ro",
        read.path().to_str().unwrap(),
        "--rw",
        write.path().to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ];
    let result = run(folder.path(), args);
    assert_eq!(result.stdout, "data\n", "{}", result.stderr);
    assert!(!read.path().join("out").exists());
    assert_eq!(fs::read_to_string(write.path().join("out")).unwrap(), "yes\n");
}

#[test]
fn variables_come_from_the_command_line_only() {
    let folder = folder();
    let result = run(folder.path(), ["run", "--env", "A=1", "--env", "B=x=y", "--", "env"]);
    let mut names: Vec<&str> = result.stdout.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    let known = [
        "A",
        "B",
        "BELLJAR",
        "GIT_CONFIG_SYSTEM",
        "GOFLAGS",
        "HOME",
        "LANG",
        "LOGNAME",
        "NPM_CONFIG_PREFIX",
        "PATH",
        "PIP_BREAK_SYSTEM_PACKAGES",
        "PS1",
        "PWD",
        "SHELL",
        "TMPDIR",
        "USER",
    ];
    let tools = ["ASDF_DIR", "PYENV_ROOT", "RBENV_ROOT", "RUSTUP_HOME", "VOLTA_HOME"];
    // Language and time zone are the caller's, where the system knows them.
    let is_regional = |name: &str| name.starts_with("LC_") || name == "TZ";
    let is_expected = |name: &&str| known.contains(name) || tools.contains(name) || is_regional(name);
    assert!(names.iter().all(is_expected), "{names:?}");
    assert!(result.stdout.contains("A=1\n") && result.stdout.contains("B=x=y\n"));
}

#[test]
fn the_time_zone_is_ours_where_the_system_knows_it() {
    let requested = |zone: &str| {
        let home = Home::new("").env("TZ", zone);
        let printed = home.run(&["run", "--", "sh", "-c", "echo \"zone=$TZ $(date +%Z)\""]);
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        printed.stdout
    };
    for unknown in ["/etc/passwd", "../../../etc/passwd", "Nowhere/City", "$(id)"] {
        assert!(requested(unknown).starts_with("zone= "), "{unknown}");
    }
    if Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists() {
        assert_eq!(requested("Asia/Tokyo"), "zone=Asia/Tokyo JST\n");
    }
}

#[test]
fn what_was_refused_is_said_in_one_line_with_the_flags_that_allow_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let script = "import socket
for host in ('a.example', 'b.example', 'a.example'):
    try: socket.getaddrinfo(host, 443)
    except OSError: print('no', flush=True)
try: socket.create_connection(('192.0.2.1', 443), 5).recv(1)
except OSError: print('no')";
    let args = ["run", "--backend", "native", "--allow", "c.example", "--", "python3", "-c", script];
    let result = run(folder.path(), args);
    assert_eq!((result.code, result.stdout.as_str()), (0, "no\nno\nno\nno\n"), "{}", result.stderr);
    assert_eq!(
        result.stderr,
        "belljar: refused a.example: no rule allows this name; b.example: no rule allows this name; \
         192.0.2.1:443: an address was dialled; only names can be; to allow: --allow a.example --allow b.example\n"
    );
    // Nothing is said where nothing was refused.
    let args = ["run", "--backend", "native", "--allow", "c.example", "--", "true"];
    assert_eq!(run(folder.path(), args).stderr, "");
}

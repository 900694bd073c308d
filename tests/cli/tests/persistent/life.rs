//! A sandbox's life: created, used, stopped, started again, removed.

use crate::persistent::home::Home;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

#[test]
fn arguments_and_variables_need_not_be_utf_8() {
    let home = Home::new();
    let odd = |text: &[u8]| OsStr::from_bytes(text).to_os_string();
    let printed = |mut command: Command| {
        let output = command.output().unwrap();
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    };
    // Taken from outside, it is a value and no name of a secret.
    let mut start = home.command(&["start", "--env", "ODD", "--env", "LOOKS"]);
    start.env("ODD", odd(b"o\xff")).env("LOOKS", "secret:of mine");
    assert!(start.status().unwrap().success());
    let script = "printf '%s %s %s %s' \"$1\" \"$ODD\" \"$LOOKS\" \"$OWN\"";
    let mut exec = home.command(&["exec", "--env", "OWN", "--", "sh", "-c", script, "sh"]);
    exec.arg(odd(b"a\xfe")).env("OWN", odd(b"\xfd"));
    let (stderr, stdout) = printed(exec);
    assert_eq!(stdout, b"a\xfe o\xff secret:of mine \xfd", "{stderr}");
}

#[test]
fn a_day_with_a_sandbox() {
    let home = Home::new();
    insta::assert_snapshot!("exec_unready", home.transcript(&["exec", "--", "true"]));
    insta::assert_snapshot!("init", home.transcript(&["init"]));
    insta::assert_snapshot!("init_again", home.transcript(&["init"]));
    insta::assert_snapshot!("list_none", home.transcript(&["list"]));
    insta::assert_snapshot!("stop_none", home.transcript(&["stop"]));
    insta::assert_snapshot!("start", home.transcript(&["start"]));
    insta::assert_snapshot!("start_again", home.transcript(&["start"]));
    insta::assert_snapshot!("list", home.transcript(&["list"]));
    insta::assert_snapshot!("ps_none", home.transcript(&["ps"]));
    let wrote = home.run(&["exec", "--", "sh", "-c", "echo kept > ~/file; echo out; echo err >&2; exit 7"]);
    assert_eq!((wrote.code, wrote.stdout.as_str(), wrote.stderr.as_str()), (7, "out\n", "err\n"));
    insta::assert_snapshot!("ps_ended", home.transcript(&["ps"]));
    insta::assert_snapshot!("ps_all", home.transcript(&["ps", "--all"]));
    insta::assert_snapshot!("logs", home.transcript(&["logs"]));
    insta::assert_snapshot!("pause", home.transcript(&["pause"]));
    insta::assert_snapshot!("pause_again", home.transcript(&["pause"]));
    insta::assert_snapshot!("exec_paused", home.transcript(&["exec", "--", "true"]));
    insta::assert_snapshot!("resume", home.transcript(&["resume"]));
    insta::assert_snapshot!("rm_live", home.transcript(&["rm", "."]));
    insta::assert_snapshot!("stop", home.transcript(&["stop"]));
    insta::assert_snapshot!("stop_again", home.transcript(&["stop"]));
    insta::assert_snapshot!("logs_stopped", home.transcript(&["logs"]));
    insta::assert_snapshot!("exec_wakes", home.transcript(&["exec", "--", "cat", "/home/agent/file"]));
    insta::assert_snapshot!("start_differs", home.transcript(&["start", "--memory", "1g"]));
    insta::assert_snapshot!("rm_force", home.transcript(&["rm", "--force", "."]));
    insta::assert_snapshot!("rm_again", home.transcript(&["rm", "."]));
    assert_eq!(home.json(&["list", "--json"]), serde_json::json!([]));
}

#[test]
fn the_list_tells_of_what_is_kept_beside_folders() {
    let home = Home::ready();
    assert!(!home.run(&["list"]).stderr.contains("belljar changes list"));
    for _ in 0..2 {
        home.run(&["run", "--overlay", "--", "sh", "-c", "echo x > x"]);
    }
    let printed = home.run(&["list"]).stderr;
    assert!(printed.contains("sandboxes left 2 layers and clones"), "{printed}");
}

#[test]
fn a_sandbox_is_found_by_folder_name_beginning_and_key() {
    let home = Home::ready();
    let name = home.run(&["start"]).stdout.trim().to_string();
    let folder = home.path("work");
    let key = format!("repo:{}", folder.display());
    for word in [name.as_str(), &name[..name.len() - 3], key.as_str(), ".", folder.to_str().unwrap()] {
        let run = home.run(&["exec", word, "--", "pwd"]);
        assert_eq!((run.code, run.stdout.as_str()), (0, "/workspace\n"), "{word}: {}", run.stderr);
    }
    for words in [
        &["exec", "bj-x", "--", "true"][..],
        &["ps", "nope"],
        &["rm", "--force", "nope"],
        &["stop", "./nope"],
    ] {
        insta::assert_snapshot!(format!("unknown_{}", words[0]), home.transcript(words));
    }
    let branch = home.run(&["exec", &name, "--branch", "x", "--", "true"]);
    assert_eq!(branch.code, 126, "{}", branch.stderr);
}

#[test]
fn a_command_has_our_streams_and_our_exit_code_is_its_own() {
    let home = Home::ready();
    let input: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let sum = home.run_with(&["exec", "--", "sh", "-c", "cat | cksum"], &input);
    let mut here = Command::new("cksum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut here.stdin.take().unwrap(), &input).unwrap();
    assert_eq!(sum.stdout, String::from_utf8(here.wait_with_output().unwrap().stdout).unwrap());
    for (script, code) in
        [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137), ("kill -INT $$; sleep 9", 130)]
    {
        assert_eq!(home.run(&["exec", "--", "sh", "-c", script]).code, code, "{script}");
    }
    insta::assert_snapshot!("exec_missing", home.transcript(&["exec", "--", "no-such-program"]));
    insta::assert_snapshot!(
        "exec_timeout",
        home.transcript(&["exec", "--timeout", "1s", "--", "sleep", "30"])
    );
    let variables =
        home.run(&["exec", "--env", "A=b c", "--env", "HOME", "--", "sh", "-c", "echo \"$A|$HOME\""]);
    assert_eq!(variables.stdout.trim(), format!("b c|{}", home.path("home").display()));
    insta::assert_snapshot!("exec_secret", home.transcript(&["exec", "--env", "A=secret:x", "--", "true"]));
    let json = home.run_with(&["exec", "--json", "--", "sh", "-c", "cat; exit 3"], b"in");
    let result: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &result["result"]["stdout"]), (3, &"in".into()));
    std::fs::create_dir(home.path("work/src")).unwrap();
    let mut below = home.command(&["exec", "--", "pwd"]);
    below.current_dir(home.path("work/src"));
    assert_eq!(home.finish(below).stdout, "/workspace/src\n");
}

#[test]
fn a_command_that_was_left_alone_continues() {
    let home = Home::ready();
    let script = "while [ ! -e go ]; do sleep 0.05; done; for i in 1 2 3; do echo $i; done; exit 4";
    insta::assert_snapshot!("detach", home.transcript(&["exec", "-d", "--", "sh", "-c", script]));
    let running = home.json(&["ps", "--json"]);
    assert_eq!((&running[0]["id"], &running[0]["state"]), (&"cmd_1".into(), &"running".into()));
    assert_eq!(home.run(&["logs"]).stdout, "");
    let follower =
        home.command(&["logs", "-f", ".", "cmd_1"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::fs::write(home.path("work/go"), "").unwrap();
    let followed = follower.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&followed.stdout), "1\n2\n3\n");
    let events = home.run(&["logs", "--json"]).stdout;
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["result"]["exit_code"]), (&"ended".into(), &4.into()));
    insta::assert_snapshot!("logs_unknown", home.transcript(&["logs", ".", "cmd_9"]));
}

#[test]
fn each_branch_has_a_sandbox_of_its_own() {
    let home = Home::new();
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
            .args(args)
            .current_dir(home.path("work"))
            .env("HOME", home.path("home"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q", "-b", "main"]);
    std::fs::write(home.path("work/file"), "main\n").unwrap();
    git(&["add", "file"]);
    git(&["commit", "-q", "-m", "first"]);
    assert_eq!(home.run(&["init"]).code, 0);
    let change = "echo fix > file; cat file; git branch --show-current";
    let changed = home.run(&["exec", "--branch", "fix/x", "--", "sh", "-c", change]);
    assert_eq!((changed.code, changed.stdout.as_str()), (0, "fix\nfix/x\n"), "{}", changed.stderr);
    assert_eq!(home.run(&["exec", "--", "cat", "file"]).stdout, "main\n");
    let mut keys: Vec<String> =
        home.json(&["list", "--json"]).as_array().unwrap().iter().map(|one| one["key"].to_string()).collect();
    keys.sort();
    assert!(keys.len() == 2 && keys[1].ends_with("@fix/x\""), "{keys:?}");
    assert_eq!(home.run(&["rm", "--force", ".", "--branch", "fix/x"]).code, 0);
    assert_eq!(home.json(&["list", "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn an_administrator_works_beside_the_sandbox_and_leaves_nothing() {
    let home = Home::ready();
    let script =
        b"test -e /.belljar || echo no marker; mkdir -p .husky; echo x > .husky/hook && echo wrote; id -u";
    let guest = home.run_with(&["exec", "--", "sh"], script);
    assert!(!guest.stdout.contains("no marker") && !guest.stdout.contains("wrote"), "{}", guest.stdout);
    let admin = home.run_with(&["admin"], script);
    assert!(admin.stdout.starts_with("no marker\nwrote\n"), "{}{}", admin.stdout, admin.stderr);
    insta::assert_snapshot!("admin", home.steady(&admin.stderr));
    let root = home.run_with(&["admin", "--root"], b"id -u");
    assert_eq!(root.stdout, "0\n", "{}", root.stderr);
    assert_eq!(home.json(&["list", "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn an_administrator_runs_nothing_that_a_sandbox_can_write() {
    let home = Home::ready();
    let bin = home.path("work/bin");
    std::fs::create_dir(&bin).unwrap();
    // Every place that a sandbox of the folder can write and a shell or a program reads by itself.
    let plant = "echo 'echo x > /workspace/.husky/canary' > /tmp/evil; chmod +x /tmp/evil
        for place in /volumes/config/shell/rc /volumes/config/shell/rc.local /volumes/config/shell/.zshrc \\
            /volumes/config/shell/.zshenv /volumes/history/shell /workspace/.bashrc /workspace/env ~/.bashrc ~/.profile \\
            /workspace/bin/id /workspace/bin/ls; do
            rm -rf $place; cp /tmp/evil $place || exit 1
        done";
    let flags =
        ["start", "--env", "BASH_ENV=/workspace/env", "--env", "ENV=/workspace/env", "--egress", "none"];
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let with_path = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("PATH", &path);
        command
    };
    let started = home.finish(with_path(&flags));
    assert_eq!(started.code, 0, "{}", started.stderr);
    let planted = home.run(&["exec", "--", "sh", "-c", plant]);
    assert_eq!(planted.code, 0, "{}", planted.stderr);
    let script = "mkdir -p .husky; id -u >/dev/null; ls >/dev/null; ls -d /volumes 2>/dev/null; env | grep -E '/volumes|/workspace/env|/work/bin'; cat ~/.bashrc | grep canary; echo done";
    let mut admin = with_path(&["admin"]);
    admin
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = admin.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    let admin = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&admin.stdout), String::from_utf8_lossy(&admin.stderr));
    assert_eq!(stdout, "done\n", "{stderr}");
    let mut person = home.at_terminal(&["admin"]);
    person.sees("exit with ctrl-D").sees("(belljar)");
    person.types("id -u > /dev/null; echo at the $((40 + 2)) end; exit\n").sees("at the 42 end");
    person.ends();
    assert!(
        !home.path("work/.husky/canary").exists(),
        "what a sandbox wrote was run where nothing is protected"
    );
}

#[test]
fn an_administrator_is_made_like_the_sandbox_and_tells_what_it_changed() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("home/.config/belljar")).unwrap();
    let allowed = "[egress]\nallow = [\"allowed.example\"]\n";
    std::fs::write(home.path("home/.config/belljar/belljar.toml"), allowed).unwrap();
    assert_eq!(home.run(&["init"]).code, 0);
    let started = home.run(&["start", "--egress", "none", "--disk", "300m", "--env", "WHO=sandbox"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let shown = home.json(&["show-run"]);
    assert_eq!(
        (&shown["egress"]["mode"], &shown["limits"]["disk"]),
        (&"none".into(), &314_572_800_u64.into())
    );
    assert_eq!(shown["environment"]["WHO"], "sandbox");
    let admin = home.run_with(&["admin"], b"getent hosts allowed.example && echo resolved; mkdir -p .husky; echo x > .husky/pre-commit; echo done");
    assert_eq!(admin.stdout, "done\n", "{}", admin.stderr);
    assert!(admin.stderr.contains("changed while this shell was open"), "{}", admin.stderr);
    assert!(admin.stderr.contains(".husky"), "{}", admin.stderr);
}

#[test]
fn a_sandbox_has_the_search_path_of_who_starts_it() {
    let home = Home::ready();
    // The daemon is there, with another one.
    assert_eq!(home.run(&["list"]).code, 0);
    let bin = home.path("home/mybin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("mytool"), "#!/bin/sh\necho mine\n").unwrap();
    std::fs::set_permissions(bin.join("mytool"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let mut start = home.command(&["start"]);
    start.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    assert_eq!(home.finish(start).code, 0);
    let found = home.run(&["exec", "--", "mytool"]);
    assert_eq!(found.stdout, "mine\n", "{}", found.stderr);
}

#[test]
fn damaged_grants_stop_only_commands_that_need_them() {
    let home = Home::ready();
    let file = home.path("state/belljar/fleet/grants.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "{").unwrap();
    let done = home.run(&["exec", "--", "echo", "works"]);
    assert_eq!(done.stdout, "works\n", "{}", done.stderr);
    assert_eq!(home.run(&["list"]).code, 0);
    for words in [&["grants", "list"][..], &["grants", "create", "ci"]] {
        let refused = home.run(words);
        assert_eq!(refused.code, 125, "{}", refused.stderr);
        assert!(refused.stderr.contains(file.to_str().unwrap()), "{}", refused.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{", "it is left as it is");
}

#[test]
fn a_folder_that_was_replaced_is_not_mistaken_for_the_old_one() {
    let home = Home::ready();
    let name = home.run(&["start"]).stdout.trim().to_string();
    assert_eq!(home.run(&["exec", "--", "touch", "old"]).code, 0);
    std::fs::rename(home.path("work"), home.path("moved")).unwrap();
    std::fs::create_dir(home.path("work")).unwrap();
    for words in [&["start"][..], &["exec", "--", "ls"], &["exec", &name, "--", "ls"], &["shell"]] {
        let refused = home.run(words);
        assert_eq!(refused.code, 126, "{words:?}: {}{}", refused.stdout, refused.stderr);
        assert!(
            refused.stderr.contains("is another folder than when its sandbox started"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains("`belljar stop`"), "{}", refused.stderr);
    }
    assert_eq!(home.run(&["stop"]).code, 0);
    let anew = home.run(&["exec", "--", "sh", "-c", "touch new; ls"]);
    assert_eq!((anew.code, anew.stdout.as_str()), (0, "new\n"), "{}", anew.stderr);
    assert!(home.path("work/new").exists() && home.path("moved/old").exists());
}

#[test]
fn a_folder_that_no_sandbox_can_have_is_not_made_ready() {
    let home = Home::new();
    let odd = home.path("work/a\nb");
    std::fs::create_dir(&odd).unwrap();
    for folder in [home.path("home"), odd] {
        for word in ["init", "start"] {
            let mut command = home.command(&[word]);
            command.current_dir(&folder);
            let refused = home.finish(command);
            assert_eq!(refused.code, 126, "{word} in {folder:?}: {}", refused.stderr);
            assert!(!folder.join(".belljar").exists());
        }
    }
    // Nothing below it is mistaken for a part of it.
    let below = home.path("home/below");
    std::fs::create_dir(&below).unwrap();
    let mut command = home.command(&["exec", "--", "true"]);
    command.current_dir(&below);
    assert!(home.finish(command).stderr.contains("/home/below` has no sandbox"));
}

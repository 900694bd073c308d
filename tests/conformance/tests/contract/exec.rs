//! Running a command: its words, its directory, how it ends, and what it starts with.

use belljar_engine::{Engine, Input, Output};
use belljar_spec::{BackendName, Command, ErrorCode, Stdin};
use belljar_tests_conformance::*;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

for_every_backend! {
    everywhere:
        a_command_starts_with_no_signal_ignored,
        background_processes_live_on_until_dispose,
        a_first_command_starts_with_the_sandbox,
        a_first_command_that_is_not_there_says_so,
        files_that_commands_make_belong_to_the_owner_of_the_workspace;
    each_kernel:
        a_first_command_can_be_taken_once;
    living everywhere:
        a_command_gets_its_arguments_as_they_are,
        a_command_starts_in_the_workspace,
        a_command_has_only_its_three_streams_open,
        a_command_cannot_gain_privileges,
        commands_do_not_run_as_the_hosts_root;
    living each_kernel:
        arguments_need_not_be_text,
        long_arguments_arrive_whole,
        an_exit_code_comes_back,
        a_signal_that_ended_it_has_a_name,
        a_command_starts_where_it_is_told,
        a_relative_program_is_found_from_its_directory,
        a_program_is_looked_for_along_its_own_path,
        a_command_leads_a_session_of_its_own,
        background_processes_do_not_hold_up_the_end,
        a_signal_reaches_the_whole_group;
}

async fn a_command_gets_its_arguments_as_they_are(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let words = ["printf", "[%s]", "", " a b ", "$HOME", "*", "\\n", "'\"", "line\nline", "-x", "ü"];
    let result = fixture.run(&command(words)).await;
    assert_eq!(text(&result.stdout), "[][ a b ][$HOME][*][\\n]['\"][line\nline][-x][ü]");
    assert_eq!(result.exit_code, Some(0));
}

async fn arguments_need_not_be_text(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let command = Command::new([OsStr::new("printf"), OsStr::new("%s"), OsStr::from_bytes(b"\xff\xfe\x80")]);
    assert_eq!(fixture.run(&command.unwrap()).await.stdout, b"\xff\xfe\x80");
}

async fn long_arguments_arrive_whole(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let word = "x".repeat(100_000);
    let words = ["sh", "-c", "printf %s \"$*\" | wc -c", "sh"].into_iter();
    let command = Command::new(words.chain(std::iter::repeat_n(word.as_str(), 15))).unwrap();
    let result = fixture.run(&command).await;
    assert_eq!(text(&result.stdout).trim(), "1500014", "{:?}", result.not_started);
}

async fn an_exit_code_comes_back(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for code in [0, 1, 7, 125, 126, 127, 128, 255] {
        let result = fixture.sh(&format!("exit {code}")).await;
        assert_eq!((result.exit_code, result.signal.as_deref()), (Some(code), None));
        assert_eq!((result.timed_out, result.aborted, result.limit), (false, false, None));
        assert_eq!(result.not_started, None, "it did start");
    }
}

async fn a_signal_that_ended_it_has_a_name(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for name in ["TERM", "KILL", "SEGV", "ABRT", "HUP", "USR1", "PIPE"] {
        let result = fixture.sh(&format!("kill -{name} $$; sleep 60")).await;
        assert_eq!((result.exit_code, result.ended.signal), (None, Some(format!("SIG{name}"))));
    }
}

async fn a_command_starts_in_the_workspace(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::write(fixture.host("here"), "yes").unwrap();
    assert_eq!(fixture.answer("pwd -P").await, fixture.workspace());
    assert_eq!(fixture.answer("cat here").await, "yes");
}

async fn a_command_starts_where_it_is_told(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::create_dir_all(fixture.host("a/b c")).unwrap();
    for cwd in ["a/b c".to_string(), fixture.inside("a/b c"), "a/../a/b c/".to_string()] {
        let mut command = command(["pwd", "-P"]);
        command.cwd = Some(cwd.clone());
        assert_eq!(text(&fixture.run(&command).await.stdout).trim_end(), fixture.inside("a/b c"), "{cwd}");
    }
}

async fn a_relative_program_is_found_from_its_directory(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir d && printf '#!/bin/sh\\necho found \"$1\"\\n' > d/tool && chmod +x d/tool").await;
    let mut command = command(["./tool", "it"]);
    command.cwd = Some("d".into());
    assert_eq!(text(&fixture.run(&command).await.stdout), "found it\n");
}

async fn a_program_is_looked_for_along_its_own_path(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir one two && printf '#!/bin/sh\\necho mine\\n' > two/tool && chmod +x two/tool").await;
    // A file of that name that cannot be run does not hide one that can.
    fixture.sh("echo no program > one/tool").await;
    let mut command = command(["tool"]);
    let path = format!("{}:{}:/usr/bin:/bin", fixture.inside("one"), fixture.inside("two"));
    command.env = vec![("PATH".parse().unwrap(), path.into())];
    assert_eq!(text(&fixture.run(&command).await.stdout), "mine\n");
}

async fn a_command_has_only_its_three_streams_open(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // Others that run at the same time lend it nothing.
    let others: Vec<_> = (0..10).map(|_| sh("read line")).collect();
    let mut running = Vec::new();
    for other in &others {
        let mut other = other.clone();
        other.stdin = Stdin::Stream;
        running.push(fixture.spawn(&other).await.unwrap());
    }
    // The shell's own: by the time it is listed, `ls` is another process.
    assert_eq!(fixture.answer("cd /proc/self/fd && ls").await, "0\n1\n2");
}

async fn a_command_starts_with_no_signal_ignored(backend: BackendName) {
    if std::env::var_os("BELLJAR_AGAIN").is_none() {
        // As under nohup, or in the background of a script.
        let name = "exec::a_command_starts_with_no_signal_ignored";
        let output = again(backend, name, "deaf", "trap '' HUP INT QUIT TERM USR1 CHLD").output().unwrap();
        let printed = text(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}{}", text(&output.stderr));
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    if !tells_all_of_a_process(backend) {
        // Python ignores two of them by itself.
        let ignored =
            "[n for n in s.valid_signals() - {s.SIGPIPE, s.SIGXFSZ} if s.getsignal(n) == s.SIG_IGN]";
        let script =
            format!("import signal as s; print({ignored}, list(s.pthread_sigmask(s.SIG_BLOCK, [])))");
        assert_eq!(fixture.python(&script).await, "[] []");
        return;
    }
    let status = text(&fixture.run(&command(["cat", "/proc/self/status"])).await.stdout);
    for field in ["SigIgn", "SigBlk"] {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let signals = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
        // 32 and 33 belong to the C library, which lets no program change them: nptl(7).
        assert_eq!(signals & !(0b11 << 31), 0, "{line}");
    }
}

async fn a_command_cannot_gain_privileges(backend: BackendName) {
    if !is_isolated(backend) {
        return; // There a command may do what we may.
    }
    let fixture = SandboxFixture::new(backend).await;
    let status = text(&fixture.run(&command(["cat", "/proc/self/status"])).await.stdout);
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split('\t').nth(1).unwrap().to_string()
    };
    assert_eq!(field("CapEff:"), "0000000000000000");
    // PR_GET_NO_NEW_PRIVS: not every kernel lists it among the rest.
    assert_eq!(fixture.python("import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))").await, "1");
}

async fn a_command_leads_a_session_of_its_own(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let answer = fixture.answer("read -r stat < /proc/$$/stat; echo $$ ${stat##*) }").await;
    let fields: Vec<&str> = answer.split(' ').collect();
    // proc_pid_stat(5)
    let [pid, parent, group, session] = [fields[0], fields[2], fields[3], fields[4]];
    let leader = if supervisor_leads_session(backend) { parent } else { pid };
    assert_eq!((group, session), (pid, leader));
    assert_ne!(session, "1", "the guest's");
}

async fn background_processes_do_not_hold_up_the_end(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // It keeps standard output open.
    let result = fixture.sh("sleep 600 & echo started").await;
    assert_eq!((result.exit_code, text(&result.stdout).as_str()), (Some(0), "started\n"));
    assert!(!result.timed_out);
}

async fn background_processes_live_on_until_dispose(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    fixture.sh(&format!("sh -c 'while :; do echo >> grows; sleep 0.02; done' {marker} </dev/null &")).await;
    let size = || fs::metadata(fixture.host("grows")).map_or(0, |found| found.len());
    let now = size();
    wait_until("the file to grow", || size() > now + 3);
    fixture.dispose().await;
    assert_eq!(marker.processes(), Vec::<u32>::new());
    settles(size);
}

async fn a_signal_reaches_the_whole_group(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script = "sh -c 'trap \"echo child; exit\" USR2; echo c; while :; do sleep 0.02; done' &
        trap 'wait; echo parent; exit 5' USR2; echo p; while :; do sleep 0.02; done";
    let mut running = fixture.spawn(&sh(script)).await.unwrap();
    let mut seen = String::new();
    while !(seen.contains("p\n") && seen.contains("c\n")) {
        seen += &read_until(&mut running, "\n").await;
    }
    running.inputs.send(Input::Signal(12)).await.unwrap();
    let (stdout, _, ended) = drain(&mut running).await;
    assert_eq!(text(&stdout), "child\nparent\n");
    assert_eq!(ended.exit_code, Some(5));
}

async fn a_first_command_starts_with_the_sandbox(backend: BackendName) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut spec = spec(backend);
    spec.workspace = Some(folder.path().into());
    let command = sh("pwd -P > where; echo out; echo err >&2; exit 3");
    let sandbox = Engine::new().create_running(&spec, &command).unwrap();
    let (stdout, stderr, ended) = drain(&mut sandbox.first_command().unwrap()).await;
    assert_eq!((text(&stdout).as_str(), text(&stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(ended.exit_code, Some(3));
    let directory = fs::read_to_string(folder.path().join("where")).unwrap();
    assert_eq!(directory.trim_end(), sandbox.workspace());
}

async fn a_first_command_can_be_taken_once(backend: BackendName) {
    let mut spec = spec(backend);
    let folder = tempfile::TempDir::new().unwrap();
    spec.workspace = Some(folder.path().into());
    let sandbox = Engine::new().create_running(&spec, &sh("exit 0")).unwrap();
    drop(sandbox.first_command().unwrap());
    assert_eq!(sandbox.first_command().err().unwrap().code, ErrorCode::CommandEnded);
    let without = Engine::new().create_blocking(&spec).unwrap();
    assert_eq!(without.first_command().err().unwrap().code, ErrorCode::CommandEnded);
}

async fn a_first_command_that_is_not_there_says_so(backend: BackendName) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut spec = spec(backend);
    spec.workspace = Some(folder.path().into());
    let sandbox = Engine::new().create_running(&spec, &command(["no-such-program"])).unwrap();
    let word = next(&mut sandbox.first_command().unwrap()).await.unwrap();
    let Output::Ended(ended) = word else { panic!("{word:?}") };
    assert_eq!(ended.exit_code, Some(127));
    assert!(ended.not_started.unwrap().contains("no-such-program"));
    // And the sandbox is none the worse.
    assert_eq!(sandbox.exec(&sh("exit 4")).await.unwrap().exit_code, Some(4));
}

async fn files_that_commands_make_belong_to_the_owner_of_the_workspace(backend: BackendName) {
    if !is_isolated(backend) {
        return; // There the commands run as our own user.
    }
    let folder = tempfile::TempDir::new().unwrap();
    if is_root() {
        std::os::unix::fs::chown(folder.path(), Some(4711), Some(4712)).unwrap();
    }
    let owner = fs::metadata(folder.path()).unwrap();
    let fixture = SandboxFixture::with(backend, |spec| spec.workspace = Some(folder.path().into())).await;
    fixture
        .sh("mkdir d && echo a > d/made && ln -s made d/link && printf x > 'private' && chmod 600 private")
        .await;
    fixture.write_file("written", b"b").await.unwrap();
    fixture.mkdir("folder", false).await.unwrap();
    for name in ["d", "d/made", "d/link", "private", "written", "folder"] {
        let made = fs::symlink_metadata(folder.path().join(name)).unwrap();
        assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()), "{name}");
    }
    // What the owner keeps to itself is the sandbox's too.
    fs::write(folder.path().join("from-host"), "c").unwrap();
    if is_root() {
        std::os::unix::fs::chown(folder.path().join("from-host"), Some(4711), Some(4712)).unwrap();
    }
    fs::set_permissions(folder.path().join("from-host"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    assert_eq!(
        fixture.answer("cat from-host; test -O from-host && test -G from-host && echo own").await,
        "cown"
    );
}

async fn commands_do_not_run_as_the_hosts_root(backend: BackendName) {
    if !is_isolated(backend) {
        return; // There the commands run as our own user.
    }
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = sh("sh -c 'sleep 60; :' $M; :");
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    let running = fixture.spawn(&command).await.unwrap();
    marker.wait_for(1);
    for pid in marker.processes() {
        let user = process_user(pid).unwrap();
        assert_ne!(user, 0, "the host's root runs {pid}");
        if let Some(kernel) = kernel_around(pid) {
            assert_ne!(process_user(kernel), Some(0), "the kernel around {pid} runs as the host's root");
        }
        // Neither does what is above it: the shell, the supervisor, the guest.
        let mut above = pid;
        for what in ["shell", "supervisor", "guest"] {
            above = parent(above).unwrap();
            assert_ne!(process_user(above), Some(0), "the {what} runs as the host's root");
        }
    }
    drop(running);
    assert_eq!(fixture.answer("id -un").await, user_inside(backend));
}

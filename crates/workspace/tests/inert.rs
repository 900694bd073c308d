//! The host never runs the agent's code: a repository that tries to make git run something, in every way we know, and each
//! operation of ours on it. Judged by whether a canary appears.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

use crate::repository::{Repository, directory, git};
use belljar_workspace::inert::{Call, Git, GitError, PLAIN_DIFF, Reach, other_side};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A malicious repository, and the place of its canaries.
struct Trap {
    repository: Repository,
    canaries: PathBuf,
    /// Commits: the first, and the last.
    first: String,
    last: String,
    _directory: tempfile::TempDir,
}

impl Trap {
    fn set() -> Trap {
        let (guard, base) = directory();
        let canaries = base.join("canaries");
        fs::create_dir(&canaries).unwrap();
        let repository = Repository::with_commit(&base.join("agent"));
        let first = repository.git(&["rev-parse", "HEAD"]);
        let last = repository.commit("file.txt", "something\n", "second");
        repository.git(&["branch", "other"]);
        let trap = Trap { repository, canaries, first, last, _directory: guard };
        trap.hooks();
        trap.attributes();
        trap.config();
        trap
    }

    /// A program that leaves a canary, regardless of its arguments.
    fn program(&self, name: &str) -> String {
        let path = self.canaries.parent().unwrap().join(format!("run-{name}"));
        let script = format!("#!/bin/sh\ntouch '{}'\nexit 1\n", self.canaries.join(name).display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_string()
    }

    fn hooks(&self) {
        let program = self.program("hook");
        for folder in ["hooks", "other-hooks"] {
            let folder = self.repository.git_directory().join(folder);
            fs::create_dir_all(&folder).unwrap();
            for hook in HOOKS {
                let _ = fs::remove_file(folder.join(hook));
                std::os::unix::fs::symlink(&program, folder.join(hook)).unwrap();
            }
        }
    }

    fn attributes(&self) {
        let rule = "* filter=evil diff=evil merge=evil\n*.txt filter=process\n";
        fs::write(self.repository.folder.join(".gitattributes"), rule).unwrap();
        fs::create_dir_all(self.repository.git_directory().join("info")).unwrap();
        fs::write(self.repository.git_directory().join("info/attributes"), rule).unwrap();
    }

    fn config(&self) {
        let git_directory = self.repository.git_directory();
        let mut text = fs::read_to_string(git_directory.join("config")).unwrap();
        for (section, key, value) in [
            ("core", "fsmonitor", "PROGRAM"),
            ("core", "sshCommand", "PROGRAM"),
            ("core", "alternateRefsCommand", "PROGRAM"),
            ("core", "pager", "PROGRAM"),
            ("core", "editor", "PROGRAM"),
            ("core", "askPass", "PROGRAM"),
            ("core", "gitProxy", "PROGRAM"),
            ("sequence", "editor", "PROGRAM"),
            ("pager", "log", "PROGRAM"),
            ("pager", "diff", "PROGRAM"),
            ("pager", "config", "PROGRAM"),
            ("gpg", "program", "PROGRAM"),
            ("gpg \"ssh\"", "program", "PROGRAM"),
            ("gpg \"x509\"", "program", "PROGRAM"),
            ("commit", "gpgSign", "true"),
            ("log", "showSignature", "true"),
            ("credential", "helper", "!PROGRAM"),
            ("filter \"evil\"", "clean", "PROGRAM"),
            ("filter \"evil\"", "smudge", "PROGRAM"),
            ("filter \"evil\"", "required", "true"),
            ("filter \"process\"", "process", "PROGRAM"),
            ("diff", "external", "PROGRAM"),
            ("diff \"evil\"", "textconv", "PROGRAM"),
            ("diff \"evil\"", "command", "PROGRAM"),
            ("merge \"evil\"", "driver", "PROGRAM"),
            ("submodule \"sub\"", "update", "!PROGRAM"),
            ("submodule \"sub\"", "url", "ext::PROGRAM"),
            ("submodule", "recurse", "true"),
            ("protocol \"ext\"", "allow", "always"),
            ("protocol", "allow", "always"),
            ("uploadpack", "packObjectsHook", "PROGRAM"),
            ("receive", "procReceiveRefs", "refs/"),
            ("remote \"origin\"", "url", "ext::PROGRAM"),
            ("remote \"origin\"", "fetch", "+refs/heads/*:refs/remotes/origin/*"),
            ("remote \"origin\"", "uploadpack", "PROGRAM"),
            ("remote \"origin\"", "receivepack", "PROGRAM"),
            ("remote \"origin\"", "promisor", "true"),
            ("remote \"origin\"", "partialclonefilter", "blob:none"),
            ("remote \"foreign\"", "url", "x"),
            ("remote \"foreign\"", "vcs", "ext"),
            ("extensions", "partialClone", "origin"),
            ("url \"ext::PROGRAM \"", "insteadOf", "https://"),
            ("alias", "evil", "!PROGRAM"),
            ("alias", "cat-file", "!PROGRAM"),
            ("trailer \"evil\"", "command", "PROGRAM"),
            ("trailer \"evil\"", "cmd", "PROGRAM"),
            ("http", "proxy", "http://127.0.0.1:1"),
            ("fetch", "bundleURI", "ext::PROGRAM"),
            ("maintenance", "auto", "true"),
            ("gc", "auto", "1"),
            ("gc", "autoDetach", "false"),
            ("include", "path", "../included"),
            ("includeIf \"gitdir:/**\"", "path", "../included"),
            ("tar \"evil\"", "command", "PROGRAM"),
            ("interactive", "diffFilter", "PROGRAM"),
            ("browser \"evil\"", "cmd", "PROGRAM"),
            ("mergetool \"evil\"", "cmd", "PROGRAM"),
            ("difftool \"evil\"", "cmd", "PROGRAM"),
            ("sendemail", "sendmailCmd", "PROGRAM"),
        ] {
            let name: String = format!("{section}-{key}").chars().filter(|c| c.is_alphanumeric()).collect();
            let program = self.program(&name);
            let section = section.replace("PROGRAM", &program);
            let value = value.replace("PROGRAM", &program);
            text.push_str(&format!("[{section}]\n\t{key} = \"{value}\"\n"));
        }
        fs::write(git_directory.join("config"), text).unwrap();
        fs::write(self.repository.folder.join("included"), "[core]\n\thooksPath = .git/other-hooks\n")
            .unwrap();
    }

    /// The programs that have run.
    fn sprung(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.canaries).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A bare repository of ours.
    fn ours(&self) -> PathBuf {
        let ours = self.canaries.parent().unwrap().join("ours.git");
        if !ours.exists() {
            Git::find().unwrap().anywhere().args(["init", "-q", "--bare"]).arg(&ours).output().unwrap();
        }
        ours
    }
}

/// Every belljar operation on a repository whose config may be harmful. Neither output nor success matters.
#[test]
fn nothing_of_a_repository_runs_whatever_we_do_with_it() {
    let trap = Trap::set();
    let git = Git::find().unwrap();
    let hostile = trap.repository.git_directory();
    let on = || git.on(&hostile);
    let (first, last) = (trap.first.as_str(), trap.last.as_str());
    let range = format!("{first}..{last}");
    let mut diff = vec!["diff-tree", "-r", "-p", "--numstat", "-z"];
    diff.extend(PLAIN_DIFF);
    diff.extend([first, last]);
    let config = hostile.join("config");
    let config = config.to_str().unwrap();
    let operations: Vec<(&str, Call, &[u8])> = vec![
        ("where", on().args(["rev-parse", "--git-common-dir", "--show-object-format", "HEAD"]), b""),
        ("head", on().args(["symbolic-ref", "HEAD"]), b""),
        ("refs", on().args(["for-each-ref", "--format=%(objectname) %(refname) %(contents:trailers)"]), b""),
        ("show-ref", on().args(["show-ref"]), b""),
        ("commits", on().args(["rev-list", "--objects", "--all"]), b""),
        ("log", on().args(["log", "-z", "--format=%H%x00%an%x00%s", "--no-show-signature", &range]), b""),
        ("trailers", on().args(["log", "--format=%(trailers)", &range]), b""),
        ("ancestry", on().args(["merge-base", "--is-ancestor", first, last]), b""),
        ("object", on().args(["cat-file", "-p", last]), b""),
        ("objects", on().args(["cat-file", "--batch"]), b"HEAD\nHEAD:file.txt\n"),
        ("missing", on().args(["cat-file", "-e", "1234567890123456789012345678901234567890"]), b""),
        ("tree", on().args(["ls-tree", "-r", "-z", "HEAD"]), b""),
        ("diff", on().args(&diff), b""),
        (
            "changed",
            on().args(["diff-tree", "-r", "--name-only", "--ignore-submodules=all", first, last]),
            b"",
        ),
        ("pack", on().args(["pack-objects", "--revs", "--stdout", "-q"]), b"HEAD\n"),
        (
            "serve",
            on().args(["upload-pack", "--strict", "--stateless-rpc", "--advertise-refs"]).arg(&hostile),
            b"",
        ),
        ("fsck", on().args(["fsck", "--no-dangling"]), b""),
        ("move", on().args(["update-ref", "refs/heads/moved", last]), b""),
        ("moves", on().args(["update-ref", "--stdin"]), b"create refs/heads/made HEAD\n"),
        ("worktrees", on().args(["worktree", "list", "--porcelain"]), b""),
        ("config", git.anywhere().args(["config", "--file", config, "--list", "-z"]), b""),
        (
            "config with includes",
            git.anywhere().args(["config", "--file", config, "--includes", "--list", "-z"]),
            b"",
        ),
        // Not operations that we use; each would be an escape if it ran anything.
        ("fetch", on().args(["fetch", "origin"]), b""),
        ("fetch everything", on().args(["fetch", "--all"]), b""),
        ("fetch a foreign one", on().args(["fetch", "foreign"]), b""),
        ("fetch by address", on().args(["fetch", "https://127.0.0.1:1/x"]), b""),
        ("fetch by ssh", on().args(["fetch", "ssh://127.0.0.1:1/x"]), b""),
        ("fetch by git's own", on().args(["fetch", "git://127.0.0.1:1/x"]), b""),
        ("ask for a password", on().args(["credential", "fill"]), CREDENTIAL_QUERY),
        ("update submodules", on().args(["submodule", "update", "--init"]), b""),
        ("push", on().args(["push", "origin", "HEAD:refs/heads/x"]), b""),
        ("collect", on().args(["gc", "--auto"]), b""),
        ("maintain", on().args(["maintenance", "run", "--auto"]), b""),
        ("commit", on().args(["commit-tree", "-m", "x", "HEAD^{tree}"]), b""),
        ("a name of git's own", on().args(["cat-file", "-t", "HEAD"]), b""),
    ];
    for (what, call, input) in operations {
        let _ = call.time_limit(Duration::from_secs(30)).run_with(input).unwrap();
        assert_eq!(trap.sprung(), [""; 0], "{what}");
    }
}

const CREDENTIAL_QUERY: &[u8] = b"protocol=https\nhost=example.com\n\n";

#[test]
fn a_repository_that_bites_can_be_fetched_from() {
    let trap = Trap::set();
    let ours = trap.ours();
    let folder = trap.repository.folder.to_str().unwrap();
    let call = Git::find().unwrap().on(&ours).args(["fetch", "-q", "--no-tags", folder]);
    call.arg("refs/heads/*:refs/agent/*").allow_protocols(&["file"]).output().unwrap();
    assert_eq!(trap.sprung(), [""; 0]);
    let call = Git::find().unwrap().on(&ours).args(["rev-parse", "refs/agent/main"]);
    assert_eq!(call.line().unwrap(), trap.last);
}

#[test]
fn a_repository_that_bites_can_be_pushed_to() {
    let trap = Trap::set();
    let (ours, git) = (trap.ours(), Git::find().unwrap());
    let folder = trap.repository.folder.to_str().unwrap();
    let fetch = git.on(&ours).args(["fetch", "-q", "--no-tags"]);
    let fetch = fetch.arg(format!("--upload-pack={}", other_side("upload-pack"))).args([folder, "main:main"]);
    fetch.allow_protocols(&["file"]).output().unwrap();
    let push = git.on(&ours).args(["push", "-q"]);
    let push = push.arg(format!("--receive-pack={}", other_side("receive-pack")));
    // With `receive.procReceiveRefs` it needs a hook, and has none: refused, and nothing ran.
    let _ = push.args([folder, "main:refs/heads/pushed"]).allow_protocols(&["file"]).run().unwrap();
    assert_eq!(trap.sprung(), [""; 0]);
}

#[test]
fn a_worktree_that_bites_is_compared_with_a_repository_of_ours() {
    let trap = Trap::set();
    let (ours, git) = (trap.ours(), Git::find().unwrap());
    let call =
        git.on(&ours).args(["fetch", "-q"]).arg(&trap.repository.folder).arg("refs/heads/*:refs/agent/*");
    call.allow_protocols(&["file"]).output().unwrap();
    let on = || {
        let index = trap.canaries.parent().unwrap().join("index");
        git.on(&ours).env("GIT_INDEX_FILE", index).env("GIT_WORK_TREE", &trap.repository.folder)
    };
    trap.repository.write("file.txt", "else\n");
    on().args(["read-tree", &trap.last]).output().unwrap();
    let here = on().in_directory(&trap.repository.folder);
    let status = here.args(["status", "--porcelain", "-z", "--ignore-submodules=all"]).output().unwrap();
    assert_eq!(trap.sprung(), [""; 0]);
    assert!(String::from_utf8_lossy(&status).contains("M file.txt\0"));
    // Back to the committed files, with the existing attributes.
    on().args(["read-tree", "--reset", "-u", &trap.last]).output().unwrap();
    assert_eq!(trap.sprung(), [""; 0]);
    assert_eq!(fs::read_to_string(trap.repository.folder.join("file.txt")).unwrap(), "something\n");
}

#[test]
fn no_repository_is_found_by_looking_upward() {
    let trap = Trap::set();
    let (git, below) = (Git::find().unwrap(), trap.repository.folder.join("below"));
    fs::create_dir(&below).unwrap();
    let call = git.anywhere().args(["init", "-q", "--bare"]).arg(below.join("made.git"));
    call.in_directory(&below).output().unwrap();
    let clone = git.anywhere().args(["clone", "-q", "--no-checkout"]).arg(below.join("made.git"));
    let clone = clone.arg(below.join("cloned")).allow_protocols(&["file"]).in_directory(&below);
    clone.output().unwrap();
    let _ = git.anywhere().args(["evil"]).in_directory(&below).run().unwrap();
    assert_eq!(trap.sprung(), [""; 0]);
    // Without an explicit directory, it is in no repository at all.
    assert!(git.anywhere().args(["rev-parse", "--git-dir"]).output().is_err());
}

#[test]
fn the_trap_is_one() {
    let trap = Trap::set();
    let folder = &trap.repository.folder;
    trap.repository.write("file.txt", "else\n");
    for words in [
        &["status"][..],
        &["add", "."],
        &["fetch", "origin"],
        &["fetch", "foreign"],
        &["fetch", "https://127.0.0.1:1/x"],
        &["fetch", "git://127.0.0.1:1/x"],
        &["fetch", "ssh://127.0.0.1:1/x"],
        &["evil"],
        &["update-ref", "refs/heads/x", "HEAD"],
        &["log", "--ext-diff", "-p", "-1", &trap.last],
        &["cat-file", "--filters", "--path=file", "HEAD:file.txt"],
    ] {
        git(folder, words);
    }
    let mut asking = std::process::Command::new("git")
        .args(["credential", "fill"])
        .current_dir(folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut asking.stdin.take().unwrap(), CREDENTIAL_QUERY).unwrap();
    asking.wait().unwrap();
    fs::write(folder.join(".gitattributes"), "").unwrap();
    fs::write(trap.repository.git_directory().join("info/attributes"), "").unwrap();
    git(folder, &["diff"]);
    let sprung = trap.sprung();
    for name in [
        "hook",
        "corefsmonitor",
        "filterevilclean",
        "filterevilsmudge",
        "filterprocessprocess",
        "credentialhelper",
        "diffexternal",
        "aliasevil",
        "coregitProxy",
        "coresshCommand",
        "remoteoriginurl",
        "urlextPROGRAMinsteadOf",
    ] {
        assert!(sprung.iter().any(|sprung| sprung == name), "{name} is not in {sprung:?}");
    }
}

#[test]
fn what_does_not_end_is_ended_with_all_that_it_started() {
    let (_guard, base) = directory();
    let repository = Repository::with_commit(&base.join("here"));
    // A loose ref that is a pipe: opening it waits for ever.
    let pipe = repository.git_directory().join("refs/heads/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let call = Git::find().unwrap().on(&repository.git_directory()).args(["for-each-ref"]);
    let error = call.time_limit(Duration::from_millis(300)).output().unwrap_err();
    assert!(matches!(error, GitError::TooSlow { .. }), "{error}");
    assert!(!processes_with(&base), "something still runs");
}

#[test]
fn a_stream_ends_in_time_too() {
    let (_guard, base) = directory();
    let repository = Repository::with_commit(&base.join("here"));
    let call = Git::find().unwrap().on(&repository.git_directory()).args(["cat-file", "--batch"]);
    // It waits for its input, which stays open.
    let mut running = call.time_limit(Duration::from_millis(300)).spawn().unwrap();
    let mut output = Vec::new();
    running.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert_eq!(running.wait().unwrap().signal(), Some(9));
}

#[test]
fn git_opens_nothing_beyond_its_reach() {
    if belljar_sys::landlock::version().unwrap_or(0) < 2 {
        return;
    }
    let (_guard, base) = directory();
    let base = fs::canonicalize(base).unwrap();
    let [here, other] = ["here", "other"].map(|name| Repository::with_commit(&base.join(name)));
    git(&base.join("other"), &["branch", "private"]);
    let own = here.git_directory();
    let reach = || Reach::default().write(&own);
    let call = |reach: Reach| Git::find().unwrap().on(&own).reaching(reach);
    let seen = call(reach()).args(["for-each-ref", "--format=%(refname)"]).line().unwrap();
    assert!(seen.starts_with("refs/heads/"), "{seen}");
    // A folder of refs, objects, and config that are links to another repository's.
    std::os::unix::fs::symlink(other.git_directory().join("refs/heads"), own.join("refs/heads/linked"))
        .unwrap();
    let list = |reach: Reach| call(reach).args(["for-each-ref", "--format=%(refname)"]).run().unwrap();
    let all = list(reach().read(&other.git_directory()));
    assert!(String::from_utf8_lossy(&all.stdout).contains("linked/private"), "{all:?}");
    let held = list(reach());
    assert!(!String::from_utf8_lossy(&held.stdout).contains("private"), "{held:?}");
    let write = call(reach()).args(["update-ref", "refs/heads/linked/planted", "HEAD"]).run().unwrap();
    assert_ne!(write.code, Some(0));
    assert!(!other.git_directory().join("refs/heads/planted").exists());
    // It does not write to read-only directories.
    let only_read = Git::find().unwrap().on(&own).reaching(Reach::default().read(&own));
    assert_ne!(only_read.args(["update-ref", "refs/heads/x", "HEAD"]).run().unwrap().code, Some(0));
}

#[test]
fn what_prints_too_much_is_ended() {
    let (_guard, base) = directory();
    let repository = Repository::empty(&base.join("here"));
    repository.commit("big", &"x".repeat(1 << 20), "big");
    let call = Git::find().unwrap().on(&repository.git_directory()).args(["cat-file", "-p", "HEAD:big"]);
    let error = call.limit(1000).output().unwrap_err();
    assert!(matches!(error, GitError::TooMuch { limit: 1000, .. }), "{error}");
}

#[test]
fn what_git_complains_of_cannot_move_a_cursor() {
    let call = Git::find().unwrap().anywhere().args(["cat-file", "\u{1b}[2J\n"]);
    let message = call.output().unwrap_err().to_string();
    assert!(message.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{message:?}");
}

/// Is there a process whose environment names this place?
fn processes_with(place: &Path) -> bool {
    let place = place.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut environments = processes.filter_map(|entry| {
        let own = entry.file_name().to_str().is_some_and(|name| name == std::process::id().to_string());
        fs::read(entry.path().join("environ")).ok().filter(|_| !own)
    });
    environments.any(|environment| environment.windows(place.len()).any(|window| window == place))
}

const HOOKS: [&str; 28] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "post-index-change",
];

#[test]
fn a_git_does_not_outlive_the_thread_that_started_it() {
    let started = std::thread::spawn(|| {
        let running = Git::find().unwrap().anywhere().args(["hash-object", "--stdin"]).spawn().unwrap();
        let id = running.id();
        // Its input stays open, and it is not killed: as if we had been killed.
        std::mem::forget(running);
        id
    });
    let id = started.join().unwrap();
    let has_ended = || {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    };
    while !has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn what_is_used_up_starts_no_other() {
    let leash = belljar_workspace::inert::Leash::with_allowance(std::time::Duration::ZERO);
    let git = Git::find().unwrap().on_leash(&leash);
    let refused = git.anywhere().args(["version"]).output();
    assert!(matches!(refused, Err(GitError::Spent { .. })), "{refused:?}");
    // A call that must finish does.
    git.anywhere().args(["version"]).to_its_end().output().unwrap();
}

#[test]
fn what_a_git_that_is_ended_has_started_is_counted_too() {
    let leash = belljar_workspace::inert::Leash::with_allowance(Duration::from_millis(200));
    let git = Git::find().unwrap().on_leash(&leash);
    // Like `pack-objects`, which computes for `upload-pack`, when a client hangs up.
    let call = git.anywhere().config("alias.compute", "!while :; do :; done");
    let running = call.args(["compute"]).spawn().unwrap();
    let (children, pid) = (|id: &str| format!("/proc/{id}/task/{id}/children"), running.id().to_string());
    let until = std::time::Instant::now() + Duration::from_secs(20);
    let used = || {
        let child = fs::read_to_string(children(&pid)).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        let ticks = |(_, rest): (&str, &str)| rest.split(' ').nth(11)?.parse::<u64>().ok();
        stat.rsplit_once(") ").and_then(ticks).unwrap_or(0)
    };
    while used() < 30 {
        assert!(std::time::Instant::now() < until, "nothing is computed");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(running);
    let refused = git.anywhere().args(["version"]).output();
    assert!(matches!(refused, Err(GitError::Spent { .. })), "{refused:?}");
}

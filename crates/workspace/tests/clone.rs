//! Clones, from real repositories by real git: by path, and from a host that requires a token.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

use crate::git_host::{GitHost, Manner};
use crate::repository::{Repository, directory, git};
use belljar_spec::SandboxId;
use belljar_spec::git::PushLimits;
use belljar_spec::workspace::CloneSpec;
use belljar_vault::Secret;
use belljar_workspace::clone::{self, CloneError, Cloned, Forge, PullRequest};
use belljar_workspace::foreign::Head;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const SECRET: &str = "ghp_s3cret/x+y";
/// `x-access-token:SECRET`, encoded for HTTP.
const BASIC: &str = "Basic eC1hY2Nlc3MtdG9rZW46Z2hwX3MzY3JldC94K3k=";

/// A remote, and a state directory.
struct Machine {
    base: PathBuf,
    remote: Repository,
    id: SandboxId,
    _directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let (guard, base) = directory();
        let source = Repository::with_commit(&base.join("source"));
        source.commit("second", "2\n", "second");
        source.git(&["branch", "feature"]);
        source.git(&["tag", "v1"]);
        fs::create_dir_all(base.join("hosted/ada")).unwrap();
        let remote = base.join("hosted/ada/engine.git");
        source.git(&["clone", "-q", "--bare", ".", remote.to_str().unwrap()]);
        let remote = Repository { folder: remote };
        remote.git(&["config", "http.receivepack", "true"]);
        Machine { base, remote, id: SandboxId::from_random(ID), _directory: guard }
    }

    fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    fn spec(&self) -> CloneSpec {
        let url = self.remote.folder.to_str().unwrap().to_string();
        CloneSpec { url, branch: None, depth: None }
    }

    fn make(&self, spec: &CloneSpec) -> Cloned {
        clone::make(&self.state(), self.id, spec, None).unwrap()
    }

    fn collect(&self) -> clone::Collected {
        clone::collect(&self.state(), self.id, PushLimits::default()).unwrap()
    }

    fn hosted(&self) -> GitHost {
        let root = self.base.join("hosted");
        GitHost::start(Manner::Serve { root, authorization: BASIC.to_string() })
    }
}

fn inside(cloned: &Cloned) -> Repository {
    Repository { folder: cloned.folder.clone() }
}

#[test]
fn a_clone_is_worked_in_on_a_branch_of_its_own() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    assert_eq!(cloned.branch.as_str(), "belljar/0102030405060708");
    let inside = inside(&cloned);
    assert_eq!(inside.git(&["status", "--porcelain"]), "");
    assert_eq!(inside.git(&["symbolic-ref", "--short", "HEAD"]), "belljar/0102030405060708");
    assert_eq!(inside.git(&["log", "--format=%s"]), "second\nfirst");
    assert_eq!(inside.git(&["tag"]), "v1");
    assert_eq!(inside.git(&["branch", "-r"]).trim(), "origin/feature\n  origin/main");
    assert_eq!(inside.git(&["config", "remote.host.url"]), "git://127.0.0.1:9418/repo");
    inside.git(&["fsck", "--strict"]);
    assert_eq!(fs::metadata(cloned.repository.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_named_branch_is_the_one_that_is_worked_on() {
    let machine = Machine::new();
    let named = CloneSpec { branch: Some("feature".parse().unwrap()), ..machine.spec() };
    let cloned = machine.make(&named);
    assert_eq!(inside(&cloned).git(&["symbolic-ref", "--short", "HEAD"]), "feature");
    // A branch that the remote does not have starts from its default one.
    let new = CloneSpec { branch: Some("new".parse().unwrap()), ..machine.spec() };
    let id = SandboxId::from_random([9; 8]);
    let cloned = clone::make(&machine.state(), id, &new, None).unwrap();
    assert_eq!(inside(&cloned).git(&["log", "--format=%s", "new"]), "second\nfirst");
}

#[test]
fn a_depth_is_kept_to() {
    let machine = Machine::new();
    let url = format!("file://{}", machine.remote.folder.display());
    let cloned = machine.make(&CloneSpec { url, branch: None, depth: Some(1) });
    assert_eq!(inside(&cloned).git(&["log", "--format=%s"]), "second");
    inside(&cloned).commit("mine", "m\n", "mine");
    drop(cloned);
    let collected = machine.collect();
    assert_eq!((collected.count, collected.commits[0].subject.as_str()), (1, "mine"));
    clone::push(&machine.state(), machine.id, None, None).unwrap();
    assert_eq!(
        machine.remote.git(&["log", "--format=%s", "belljar/0102030405060708"]),
        "mine\nsecond\nfirst"
    );
}

#[test]
fn a_remote_without_commits_is_refused() {
    let machine = Machine::new();
    let empty = machine.base.join("empty.git");
    assert!(git(&machine.base, &["init", "-q", "--bare", empty.to_str().unwrap()]).status.success());
    let spec = CloneSpec { url: empty.to_str().unwrap().into(), branch: None, depth: None };
    let error = clone::make(&machine.state(), machine.id, &spec, None).err().unwrap();
    assert!(error.to_string().contains("its HEAD leads to no commit"), "{error}");
}

#[test]
fn what_was_committed_is_taken_over_and_what_was_not_is_said() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    let inside = inside(&cloned);
    inside.commit("a/file", "1\n", "subject \u{1b}[2J\u{202e}x");
    inside.write("second", "changed\n");
    let last = inside.commit("b", "2\n", "another");
    inside.git(&["gc", "-q"]);
    inside.write("untracked\nfile", "u");
    drop(cloned);
    let collected = machine.collect();
    assert_eq!(collected.tip.as_ref().map(|tip| tip.as_str()), Some(last.as_str()));
    assert_eq!((collected.count, collected.elsewhere.as_ref()), (2, None));
    let shown: Vec<_> = collected.commits.iter().map(|commit| commit.subject.as_str()).collect();
    assert_eq!(shown, ["another", "subject \\u{1b}[2J\\u{202e}x"]);
    assert_eq!(collected.commits[0].author.as_str(), "Ada <ada@example.com>");
    let files = |at: usize| collected.commits[at].files.iter().map(|file| file.as_str()).collect::<Vec<_>>();
    assert_eq!((files(0), files(1)), (vec!["b"], vec!["a/file"]));
    let uncommitted: Vec<_> = collected.uncommitted.iter().map(|file| file.as_str()).collect();
    assert_eq!(uncommitted, ["second", "untracked\\nfile"]);
    // The commits are ours now: the folder is no longer needed.
    let ours = machine.state().join("clones/0102030405060708/ours.git");
    assert_eq!(git(&ours, &["cat-file", "-t", &last]).stdout, b"commit\n");
    // Nothing was pushed automatically.
    assert_eq!(machine.remote.git(&["for-each-ref", "--format=%(refname)"]).lines().count(), 3);
}

#[test]
fn where_the_sandbox_left_off_is_said() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    assert!(machine.collect().is_empty());
    inside(&cloned).git(&["checkout", "-q", "-b", "mine"]);
    inside(&cloned).git(&["branch", "packed/one"]);
    inside(&cloned).git(&["pack-refs", "--all"]);
    inside(&cloned).git(&["branch", "loose/one"]);
    drop(cloned);
    let collected = machine.collect();
    assert!(!collected.is_empty());
    let others: Vec<_> = collected.others.iter().map(|other| other.as_str()).collect();
    assert_eq!(others, ["loose/one", "mine", "packed/one"]);
    assert_eq!((collected.count, collected.elsewhere), (0, Some(Head::Branch("mine".parse().unwrap()))));
    let pushed = clone::push(&machine.state(), machine.id, None, None);
    assert!(matches!(pushed, Err(CloneError::NothingToPush)), "{pushed:?}");
}

#[test]
fn broken_objects_are_not_taken() {
    let machine = Machine::new();
    let bad_commit = |inside: &Repository, content: &str| {
        inside.write("raw", content);
        let tree = inside.git(&["rev-parse", "HEAD^{tree}"]);
        let text = content.replace("TREE", &tree).replace("HEAD", &inside.git(&["rev-parse", "HEAD"]));
        inside.write("raw", &text);
        let hash = inside.git(&["hash-object", "-t", "commit", "-w", "--literally", "raw"]);
        inside.write(".git/refs/heads/belljar/0102030405060708", &format!("{hash}\n"));
    };
    let gitmodules = |inside: &Repository| {
        let text = "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch\n";
        inside.commit(".gitmodules", text, "modules");
    };
    let missing = |inside: &Repository| {
        let commit = inside.commit("gone", "gone\n", "gone");
        let blob = inside.git(&["rev-parse", "HEAD:gone"]);
        fs::remove_file(inside.folder.join(format!(".git/objects/{}/{}", &blob[..2], &blob[2..]))).unwrap();
        drop(commit);
    };
    let lied = |inside: &Repository| {
        // A blob under another's name.
        inside.commit("one", "one\n", "one");
        let one = inside.git(&["rev-parse", "HEAD:one"]);
        inside.write("two", "two\n");
        let two = inside.git(&["hash-object", "-w", "two"]);
        let path = |hash: &str| inside.folder.join(format!(".git/objects/{}/{}", &hash[..2], &hash[2..]));
        fs::remove_file(path(&one)).unwrap();
        fs::copy(path(&two), path(&one)).unwrap();
    };
    type Break<'a> = &'a dyn Fn(&Repository);
    let kinds: [(&str, Break<'_>); 4] = [
        ("a commit without an author", &|inside| bad_commit(inside, "tree TREE\nparent HEAD\n\nno author\n")),
        ("an option for a submodule", &gitmodules),
        ("a missing object", &missing),
        ("an object under another's name", &lied),
    ];
    for (number, (what, spoil)) in kinds.into_iter().enumerate() {
        let id = SandboxId::from_random([number as u8; 8]);
        let spec = CloneSpec { branch: Some("belljar/0102030405060708".parse().unwrap()), ..machine.spec() };
        let cloned = clone::make(&machine.state(), id, &spec, None).unwrap();
        spoil(&inside(&cloned));
        drop(cloned);
        let collected = clone::collect(&machine.state(), id, PushLimits::default());
        assert!(matches!(collected, Err(CloneError::Import(_))), "{what}: {collected:?}");
        let ours = machine.state().join(format!("clones/{id}/ours.git"));
        let tip = git(&ours, &["log", "-1", "--format=%s", "belljar/0102030405060708"]).stdout;
        assert_eq!(tip, b"second\n", "{what}");
        assert!(!ours.parent().unwrap().join("scratch").exists(), "{what}");
    }
}

#[test]
fn nothing_of_a_clone_runs_and_no_link_of_it_is_followed() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    let (inside, canary) = (inside(&cloned), machine.base.join("canary"));
    let command = format!("touch {}", canary.display());
    inside.commit(".gitattributes", "* filter=evil diff=evil\n", "attributes");
    for key in
        ["core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.external"]
    {
        inside.git(&["config", key, &command]);
    }
    inside.write("second", "changed\n");
    inside.write(".git/info/attributes", "* filter=evil diff=evil\n");
    // Objects of another repository, by a link and as alternates.
    let private = Repository::with_commit(&machine.base.join("private"));
    let hidden = private.commit("hidden", "hidden\n", "hidden");
    inside.write(".git/objects/info/alternates", private.git_directory().join("objects").to_str().unwrap());
    let branch = format!(".git/{}", cloned.branch.full());
    let before = fs::read_to_string(inside.folder.join(&branch)).unwrap();
    inside.write(&branch, &format!("{hidden}\n"));
    let collect = || clone::collect(&machine.state(), machine.id, PushLimits::default());
    assert!(collect().is_err(), "a commit that was never in the clone came out of it");
    inside.write(&branch, &before);
    assert_eq!(collect().unwrap().count, 1);
    fs::remove_file(inside.folder.join(&branch)).unwrap();
    std::os::unix::fs::symlink(private.git_directory().join("refs/heads/main"), inside.folder.join(&branch))
        .unwrap();
    assert!(matches!(collect(), Err(CloneError::Spoiled(_))));
    assert!(!canary.exists());
}

/// Each of them made git hang until a deadline of minutes: it waits for a pipe, and reads every byte of a sparse file.
#[test]
fn nothing_that_an_agent_left_holds_up_who_collects() {
    let pipe = |path: PathBuf| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let endless = |path: PathBuf| fs::File::create(path).unwrap().set_len(1 << 42).unwrap();
    let repository = |folder: PathBuf| {
        fs::create_dir_all(folder.join(".git/objects")).unwrap();
        fs::create_dir_all(folder.join(".git/refs")).unwrap();
        pipe(folder.join(".git/HEAD"));
    };
    type Leave<'a> = &'a dyn Fn(&Path);
    // Where git can look, the project's ignore rules apply; where it cannot, all files are listed.
    let cases: [(&str, Leave<'_>, &[&str]); 8] = [
        ("nothing", &|_| {}, &[]),
        (
            "rules for files",
            &|work| pipe(work.join("d/.gitattributes")),
            &["d/.gitattributes", "d/file", "ignored"],
        ),
        ("rules for names", &|work| pipe(work.join("d/.gitignore")), &["d/.gitignore", "d/file", "ignored"]),
        ("a pipe", &|work| pipe(work.join("pipe")), &["ignored", "pipe"]),
        ("a committed file without end", &|work| endless(work.join("d/file")), &["d/file"]),
        ("another file without end", &|work| endless(work.join("other")), &["other"]),
        ("a repository", &|work| repository(work.join("new")), &["ignored", "new/.git/HEAD"]),
        (
            "a repository in a file's place",
            &|work| {
                fs::remove_file(work.join("d/file")).unwrap();
                repository(work.join("d/file"));
            },
            &["d/file", "d/file/.git/HEAD", "ignored"],
        ),
    ];
    for (what, leave, expected) in cases {
        let machine = Machine::new();
        let cloned = machine.make(&machine.spec());
        let inside = inside(&cloned);
        inside.commit(".gitignore", "ignored\n", "rules");
        inside.commit("d/file", "file\n", "file");
        inside.write("ignored", "x\n");
        leave(&inside.folder);
        let (sender, receiver) = std::sync::mpsc::channel();
        let (state, id) = (machine.state(), machine.id);
        std::thread::spawn(move || {
            let collected = clone::collect(&state, id, PushLimits::default()).unwrap();
            let _ = sender.send(collected);
        });
        let collected = receiver.recv_timeout(Duration::from_secs(100)).unwrap_or_else(|_| panic!("{what}"));
        let mut names: Vec<_> = collected.uncommitted.iter().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!((names.as_slice(), collected.count), (expected, 2), "{what}");
    }
}

#[test]
fn too_much_is_not_taken() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    let noise: String =
        (0..40_000_u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    inside(&cloned).commit("big", &noise, "big");
    drop(cloned);
    let limits = PushLimits { bytes: belljar_spec::ByteSize::bytes(10_000), objects: 1000 };
    let collected = clone::collect(&machine.state(), machine.id, limits);
    assert!(matches!(collected, Err(CloneError::Import(_))), "{collected:?}");
    assert_eq!(machine.collect().count, 1);
}

#[test]
fn blobs_that_unpack_to_much_take_little_memory_of_the_host() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    let inside = inside(&cloned);
    for name in ["1", "2", "3", "4"] {
        let path = inside.folder.join(name);
        let mut file = fs::File::create(&path).unwrap();
        file.set_len(BLOB).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        inside.git(&["-c", "core.bigFileThreshold=1m", "add", name]);
        fs::remove_file(path).unwrap();
    }
    inside.git(&["commit", "-q", "-m", "much of nothing"]);
    let (collected, most) = watched(|| machine.collect());
    assert_eq!(collected.count, 1);
    assert!(most < BLOB, "one git of the host had {} MiB", most >> 20);
}

#[test]
fn a_tree_of_a_billion_names_takes_bounded_memory_of_the_host() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    let inside = inside(&cloned);
    fs::write(inside.folder.join("x"), "x").unwrap();
    let mut id = inside.git(&["hash-object", "-w", "x"]);
    // Each tree has the one before it ten times.
    for mode in iter::once("100644").chain(iter::repeat_n("40000", 9)) {
        let name: Vec<u8> =
            (0..20).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect();
        let entry = |letter: u8| [mode.as_bytes(), &[b' ', letter, 0], &name].concat();
        fs::write(inside.folder.join("x"), (b'0'..=b'9').flat_map(entry).collect::<Vec<_>>()).unwrap();
        id = inside.git(&["hash-object", "-t", "tree", "-w", "x"]);
    }
    let bomb = inside.git(&["commit-tree", "-p", "HEAD", "-m", "bomb", &id]);
    inside.git(&["update-ref", "HEAD", &bomb]);
    let collect = || clone::collect(&machine.state(), machine.id, PushLimits::default());
    let (collected, most) = watched(collect);
    assert!(matches!(collected, Err(CloneError::Git(_))), "{collected:?}");
    assert!(most < 5 << 28, "one git of the host had {} MiB", most >> 20);
}

/// The result, and the peak memory of any process started by it.
fn watched<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let (stop, stopped) = mpsc::channel::<()>();
    let watching = thread::spawn(move || {
        let mut most = 0;
        while stopped.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
            most = most.max(largest_below(std::process::id()));
        }
        most
    });
    let given = work();
    drop(stop);
    (given, watching.join().unwrap())
}

/// The peak memory of any descendant process so far, in bytes (`VmHWM`, proc_pid_status(5)).
fn largest_below(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children = children.collect::<Vec<_>>().join(" ");
    let of = |child: u32| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or_default();
        largest_below(child).max(kilobytes << 10)
    };
    children.split_whitespace().filter_map(|child| child.parse().ok()).map(of).max().unwrap_or_default()
}

/// Above git's limit for one object in memory, and far below the size of four.
const BLOB: u64 = 96 << 20;

#[test]
fn a_push_is_asked_for_and_never_forced() {
    let machine = Machine::new();
    let spec = CloneSpec { branch: Some("main".parse().unwrap()), ..machine.spec() };
    let cloned = machine.make(&spec);
    let mine = inside(&cloned).commit("mine", "m\n", "mine");
    drop(cloned);
    machine.collect();
    // A remote on this machine cannot make us run anything either.
    let canary = machine.base.join("canary");
    for hook in ["pre-receive", "update", "post-receive", "reference-transaction", "post-update"] {
        let path = machine.remote.folder.join("hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\ntouch {}\nexit 1\n", canary.display())).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let (state, id) = (machine.state(), machine.id);
    // The default branch only by its name.
    let pushed = clone::push(&state, id, None, None);
    assert!(matches!(pushed, Err(CloneError::DefaultBranch(_))), "{pushed:?}");
    assert!(clone::list(&state).unwrap()[0].as_ref().unwrap().unpushed);
    let other = "other".parse().unwrap();
    let pushed = clone::push(&state, id, Some(&other), None).unwrap();
    assert_eq!((pushed.branch.as_str(), pushed.commit.as_str()), ("other", mine.as_str()));
    assert!(!clone::list(&state).unwrap()[0].as_ref().unwrap().unpushed);
    assert!(!canary.exists());
    fs::remove_dir_all(machine.remote.folder.join("hooks")).unwrap();
    // Another push was quicker.
    let source = Repository { folder: machine.base.join("source") };
    let theirs = source.commit("theirs", "t\n", "theirs");
    source.git(&["push", "-q", machine.remote.folder.to_str().unwrap(), "main"]);
    let main = "main".parse().unwrap();
    let pushed = clone::push(&state, id, Some(&main), None);
    let Err(CloneError::NotPushed { reason, .. }) = pushed else { panic!("{pushed:?}") };
    assert!(
        reason.as_str().contains("fetch first") || reason.as_str().contains("non-fast-forward"),
        "{reason}"
    );
    assert_eq!(machine.remote.git(&["rev-parse", "main"]), theirs);
}

#[test]
fn a_token_opens_a_host_and_stays_out_of_sight() {
    let machine = Machine::new();
    let host = machine.hosted();
    let token = || Some(Secret::from_text(SECRET));
    let plain = format!("http://{}/ada/engine.git", host.address);
    let inline = format!("http://{}@{}/ada/engine.git", "ghp%5Fs3cret%2Fx%2By", host.address);
    for (number, (url, token)) in [(plain.clone(), token()), (inline, None)].into_iter().enumerate() {
        let id = SandboxId::from_random([number as u8; 8]);
        let spec = CloneSpec { url, branch: None, depth: None };
        let cloned = clone::make(&machine.state(), id, &spec, token).unwrap();
        assert_eq!(cloned.url.as_str(), plain.as_str());
        assert_eq!(inside(&cloned).git(&["config", "remote.origin.url"]), plain);
        inside(&cloned).commit("mine", "m\n", "mine");
        drop(cloned);
        clone::collect(&machine.state(), id, PushLimits::default()).unwrap();
        clone::push(&machine.state(), id, None, Some(Secret::from_text(SECRET))).unwrap();
    }
    assert!(host.authorizations().iter().all(|value| value == BASIC));
    assert!(!host.authorizations().is_empty());
    let seen = host.seen.lock().unwrap();
    let listed = seen.iter().any(|seen| contains(&seen.words, b"s3cret") || contains(&seen.words, b"Z2hwX3"));
    assert!(!listed, "the token is among the words of a process");
    assert!(seen.iter().any(|seen| contains(&seen.words, b"/ada/engine.git")), "no process was seen");
    for secret in [SECRET, "ghp%5Fs3cret%2Fx%2By", BASIC.trim_start_matches("Basic ")] {
        assert!(!somewhere_in(&machine.state(), secret.as_bytes()), "{secret} is in a file");
    }
}

#[test]
fn a_token_is_not_sent_elsewhere() {
    let machine = Machine::new();
    let thief = GitHost::start(Manner::Echo);
    let host = GitHost::start(Manner::Redirect { to: format!("http://{}", thief.address) });
    let url = format!("http://{}/ada/engine.git", host.address);
    let spec = CloneSpec { url, branch: None, depth: None };
    let cloned = clone::make(&machine.state(), machine.id, &spec, Some(Secret::from_text(SECRET)));
    assert!(matches!(cloned, Err(CloneError::Failed { .. })), "{cloned:?}");
    assert!(!thief.seen.lock().unwrap().is_empty(), "no request was redirected there");
    assert_eq!(thief.authorizations(), [""; 0]);
}

#[test]
fn where_nothing_can_be_cloned_nothing_starts_and_the_reason_has_no_token() {
    let machine = Machine::new();
    let echo = GitHost::start(Manner::Echo);
    for url in [
        format!("http://{}/x.git", echo.address),
        "http://127.0.0.1:1/x.git".to_string(),
        "/nonexistent/x.git".to_string(),
        machine.base.join("hosted").to_str().unwrap().to_string(),
    ] {
        let spec = CloneSpec { url: url.clone(), branch: None, depth: None };
        let refused = clone::make(&machine.state(), machine.id, &spec, Some(Secret::from_text(SECRET)));
        let Err(CloneError::Failed { reason, .. }) = refused else { panic!("{url}: {refused:?}") };
        let reason = reason.to_string();
        assert!(!reason.contains("s3cret") && !reason.contains("Z2hwX3"), "{url}: {reason}");
        assert!(!reason.contains("and the repository exists"), "git's own words, not its advice: {reason}");
        assert!(!reason.contains("ls-remote") && !reason.ends_with("..."), "git's words, not ours: {reason}");
        let left: Vec<_> = fs::read_dir(machine.state().join("clones")).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| entry.file_name() == ".lock"), "{url}: {left:?}");
    }
    let spec = CloneSpec { url: "ext::sh -c touch% /tmp/x".into(), branch: None, depth: None };
    let refused = clone::make(&machine.state(), machine.id, &spec, None);
    assert!(matches!(refused, Err(CloneError::Address { .. })), "{refused:?}");
}

/// Stands in for a host's API.
struct Api {
    requests: Mutex<Vec<(String, String, String)>>,
    status: u16,
    answer: &'static str,
}

impl Forge for Api {
    fn post_json(&self, url: &str, body: &str, token: &Secret) -> Result<(u16, Vec<u8>), String> {
        self.requests.lock().unwrap().push((url.into(), body.into(), token.reveal_text().into()));
        Ok((self.status, self.answer.as_bytes().to_vec()))
    }
}

#[test]
fn a_pull_request_is_opened_for_what_was_pushed() {
    let machine = Machine::new();
    let host = machine.hosted();
    let url = format!("http://{}/ada/engine.git", host.address);
    let spec = CloneSpec { url, branch: None, depth: None };
    let cloned = clone::make(&machine.state(), machine.id, &spec, Some(Secret::from_text(SECRET))).unwrap();
    inside(&cloned).commit("mine", "m\n", "mine");
    drop(cloned);
    let (state, id, token) = (machine.state(), machine.id, Secret::from_text(SECRET));
    let api = |status, answer| Api { requests: Mutex::new(Vec::new()), status, answer };
    let request = PullRequest {
        title: "A \"title\"".into(),
        body: "Words".into(),
        base: None,
        api: Some("https://api.example.com/".into()),
    };
    let early = api(201, "{}");
    assert!(matches!(
        clone::pull_request(&state, id, &request, &early, &token),
        Err(CloneError::NothingToPush)
    ));
    assert!(early.requests.lock().unwrap().is_empty());
    machine.collect();
    clone::push(&state, id, None, Some(Secret::from_text(SECRET))).unwrap();
    let good = api(201, "{\"html_url\":\"https://example.com/ada/engine/pull/1\"}");
    let page = clone::pull_request(&state, id, &request, &good, &token).unwrap();
    assert_eq!(page.as_str(), "https://example.com/ada/engine/pull/1");
    let requests = good.requests.lock().unwrap().remove(0);
    assert_eq!(requests.0, "https://api.example.com/repos/ada/engine/pulls");
    assert_eq!(
        requests.1,
        "{\"title\":\"A \\\"title\\\"\",\"body\":\"Words\",\"head\":\"belljar/0102030405060708\",\"base\":\"main\"}"
    );
    assert_eq!(requests.2, SECRET);
    let bad = api(
        422,
        "{\"message\":\"Validation Failed\",\"errors\":[{\"message\":\"one exists for ghp_s3cret/x+y\"}]}",
    );
    let refused = clone::pull_request(&state, id, &request, &bad, &token).unwrap_err().to_string();
    assert!(refused.ends_with("422: Validation Failed, one exists for ***"), "{refused}");
}

#[test]
fn what_is_kept_is_listed_and_removed() {
    let machine = Machine::new();
    let cloned = machine.make(&machine.spec());
    inside(&cloned).commit("mine", "m\n", "mine");
    let state = machine.state();
    let list = clone::list(&state).unwrap();
    let kept = list[0].as_ref().unwrap();
    assert_eq!((kept.unpushed, kept.in_use), (true, true));
    assert!(matches!(clone::remove(&state, machine.id), Err(CloneError::InUse(_))));
    drop(cloned);
    // A second request returns the same.
    let again = machine.make(&machine.spec());
    assert_eq!(inside(&again).git(&["log", "-1", "--format=%s"]), "mine");
    drop(again);
    clone::remove(&state, machine.id).unwrap();
    assert!(matches!(clone::remove(&state, machine.id), Err(CloneError::Unknown(_))));
}

fn somewhere_in(root: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(root).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            return somewhere_in(&path, bytes);
        }
        fs::read(&path).is_ok_and(|content| contains(&content, bytes))
    })
}

fn contains(content: &[u8], bytes: &[u8]) -> bool {
    content.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn a_clone_whose_label_is_not_understood_is_listed_and_never_swept() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("empty", |label| fs::write(label, "").unwrap()),
        ("rubbish", |label| fs::write(label, "{]").unwrap()),
        ("a later version", |label| fs::write(label, r#"{"version":2,"new":true}"#).unwrap()),
        ("missing", |label| fs::remove_file(label).unwrap()),
        ("a pipe", |label| {
            fs::remove_file(label).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(label).status().unwrap().success());
        }),
    ];
    for (name, damage) in damages {
        let machine = Machine::new();
        let cloned = machine.make(&machine.spec());
        inside(&cloned).commit("work", "w\n", "unpushed work");
        drop(cloned);
        let root = machine.state().join("clones").join(machine.id.to_string());
        damage(&root.join("clone.json"));
        let damaged =
            |list: Vec<Result<clone::StoredClone, belljar_state::damage::Damaged>>| match list.as_slice() {
                [Err(damaged)] => (damaged.id.clone(), damaged.directory.clone()),
                other => panic!("{name}: {other:?}"),
            };
        for _ in 0..2 {
            let listed = damaged(clone::list(&machine.state()).unwrap());
            assert_eq!(listed, (machine.id.to_string(), root.clone()), "{name}");
        }
        // Making another one sweeps unfinished clones, but not this one.
        let other = SandboxId::from_random([9; 8]);
        drop(clone::make(&machine.state(), other, &machine.spec(), None).unwrap());
        clone::remove(&machine.state(), other).unwrap();
        assert!(root.join("work/work").exists(), "{name}");
        let again = clone::make(&machine.state(), machine.id, &machine.spec(), None);
        assert!(matches!(again, Err(CloneError::Damaged(_))), "{name}: {again:?}");
        clone::remove_named(&machine.state(), &machine.id.to_string()).unwrap();
        assert!(!root.exists(), "{name}");
    }
}

#[test]
fn what_a_kill_left_unfinished_is_swept_by_the_next_clone_and_not_by_a_list() {
    let machine = Machine::new();
    let unfinished = machine.state().join("clones/.new-0000000000000001");
    let removed = machine.state().join("clones/.gone-1-2222222222222222");
    for left in [&unfinished, &removed] {
        fs::create_dir_all(left.join("work")).unwrap();
    }
    assert!(clone::list(&machine.state()).unwrap().is_empty());
    assert!(unfinished.exists() && removed.exists(), "a list removes nothing");
    drop(machine.make(&machine.spec()));
    assert!(!unfinished.exists() && !removed.exists());
}

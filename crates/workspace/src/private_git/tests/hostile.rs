//! Malicious git directories.

use super::pair::{Pair, aside, commit, git};
use belljar_spec::ByteSize;
use belljar_spec::git::PushLimits;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

/// The host is unchanged, regardless of the import's report.
fn assert_refused(pair: &mut Pair, what: &str) {
    let before = pair.user(&["for-each-ref"]);
    match pair.try_import() {
        Ok(report) => assert!(report.followed.is_empty(), "{what}: {report:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert_eq!(pair.user(&["for-each-ref"]), before, "{what}");
    pair.user(&["fsck", "--strict"]);
}

fn object(pair: &Pair, id: &str) -> std::path::PathBuf {
    pair.private().join("objects").join(&id[..2]).join(&id[2..])
}

#[test]
fn objects_that_are_no_files_are_missing_and_nothing_waits() {
    for what in ["link", "pipe", "directory", "garbage", "other", "sparse"] {
        let mut pair = Pair::new();
        let tip = pair.agent_commits("work", "x\n");
        let blob = pair.agent(&["rev-parse", "HEAD:work"]);
        let path = object(&pair, &blob);
        let kept = pair.place.join("kept");
        fs::rename(&path, &kept).unwrap();
        match what {
            "link" => symlink(&kept, &path).unwrap(),
            "pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
            "directory" => fs::create_dir(&path).unwrap(),
            "garbage" => fs::write(&path, "garbage").unwrap(),
            "other" => drop(fs::copy(object(&pair, &tip), &path).unwrap()),
            _ => fs::File::create(&path).unwrap().set_len(1 << 40).unwrap(),
        }
        assert_refused(&mut pair, what);
        // Reported once, and not again while it stays like that.
        assert_eq!(pair.import(), Default::default(), "{what}");
        // Another branch is not blocked.
        pair.agent(&["branch", "-q", "fine", "HEAD~1"]);
        assert_eq!(pair.import().followed[0].reference, "refs/heads/fine", "{what}");
    }
}

#[test]
fn objects_of_elsewhere_do_not_come_along() {
    let mut pair = Pair::new();
    let secret = Pair::of(&["-b", "main"], |folder| {
        commit(folder, "secret", "secret\n");
    });
    let tip = secret.at_host("HEAD");
    let elsewhere = secret.host.own.join("objects");
    // By alternates, and by linked folders.
    let alternates = pair.private().join("objects/info/alternates");
    let list = fs::read_to_string(&alternates).unwrap();
    fs::write(&alternates, format!("{list}{}\n", elsewhere.display())).unwrap();
    pair.agent(&["update-ref", "refs/heads/stolen", &tip]);
    assert_refused(&mut pair, "alternates");
    for id in secret.user(&["rev-list", "--objects", "--no-object-names", "HEAD"]).lines() {
        let folder = pair.private().join("objects").join(&id[..2]);
        let _ = symlink(elsewhere.join(&id[..2]), folder);
    }
    pair.agent(&["update-ref", "refs/heads/stolen-too", &tip]);
    assert_refused(&mut pair, "links");
    assert!(!pair.host.own.join("objects").join(&tip[..2]).join(&tip[2..]).exists());
}

#[test]
fn grafts_shallow_files_and_config_inside_say_nothing() {
    let mut pair = Pair::new();
    pair.agent_commits("a", "1\n");
    let tip = pair.agent_commits("b", "1\n");
    let private = pair.private();
    let canary = pair.place.join("canary");
    super::pair::write(&private, "info/grafts", &format!("{tip}\n"));
    fs::write(private.join("shallow"), format!("{tip}\n")).unwrap();
    super::pair::write(&private, "objects/info/commit-graph", "garbage");
    let config = format!(
        "[core]\nrepositoryformatversion = 1\nfsmonitor = touch {0}\n[extensions]\npartialClone = x\n\
         [remote \"x\"]\npromisor = true\nurl = .\nuploadpack = touch {0}\n",
        canary.display()
    );
    fs::write(private.join("config"), config).unwrap();
    assert_eq!(pair.import().followed.len(), 1);
    assert_eq!(pair.user(&["rev-list", "--count", "main"]), "3");
    pair.user(&["fsck", "--strict"]);
    assert!(!canary.exists());
}

#[test]
fn packs_inside_are_taken_when_they_are_needed() {
    let mut pair = Pair::new();
    pair.agent_commits("a", "1\n");
    pair.agent(&["repack", "-q", "-adl"]);
    pair.agent(&["prune-packed"]);
    pair.agent_commits("b", "1\n");
    assert_eq!(pair.import().followed.len(), 1);
    pair.assert_same_status();
    // More than a hundred objects stay a pack on the host.
    for number in 0..120 {
        pair.write(&format!("many/{number}"), &format!("{number}\n"));
    }
    pair.agent(&["add", "many"]);
    pair.agent(&["commit", "-q", "-m", "many"]);
    pair.import();
    pair.assert_same_status();
    let packs = fs::read_dir(pair.host.own.join("objects/pack")).unwrap().flatten();
    let packs = packs.map(|entry| entry.path()).collect::<Vec<_>>();
    let count = |end: &str| packs.iter().filter(|path| path.extension().is_some_and(|is| is == end)).count();
    assert_eq!((count("pack"), count("keep")), (1, 0));
}

#[test]
fn commits_that_git_finds_malformed_are_refused_and_others_are_not() {
    let mut pair = Pair::new();
    let tree = pair.agent(&["rev-parse", "HEAD^{tree}"]);
    let inner = pair.place.join("tree");
    fs::write(&inner, [b"40000 .git\0".as_slice(), &hex(&tree)].concat()).unwrap();
    let words = ["hash-object", "-t", "tree", "-w", "--literally", inner.to_str().unwrap()];
    let bad = pair.agent(&words);
    let bad = pair.agent(&["commit-tree", "-m", "bad", "-p", "HEAD", &bad]);
    pair.agent(&["update-ref", "refs/heads/bad", &bad]);
    let good = pair.agent_commits("work", "x\n");
    let report = pair.import();
    assert_eq!(pair.at_host("main"), good);
    assert_eq!(aside(&report)[0].0, "refs/heads/bad: -", "{report:?}");
    pair.user(&["fsck", "--strict"]);
}

#[test]
fn a_lock_of_the_hosts_that_is_never_let_go_of_keeps_nothing_waiting() {
    let mut pair = Pair::new();
    // The config says to wait for ever.
    pair.user(&["config", "core.filesRefLockTimeout", "-1"]);
    pair.user(&["config", "core.packedRefsTimeout", "-1"]);
    fs::write(pair.host.own.join("refs/heads/main.lock"), "").unwrap();
    pair.agent_commits("work", "x\n");
    let began = Instant::now();
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/main: refs/belljar/ID/heads/main");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn limits_are_held() {
    let mut pair = Pair::new();
    pair.policy.limits = PushLimits { bytes: ByteSize::mebibytes(1), objects: 3 };
    pair.agent_commits("dir/work", "x\n");
    assert_refused(&mut pair, "objects");
    pair.policy.limits = PushLimits { bytes: ByteSize::bytes(200), objects: 100 };
    pair.agent_commits("dir/work", "y\n");
    assert_refused(&mut pair, "bytes");
    // Uncommitted files do not count.
    pair.policy.limits = PushLimits { bytes: ByteSize::mebibytes(1), objects: 8 };
    for number in 0..9 {
        pair.write("dir/work", &format!("{number}\n"));
        pair.agent(&["add", "dir/work"]);
    }
    pair.agent(&["commit", "-q", "--amend", "-m", "x"]);
    assert_eq!(pair.import().followed.len(), 1);
}

#[test]
fn odd_refs_and_heads_inside_do_no_harm() {
    let mut pair = Pair::new();
    let tip = pair.agent_commits("work", "x\n");
    let blob = pair.agent(&["rev-parse", "HEAD:work"]);
    let private = pair.private();
    let long = "x".repeat(210);
    let packed = format!(
        "{tip} refs/heads/{long}\n{tip} refs/heads/{long}/{long}/{long}/{long}/{long}\n{tip} refs/heads/bad name\n"
    );
    fs::write(
        private.join("packed-refs"),
        packed + &format!("{blob} refs/heads/blob\n{blob} refs/tags/blob\n"),
    )
    .unwrap();
    symlink("main", private.join("refs/heads/link")).unwrap();
    assert!(Command::new("mkfifo").arg(private.join("refs/heads/pipe")).status().unwrap().success());
    let report = pair.import();
    assert_eq!(pair.at_host("main"), tip, "{report:?}");
    let heads = git(&pair.host.top, &[], &["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(heads, "refs/heads/main");
    // Names that are too long for a file system are kept under others.
    assert!(pair.user(&["for-each-ref", "--format=%(refname)"]).contains("/kept/"), "{report:?}");
    // A HEAD without a valid name, or a pipe.
    fs::write(private.join("HEAD"), "ref: refs/heads/../../x\n").unwrap();
    assert_eq!(pair.import(), Default::default());
    fs::remove_file(private.join("HEAD")).unwrap();
    assert!(Command::new("mkfifo").arg(private.join("HEAD")).status().unwrap().success());
    assert_eq!(pair.import(), Default::default());
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/main");
}

pub(super) fn hex(id: &str) -> Vec<u8> {
    (0..id.len() / 2).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect()
}

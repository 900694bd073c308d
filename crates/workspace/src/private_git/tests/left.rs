//! Work that only the sandbox has when it ends, and pins.

use super::super::{pin, unpin};
use super::pair::{ID, Pair, aside, commit, git};
use crate::inert::Git;
use crate::quarantine::HostRepository;
use sha2::{Digest, Sha256};
use std::fs;

#[test]
fn stashes_and_dropped_commits_are_kept_at_the_end() {
    let mut pair = Pair::new();
    pair.write("README", "older\n");
    pair.agent(&["stash", "-q"]);
    pair.write("README", "newer\n");
    pair.agent(&["stash", "-q"]);
    let (newer, older) = (pair.agent(&["rev-parse", "stash@{0}"]), pair.agent(&["rev-parse", "stash@{1}"]));
    pair.agent_commits("a", "1\n");
    let dropped = pair.agent_commits("b", "1\n");
    pair.agent(&["reset", "-q", "--hard", "HEAD~2"]);
    pair.agent_commits("c", "1\n");
    let report = pair.finish();
    let names = aside(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let expected = [
        "stash@{0}: refs/belljar/ID/stash/0",
        "stash@{1}: refs/belljar/ID/stash/1",
        "reflog: refs/belljar/ID/dropped/0",
    ];
    assert_eq!(names, expected);
    for (name, commit) in [("stash/0", newer), ("stash/1", older), ("dropped/0", dropped)] {
        assert_eq!(pair.at_host(&format!("refs/belljar/{ID}/{name}")), commit);
    }
    pair.user(&["stash", "apply", "-q", &format!("refs/belljar/{ID}/stash/0")]);
    assert_eq!(pair.user(&["diff", "--name-only"]), "README");
    // A second time finds nothing more.
    assert_eq!(pair.finish().set_aside, []);
    assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]).lines().count(), 3);
}

#[test]
fn an_unfinished_rebase_is_told_of() {
    let mut pair = Pair::new();
    pair.agent_commits("a", "1\n");
    assert!(!pair.agent_may_fail(&["rebase", "-q", "--exec", "false", "HEAD~1"]).status.success());
    assert_eq!(pair.finish().unfinished, Some("a rebase"));
    assert_eq!(pair.user(&["symbolic-ref", "HEAD"]), "refs/heads/main");
}

#[test]
fn pins_hold_what_a_sandbox_borrows() {
    for init in [&["-b", "main"][..], &["-b", "main", "--ref-format=reftable"]] {
        let pair = Pair::of(init, |folder| {
            commit(folder, "README", "first\n");
            git(folder, &[], &["checkout", "-q", "-b", "gone"]);
            commit(folder, "README", "second\n");
        });
        // git before 2.45 does not support this kind.
        if HostRepository::open(&Git::find().unwrap(), &pair.host.own).is_err() {
            assert_ne!(init.len(), 2);
            continue;
        }
        let pinned = pair.at_host("HEAD");
        pin(&pair.repository(), ID, &pinned.parse().unwrap()).unwrap();
        pin(&pair.repository(), ID, &pinned.parse().unwrap()).unwrap();
        pair.user(&["checkout", "-q", "main"]);
        pair.user(&["branch", "-D", "gone"]);
        pair.user(&["reflog", "expire", "--expire=now", "--all"]);
        pair.user(&["gc", "-q", "--prune=now"]);
        assert_eq!(pair.agent(&["cat-file", "-t", &pinned]), "commit");
        unpin(&pair.repository(), ID).unwrap();
        assert_eq!(pair.user(&["for-each-ref", "refs/belljar"]), "");
        pair.user(&["gc", "-q", "--prune=now"]);
        assert!(!pair.agent_may_fail(&["cat-file", "-t", &pinned]).status.success());
    }
}

#[test]
fn an_object_that_the_host_has_already_is_as_young_as_a_new_one() {
    let mut pair = Pair::new();
    // No ref has it: a concurrent `git gc` would remove it.
    pair.write("work", "x\n");
    let blob = pair.user(&["hash-object", "-w", "work"]);
    let object = pair.host.own.join("objects").join(&blob[..2]).join(&blob[2..]);
    let file = fs::File::open(&object).unwrap();
    pair.agent_commits("work", "x\n");
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(pair.import().followed.len(), 1);
    assert!(file.metadata().unwrap().modified().unwrap().elapsed().unwrap().as_secs() < 3600);
}

#[test]
fn many_refs_of_the_hosts_are_carried_in_at_once() {
    let mut pair = Pair::new();
    pair.agent(&["branch", "mine/x"]);
    let main = pair.at_host("main");
    let make = |name: &str| pair.user(&["update-ref", name, "main"]);
    (0..30).for_each(|number| drop(make(&format!("refs/tags/v{number}"))));
    // The agent's branch is in its way.
    make("refs/heads/mine");
    pair.user(&["tag", "-a", "-m", "x", "noted"]);
    pair.carry_in();
    assert_eq!(pair.agent(&["tag"]), pair.user(&["tag"]));
    assert_eq!(pair.agent(&["rev-parse", "noted^{}", "mine/x"]), format!("{main}\n{main}"));
    // Moving each as a file would read all others.
    assert_eq!(fs::read_dir(pair.private().join("refs/tags")).unwrap().count(), 0);
    // The same, and no longer in the way.
    pair.agent(&["update-ref", "-d", "refs/heads/mine/x"]);
    fs::create_dir_all(pair.private().join("refs/heads/mine/y")).unwrap();
    assert_eq!(pair.carry_in(), Vec::<String>::new());
    assert_eq!(pair.agent(&["rev-parse", "mine"]), main);
    let tags = pair.user(&["tag"]);
    pair.user(&[&["tag", "-d"], &tags.lines().collect::<Vec<_>>()[..]].concat());
    pair.carry_in();
    assert_eq!(pair.agent(&["tag"]), "");
    pair.agent(&["fsck", "--strict"]);
}

#[test]
fn objects_of_git_lfs_come_out_with_their_commits() {
    let mut pair = Pair::new();
    pair.policy.limits.bytes = belljar_spec::ByteSize::bytes(64 << 10);
    let object =
        |content: &[u8]| Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let path = |name: &str| format!("lfs/objects/{}/{}/{name}", &name[..2], &name[2..4]);
    let text = |name: &str, size: usize| {
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {size}\n")
    };
    let (good, bad, linked) = (object(b"good"), object(b"what it is not"), object(b"linked"));
    let (large, unnamed) = (object(&[b'x'; 100 << 10]), object(b"unnamed"));
    let private = pair.private();
    for (name, content) in
        [(&good, &b"good"[..]), (&bad, b"other"), (&large, &[b'x'; 100 << 10]), (&unnamed, b"unnamed")]
    {
        super::pair::write(&private, &path(name), std::str::from_utf8(content).unwrap());
    }
    super::pair::write(&pair.place, "secret", "linked");
    super::pair::write(&private, &path(&linked), "");
    fs::remove_file(private.join(path(&linked))).unwrap();
    std::os::unix::fs::symlink(pair.place.join("secret"), private.join(path(&linked))).unwrap();
    for (file, name, size) in
        [("good", &good, 4), ("bad", &bad, 5), ("linked", &linked, 6), ("large", &large, 100 << 10)]
    {
        pair.write(file, &text(name, size));
    }
    pair.agent(&["add", "."]);
    pair.agent(&["commit", "-q", "-m", "pointers"]);
    let report = pair.import();
    assert_eq!(report.followed.len(), 1, "{report:?}");
    assert_eq!(fs::read(pair.host.own.join(path(&good))).unwrap(), b"good");
    for name in [&bad, &linked, &large, &unnamed] {
        assert!(!pair.host.own.join(path(name)).exists());
    }
    assert_eq!(report.notes.len(), 2, "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains("more than `[git] bytes`")), "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains("its content has another name")), "{report:?}");
    // Nothing half-made is left.
    let folder = pair.host.own.join(path(&bad));
    assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 0);
}

#[test]
fn worktrees_made_inside_are_named_and_their_commits_kept() {
    let mut pair = Pair::new();
    pair.agent(&["worktree", "add", "-q", "--detach", ".wt/x"]);
    let tree = pair.host.top.join(".wt/x");
    fs::write(tree.join("more"), "x\n").unwrap();
    let inside = |words: &[&str]| git(&tree, &[("GIT_DIR", pair.private().join("worktrees/x"))], words);
    inside(&["add", "more"]);
    inside(&["commit", "-q", "-m", "detached"]);
    let commit = inside(&["rev-parse", "HEAD"]);
    let report = pair.finish();
    assert_eq!(pair.at_host(&format!("refs/belljar/{ID}/dropped/0")), commit, "{report:?}");
    assert_eq!(report.notes.len(), 1, "{report:?}");
    assert!(report.notes[0].contains(".wt/x` is a worktree that was made inside"), "{report:?}");
}

//! Packs of real pushes, and packs that no push would make, judged correctly.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use belljar_git::judge::{Facts, Seen};
use belljar_git::push::Update;
use belljar_git::{ObjectFormat, ObjectId, PushRefusal, RefName};
use belljar_spec::git::PushLimits;
use belljar_sys::before_exec::CgroupEntry;
use belljar_workspace::inert::Leash;
use belljar_workspace::pack_judge::{PackJudge, Quarantine};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A repository with a history, and a judge that knows nothing of it.
struct World {
    directory: TempDir,
    judge: PackJudge,
}

impl World {
    fn new() -> World {
        World::with(ObjectFormat::Sha1)
    }

    fn with(format: ObjectFormat) -> World {
        let directory = TempDir::new().unwrap();
        let judge = PackJudge::new(directory.path().join("quarantines"), &Leash::of_sandbox(None));
        let world = World { directory, judge };
        fs::create_dir(world.repository()).unwrap();
        world.git(&["init", "-q", "-b", "main", &format!("--object-format={}", format.name())]);
        world.write("src/main.rs", "fn main() {}\n");
        world.write(".github/workflows/ci.yml", "on: push\n");
        world.write(".github/CODEOWNERS", "* @a\n");
        world.commit();
        world
    }

    fn repository(&self) -> PathBuf {
        self.directory.path().join("repository")
    }

    fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(words)
            .current_dir(self.repository())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.repository().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits everything; returns the commit.
    fn commit(&self) -> ObjectId {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
        self.head()
    }

    fn head(&self) -> ObjectId {
        self.git(&["rev-parse", "HEAD"]).parse().unwrap()
    }

    /// The pack of a push of `new` to a server that has `has`.
    fn pack(&self, new: &ObjectId, has: &[&ObjectId], options: &[&str]) -> File {
        let excluded = has.iter().map(|id| format!("^{id}\n"));
        let revisions: String = std::iter::once(format!("{new}\n")).chain(excluded).collect();
        let words = [&["pack-objects", "--revs", "--stdout", "-q"], options].concat();
        self.pack_of(&words, &revisions)
    }

    fn pack_of(&self, words: &[&str], input: &str) -> File {
        let path = self.directory.path().join("pack");
        let mut child = Command::new("git")
            .args(words)
            .current_dir(self.repository())
            .stdin(Stdio::piped())
            .stdout(File::create(&path).unwrap())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        File::open(path).unwrap()
    }

    fn take(&self, pack: File) -> Result<Quarantine, PushRefusal> {
        self.judge.take(pack, self.head().format(), PushLimits::default())
    }

    /// The findings on a push from `old` to `new`, with the objects that the server provides on request.
    fn seen(&self, old: &ObjectId, new: &ObjectId) -> Facts {
        let mut quarantine = self.take(self.pack(new, &[old], &[])).unwrap();
        let needed: String = quarantine.needed_commits().iter().map(|id| format!("{id}\n")).collect();
        if !needed.is_empty() {
            let words = ["pack-objects", "--revs", "--stdout", "-q", "--filter=blob:none"];
            quarantine.add(self.pack_of(&words, &needed)).unwrap();
            assert_eq!(quarantine.needed_commits(), []);
        }
        quarantine.facts(&update(old, new))
    }

    fn quarantines(&self) -> usize {
        let entries = fs::read_dir(self.directory.path().join("quarantines")).unwrap().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    }
}

fn update(old: &ObjectId, new: &ObjectId) -> Update {
    Update { old: old.clone(), new: new.clone(), name: RefName::parse(b"refs/heads/x").unwrap() }
}

const FINE: Facts = Facts { follows: Seen::Yes, keeps_workflows: Seen::Yes };

#[test]
fn an_ordinary_push_goes_forward_and_leaves_workflows_alone() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let world = World::with(format);
        let old = world.head();
        for text in ["a", "b", "c"] {
            world.write("src/main.rs", text);
            world.commit();
        }
        assert_eq!(world.seen(&old, &world.head()), FINE);
        world.write(".github/CODEOWNERS", "* @b\n");
        assert_eq!(world.seen(&old, &world.commit()), FINE, "a file beside them");
        assert_eq!(world.quarantines(), 0);
    }
}

#[test]
fn without_the_server_it_is_not_known_what_a_parent_had() {
    let world = World::new();
    let old = world.head();
    world.write("src/main.rs", "a");
    let new = world.commit();
    let quarantine = world.take(world.pack(&new, &[&old], &[])).unwrap();
    assert_eq!(quarantine.needed_commits(), std::slice::from_ref(&old));
    let facts = quarantine.facts(&update(&old, &new));
    assert_eq!(facts, Facts { follows: Seen::Yes, keeps_workflows: Seen::Unknown });
}

type Change = fn(&World);

#[test]
fn a_change_of_workflows_is_seen_wherever_it_hides() {
    let changes: [(&str, Change); 9] = [
        ("changed", |world| world.write(".github/workflows/ci.yml", "on: pull_request_target\n")),
        ("added", |world| world.write(".github/workflows/more.yml", "on: push\n")),
        ("below", |world| world.write(".github/workflows/a/b.yml", "on: push\n")),
        ("removed", |world| drop(world.git(&["rm", "-q", "-r", ".github"]))),
        ("one removed", |world| drop(world.git(&["rm", "-q", ".github/workflows/ci.yml"]))),
        ("made to run", |world| {
            let path = world.repository().join(".github/workflows/ci.yml");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("in another case", |world| world.write(".GitHub/Workflows/ci.yml", "on: push\n")),
        ("by a link", |world| {
            world.git(&["mv", ".github/workflows", "elsewhere"]);
            std::os::unix::fs::symlink("../elsewhere", world.repository().join(".github/workflows")).unwrap();
        }),
        ("by a link above", |world| {
            world.git(&["mv", ".github", "elsewhere"]);
            std::os::unix::fs::symlink("elsewhere", world.repository().join(".github")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let world = World::new();
        let old = world.head();
        change(&world);
        let changed = world.commit();
        assert_eq!(world.seen(&old, &changed).keeps_workflows, Seen::No, "{what}");
        // Undone by the last commit; the one before still gets to the server.
        world.git(&["revert", "--no-edit", "HEAD"]);
        assert_eq!(world.seen(&old, &world.head()).keeps_workflows, Seen::No, "{what}, and undone");
    }
}

#[test]
fn a_merge_has_the_workflows_of_a_side() {
    let world = World::new();
    let base = world.head();
    world.git(&["checkout", "-q", "-b", "topic"]);
    world.write("src/topic.rs", "a");
    let topic = world.commit();
    world.git(&["checkout", "-q", "main"]);
    world.write(".github/workflows/ci.yml", "on: [push, pull_request]\n");
    let main = world.commit();
    world.git(&["checkout", "-q", "topic"]);
    world.git(&["merge", "-q", "--no-edit", "main"]);
    // The server has both sides.
    let new = world.head();
    let mut quarantine = world.take(world.pack(&new, &[&topic, &main], &[])).unwrap();
    let needed: String = quarantine.needed_commits().iter().map(|id| format!("{id}\n")).collect();
    quarantine
        .add(world.pack_of(&["pack-objects", "--revs", "--stdout", "-q", "--filter=blob:none"], &needed))
        .unwrap();
    assert_eq!(quarantine.facts(&update(&topic, &new)), FINE);
    // A merge with a change of its own.
    world.git(&["checkout", "-q", "-b", "evil", &topic.to_string()]);
    world.git(&["merge", "-q", "--no-commit", "main"]);
    world.write(".github/workflows/ci.yml", "on: evil\n");
    let evil = world.commit();
    assert_eq!(world.seen(&topic, &evil).keeps_workflows, Seen::No);
    assert_eq!(world.seen(&base, &evil).follows, Seen::Yes);
}

/// A limit that docs/git.md states: it is no new content, and a push does not show which branch has it.
#[test]
fn what_the_server_has_passes_with_its_workflows() {
    let world = World::new();
    let old = world.head();
    world.git(&["checkout", "-q", "-b", "somebody"]);
    world.write(".github/workflows/ci.yml", "on: [push, pull_request]\n");
    let theirs = world.commit();
    // A branch is moved there, without any objects.
    let empty = world.take(world.pack(&theirs, &[&theirs], &[])).unwrap();
    assert_eq!(
        (empty.needed_commits(), empty.facts(&update(&old, &theirs)).keeps_workflows),
        (vec![], Seen::Yes)
    );
    // A commit is built on it.
    world.write("src/main.rs", "more");
    let mine = world.commit();
    assert_eq!(world.seen(&theirs, &mine).keeps_workflows, Seen::Yes);
    // As soon as the commit itself comes along, it is new.
    assert_eq!(world.seen(&old, &mine).keeps_workflows, Seen::No);
}

#[test]
fn going_back_or_aside_is_not_going_forward() {
    let world = World::new();
    let first = world.head();
    world.write("a", "a");
    let second = world.commit();
    world.git(&["checkout", "-q", "-b", "aside", &first.to_string()]);
    world.write("b", "b");
    let aside = world.commit();
    assert_eq!(world.seen(&second, &first).follows, Seen::Unknown, "back");
    assert_eq!(world.seen(&second, &aside).follows, Seen::No, "aside");
    // The whole history is here, and the old commit is not in it.
    let quarantine = world.take(world.pack(&aside, &[], &[])).unwrap();
    assert_eq!(quarantine.facts(&update(&second, &aside)).follows, Seen::No);
    world.git(&["checkout", "-q", "--orphan", "orphan"]);
    let orphan = world.commit();
    assert_eq!(world.seen(&second, &orphan).follows, Seen::No, "a history of its own");
    assert_eq!(world.seen(&second, &orphan).keeps_workflows, Seen::No, "it begins with workflows");
}

#[test]
fn a_pack_without_the_new_commit_shows_nothing_of_it() {
    let world = World::new();
    let old = world.head();
    world.write("a", "a");
    let new = world.commit();
    world.git(&["checkout", "-q", "-b", "other", &old.to_string()]);
    world.write("b", "b");
    let other = world.commit();
    let quarantine = world.take(world.pack(&other, &[&old], &[])).unwrap();
    assert_eq!(quarantine.facts(&update(&old, &new)).follows, Seen::Unknown);
}

#[test]
fn a_thin_pack_is_refused_with_a_remedy() {
    let world = World::new();
    world.write("long", &"the same line again\n".repeat(2000));
    let old = world.commit();
    world.write("long", &format!("{}changed\n", "the same line again\n".repeat(2000)));
    let new = world.commit();
    let refusal = world.take(world.pack(&new, &[&old], &["--thin"])).unwrap_err();
    assert!(refusal.to_string().contains("git push --no-thin"), "{refusal}");
    assert_eq!(world.quarantines(), 0);
}

#[test]
fn what_is_no_pack_is_refused() {
    let world = World::new();
    let whole = {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut world.pack(&world.head(), &[], &[]), &mut bytes).unwrap();
        bytes
    };
    let mut flipped = whole.clone();
    flipped[40] ^= 0xff;
    for (what, bytes) in [
        ("nothing", &b""[..]),
        ("text", b"hello"),
        ("a head", b"PACK\0\0\0\x02\xff\xff\xff\xff"),
        ("cut", &whole[..whole.len() - 30]),
        ("flipped", &flipped),
        ("longer", &[&whole[..], b"PACK"].concat()),
    ] {
        let path = world.directory.path().join("bad");
        fs::write(&path, bytes).unwrap();
        let refusal = world.take(File::open(path).unwrap());
        assert!(matches!(refusal, Err(PushRefusal::Pack { .. })), "{what}: {refusal:?}");
    }
    let limits = PushLimits { objects: 3, ..PushLimits::default() };
    let refused = world.judge.take(world.pack(&world.head(), &[], &[]), ObjectFormat::Sha1, limits);
    assert!(matches!(refused, Err(PushRefusal::Objects { most: 3 })));
}

#[test]
fn objects_that_git_doubts_are_refused() {
    let world = World::new();
    let tree = world.git(&["rev-parse", "HEAD^{tree}"]);
    // Two entries of one name: it is undefined which one a checkout takes.
    let blob = world.git(&["rev-parse", "HEAD:src/main.rs"]);
    let raw: Vec<u8> =
        (0..40).step_by(2).map(|at| u8::from_str_radix(&blob[at..at + 2], 16).unwrap()).collect();
    let entry = [&b"100644 a\0"[..], &raw].concat();
    let path = world.repository().join("../double");
    fs::write(&path, [&entry[..], &entry[..]].concat()).unwrap();
    let path = path.to_str().unwrap();
    let double = world.git(&["hash-object", "-t", "tree", "-w", "--literally", path]);
    let commit = world.git(&["commit-tree", "-m", "x", "-p", "HEAD", &double]);
    let pack = world.pack_of(&["pack-objects", "--stdout", "-q"], &format!("{commit}\n{double}\n{tree}\n"));
    let refusal = world.take(pack).unwrap_err();
    assert!(refusal.to_string().contains("duplicateEntries"), "{refusal}");
}

/// Some kilobytes that would be gigabytes.
#[test]
fn an_object_that_swells_does_not_take_the_memory() {
    let world = World::new();
    let path = world.directory.path().join("zeros");
    File::create(&path).unwrap().set_len(600 << 20).unwrap();
    let blob = world.git(&["hash-object", "-w", path.to_str().unwrap()]);
    fs::remove_file(path).unwrap();
    let pack = world.pack_of(&["pack-objects", "--stdout", "-q"], &format!("{blob}\n"));
    assert!(pack.metadata().unwrap().len() < 1 << 20);
    // Streamed in pieces, or refused: never held in memory.
    let outcome = world.take(pack);
    assert!(matches!(outcome, Ok(_) | Err(PushRefusal::Pack { .. })), "{outcome:?}");
}

#[test]
fn what_a_kill_left_is_removed() {
    let world = World::new();
    let quarantines = world.directory.path().join("quarantines");
    fs::create_dir_all(quarantines.join("1-0/objects")).unwrap();
    fs::write(quarantines.join("1-0/lock"), "").unwrap();
    let kept = world.take(world.pack(&world.head(), &[], &[])).unwrap();
    assert_eq!(world.quarantines(), 2);
    belljar_workspace::pack_judge::sweep(&quarantines);
    assert_eq!(world.quarantines(), 1, "the one in use stays");
    drop(kept);
    assert_eq!(world.quarantines(), 0);
}

#[test]
fn every_git_that_looks_at_a_pack_enters_the_cgroup_of_its_sandbox() {
    let world = World::new();
    // Stands in for a cgroup's file, to which an entering process writes.
    let tasks = world.directory.path().join("tasks");
    let entry = CgroupEntry::new(vec![File::create(&tasks).unwrap()]);
    let judge = PackJudge::new(world.directory.path().join("quarantines"), &Leash::of_sandbox(Some(entry)));
    let pack = world.pack(&world.head(), &[], &[]);
    judge.take(pack, ObjectFormat::Sha1, PushLimits::default()).unwrap();
    // The git that indexes, and those that list and read.
    let entered = fs::read_to_string(tasks).unwrap();
    assert!(entered.len() >= 3 && entered.bytes().all(|byte| byte == b'0'), "{entered:?}");
}

#[test]
fn a_pack_is_not_looked_at_where_the_cgroup_cannot_be_entered() {
    let world = World::new();
    let closed = CgroupEntry::new(vec![File::open("/dev/null").unwrap()]);
    let judge = PackJudge::new(world.directory.path().join("quarantines"), &Leash::of_sandbox(Some(closed)));
    let refused = judge.take(world.pack(&world.head(), &[], &[]), ObjectFormat::Sha1, PushLimits::default());
    assert!(matches!(refused, Err(PushRefusal::Failed { .. })), "{refused:?}");
}

#[test]
fn a_judge_has_no_more_processor_time_than_is_left_to_its_sandbox() {
    let world = World::new();
    let spent = Leash::with_allowance(Duration::ZERO);
    let judge = PackJudge::new(world.directory.path().join("quarantines"), &spent);
    let refused = judge.take(world.pack(&world.head(), &[], &[]), ObjectFormat::Sha1, PushLimits::default());
    let refusal = refused.unwrap_err().to_string();
    assert!(refusal.contains("has used the processor time"), "{refusal}");
}

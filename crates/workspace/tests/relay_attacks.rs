//! Actions that the relay must prevent, tried with ordinary git. Judged by the host's repository.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::relay::{self, Stage, policy, push, stderr_text, try_push};
use crate::repository::{Repository, git};
use belljar_spec::ByteSize;
use belljar_spec::git::{PushLimits, RefPolicy};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The push fails with this message, the refusal is recorded, and the host has not changed by a byte.
fn refused(stage: &Stage, clone: &Repository, words: &[&str], code: &str, message: &str) {
    let before = stage.everything();
    let recorded = stage.refusals().len();
    let output = try_push(clone, words);
    let text = stderr_text(&output);
    assert!(!output.status.success(), "{words:?}: {text}");
    assert!(text.contains(message), "{words:?}: {text}");
    assert!(stage.everything() == before, "{words:?} changed something: {text}");
    if !code.is_empty() {
        let refusals = stage.refusals();
        assert!(refusals[recorded..].contains(&code), "{words:?}: {refusals:?}");
    }
    stage.assert_swept();
}

/// With a branch of its own, one commit ahead.
fn working(stage: &Stage) -> Repository {
    let clone = stage.clone_as("clone");
    clone.git(&["checkout", "-q", "-b", "agent/x"]);
    clone.commit("work", "one\n", "work");
    push(&clone, &["agent/x"]);
    clone
}

#[test]
fn force_in_every_spelling() {
    let stage = Stage::new();
    let clone = working(&stage);
    clone.git(&["commit", "-q", "--amend", "-m", "other"]);
    let message = "not a fast-forward";
    refused(&stage, &clone, &["-f", "agent/x"], "push_force", message);
    refused(&stage, &clone, &["--force", "agent/x"], "push_force", message);
    refused(&stage, &clone, &["--force-with-lease", "agent/x"], "push_force", message);
    refused(&stage, &clone, &["+agent/x"], "push_force", message);
    refused(&stage, &clone, &["+HEAD:refs/heads/agent/x"], "push_force", message);
    refused(&stage, &clone, &["-f", "--atomic", "agent/x"], "push_force", message);
    clone.git(&["checkout", "-q", "--orphan", "agent/y"]);
    clone.commit("work", "two\n", "a root of its own");
    refused(&stage, &clone, &["+HEAD:agent/x"], "push_force", message);
    refused(&stage, &clone, &["+HEAD:main"], "push_force", message);
}

#[test]
fn nothing_goes_away() {
    let stage = Stage::new();
    let clone = working(&stage);
    for words in [
        &[":agent/x"][..],
        &["--delete", "agent/x"],
        &["-d", "main"],
        &["--prune", "refs/heads/none*:refs/heads/*"],
    ] {
        refused(&stage, &clone, words, "", "delet");
    }
}

#[test]
fn refs_that_are_not_allowed() {
    let stage = Stage::with(RefPolicy::only(vec!["agent/*".parse().unwrap()]));
    let clone = working(&stage);
    clone.commit("work", "two\n", "work");
    clone.git(&["tag", "v1"]);
    clone.git(&["tag", "-a", "v2", "-m", "two"]);
    for (word, code, message) in [
        ("HEAD:main", "push_branch", "branch main may not be pushed from a sandbox; allowed: agent/*"),
        ("HEAD:refs/heads/other", "push_branch", "may not be pushed"),
        ("HEAD:refs/heads/refs/heads/agent/x", "push_branch", "may not be pushed"),
        ("HEAD:refs/heads/agentx", "push_branch", "may not be pushed"),
        ("v1", "push_tag", "tags may not be pushed"),
        ("v2", "push_tag", "tags may not be pushed"),
        ("HEAD:refs/belljar/main", "push_not_a_branch", "only branches"),
        ("HEAD:refs/notes/commits", "push_not_a_branch", "only branches"),
        ("HEAD:refs/remotes/origin/main", "push_not_a_branch", "only branches"),
        ("HEAD:refs/pull/1/head", "push_not_a_branch", "only branches"),
        ("HEAD:refs/worktree/x", "push_not_a_branch", "only branches"),
        ("HEAD:refs/stash", "push_not_a_branch", "only branches"),
    ] {
        refused(&stage, &clone, &[word], code, message);
    }
    let head = stage.host.git(&["rev-parse", "HEAD"]);
    let replace = format!("HEAD:refs/replace/{head}");
    refused(&stage, &clone, &[&replace], "push_not_a_branch", "only branches");
    refused(&stage, &clone, &["--tags"], "push_tag", "tags may not be pushed");
    refused(&stage, &clone, &["--atomic", "agent/x", "v1"], "push_tag", "tags may not be pushed");
    // Some of it is fine, and arrives.
    let output = try_push(&clone, &["agent/x", "HEAD:main", "v1"]);
    assert!(!output.status.success());
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), clone.git(&["rev-parse", "HEAD"]));
    assert_eq!(stage.host.git(&["rev-parse", "main"]), head);
    assert!(!stage.refs().contains("v1"));
}

#[test]
fn where_git_inside_cannot_pack_its_objects_that_is_said_and_not_that_belljar_failed() {
    let stage = Stage::new();
    let clone = working(&stage);
    let blob = clone.git(&["rev-parse", "HEAD:work"]);
    for (name, id) in [("", blob.as_str()), ("gone", "1212121212121212121212121212121212121212")] {
        let commit = literal_commit(&clone, &literal_tree(&clone, &[("100644", name, id)]));
        let word = format!("{commit}:refs/heads/agent/y");
        refused(&stage, &clone, &[&word], "push_pack", "git in the sandbox ended first");
    }
}

#[test]
fn a_mirror_moves_nothing_but_what_may_move() {
    let stage = Stage::new();
    let clone = working(&stage);
    clone.git(&["update-ref", "refs/heads/evil", "HEAD"]);
    clone.git(&["update-ref", "refs/notes/evil", "HEAD"]);
    let before = stage.refs();
    let output = try_push(&clone, &["--mirror"]);
    assert!(!output.status.success());
    assert_eq!(stage.refs(), before, "{}", stderr_text(&output));
}

#[test]
fn a_name_that_stands_for_another() {
    let stage = Stage::of(policy(), |folder| {
        let host = Repository::with_commit(folder);
        host.git(&["branch", "secret"]);
        host.git(&["symbolic-ref", "refs/heads/agent/alias", "refs/heads/secret"]);
        host.git(&["symbolic-ref", "refs/heads/agent/dangling", "refs/heads/nowhere"]);
        host
    });
    let clone = working(&stage);
    refused(&stage, &clone, &["HEAD:agent/alias"], "push_symbolic", "it stands for another ref");
    refused(&stage, &clone, &["HEAD:agent/dangling"], "push_symbolic", "it stands for another ref");
    // The clone's HEAD refers to its own branch, not the host's.
    refused(&stage, &clone, &["HEAD:refs/heads/HEAD"], "", "");
}

#[test]
fn names_in_the_way_of_others() {
    let stage = Stage::new();
    let clone = working(&stage);
    stage.host.git(&["pack-refs", "--all"]);
    clone.git(&["checkout", "-q", "-b", "y"]);
    refused(&stage, &clone, &["y:agent/x/y"], "push_in_the_way", "`refs/heads/agent/x` is in the way");
    stage.host.git(&["branch", "agent/deep/er"]);
    refused(&stage, &clone, &["y:agent/deep"], "push_in_the_way", "`refs/heads/agent/deep/er` is in the way");
    let output = try_push(&clone, &["y:agent/a", "y:agent/a/b"]);
    assert!(!output.status.success(), "{}", stderr_text(&output));
    assert!(stage.refs().contains("refs/heads/agent/a"));
}

#[test]
fn the_host_commits_while_a_push_is_on_its_way() {
    let stage = Stage::new();
    let clone = working(&stage);
    let host = stage.host.folder.display().to_string();
    // Between the list of refs and the commands.
    let git_as_host = "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a git";
    hook(
        &clone,
        "pre-push",
        &format!(
            "#!/bin/sh\ncd {host}; unset GIT_DIR\n\
         new=$({git_as_host} commit-tree -p agent/x -m theirs 'agent/x^{{tree}}') && git update-ref refs/heads/agent/x $new\n"
        ),
    );
    clone.commit("work", "two\n", "work");
    let output = try_push(&clone, &["agent/x"]);
    assert!(
        stderr_text(&output).contains("it moved meanwhile: fetch, then push again"),
        "{}",
        stderr_text(&output)
    );
    assert_eq!(stage.host.git(&["log", "-1", "--format=%s", "agent/x"]), "theirs");
    assert!(stage.refusals().contains(&"push_stale"));
    // And with a merge, as the message says.
    fs::remove_file(clone.folder.join(".git/hooks/pre-push")).unwrap();
    clone.git(&["pull", "-q", "--no-rebase", "--no-edit", "host", "agent/x"]);
    push(&clone, &["agent/x"]);
}

#[test]
fn of_two_pushes_one_wins() {
    let stage = Stage::new();
    let first = working(&stage);
    let second = stage.clone_as("second");
    second.git(&["checkout", "-q", "agent/x"]);
    first.commit("work", "mine\n", "mine");
    second.commit("work", "theirs\n", "theirs");
    hook(
        &first,
        "pre-push",
        &format!("#!/bin/sh\ncd {}; unset GIT_DIR; git push -q host agent/x\n", second.folder.display()),
    );
    let output = try_push(&first, &["agent/x"]);
    assert!(!output.status.success(), "{}", stderr_text(&output));
    assert_eq!(stage.host.git(&["log", "-1", "--format=%s", "agent/x"]), "theirs");
}

#[test]
fn of_many_pushes_at_once_each_is_whole() {
    let stage = Stage::new();
    let clones = (0..6).map(|number| stage.clone_as(&format!("clone{number}"))).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for (number, clone) in clones.iter().enumerate() {
            scope.spawn(move || {
                clone.commit("work", &format!("{number}\n"), "work");
                push(clone, &[&format!("HEAD:agent/{number}")]);
                let _ = try_push(clone, &["HEAD:agent/shared"]);
            });
        }
    });
    for (number, clone) in clones.iter().enumerate() {
        let tip = clone.git(&["rev-parse", "HEAD"]);
        assert_eq!(stage.host.git(&["rev-parse", &format!("agent/{number}")]), tip);
    }
    let shared = stage.host.git(&["rev-parse", "agent/shared"]);
    assert!(clones.iter().any(|clone| clone.git(&["rev-parse", "HEAD"]) == shared));
    stage.host.git(&["fsck", "--full", "--strict"]);
    stage.assert_swept();
}

#[test]
fn workflows_stay_as_they_are_if_policy_says_so() {
    let stage = Stage::of(RefPolicy { workflows: false, ..policy() }, |folder| {
        let host = Repository::with_commit(folder);
        host.commit(".github/workflows/ci.yml", "on: push\n", "ci");
        host
    });
    let clone = stage.clone_as("clone");
    clone.git(&["checkout", "-q", "-b", "agent/x"]);
    clone.commit("work", "one\n", "work");
    push(&clone, &["agent/x"]);
    let message = "changes files below .github/workflows";
    clone.commit(".github/workflows/ci.yml", "on: never\n", "evil");
    refused(&stage, &clone, &["agent/x"], "push_workflows", message);
    refused(&stage, &clone, &["agent/x:agent/new"], "push_workflows", message);
    // Undone again, but still in the history.
    clone.commit(".github/workflows/ci.yml", "on: push\n", "good again");
    refused(&stage, &clone, &["agent/x"], "push_workflows", message);
    // In a merge that does not mention it.
    clone.git(&["reset", "-q", "--hard", "HEAD~2"]);
    clone.git(&["checkout", "-q", "-b", "side"]);
    clone.commit("side", "one\n", "side");
    clone.git(&["checkout", "-q", "agent/x"]);
    clone.git(&["merge", "-q", "--no-ff", "--no-commit", "side"]);
    clone.commit(".github/workflows/more.yml", "on: push\n", "evil merge");
    refused(&stage, &clone, &["agent/x"], "push_workflows", message);
    // A separate root commit.
    clone.git(&["checkout", "-q", "--orphan", "root"]);
    clone.git(&["commit", "-q", "-m", "root"]);
    refused(&stage, &clone, &["root:agent/root"], "push_workflows", message);
    // The host's changes come along.
    stage.host.commit(".github/workflows/ci.yml", "on: pull_request\n", "the host's");
    clone.git(&["checkout", "-q", "-B", "agent/x", "host/agent/x"]);
    clone.git(&["pull", "-q", "--no-rebase", "--no-edit", "host", "main"]);
    push(&clone, &["agent/x"]);
}

#[test]
fn files_that_are_dangerous_to_check_out() {
    let stage = Stage::new();
    let clone = working(&stage);
    let blob = clone.git(&["rev-parse", "HEAD:work"]);
    for (name, kind) in
        [(".git", "100644"), (".GIT", "40000"), ("git~1", "100644"), ("..", "40000"), ("a/b", "100644")]
    {
        let tree_id = clone.git(&["rev-parse", "HEAD^{tree}"]);
        let id = if kind == "40000" { &tree_id } else { &blob };
        let tree = literal_tree(&clone, &[(kind, name, id)]);
        let commit = clone.git(&["commit-tree", "-m", "evil", "-p", "HEAD", &tree]);
        refused(&stage, &clone, &[&format!("{commit}:refs/heads/agent/y")], "push_pack", "bad pack");
    }
    // A submodule that would run something.
    let modules = "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch /tmp/x\n";
    clone.commit(".gitmodules", modules, "evil");
    refused(&stage, &clone, &["HEAD:agent/y"], "push_pack", "gitmodules");
    clone.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let modules = "[submodule \"../../hooks\"]\n\tpath = x\n\turl = https://example.com/x\n";
    clone.commit(".gitmodules", modules, "evil");
    refused(&stage, &clone, &["HEAD:agent/y"], "push_pack", "gitmodules");
    clone.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let target = literal(&clone, "blob", b"/etc/passwd");
    let tree = literal_tree(&clone, &[("120000", ".gitmodules", &target)]);
    let commit = clone.git(&["commit-tree", "-m", "evil", "-p", "HEAD", &tree]);
    refused(&stage, &clone, &[&format!("{commit}:refs/heads/agent/y")], "push_pack", "gitmodules");
}

#[test]
fn too_much() {
    let limits = PushLimits { bytes: ByteSize::mebibytes(1), objects: 10 };
    let stage = Stage::with(RefPolicy { limits, ..policy() });
    let clone = working(&stage);
    for number in 0..10 {
        clone.write(&format!("many/{number}"), &number.to_string());
    }
    clone.git(&["add", "-A"]);
    clone.git(&["commit", "-q", "-m", "many"]);
    refused(&stage, &clone, &["agent/x"], "push_objects", "more than 10 objects");
    clone.git(&["reset", "-q", "--hard", "HEAD~1"]);
    // Larger than the limit on the wire.
    let noise = clone.git(&["rev-list", "--all"]);
    let mut state = noise.len() as u64 + 88172645463325252;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    let noise = noise.take(400_000).flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    fs::write(clone.folder.join("noise"), noise).unwrap();
    clone.git(&["add", "noise"]);
    clone.git(&["commit", "-q", "-m", "noise"]);
    refused(&stage, &clone, &["agent/x"], "push_bytes", "larger than 1m");
    clone.git(&["reset", "-q", "--hard", "HEAD~1"]);
    // Small on the wire, and large on the receiver's disk.
    fs::File::create(clone.folder.join("bomb")).unwrap().set_len(200 << 20).unwrap();
    clone.git(&["add", "bomb"]);
    clone.git(&["commit", "-q", "-m", "bomb"]);
    refused(&stage, &clone, &["agent/x"], "push_bytes", "larger than 1m");
}

#[test]
fn many_pushes_do_not_fill_the_disk() {
    let limits = PushLimits { bytes: ByteSize::bytes(20 << 10), objects: 100 };
    let stage = Stage::with(RefPolicy { limits, ..policy() });
    let clone = working(&stage);
    // Each of them is allowed; together they exceed ten times the limit of one.
    let mut landed = 0;
    while try_push(&clone, &[&format!("HEAD:agent/{landed}")]).status.success() {
        landed += 1;
        assert!(landed < 100, "there is no end");
    }
    assert!(landed > 10, "{landed}");
    clone.commit("work", "more\n", "more");
    refused(&stage, &clone, &["agent/x"], "push_total", "all pushes of this sandbox are larger than 200k");
    // Another sandbox starts from zero.
    let next = stage.landing(belljar_workspace::relay::LANDING);
    clone.git(&["remote", "set-url", "host", &next.url()]);
    push(&clone, &["agent/x"]);
}

#[test]
fn objects_that_are_not_shown_cannot_be_had_by_name() {
    let stage = Stage::of(policy(), |folder| {
        let host = Repository::with_commit(folder);
        // The most permissive config.
        for name in [
            "allowTipSHA1InWant",
            "allowReachableSHA1InWant",
            "allowAnySHA1InWant",
            "allowRefInWant",
            "allowFilter",
        ] {
            host.git(&["config", &format!("uploadpack.{name}"), "true"]);
        }
        host.git(&["config", "uploadpack.hideRefs", "!refs/stash"]);
        host.write("README", "secret\n");
        host.git(&["stash", "-q"]);
        host
    });
    let clone = working(&stage);
    let stash = stage.host.git(&["rev-parse", "refs/stash"]);
    let blob = stage.host.git(&["rev-parse", "refs/stash:README"]);
    for version in ["0", "1", "2"] {
        for object in [&stash, &blob, "refs/stash"] {
            let words = ["-c", &format!("protocol.version={version}"), "fetch", "-q", "host", object];
            assert!(!git(&clone.folder, &words).status.success(), "{version} {object}");
        }
        let words =
            ["-c", &format!("protocol.version={version}"), "clone", "-q", "--no-local", "--filter=blob:none"];
        let folder = stage.place.join(format!("filtered{version}"));
        git(&stage.place, &[&words[..], &[&stage.url(), folder.to_str().unwrap()]].concat());
    }
    assert!(!git(&clone.folder, &["cat-file", "-e", &stash]).status.success());
    // Nor by a push that claims to have it.
    let tree = literal_tree(&clone, &[("100644", "mine", &blob)]);
    let commit = literal_commit(&clone, &tree);
    let list = format!("{commit}\n{tree}\n");
    let pack = packed(&clone, &list);
    let raw =
        relay::raw_push(stage.address, &[("0".repeat(40), commit.clone(), "refs/heads/agent/y")], &pack);
    assert!(raw.contains("ng refs/heads/agent/y bad pack"), "{raw}");
    let raw =
        relay::raw_push(stage.address, &[("0".repeat(40), stash, "refs/heads/agent/y")], &packed(&clone, ""));
    assert!(raw.contains("ng refs/heads/agent/y bad pack"), "{raw}");
    assert!(!stage.refs().contains("agent/y"));
    // Visible objects can be named.
    let shown = stage.host.git(&["rev-parse", "main:README"]);
    let tree = literal_tree(&clone, &[("100644", "mine", &shown)]);
    let commit = literal_commit(&clone, &tree);
    let pack = packed(&clone, &format!("{commit}\n{tree}\n"));
    let raw = relay::raw_push(stage.address, &[("0".repeat(40), commit, "refs/heads/agent/y")], &pack);
    assert!(raw.contains("ok refs/heads/agent/y"), "{raw}");
}

#[test]
fn the_host_runs_nothing_that_its_repository_names() {
    let stage = Stage::of(policy(), |folder| {
        let host = Repository::with_commit(folder);
        let canary = folder.with_extension("canary");
        let script = format!("#!/bin/sh\ntouch {}\nexec \"$@\"\n", canary.display());
        for name in [
            "pre-receive",
            "update",
            "post-receive",
            "post-update",
            "reference-transaction",
            "proc-receive",
            "push-to-checkout",
            "pre-auto-gc",
            "post-index-change",
            "fsmonitor",
            "uploadpack",
        ] {
            hook(&host, name, &script);
        }
        let program = host.git_directory().join("hooks/uploadpack");
        let program = program.to_str().unwrap();
        for key in [
            "uploadpack.packObjectsHook",
            "core.fsmonitor",
            "core.alternateRefsCommand",
            "core.sshCommand",
            "core.pager",
            "gc.recentObjectsHook",
            "receive.procReceiveRefs",
        ] {
            host.git(&["config", key, program]);
        }
        host.git(&["config", "receive.denyCurrentBranch", "updateInstead"]);
        host
    });
    let clone = working(&stage);
    clone.commit("work", "two\n", "work");
    push(&clone, &["agent/x", "agent/x:main"]);
    clone.git(&["fetch", "-q", "host"]);
    assert!(!stage.place.join("host.canary").exists());
    assert!(!stage.host.folder.join("work").exists());
}

fn hook(repository: &Repository, name: &str, script: &str) {
    let path = repository.git_directory().join("hooks").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A tree that git would not write.
fn literal_tree(repository: &Repository, entries: &[(&str, &str, &str)]) -> String {
    let mut tree = Vec::new();
    for (mode, name, id) in entries {
        tree.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        tree.extend((0..20).map(|byte| u8::from_str_radix(&id[2 * byte..2 * byte + 2], 16).unwrap()));
    }
    literal(repository, "tree", &tree)
}

fn literal_commit(repository: &Repository, tree: &str) -> String {
    let text = format!("tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n");
    literal(repository, "commit", text.as_bytes())
}

fn literal(repository: &Repository, kind: &str, content: &[u8]) -> String {
    let file = repository.folder.join(".git/literal");
    fs::write(&file, content).unwrap();
    repository.git(&["hash-object", "-t", kind, "-w", "--literally", file.to_str().unwrap()])
}

/// A pack of exactly these objects.
fn packed(repository: &Repository, list: &str) -> Vec<u8> {
    relay::pack_of(&repository.folder, list)
}

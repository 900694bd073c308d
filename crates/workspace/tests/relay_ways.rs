//! Actions that the relay allows, with ordinary git.

use crate::relay::{self, Stage, policy, push, stderr_text};
use crate::repository::{Repository, git};
use belljar_spec::git::RefPolicy;
use belljar_workspace::inert::Git;
use belljar_workspace::relay::RelayEvent;
use std::path::Path;

#[test]
fn a_clone_has_branches_and_tags_and_nothing_else() {
    let stage = Stage::of(policy(), |folder| {
        let host = Repository::with_commit(folder);
        host.git(&["tag", "-a", "v1", "-m", "one"]);
        host.git(&["branch", "other"]);
        host.write("README", "stashed\n");
        host.git(&["stash", "-q"]);
        host.git(&["notes", "add", "-m", "a note"]);
        host.git(&["update-ref", "refs/belljar/other", "HEAD"]);
        host
    });
    let clone = stage.clone_as("clone");
    let listed = git(&clone.folder, &["ls-remote", "host"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().map(|line| line.split('\t').nth(1).unwrap()).collect::<Vec<_>>();
    assert_eq!(names, ["HEAD", "refs/heads/main", "refs/heads/other", "refs/tags/v1", "refs/tags/v1^{}"]);
    assert_eq!(std::fs::read_to_string(clone.folder.join("README")).unwrap(), "first\n");
    assert_eq!(clone.git(&["branch", "--show-current"]), "main");
}

#[test]
fn what_the_host_commits_is_fetched() {
    let stage = Stage::new();
    let clone = stage.clone_as("clone");
    let commit = stage.host.commit("b", "b\n", "second");
    clone.git(&["fetch", "-q", "host"]);
    assert_eq!(clone.git(&["rev-parse", "host/main"]), commit);
    let events = stage.events.lock().unwrap();
    assert!(events.iter().all(|event| matches!(event, RelayEvent::Fetched { bytes: 1.. })), "{events:?}");
}

#[test]
fn a_new_branch_arrives_and_its_next_commit_too() {
    let stage = Stage::new();
    let before = stage.snapshot();
    let clone = stage.clone_as("clone");
    clone.git(&["checkout", "-q", "-b", "agent/x"]);
    for content in ["one\n", "two\n"] {
        let commit = clone.commit("work", content, "work");
        push(&clone, &["agent/x"]);
        assert_eq!(stage.host.git(&["rev-parse", "refs/heads/agent/x"]), commit);
        assert_eq!(clone.git(&["rev-parse", "host/agent/x"]), commit);
    }
    assert_eq!(stage.host.git(&["reflog", "show", "--format=%gs", "agent/x"]).lines().count(), 2);
    stage.host.git(&["fsck", "--strict", "--connectivity-only"]);
    // Only that ref and its log, and their parent folders.
    let mut after = stage.snapshot();
    after.retain(|path, content| before.get(path) != Some(content));
    let changed =
        after.keys().map(|path| path.strip_prefix(stage.host.git_directory()).unwrap().to_str().unwrap());
    assert_eq!(
        changed.collect::<Vec<_>>(),
        ["logs/refs/heads/agent", "logs/refs/heads/agent/x", "refs/heads/agent", "refs/heads/agent/x"]
    );
    let kept = |path: &&std::path::PathBuf| path.extension().is_some_and(|end| end == "keep");
    assert_eq!(stage.everything().keys().filter(kept).count(), 0);
    stage.assert_swept();
}

#[test]
fn a_checked_out_branch_waits_beside() {
    let stage = Stage::new();
    let clone = stage.clone_as("clone");
    let before = stage.snapshot();
    let base = stage.host.git(&["rev-parse", "main"]);
    let first = clone.commit("work", "one\n", "work");
    let text = push(&clone, &["main"]);
    assert!(
        text.contains(
            "remote: `main` is checked out on the host: your commits wait there at refs/belljar/main"
        ),
        "{text}"
    );
    assert!(text.contains("main -> refs/belljar/main"), "{text}");
    assert_eq!(stage.host.git(&["rev-parse", "main"]), base);
    assert_eq!(stage.host.git(&["rev-parse", "refs/belljar/main"]), first);
    assert_eq!(stage.host.git(&["status", "--porcelain"]), "");
    // The existing files are unchanged.
    let after = stage.snapshot();
    assert!(
        before
            .iter()
            .filter(|(path, _)| !path.ends_with(".git/index"))
            .all(|(path, content)| after.get(path) == Some(content))
    );
    // The same again, and more on top.
    push(&clone, &["main"]);
    let second = clone.commit("work", "two\n", "work");
    push(&clone, &["main"]);
    assert_eq!(stage.host.git(&["rev-parse", "refs/belljar/main"]), second);
    // As the message says.
    let command = text.lines().find_map(|line| line.split("run in that worktree: git ").nth(1)).unwrap();
    stage.host.git(&command.split_whitespace().collect::<Vec<_>>());
    assert_eq!(stage.host.git(&["rev-parse", "main"]), second);
    clone.commit("work", "three\n", "work");
    push(&clone, &["main"]);
}

#[test]
fn what_waits_is_not_lost_to_a_rewrite() {
    let stage = Stage::new();
    let clone = stage.clone_as("clone");
    let first = clone.commit("work", "one\n", "work");
    push(&clone, &["main"]);
    clone.git(&["commit", "-q", "--amend", "-m", "other"]);
    let output = relay::try_push(&clone, &["main"]);
    assert!(!output.status.success());
    assert!(
        stderr_text(&output).contains("earlier commits wait at refs/belljar/main"),
        "{}",
        stderr_text(&output)
    );
    assert_eq!(stage.host.git(&["rev-parse", "refs/belljar/main"]), first);
    // As soon as the host has the commits, in any way, the name is free.
    stage.host.commit("b", "b\n", "the host's");
    stage.host.git(&["merge", "-q", "--no-edit", "refs/belljar/main"]);
    clone.git(&["pull", "-q", "--no-rebase", "--no-edit", "-X", "ours", "host", "main"]);
    push(&clone, &["main"]);
}

#[test]
fn an_empty_repository_gets_its_first_commit() {
    let stage = Stage::of(policy(), Repository::empty);
    let clone = stage.clone_as("clone");
    clone.git(&["checkout", "-q", "-B", "main"]);
    let commit = clone.commit("a", "a\n", "first");
    let text = push(&clone, &["main", "main:agent/x"]);
    assert!(text.contains("git merge --ff-only refs/belljar/main"), "{text}");
    stage.host.git(&["merge", "-q", "--ff-only", "refs/belljar/main"]);
    assert_eq!(stage.host.git(&["rev-parse", "main", "agent/x"]), format!("{commit}\n{commit}"));
    assert_eq!(stage.host.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_bare_repository_takes_its_head() {
    let bare = |folder: &Path| {
        let repository = Repository::with_commit(&folder.with_extension("source"));
        let source = repository.folder.to_str().unwrap();
        repository.git(&["clone", "-q", "--bare", source, folder.to_str().unwrap()]);
        Repository { folder: folder.to_path_buf() }
    };
    let stage = Stage::served(policy(), bare, |host| host.folder.clone());
    let clone = stage.clone_as("clone");
    let commit = clone.commit("a", "a\n", "second");
    push(&clone, &["main"]);
    assert_eq!(stage.host.git(&["rev-parse", "main"]), commit);
}

#[test]
fn a_linked_worktree_means_its_repository() {
    let linked = |folder: &Path| {
        let host = Repository::with_commit(folder);
        host.git(&["worktree", "add", "-q", "-b", "agent/linked", "../linked"]);
        host
    };
    let stage = Stage::served(policy(), linked, |host| host.git_directory().join("worktrees/linked"));
    let clone = stage.clone_as("clone");
    clone.git(&["checkout", "-q", "agent/linked"]);
    let commit = clone.commit("a", "a\n", "second");
    let text = push(&clone, &["agent/linked", "agent/linked:main", "agent/linked:agent/free"]);
    for name in ["refs/belljar/agent/linked", "refs/belljar/main", "refs/heads/agent/free"] {
        assert_eq!(stage.host.git(&["rev-parse", name]), commit, "{text}");
    }
    let linked = Repository { folder: stage.place.join("linked") };
    assert_eq!(linked.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_branch_that_is_being_rebased_is_left_alone() {
    let stage = Stage::new();
    let host = &stage.host;
    host.git(&["checkout", "-q", "-b", "agent/x"]);
    let tip = host.commit("README", "mine\n", "mine");
    let clone = stage.clone_as("clone");
    host.git(&["checkout", "-q", "main"]);
    host.commit("README", "theirs\n", "theirs");
    host.git(&["checkout", "-q", "agent/x"]);
    assert!(!git(&host.folder, &["rebase", "main"]).status.success());
    clone.git(&["checkout", "-q", "agent/x"]);
    clone.commit("a", "a\n", "more");
    push(&clone, &["agent/x"]);
    assert_eq!(host.git(&["rev-parse", "agent/x"]), tip);
}

#[test]
fn a_thousand_branches() {
    let stage = Stage::of(policy(), |folder| {
        let host = Repository::with_commit(folder);
        let head = host.git(&["rev-parse", "HEAD"]);
        let lines = (0..1000).map(|number| format!("{head} refs/heads/agent/{number:04}\n"));
        let packed =
            "# pack-refs with: peeled fully-peeled sorted \n".to_string() + &lines.collect::<String>();
        std::fs::write(host.git_directory().join("packed-refs"), packed).unwrap();
        host
    });
    let clone = stage.clone_as("clone");
    assert_eq!(clone.git(&["branch", "-r"]).lines().count(), 1002);
    let commit = clone.commit("a", "a\n", "second");
    let names = (0..300).map(|number| format!("HEAD:agent/{number:04}")).collect::<Vec<_>>();
    push(&clone, &names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(stage.host.git(&["rev-parse", "agent/0000", "agent/0299"]), format!("{commit}\n{commit}"));
}

#[test]
fn names_of_sha256_work_as_well() {
    let stage = Stage::of(policy(), |folder| {
        std::fs::create_dir_all(folder).unwrap();
        let host = Repository { folder: folder.to_path_buf() };
        host.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
        host.commit("README", "first\n", "first");
        host
    });
    let clone = stage.clone_as("clone");
    let commit = clone.commit("a", "a\n", "second");
    assert_eq!(commit.len(), 64);
    push(&clone, &["HEAD:agent/x"]);
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), commit);
}

#[test]
fn refs_in_a_reftable_work_as_well() {
    let stage = Stage::of(policy(), |folder| {
        std::fs::create_dir_all(folder).unwrap();
        let host = Repository { folder: folder.to_path_buf() };
        // An older git does not support it, and uses files.
        let init = Git::find().unwrap().anywhere().args(["init", "-q", "--ref-format=reftable"]).arg(folder);
        init.run().unwrap();
        host.git(&["init", "-q"]);
        host.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
        host.commit("README", "first\n", "first");
        host
    });
    let clone = stage.clone_as("clone");
    for content in ["one\n", "two\n"] {
        let commit = clone.commit("a", content, "more");
        push(&clone, &["HEAD:agent/x", "main"]);
        assert_eq!(
            stage.host.git(&["rev-parse", "agent/x", "refs/belljar/main"]),
            format!("{commit}\n{commit}")
        );
    }
}

#[test]
fn a_pack_is_copied_from_another_filesystem() {
    use std::os::unix::fs::MetadataExt;
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else { return };
    let stage = Stage::of(policy(), |folder| {
        std::os::unix::fs::symlink(elsewhere.path(), folder.with_file_name("state")).unwrap();
        Repository::with_commit(folder)
    });
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    if device(&stage.place) == device(elsewhere.path()) {
        return;
    }
    let clone = stage.clone_as("clone");
    let commit = clone.commit("a", "a\n", "second");
    push(&clone, &["HEAD:agent/x"]);
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), commit);
    stage.host.git(&["fsck", "--strict"]);
    let names =
        stage.everything().into_keys().filter_map(|path| Some(path.file_name()?.to_str()?.to_string()));
    assert_eq!(names.filter(|name| name.starts_with("tmp_") || name.ends_with(".keep")).count(), 0);
}

#[test]
fn every_version_of_the_protocol() {
    let stage = Stage::new();
    let clone = stage.clone_as("clone");
    for version in ["0", "1", "2"] {
        let commit = clone.commit("a", version, "more");
        clone.git(&["config", "protocol.version", version]);
        push(&clone, &["HEAD:agent/x"]);
        clone.git(&["fetch", "-q", "host"]);
        assert_eq!(clone.git(&["rev-parse", "host/agent/x"]), commit);
    }
}

#[test]
fn a_detached_head_is_no_branch() {
    let stage = Stage::new();
    stage.host.git(&["checkout", "-q", "--detach"]);
    let detached = stage.host.commit("b", "b\n", "on no branch");
    let clone = stage.clone_as("clone");
    assert_eq!(clone.git(&["rev-parse", "HEAD"]), detached);
    push(&clone, &["HEAD:main"]);
    assert_eq!(stage.host.git(&["rev-parse", "main"]), detached);
}

#[test]
fn a_shallow_clone_can_push_what_it_adds() {
    let stage = Stage::new();
    stage.host.commit("b", "b\n", "second");
    stage.host.commit("c", "c\n", "third");
    let folder = stage.place.join("shallow");
    let clone = git(
        &stage.place,
        &["clone", "-q", "-o", "host", "--depth", "1", &stage.url(), folder.to_str().unwrap()],
    );
    assert!(clone.status.success(), "{}", stderr_text(&clone));
    let clone = Repository { folder };
    assert_eq!(clone.git(&["rev-list", "--count", "HEAD"]), "1");
    let commit = clone.commit("d", "d\n", "fourth");
    push(&clone, &["HEAD:agent/x"]);
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), commit);
    assert_eq!(stage.host.git(&["rev-list", "--count", "agent/x"]), "4");
}

#[test]
fn a_shallow_host_takes_what_builds_on_it() {
    let stage = Stage::of(policy(), |folder| {
        let source = Repository::with_commit(&folder.with_extension("source"));
        source.commit("b", "b\n", "second");
        let url = format!("file://{}", source.folder.display());
        source.git(&["clone", "-q", "--depth", "1", &url, folder.to_str().unwrap()]);
        Repository { folder: folder.to_path_buf() }
    });
    let clone = stage.clone_as("clone");
    let commit = clone.commit("c", "c\n", "third");
    push(&clone, &["HEAD:agent/x"]);
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), commit);
}

#[test]
fn a_host_that_borrows_objects_is_whole() {
    let stage = Stage::of(policy(), |folder| {
        let source = Repository::with_commit(&folder.with_extension("source"));
        source.git(&["clone", "-q", "--shared", source.folder.to_str().unwrap(), folder.to_str().unwrap()]);
        // As git itself would not write it, but reads it.
        std::fs::write(folder.join(".git/objects/info/alternates"), "../../../host.source/.git/objects\n")
            .unwrap();
        Repository { folder: folder.to_path_buf() }
    });
    let clone = stage.clone_as("clone");
    let commit = clone.commit("c", "c\n", "second");
    push(&clone, &["HEAD:agent/x"]);
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), commit);
}

#[test]
fn tags_force_and_delete_if_policy_says_so() {
    let stage = Stage::with(RefPolicy { tags: true, force: true, delete: true, ..policy() });
    let clone = stage.clone_as("clone");
    clone.commit("a", "a\n", "second");
    clone.git(&["tag", "-a", "v1", "-m", "one"]);
    push(&clone, &["HEAD:agent/x", "v1"]);
    clone.git(&["commit", "-q", "--amend", "-m", "other"]);
    push(&clone, &["+HEAD:agent/x"]);
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), clone.git(&["rev-parse", "HEAD"]));
    assert_eq!(stage.host.git(&["rev-parse", "v1"]), clone.git(&["rev-parse", "v1"]));
    push(&clone, &["--delete", "agent/x"]);
    assert!(!stage.refs().contains("agent/x"));
    // But never a branch that is in use on the host.
    assert!(!relay::try_push(&clone, &["--delete", "main"]).status.success());
    assert!(stage.refs().contains("refs/heads/main"));
}

#[test]
fn a_dropped_relay_is_gone() {
    let mut stage = Stage::new();
    let clone = stage.clone_as("clone");
    // An idle client does not block it.
    let _silent = std::net::TcpStream::connect(stage.address).unwrap();
    drop(stage.relay.take());
    assert!(!git(&clone.folder, &["ls-remote", "host"]).status.success());
    assert!(std::net::TcpStream::connect(stage.address).is_err());
}

#[test]
fn what_root_adds_belongs_to_the_repositorys_owner() {
    use std::os::unix::fs::MetadataExt;
    let theirs = |folder: &Path| {
        let host = Repository::with_commit(folder);
        let output =
            std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(folder).output().unwrap();
        // Only root can make this happen.
        if output.status.success() {
            std::fs::set_permissions(
                folder.parent().unwrap(),
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            )
            .unwrap();
        }
        host
    };
    let stage = Stage::of(policy(), theirs);
    let owner = std::fs::metadata(&stage.host.folder).unwrap().uid();
    let clone = stage.clone_as("clone");
    clone.commit("a", "a\n", "second");
    push(&clone, &["main", "HEAD:agent/x"]);
    for path in stage.everything().keys() {
        assert_eq!(std::fs::symlink_metadata(path).unwrap().uid(), owner, "{}", path.display());
    }
}

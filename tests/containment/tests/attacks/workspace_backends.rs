//! A workspace is shown as it was decided: changes go where they belong, and what is protected stays as it is, however it
//! is attacked. Judged by the host's own files.

use belljar_engine::Engine;
use belljar_spec::workspace::{LinkedGit, Shielded, View};
use belljar_spec::{BackendChoice, BackendName, ErrorCode, Permission, SandboxSpec, WorkspacePath};
use belljar_sys::rustix::fs::{XattrFlags, setxattr};
use belljar_tests_containment::folders::*;
use belljar_tests_containment::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[test]
fn an_overlay_takes_every_change_and_the_folder_none() {
    // The layer may lie on another filesystem than the folder.
    let places = [std::env::temp_dir(), "/dev/shm".into()];
    for (backend, place) in
        backends().iter().flat_map(|backend| places.iter().map(move |place| (backend, place)))
    {
        let (workspace, shields) = repository();
        if is_root() {
            // Not ours, as the folders of people are not root's.
            for path in everything(workspace.path()).into_keys().chain([PathBuf::new()]) {
                std::os::unix::fs::chown(workspace.path().join(path), Some(4242), Some(4243)).unwrap();
            }
        }
        let (_kept, layer) = layer_in(place);
        let before = everything(workspace.path());
        let shields = [shields, missing()].concat();
        let view = View { layer: Some(layer.clone()), shields, ..View::plain(workspace.path().into()) };
        let jail = viewed(*backend, workspace, view, |_| {}).unwrap();
        let result = jail.sh(
            "cat src/a && echo b > src/b && echo more >> src/a && chmod 700 src && rm -r .git/objects && \
             mkdir new && mv src/b new/ && ln -s a src/link && ls -A && cd .git && ls -A",
        );
        assert_eq!(result.exit_code, Some(0), "{backend}: {}", text(&result.stderr));
        assert!(text(&result.stdout).contains(".husky"), "{backend}");
        let owner = fs::metadata(jail.workspace.path()).unwrap().uid();
        for (path, (_, uid, _)) in everything(&layer.upper) {
            assert_eq!(uid, owner, "{backend}: {path:?}");
        }
        assert_eq!(fs::read_to_string(layer.upper.join("src/a")).unwrap(), "a\nmore\n");
        assert_eq!(fs::read_to_string(layer.upper.join("new/b")).unwrap(), "b\n");
        let mountpoints = [".husky", ".git/commondir", ".git/info"];
        assert!(
            mountpoints.iter().all(|mountpoint| !layer.upper.join(mountpoint).exists()),
            "{backend}: mount points"
        );
        drop(jail.sandbox);
        assert_eq!(everything(jail.workspace.path()), before, "{backend}");
    }
}

/// An overlay copies a file with the capabilities of the process that mounted it, and a file's own are copied with it.
#[test]
fn an_overlay_copies_a_file_that_has_capabilities() {
    if !is_root() || !backends().contains(&BackendName::Native) {
        return;
    }
    let (workspace, shields) = repository();
    let able = workspace.path().join("src/able");
    fs::write(&able, "").unwrap();
    // CAP_NET_RAW, version 2 (linux/capability.h).
    let capabilities = [[1, 0, 0, 2], [0, 0x20, 0, 0], [0; 4], [0; 4], [0; 4]].concat();
    setxattr(&able, c"security.capability", &capabilities, XattrFlags::empty()).unwrap();
    let (_kept, layer) = layer_in(&std::env::temp_dir());
    let view = View { layer: Some(layer), shields, ..View::plain(workspace.path().into()) };
    let jail = viewed(BackendName::Native, workspace, view, |_| {}).unwrap();
    let result = jail.sh("chmod 755 src/able && mv src/able moved");
    assert_eq!(result.exit_code, Some(0), "{}", text(&result.stderr));
}

/// Only what is protected, as it is outside.
fn protected(folder: &Path) -> Vec<(PathBuf, Found)> {
    let names = [".git/config", ".git/hooks", ".git/commondir", ".git/info/attributes", ".husky"];
    let is_one = |path: &Path| names.iter().any(|name| path.starts_with(name));
    everything(folder).into_iter().filter(|(path, _)| is_one(path)).collect()
}

#[test]
fn what_is_protected_in_the_folder_itself_stays_as_it_is() {
    for backend in backends() {
        let (workspace, shields) = repository();
        let before = protected(workspace.path());
        let view = View { shields, ..View::plain(workspace.path().into()) };
        let jail = viewed(*backend, workspace, view, |_| {}).unwrap();
        let worked =
            attack_all(&jail, &["/workspace"], &[".git/config", ".git/hooks", ".git/hooks/pre-push"]);
        assert_eq!(protected(jail.workspace.path()), before, "{backend}: {worked:?}");
        assert_eq!(worked, Vec::<String>::new(), "{backend}");
        let result =
            jail.sh("echo x > .git/HEAD && mkdir .git/refs && rm -r .git/objects && cat .git/config");
        assert_eq!(result.exit_code, Some(0), "{backend}: all else may change: {}", text(&result.stderr));
    }
}

#[test]
fn what_is_protected_below_an_overlay_never_reaches_its_layer() {
    for backend in backends() {
        let (workspace, shields) = repository();
        let (_kept, layer) = layer();
        let before = everything(workspace.path());
        let shields = [shields, missing()].concat();
        let view = View { layer: Some(layer.clone()), shields, ..View::plain(workspace.path().into()) };
        let jail = viewed(*backend, workspace, view, |_| {}).unwrap();
        let paths = [".git/config", ".git/hooks", ".git/commondir", ".git/info/attributes", ".husky"];
        let worked = attack_all(&jail, &["/workspace"], &paths);
        assert_eq!(protected(&layer.upper), [], "{backend}: {worked:?}");
        assert_eq!(everything(jail.workspace.path()), before, "{backend}");
        assert_eq!(worked, Vec::<String>::new(), "{backend}");
        let result = jail.sh("cat .git/commondir .git/info/attributes && cd .husky && ls -A");
        assert_eq!(text(&result.stdout), ".\n", "{backend}");
    }
}

/// The attacks are worth something: without shields they work.
#[test]
fn without_a_shield_the_attacks_work() {
    for backend in backends() {
        let (workspace, _) = repository();
        let view = View::plain(workspace.path().into());
        let jail = viewed(*backend, workspace, view, |_| {}).unwrap();
        let worked = attack_all(&jail, &["/workspace"], &[".git/config", ".husky"]);
        for attack in ["append", "unlink", "replace", "exchange", "hard link out", "by parent"] {
            if attack == "exchange" && !can_exchange(*backend) {
                continue;
            }
            assert!(worked.iter().any(|line| line.starts_with(attack)), "{backend}: {attack}: {worked:?}");
        }
    }
}

/// Shared a second time, or with the folder that it lies in.
#[test]
fn another_way_to_the_folder_is_no_way_around_a_shield() {
    for backend in backends() {
        let place = folder();
        let (template, shields) = repository();
        let workspace = place.path().join("project");
        copy(template.path(), &workspace);
        let before = protected(&workspace);
        for (name, shared) in
            [("itself", workspace.clone()), ("parent", place.path().into()), ("part", workspace.join(".git"))]
        {
            let mut spec = SandboxSpec {
                backend: BackendChoice::Named(*backend),
                workspace: Some(workspace.clone()),
                ..SandboxSpec::default()
            };
            spec.shared.push(share(&shared, Permission::Write));
            let view = View { shields: shields.clone(), ..View::plain(workspace.canonicalize().unwrap()) };
            let sandbox = Engine::new().with_view(view).create_blocking(&spec).unwrap();
            let jail = Jail { sandbox, workspace: folder() };
            let seen = workspace.canonicalize().unwrap();
            let worked = attack_all(
                &jail,
                &["/workspace", seen.to_str().unwrap()],
                &[".git/config", ".git/hooks", ".git/hooks/pre-push"],
            );
            assert_eq!(protected(&workspace), before, "{backend}: {name}: {worked:?}");
            assert!(workspace.join(".git/HEAD").exists(), "{backend}: {name}");
            drop(jail);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}

/// A share inside of an overlay is what it says; what lies on the way to it stays below the layer.
#[test]
fn shares_in_an_overlay_are_what_they_say() {
    for (backend, path) in backends()
        .iter()
        .flat_map(|backend| [WorkspacePath::Standard, WorkspacePath::SameAsHost].map(|path| (*backend, path)))
    {
        let workspace = folder();
        for directory in ["a/keep", "a/out", "a/else"] {
            fs::create_dir_all(workspace.path().join(directory)).unwrap();
        }
        let (_kept, layer) = layer();
        let view = View { layer: Some(layer.clone()), ..View::plain(workspace.path().into()) };
        let jail = viewed(backend, workspace, view, |spec| {
            let workspace = spec.workspace.clone().unwrap();
            spec.workspace_path = path;
            spec.shared.push(share(&workspace.join("a/keep"), Permission::Read));
            spec.shared.push(share(&workspace.join("a/out"), Permission::Write));
        })
        .unwrap();
        let result = jail.sh("touch a/out/x a/else/x a/x; touch a/keep/x; mv a b; true");
        assert_eq!(result.exit_code, Some(0), "{backend}");
        drop(jail.sandbox);
        let outside: Vec<_> = everything(jail.workspace.path()).into_keys().collect();
        let expected = ["a", "a/else", "a/keep", "a/out", "a/out/x"].map(PathBuf::from);
        assert_eq!(outside, expected, "{backend} {path:?}");
        assert!(layer.upper.join("a/else/x").exists() && layer.upper.join("a/x").exists(), "{backend}");
    }
}

#[test]
fn a_share_that_would_undo_an_overlay_or_a_shield_is_refused() {
    let backend = backends()[0];
    let refused = |share_path: &dyn Fn(&Path) -> PathBuf, is_layered: bool| {
        let (workspace, shields) = repository();
        let (_kept, layer) = layer();
        let view = View {
            layer: is_layered.then_some(layer),
            shields: [shields, missing()].concat(),
            ..View::plain(workspace.path().into())
        };
        let shared = share_path(workspace.path());
        let jail =
            viewed(backend, workspace, view, |spec| spec.shared.push(share(&shared, Permission::Write)));
        jail.err().map(|error| error.code)
    };
    assert_eq!(refused(&|folder| folder.to_path_buf(), true), Some(ErrorCode::RequestConflict));
    assert_eq!(refused(&|folder| folder.join(".git"), true), Some(ErrorCode::PathRefused));
    assert_eq!(refused(&|folder| folder.join(".git/hooks"), false), Some(ErrorCode::PathRefused));
}

#[test]
fn a_link_in_the_place_of_something_protected_is_refused() {
    for backend in backends() {
        let (workspace, shields) = repository();
        fs::rename(workspace.path().join(".git"), workspace.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", workspace.path().join(".git")).unwrap();
        let view = View { shields, ..View::plain(workspace.path().into()) };
        let refused = viewed(*backend, workspace, view, |_| {}).err().unwrap();
        assert_eq!(refused.code, ErrorCode::PathRefused, "{backend}: {refused}");
    }
}

fn git(folder: &Path, words: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*", "-C"])
        .arg(folder)
        .args(words);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_string()
}

/// A linked worktree, its repository and its view.
fn linked() -> (TempDir, PathBuf, LinkedGit) {
    let place = folder();
    let (main, tree) = (place.path().join("main"), place.path().join("tree"));
    fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q", "-b", "main"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&main, &["worktree", "add", "-q", "-b", "work", tree.to_str().unwrap()]);
    let shields = vec![
        shield("hooks", Shielded::Existing),
        shield("config", Shielded::Existing),
        // Read-only but for our own.
        shield("worktrees", Shielded::Existing),
        shield("worktrees/tree", Shielded::Anchored),
        shield("worktrees/tree/commondir", Shielded::Existing),
        shield("worktrees/tree/gitdir", Shielded::Existing),
    ];
    let git = LinkedGit { common: main.join(".git"), own: "worktrees/tree".into(), shields };
    (place, tree, git)
}

const COMMIT: &str = "git config --global user.name t && git config --global user.email t@t && \
    git config --global safe.directory '*' && echo x > x && git add x && git commit -qm inside && \
    git rev-parse HEAD && git rev-parse --git-common-dir";

#[test]
fn a_commit_in_a_linked_worktree_arrives_in_its_repository() {
    for (backend, path) in backends()
        .iter()
        .flat_map(|backend| [WorkspacePath::Standard, WorkspacePath::SameAsHost].map(|path| (*backend, path)))
    {
        let (place, tree, linked) = linked();
        let main = place.path().join("main");
        let hooks = everything(&main.join(".git/hooks"));
        let config = fs::read(main.join(".git/config")).unwrap();
        let view = View {
            git: Some(linked),
            shields: vec![shield(".git", Shielded::Existing)],
            ..View::plain(tree.clone())
        };
        let spec = SandboxSpec {
            backend: BackendChoice::Named(backend),
            workspace: Some(tree.clone()),
            workspace_path: path,
            ..SandboxSpec::default()
        };
        let jail =
            Jail { sandbox: Engine::new().with_view(view).create_blocking(&spec).unwrap(), workspace: place };
        let result = jail.sh(COMMIT);
        assert_eq!(result.exit_code, Some(0), "{backend}: {}", text(&result.stderr));
        let printed = text(&result.stdout);
        assert!(printed.contains("/run/belljar/git"), "{backend}: {printed}");
        let seen = jail.sandbox.workspace().to_string();
        let paths = ["hooks", "config", "worktrees/tree/gitdir", "worktrees/tree/commondir"];
        let worked =
            [attack_all(&jail, &["/run/belljar/git"], &paths), attack_all(&jail, &[&seen], &[".git"])];
        drop(jail.sandbox);
        assert_eq!(worked, [Vec::<String>::new(), Vec::new()], "{backend}");
        assert_eq!(git(&main, &["rev-parse", "work"]), printed.lines().next().unwrap(), "{backend}");
        assert_eq!(
            git(&tree, &["log", "-1", "--format=%s"]),
            "inside",
            "{backend}: the host finds it as it was"
        );
        assert_eq!(everything(&main.join(".git/hooks")), hooks, "{backend}");
        assert_eq!(fs::read(main.join(".git/config")).unwrap(), config, "{backend}");
        let owner = fs::metadata(&main).unwrap().uid();
        for (path, (_, uid, _)) in everything(&main) {
            assert_eq!(uid, owner, "{backend}: {path:?}");
        }
    }
}

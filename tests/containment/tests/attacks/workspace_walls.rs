//! A workspace is shown as it was decided: changes go where they belong, and what is protected stays as it is, however it
//! is attacked. Judged by the host's own files.

use belljar_engine::Engine;
use belljar_spec::workspace::{Layer, LinkedGit, Shield, Shielded, View};
use belljar_spec::{BackendChoice, BackendName, Permission, SandboxError, SandboxSpec, WorkspacePath};
use belljar_tests_containment::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn shield(path: &str, what: Shielded) -> Shield {
    Shield { path: path.into(), what }
}

/// A folder with what a repository has, and the shields that belong to it.
fn repository() -> (TempDir, Vec<Shield>) {
    let folder = folder();
    for directory in [".git/hooks", ".git/objects", "src"] {
        fs::create_dir_all(folder.path().join(directory)).unwrap();
    }
    for (file, content) in [
        (".git/config", "[core]\n"),
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/hooks/pre-push", "true\n"),
        ("src/a", "a\n"),
    ] {
        fs::write(folder.path().join(file), content).unwrap();
    }
    let shields = vec![
        shield(".git", Shielded::Anchored),
        shield(".git/hooks", Shielded::Existing),
        shield(".git/config", Shielded::Existing),
    ];
    (folder, shields)
}

/// What is not there, and protected too.
fn missing() -> Vec<Shield> {
    vec![
        shield(".git/commondir", Shielded::MissingFile(".\n")),
        shield(".git/info/attributes", Shielded::MissingFile("")),
        shield(".husky", Shielded::MissingDirectory),
    ]
}

/// A layer for a folder.
fn layer() -> (TempDir, Layer) {
    layer_in(&std::env::temp_dir())
}

fn layer_in(place: &Path) -> (TempDir, Layer) {
    let directory = tempfile::Builder::new().prefix("belljar-containment-").tempdir_in(place).unwrap();
    let layer = Layer { upper: directory.path().join("upper"), work: directory.path().join("work") };
    fs::create_dir(&layer.upper).unwrap();
    fs::create_dir(&layer.work).unwrap();
    (directory, layer)
}

/// A jail whose workspace is seen like this.
fn viewed(
    wall: BackendName,
    workspace: TempDir,
    view: View,
    change: impl FnOnce(&mut SandboxSpec),
) -> Result<Jail, SandboxError> {
    let mut spec = SandboxSpec {
        backend: BackendChoice::Named(wall),
        workspace: Some(workspace.path().to_path_buf()),
        ..SandboxSpec::default()
    };
    change(&mut spec);
    let sandbox = Engine::new().with_view(view).create_blocking(&spec)?;
    Ok(Jail { sandbox, workspace })
}

/// What something is and who may use it, whose it is, and what is in it.
type Found = (u32, u32, Vec<u8>);

/// All that is in a folder. What somebody takes away meanwhile is not.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let Ok(about) = fs::symlink_metadata(entry.path()) else { continue };
            let content =
                if about.is_file() { fs::read(entry.path()).unwrap_or_default() } else { Vec::new() };
            let path = entry.path().strip_prefix(folder).unwrap().to_path_buf();
            found.insert(path, (about.mode(), about.uid(), content));
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn an_overlay_takes_every_change_and_the_folder_none() {
    // The layer may lie on another filesystem than the folder.
    let places = [std::env::temp_dir(), "/dev/shm".into()];
    for (wall, place) in walls().iter().flat_map(|wall| places.iter().map(move |place| (wall, place))) {
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
        let jail = viewed(*wall, workspace, view, |_| {}).unwrap();
        let result = jail.sh(
            "cat src/a && echo b > src/b && echo more >> src/a && chmod 700 src && rm -r .git/objects && \
             mkdir new && mv src/b new/ && ln -s a src/link && ls -A && cd .git && ls -A",
        );
        assert_eq!(result.exit_code, Some(0), "{wall}: {}", text(&result.stderr));
        assert!(text(&result.stdout).contains(".husky"), "{wall}");
        let owner = fs::metadata(jail.workspace.path()).unwrap().uid();
        for (path, (_, uid, _)) in everything(&layer.upper) {
            assert_eq!(uid, owner, "{wall}: {path:?}");
        }
        assert_eq!(fs::read_to_string(layer.upper.join("src/a")).unwrap(), "a\nmore\n");
        assert_eq!(fs::read_to_string(layer.upper.join("new/b")).unwrap(), "b\n");
        let stubs = [".husky", ".git/commondir", ".git/info"];
        assert!(stubs.iter().all(|stub| !layer.upper.join(stub).exists()), "{wall}: stubs");
        drop(jail.sandbox);
        assert_eq!(everything(jail.workspace.path()), before, "{wall}");
    }
}

/// Everything that could change a path, tried on each of them wherever it is seen. What worked is printed.
const ATTACKS: &str = r#"
import shutil
AT_FDCWD, RENAME_EXCHANGE, O_TMPFILE = -100, 2, 0o20200000
def write(path, mode='w'):
    with open(path, mode) as f: f.write('evil')
def through_link(path):
    os.symlink(path, base + '/l'); write(base + '/l/evil' if os.path.isdir(path) else base + '/l')
def hard_link_out(path):
    os.link(path, base + '/h'); write(base + '/h')
def no_name(path):
    fd = os.open(base, O_TMPFILE | os.O_RDWR, 0o644); os.write(fd, b'evil')
    os.link('/proc/self/fd/%d' % fd, path + '/evil', follow_symlinks=True)
def exchange(path):
    write(base + '/x'); syscall(316, AT_FDCWD, ctypes.c_char_p((base + '/x').encode()), AT_FDCWD, ctypes.c_char_p(path.encode()), RENAME_EXCHANGE)
def replace(path):
    write(base + '/y'); os.rename(base + '/y', path)
def replace_by_folder(path):
    os.mkdir(base + '/z'); os.rename(base + '/z', path)
def mapped(path):
    import mmap
    fd = os.open(path, os.O_RDWR); mmap.mmap(fd, 1)[0] = 88
def truncated(path):
    fd = os.open(path, os.O_RDONLY); os.ftruncate(fd, 0)
def again(path):
    fd = os.open(path, os.O_RDONLY); os.open('/proc/self/fd/%d' % fd, os.O_RDWR)
# A kernel may say that it did these. What counts is whether it did.
def resized(path):
    # A size that none of them has.
    os.truncate(path, 3)
    if os.path.getsize(path) != 3: raise OSError()
def opened(path):
    os.chmod(path, 0o777)
    if os.stat(path).st_mode & 0o777 != 0o777: raise OSError()
def aged(path):
    os.utime(path, (1, 1))
    if os.stat(path).st_mtime != 1: raise OSError()
def unmount(path):
    syscall(166, ctypes.c_char_p(path.encode()), 2)
def mount_over(path):
    syscall(165, ctypes.c_char_p(b'none'), ctypes.c_char_p(path.encode()), ctypes.c_char_p(b'tmpfs'), 0, 0)
def remount(path):
    syscall(165, 0, ctypes.c_char_p(path.encode()), 0, 32 | 4096, 0)
def tree(path):
    syscall(428, AT_FDCWD, ctypes.c_char_p(path.encode()), 1)
def seen_from(prefix, path):
    write(prefix + path + ('/evil' if os.path.isdir(path) else ''))
TRIED = {
    'write': write, 'append': lambda p: write(p, 'a'), 'create in': lambda p: write(p + '/evil'),
    'mkdir in': lambda p: os.mkdir(p + '/evil'), 'mkdir': os.mkdir, 'truncate': resized,
    'unlink': os.unlink, 'rmdir': os.rmdir, 'remove tree': shutil.rmtree,
    'rename': lambda p: os.rename(p, base + '/r'), 'replace': replace, 'replace by folder': replace_by_folder,
    'exchange': exchange, 'symlink': lambda p: os.symlink('/tmp', p), 'symlink in': lambda p: os.symlink('/tmp', p + '/evil'),
    'through link': through_link, 'hard link out': hard_link_out, 'hard link in': lambda p: os.link(base + '/src/a', p + '/evil'),
    'no name': no_name, 'chmod': opened, 'times': aged,
    'xattr': lambda p: os.setxattr(p, 'user.evil', b'1'), 'mapped': mapped, 'truncated by descriptor': truncated,
    'opened again': again, 'unmount': unmount, 'mount over': mount_over, 'remount': remount, 'mount tree': tree,
    'by own root': lambda p: seen_from('/proc/self/root', p), 'by root of 1': lambda p: seen_from('/proc/1/root', p),
    'by parent': lambda p: os.rename(os.path.dirname(p), base + '/parent'),
    'exchanged parent': lambda p: (os.makedirs(base + '/q/hooks'), syscall(316, AT_FDCWD, ctypes.c_char_p((base + '/q').encode()), AT_FDCWD, ctypes.c_char_p(os.path.dirname(p).encode()), RENAME_EXCHANGE)),
}
for base in sys.argv[1].split(':'):
    for path in sys.argv[2].split(':'):
        for name, f in TRIED.items():
            if base + '/' + path == base + '/.husky' and 'parent' in name: continue
            attack('%s %s/%s' % (name, base, path), lambda: f(base + '/' + path))
            for rest in 'lhxyzrq':
                try: shutil.rmtree(base + '/' + rest) if os.path.isdir(base + '/' + rest) and not os.path.islink(base + '/' + rest) else os.unlink(base + '/' + rest)
                except OSError: pass
"#;

/// Only what is protected, as it is outside.
fn protected(folder: &Path) -> Vec<(PathBuf, Found)> {
    let names = [".git/config", ".git/hooks", ".git/commondir", ".git/info/attributes", ".husky"];
    let is_one = |path: &Path| names.iter().any(|name| path.starts_with(name));
    everything(folder).into_iter().filter(|(path, _)| is_one(path)).collect()
}

fn attack_all(jail: &Jail, bases: &[&str], paths: &[&str]) -> Vec<String> {
    jail.successes(ATTACKS, &[&bases.join(":"), &paths.join(":")])
}

#[test]
fn what_is_protected_in_the_folder_itself_stays_as_it_is() {
    for wall in walls() {
        let (workspace, shields) = repository();
        let before = protected(workspace.path());
        let view = View { shields, ..View::plain(workspace.path().into()) };
        let jail = viewed(*wall, workspace, view, |_| {}).unwrap();
        let worked =
            attack_all(&jail, &["/workspace"], &[".git/config", ".git/hooks", ".git/hooks/pre-push"]);
        assert_eq!(protected(jail.workspace.path()), before, "{wall}: {worked:?}");
        assert_eq!(worked, Vec::<String>::new(), "{wall}");
        let result =
            jail.sh("echo x > .git/HEAD && mkdir .git/refs && rm -r .git/objects && cat .git/config");
        assert_eq!(result.exit_code, Some(0), "{wall}: all else may change: {}", text(&result.stderr));
    }
}

#[test]
fn what_is_protected_below_an_overlay_never_reaches_its_layer() {
    for wall in walls() {
        let (workspace, shields) = repository();
        let (_kept, layer) = layer();
        let before = everything(workspace.path());
        let shields = [shields, missing()].concat();
        let view = View { layer: Some(layer.clone()), shields, ..View::plain(workspace.path().into()) };
        let jail = viewed(*wall, workspace, view, |_| {}).unwrap();
        let paths = [".git/config", ".git/hooks", ".git/commondir", ".git/info/attributes", ".husky"];
        let worked = attack_all(&jail, &["/workspace"], &paths);
        assert_eq!(protected(&layer.upper), [], "{wall}: {worked:?}");
        assert_eq!(everything(jail.workspace.path()), before, "{wall}");
        assert_eq!(worked, Vec::<String>::new(), "{wall}");
        let result = jail.sh("cat .git/commondir .git/info/attributes && cd .husky && ls -A");
        assert_eq!(text(&result.stdout), ".\n", "{wall}");
    }
}

/// The attacks are worth something: without shields they work.
#[test]
fn without_a_shield_the_attacks_work() {
    for wall in walls() {
        let (workspace, _) = repository();
        let view = View::plain(workspace.path().into());
        let jail = viewed(*wall, workspace, view, |_| {}).unwrap();
        let worked = attack_all(&jail, &["/workspace"], &[".git/config", ".husky"]);
        for attack in ["append", "unlink", "replace", "exchange", "hard link out", "by parent"] {
            if attack == "exchange" && !can_exchange(*wall) {
                continue;
            }
            assert!(worked.iter().any(|line| line.starts_with(attack)), "{wall}: {attack}: {worked:?}");
        }
    }
}

/// Shared a second time, or with the folder that it lies in.
#[test]
fn another_way_to_the_folder_is_no_way_around_a_shield() {
    for wall in walls() {
        let place = folder();
        let (template, shields) = repository();
        let workspace = place.path().join("project");
        copy(template.path(), &workspace);
        let before = protected(&workspace);
        for (name, shared) in
            [("itself", workspace.clone()), ("parent", place.path().into()), ("part", workspace.join(".git"))]
        {
            let mut spec = SandboxSpec {
                backend: BackendChoice::Named(*wall),
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
            assert_eq!(protected(&workspace), before, "{wall}: {name}: {worked:?}");
            assert!(workspace.join(".git/HEAD").exists(), "{wall}: {name}");
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
    for (wall, path) in walls()
        .iter()
        .flat_map(|wall| [WorkspacePath::Standard, WorkspacePath::SameAsHost].map(|path| (*wall, path)))
    {
        let workspace = folder();
        for directory in ["a/keep", "a/out", "a/else"] {
            fs::create_dir_all(workspace.path().join(directory)).unwrap();
        }
        let (_kept, layer) = layer();
        let view = View { layer: Some(layer.clone()), ..View::plain(workspace.path().into()) };
        let jail = viewed(wall, workspace, view, |spec| {
            let workspace = spec.workspace.clone().unwrap();
            spec.workspace_path = path;
            spec.shared.push(share(&workspace.join("a/keep"), Permission::Read));
            spec.shared.push(share(&workspace.join("a/out"), Permission::Write));
        })
        .unwrap();
        let result = jail.sh("touch a/out/x a/else/x a/x; touch a/keep/x; mv a b; true");
        assert_eq!(result.exit_code, Some(0), "{wall}");
        drop(jail.sandbox);
        let outside: Vec<_> = everything(jail.workspace.path()).into_keys().collect();
        let expected = ["a", "a/else", "a/keep", "a/out", "a/out/x"].map(PathBuf::from);
        assert_eq!(outside, expected, "{wall} {path:?}");
        assert!(layer.upper.join("a/else/x").exists() && layer.upper.join("a/x").exists(), "{wall}");
    }
}

#[test]
fn a_share_that_would_undo_an_overlay_or_a_shield_is_refused() {
    let wall = walls()[0];
    let refused = |share_path: &dyn Fn(&Path) -> PathBuf, is_layered: bool| {
        let (workspace, shields) = repository();
        let (_kept, layer) = layer();
        let view = View {
            layer: is_layered.then_some(layer),
            shields: [shields, missing()].concat(),
            ..View::plain(workspace.path().into())
        };
        let shared = share_path(workspace.path());
        let jail = viewed(wall, workspace, view, |spec| spec.shared.push(share(&shared, Permission::Write)));
        jail.err().map(|error| error.code)
    };
    assert_eq!(refused(&|folder| folder.to_path_buf(), true), Some("share_undoes_overlay"));
    assert_eq!(refused(&|folder| folder.join(".git"), true), Some("protected_path_shared"));
    assert_eq!(refused(&|folder| folder.join(".git/hooks"), false), Some("protected_path_shared"));
}

#[test]
fn a_link_in_the_place_of_something_protected_is_refused() {
    for wall in walls() {
        let (workspace, shields) = repository();
        fs::rename(workspace.path().join(".git"), workspace.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", workspace.path().join(".git")).unwrap();
        let view = View { shields, ..View::plain(workspace.path().into()) };
        let refused = viewed(*wall, workspace, view, |_| {}).err().unwrap();
        assert_eq!(refused.code, "protected_path_is_link", "{wall}: {refused}");
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
    for (wall, path) in walls()
        .iter()
        .flat_map(|wall| [WorkspacePath::Standard, WorkspacePath::SameAsHost].map(|path| (*wall, path)))
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
            backend: BackendChoice::Named(wall),
            workspace: Some(tree.clone()),
            workspace_path: path,
            ..SandboxSpec::default()
        };
        let jail =
            Jail { sandbox: Engine::new().with_view(view).create_blocking(&spec).unwrap(), workspace: place };
        let result = jail.sh(COMMIT);
        assert_eq!(result.exit_code, Some(0), "{wall}: {}", text(&result.stderr));
        let said = text(&result.stdout);
        assert!(said.contains("/run/belljar/git"), "{wall}: {said}");
        let seen = jail.sandbox.workspace().to_string();
        let paths = ["hooks", "config", "worktrees/tree/gitdir", "worktrees/tree/commondir"];
        let worked =
            [attack_all(&jail, &["/run/belljar/git"], &paths), attack_all(&jail, &[&seen], &[".git"])];
        drop(jail.sandbox);
        assert_eq!(worked, [Vec::<String>::new(), Vec::new()], "{wall}");
        assert_eq!(git(&main, &["rev-parse", "work"]), said.lines().next().unwrap(), "{wall}");
        assert_eq!(
            git(&tree, &["log", "-1", "--format=%s"]),
            "inside",
            "{wall}: the host finds it as it was"
        );
        assert_eq!(everything(&main.join(".git/hooks")), hooks, "{wall}");
        assert_eq!(fs::read(main.join(".git/config")).unwrap(), config, "{wall}");
        let owner = fs::metadata(&main).unwrap().uid();
        for (path, (_, uid, _)) in everything(&main) {
            assert_eq!(uid, owner, "{wall}: {path:?}");
        }
    }
}

#[test]
fn a_commit_in_the_overlay_of_a_linked_worktree_stays_in_the_layer() {
    for wall in walls() {
        let (place, tree, linked) = linked();
        let main = place.path().join("main");
        let (_kept, layer) = layer();
        let before = (everything(&main), everything(&tree));
        let view = View { git: Some(linked), layer: Some(layer), ..View::plain(tree.clone()) };
        let spec = SandboxSpec {
            backend: BackendChoice::Named(*wall),
            workspace: Some(tree.clone()),
            ..SandboxSpec::default()
        };
        for round in ["first", "again"] {
            let sandbox = Engine::new().with_view(view.clone()).create_blocking(&spec).unwrap();
            let jail = Jail { sandbox, workspace: folder() };
            let result = jail.sh(&format!("date +%N >> y && git add y; {COMMIT}"));
            assert_eq!(result.exit_code, Some(0), "{wall} {round}: {}", text(&result.stderr));
            drop(jail);
            assert_eq!((everything(&main), everything(&tree)), before, "{wall} {round}");
        }
    }
}

/// What is protected, missing or not, in a folder with nothing but the folder itself to hold it.
fn bound(workspace: &Path, shields: &[Shield]) -> View {
    View { shields: [shields, &missing()].concat(), ..View::plain(workspace.into()) }
}

const MISSING: [&str; 3] = [".git/commondir", ".git/info/attributes", ".husky"];

fn is_there(folder: &Path) -> [bool; 3] {
    MISSING.map(|path| folder.join(path).exists())
}

#[test]
fn what_is_protected_and_missing_stays_missing() {
    for wall in walls() {
        let (workspace, shields) = repository();
        let before = everything(workspace.path());
        let view = bound(workspace.path(), &shields);
        let jail = viewed(*wall, workspace, view, |_| {}).unwrap();
        assert_eq!(is_there(jail.workspace.path()), [true; 3], "{wall}");
        let owner = fs::metadata(jail.workspace.path()).unwrap().uid();
        assert_eq!(fs::metadata(jail.outside(".husky")).unwrap().uid(), owner, "{wall}");
        let worked = attack_all(&jail, &["/workspace"], &MISSING);
        assert_eq!(worked, Vec::<String>::new(), "{wall}");
        drop(jail.sandbox);
        assert_eq!(everything(jail.workspace.path()), before, "{wall}");
    }
}

#[test]
fn a_stub_stays_as_long_as_one_sandbox_needs_it() {
    for wall in walls() {
        let (workspace, shields) = repository();
        let before = everything(workspace.path());
        let first = viewed(*wall, folder(), bound(workspace.path(), &shields), |_| {}).unwrap();
        // The next one finds what the first one made, and takes it for what was always there.
        let found: Vec<Shield> = MISSING.iter().map(|path| shield(path, Shielded::Existing)).collect();
        let view =
            View { shields: [shields.clone(), found].concat(), ..View::plain(workspace.path().into()) };
        let second = viewed(*wall, folder(), view, |_| {}).unwrap();
        let third = viewed(*wall, folder(), bound(workspace.path(), &shields), |_| {}).unwrap();
        drop(first);
        drop(third);
        assert_eq!(is_there(workspace.path()), [true; 3], "{wall}");
        let worked = attack_all(&second, &["/workspace"], &MISSING);
        assert_eq!(worked, Vec::<String>::new(), "{wall}");
        drop(second);
        assert_eq!(everything(workspace.path()), before, "{wall}");
    }
}

#[test]
fn a_stub_that_two_folders_know_stays_as_long_as_one_sandbox_needs_it() {
    for wall in walls() {
        for round in 0..40 {
            let (workspace, shields) = repository();
            let before = everything(workspace.path());
            let git = workspace.path().join(".git");
            // The repository, and its git directory as a linked worktree sees it: both find nothing there.
            let of_main = bound(workspace.path(), &shields);
            let of_git = View {
                shields: vec![
                    shield("commondir", Shielded::MissingFile(".\n")),
                    shield("info/attributes", Shielded::MissingFile("")),
                ],
                ..View::plain(git.clone())
            };
            let (first, second) = if round % 2 == 0 { (of_main, of_git) } else { (of_git, of_main) };
            let path = if round % 2 == 0 { "commondir" } else { ".git/commondir" };
            let survivor = std::thread::scope(|scope| {
                let survivor = scope.spawn(|| viewed(*wall, folder(), second, |_| {}).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(round / 2 % 9));
                drop(viewed(*wall, folder(), first, |_| {}).unwrap());
                survivor.join().unwrap()
            });
            survivor.sh(&format!("echo z > {path}; rm -f {path}; echo z > {path}; true"));
            assert_eq!(fs::read_to_string(git.join("commondir")).unwrap(), ".\n", "{wall}, {round}");
            drop(survivor);
            assert_eq!(everything(workspace.path()), before, "{wall}, {round}");
        }
    }
}

#[test]
fn what_somebody_put_into_a_stub_is_kept() {
    for wall in walls() {
        let (workspace, shields) = repository();
        let view = bound(workspace.path(), &shields);
        let jail = viewed(*wall, workspace, view, |_| {}).unwrap();
        fs::write(jail.outside(".husky/pre-commit"), "mine").unwrap();
        fs::write(jail.outside(".git/info/attributes"), "* mine").unwrap();
        drop(jail.sandbox);
        assert_eq!(is_there(jail.workspace.path()), [false, true, true], "{wall}");
        assert_eq!(fs::read_to_string(jail.workspace.path().join(".husky/pre-commit")).unwrap(), "mine");
    }
}

/// A process that makes one sandbox after the other, to be killed.
fn holder(workspace: &Path, state: &Path, wall: BackendName) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        // The folder is no test: a word by which it is found among all processes.
        .args(["--ignored", "--exact", "workspace_walls::hold_a_sandbox_with_stubs"])
        .arg(workspace)
        .env("BELLJAR_HOLD_WORKSPACE", workspace)
        .env("BELLJAR_HOLD_WALL", wall.as_str())
        .env("XDG_STATE_HOME", state)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test: what others start and kill.
#[test]
#[ignore = "started by another test"]
fn hold_a_sandbox_with_stubs() {
    let (Ok(workspace), Ok(wall)) =
        (std::env::var("BELLJAR_HOLD_WORKSPACE"), std::env::var("BELLJAR_HOLD_WALL"))
    else {
        return;
    };
    let (_, shields) = repository();
    let wall = BackendName::ALL.into_iter().find(|name| name.as_str() == wall).unwrap();
    let once = std::env::var("BELLJAR_HOLD_ONCE").is_ok();
    for _ in 0..if once { 1 } else { 1000 } {
        let view = bound(Path::new(&workspace), &shields);
        let jail = viewed(wall, folder(), view, |_| {}).unwrap();
        jail.sh("true");
    }
}

/// The processes that stand by for sandboxes on this folder, or clean up after them: they have the words of who started
/// them, or the folder's name as the kernel knows it.
fn reapers(folder: &Path) -> Vec<u32> {
    let found = fs::metadata(folder).unwrap();
    let cleaning = processes_with(&format!("{:x}-{:x}", found.dev(), found.ino()));
    [processes_with(folder.to_str().unwrap()), cleaning].concat()
}

#[test]
fn killed_at_random_moments_no_stub_is_left() {
    let (workspace, _) = repository();
    let before = everything(workspace.path());
    let state = folder();
    let bytes = canary("seed").into_bytes();
    for round in 0..60 {
        let mut child = holder(workspace.path(), state.path(), walls()[round % walls().len()]);
        let dice = u64::from(bytes[bytes.len() - 1 - round % 30]) * 131 + round as u64 * 977;
        std::thread::sleep(std::time::Duration::from_micros(8000 + dice % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Not at first sight: a process that is just becoming another one has no words for a moment.
    let is_over = || reapers(workspace.path()).is_empty() && everything(workspace.path()) == before;
    assert!(eventually(is_over), "{:?}", reapers(workspace.path()));
    assert_eq!(everything(workspace.path()), before);
    // Who was killed with a note in hand and nobody to stand by yet has written nothing in it, and made nothing. It is the
    // next start that takes it away.
    let notes = || fs::read_dir(state.path().join("belljar/stubs")).into_iter().flatten().flatten();
    let said: Vec<Vec<u8>> = notes().map(|note| fs::read(note.path()).unwrap()).collect();
    assert!(said.iter().all(Vec::is_empty), "{said:?}");
    start_once(repository().0.path(), state.path(), walls()[0]);
    assert_eq!(notes().count(), 0, "notes");
}

/// Starts a sandbox on this folder in a process of its own, and ends it.
fn start_once(workspace: &Path, state: &Path, wall: BackendName) {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "workspace_walls::hold_a_sandbox_with_stubs"])
        .env("BELLJAR_HOLD_WORKSPACE", workspace)
        .env("BELLJAR_HOLD_WALL", wall.as_str())
        .env("BELLJAR_HOLD_ONCE", "1")
        .env("XDG_STATE_HOME", state)
        .status()
        .unwrap();
    assert!(status.success(), "{wall}");
}

#[test]
fn where_the_reaper_is_killed_too_the_next_start_takes_stubs_away() {
    for wall in walls() {
        let (workspace, _) = repository();
        let before = everything(workspace.path());
        let (state, elsewhere) = (folder(), repository().0);
        let mut child = holder(workspace.path(), state.path(), *wall);
        assert!(eventually(|| is_there(workspace.path()) == [true; 3]), "{wall}");
        let stop = |pid: u32| {
            use belljar_sys::rustix::process::{Pid, Signal, kill_process};
            let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
        };
        reapers(workspace.path()).into_iter().filter(|pid| *pid != child.id()).for_each(stop);
        child.kill().unwrap();
        child.wait().unwrap();
        reapers(workspace.path()).into_iter().for_each(stop);
        start_once(elsewhere.path(), state.path(), *wall);
        assert_eq!(everything(workspace.path()), before, "{wall}");
    }
}

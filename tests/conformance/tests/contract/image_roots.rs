//! Roots made of layers, started as sandboxes: no process inside can change the files that belljar puts over them, in this life or
//! the next.

use belljar_engine::Engine;
use belljar_spec::{Admin, ErrorCode, PersistentIdentity, Root, SandboxSpec};
use belljar_tests_conformance::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

for_every_isolated_backend![
    what_agents_are_told_cannot_be_changed_in_a_root_of_layers,
    where_a_repository_is_cannot_be_changed_in_a_root_of_layers,
    an_image_is_a_root_and_its_variables_lie_below_ours,
    variables_that_no_program_could_get_are_refused,
    a_kept_sandbox_has_its_image_for_as_long_as_it_is_the_same_sandbox,
    owners_of_an_image_are_seen_as_they_are,
    links_and_marks_of_several_layers_divert_nothing,
];

/// A state directory, and roots of layers: a directory, and an image of its store.
struct Roots {
    _holder: TempDir,
    state: PathBuf,
    all: [Root; 2],
}

impl Roots {
    fn new() -> Roots {
        let holder = TempDir::new().unwrap();
        let (state, directory) = (holder.path().join("state"), holder.path().join("system"));
        fs::create_dir(&state).unwrap();
        system(&directory);
        import(&state, "test.local/system:1", &[&directory], &[]);
        let (state, directory) = (state.canonicalize().unwrap(), directory.canonicalize().unwrap());
        let image = Root::Image("test.local/system:1".parse().unwrap());
        Roots { _holder: holder, state, all: [Root::Directory(directory), image] }
    }

    fn engine(&self) -> Engine {
        Engine::new().with_state(&self.state).with_records(self.state.join("audit"))
    }
}

/// A sandbox that stays.
fn persistent(spec: &mut SandboxSpec, state: &Path, name: &str) {
    spec.persistent = Some(PersistentIdentity { name: name.into(), key: "a".into() });
    spec.home = Some(state.join("fleet/sandboxes").join(name).join("home"));
}

/// Everything that a process that may write to the root can try on files of ours.
const ATTACK: &str =
    "for file in /run/belljar/* /etc/belljar/*; do echo evil > $file; rm -f $file; echo evil > $file; done
    for name in agent-context.md agent-context.own dot-git gitdir; do
        for directory in /run/belljar /etc/belljar; do echo evil > $directory/$name; done
    done";
/// And to where they are.
const MOVE: &str =
    "mv /run/belljar /run/old; mv /etc/belljar /etc/old; mv /etc /old; mkdir -p /run/belljar /etc/belljar";

async fn what_agents_are_told_cannot_be_changed_in_a_root_of_layers(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let roots = Roots::new();
    let engine = roots.engine();
    for (number, root) in roots.all.iter().enumerate() {
        for (admin, name) in [(Admin::No, "user"), (Admin::Root, "root")] {
            let context = TempDir::new().unwrap();
            let life = || {
                SandboxFixture::made_by(&engine, backend, |spec| {
                    persistent(spec, &roots.state, &format!("bj-{number}-{name}"));
                    (spec.root, spec.admin) = (root.clone(), admin);
                    spec.agent_context = vec![context.path().into()];
                })
            };
            fs::write(context.path().join("a.md"), "FIRST\n").unwrap();
            let first = life().await.unwrap();
            assert!(first.answer("cat AGENTS.md").await.contains("FIRST"));
            first.sh(&format!("{ATTACK}; {MOVE}; {ATTACK}")).await;
            let seen = first.answer("cat AGENTS.md").await;
            assert!(seen.contains("FIRST") && !seen.contains("evil"), "{root} as {name}: {seen}");
            let reported = first.answer("cat /etc/belljar/*").await;
            assert!(!reported.contains("evil"), "{root} as {name}: {reported}");
            drop(first);
            fs::write(context.path().join("a.md"), "SECOND\n").unwrap();
            let second = life().await.unwrap();
            let seen = second.answer("cat AGENTS.md").await;
            assert!(
                seen.contains("SECOND") && !seen.contains("evil") && !seen.contains("FIRST"),
                "{root} as {name}, in the next life: {seen}"
            );
        }
    }
}

async fn where_a_repository_is_cannot_be_changed_in_a_root_of_layers(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let (roots, fixture) = (Roots::new(), TempDir::new().unwrap());
    let folder = fixture.path().join("tree");
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(words);
        let done = git.current_dir(fixture.path().join("repository")).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
    };
    fs::create_dir(fixture.path().join("repository")).unwrap();
    git(&["init", "-q", "-b", "main"]);
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&["worktree", "add", "-q", folder.to_str().unwrap()]);
    as_owner(fixture.path());
    let engine = roots.engine();
    for root in &roots.all {
        for admin in [Admin::No, Admin::Root] {
            let sandbox = SandboxFixture::made_by(&engine, backend, |spec| {
                (spec.root, spec.admin) = (root.clone(), admin);
                spec.workspace = Some(folder.clone());
            });
            let sandbox = sandbox.await.unwrap();
            // An administrator has the host's own git directory, every other sandbox a git directory of its own.
            let (look, begin) = match admin {
                Admin::No => ("cat .git", "gitdir: /run/belljar/git/0"),
                Admin::User | Admin::Root => (
                    "cat .git; cat /run/belljar/git/worktrees/*/gitdir",
                    "gitdir: /run/belljar/git/worktrees/",
                ),
            };
            let before = sandbox.answer(look).await;
            assert!(before.starts_with(begin), "{before}");
            sandbox.sh(ATTACK).await;
            let after = sandbox.answer(look).await;
            assert_eq!(after, before, "{root}");
            sandbox.dispose().await;
        }
    }
}

/// An engine and a state directory of its own, with images of a system and what else is in these layers.
struct Images {
    directory: TempDir,
    engine: Engine,
}

impl Images {
    fn new() -> Images {
        let directory = TempDir::new().unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        system(&directory.path().join("system"));
        let engine = Engine::new().with_state(&state).with_records(state.join("audit"));
        Images { directory, engine }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state").canonicalize().unwrap()
    }

    /// A layer that this makes, over the system.
    fn layer(&self, name: &str, make: impl FnOnce(&Path)) -> PathBuf {
        let layer = self.directory.path().join(name);
        fs::create_dir(&layer).unwrap();
        make(&layer);
        layer
    }

    fn import(&self, layers: &[&Path], variables: &[&str]) {
        let system = self.directory.path().join("system");
        let all: Vec<&Path> = [&*system].into_iter().chain(layers.iter().copied()).collect();
        import(&self.state(), IMAGE, &all, variables);
    }

    async fn start(&self, backend: BackendName, change: impl FnOnce(&mut SandboxSpec)) -> SandboxFixture {
        let fixture = SandboxFixture::made_by(&self.engine, backend, |spec| {
            spec.root = Root::Image(IMAGE.parse().unwrap());
            change(spec);
        });
        fixture.await.unwrap_or_else(|error| panic!("{error} ({})", error.code))
    }
}

const IMAGE: &str = "test.local/image:1";

async fn an_image_is_a_root_and_its_variables_lie_below_ours(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let images = Images::new();
    let git = images.layer("git", |layer| {
        fs::create_dir_all(layer.join("opt/bin")).unwrap();
        fs::write(layer.join("opt/bin/git"), "#!/bin/sh\necho git\n").unwrap();
    });
    let variables = [
        "FROM_IMAGE=yes",
        "ASKED=image",
        "PATH=/opt/bin:/bin",
        "HOME=/evil",
        "USER=evil",
        "BELLJAR=0",
        "GIT_CONFIG_SYSTEM=/evil",
        "SSL_CERT_FILE=/evil",
    ];
    images.import(&[&git], &variables);
    let world = World::new([("good.test", "127.0.0.1")]);
    let fixture = images
        .start(backend, |spec| {
            spec.env.push(("ASKED".parse().unwrap(), "caller".into()));
            // An authority of the sandbox's own, which variables name.
            spec.egress = Some(world.inspecting("=good.test:443/tls", &["GET"], &["/"]));
        })
        .await;
    let printed = fixture.answer("env").await;
    let of = |name: &str| {
        let lines = printed.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        lines.map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of("FROM_IMAGE"), ["yes"]);
    assert_eq!(of("ASKED"), ["caller"]);
    assert_eq!(
        (of("HOME"), of("USER"), of("BELLJAR")),
        (vec!["/home/agent".into()], vec!["agent".into()], vec!["1".into()])
    );
    assert!(of("PATH")[0].contains("/opt/bin:/bin"), "{printed}");
    assert_eq!(of("GIT_CONFIG_SYSTEM"), ["/etc/belljar/gitconfig"]);
    assert!(!printed.contains("/evil"), "{printed}");
}

async fn variables_that_no_program_could_get_are_refused(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let images = Images::new();
    let long: Vec<String> = (0..20).map(|number| format!("LONG{number}={}", "x".repeat(100_000))).collect();
    images.import(&[], &long.iter().map(String::as_str).collect::<Vec<_>>());
    let fixture = images.start(backend, |_| {}).await;
    let error = fixture.exec(&sh("true")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::RequestValue);
}

async fn a_kept_sandbox_has_its_image_for_as_long_as_it_is_the_same_sandbox(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let images = Images::new();
    let version = |name: &str| {
        let layer = images.layer(name, |layer| fs::write(layer.join("version"), name).unwrap());
        images.import(&[&layer], &[&format!("VERSION={name}")]);
    };
    let state = images.state();
    let life = || images.start(backend, |spec| persistent(spec, &state, "bj-a"));
    version("old");
    let first = life().await;
    assert_eq!(first.answer("cat /version; echo; echo $VERSION").await, "old\nold");
    drop(first);
    version("new");
    let second = life().await;
    assert_eq!(
        second.answer("cat /version; echo; echo $VERSION").await,
        "old\nold",
        "it was made on the old one"
    );
    drop(second);
    belljar_sys::remove_tree::remove(&state.join("fleet/sandboxes/bj-a")).unwrap();
    let third = life().await;
    assert_eq!(
        third.answer("cat /version; echo; echo $VERSION").await,
        "new\nnew",
        "another one of the same name"
    );
}

async fn owners_of_an_image_are_seen_as_they_are(backend: BackendName) {
    // Otherwise there is one user to give.
    if backend != BackendName::Native || !is_root() {
        return;
    }
    let images = Images::new();
    let layer = images.layer("owned", |layer| {
        fs::create_dir(layer.join("srv")).unwrap();
        fs::write(layer.join("srv/web"), "x").unwrap();
        std::os::unix::fs::chown(layer.join("srv/web"), Some(33), Some(34)).unwrap();
        fs::write(layer.join("srv/high"), "x").unwrap();
        std::os::unix::fs::chown(layer.join("srv/high"), Some(100_000), Some(100_000)).unwrap();
    });
    let packed = |directory: &Path| {
        let words = ["--numeric-owner", "-cf", "-", "-C"];
        let done = Command::new("tar").args(words).arg(directory).arg(".").output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        done.stdout
    };
    let layers = [packed(&images.directory.path().join("system")), packed(&layer)];
    import_archives(&images.state(), IMAGE, &layers, &[]);
    let fixture = images.start(backend, |_| {}).await;
    assert_eq!(
        fixture.answer("stat -c %u:%g /srv/web /srv/high /bin/busybox").await,
        "33:34\n65534:65534\n0:0"
    );
    let result = fixture.sh("echo x > /srv/web || chown 1000 /srv/web").await;
    assert_ne!(result.exit_code, Some(0), "they mean something");
}

async fn links_and_marks_of_several_layers_divert_nothing(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let images = Images::new();
    let below = images.layer("below", |layer| {
        for directory in ["elsewhere", "var", "data/gone"] {
            fs::create_dir_all(layer.join(directory)).unwrap();
        }
        fs::write(layer.join("data/gone/file"), "x").unwrap();
        fs::write(layer.join("data/stays"), "below").unwrap();
        symlink("elsewhere", layer.join("home")).unwrap();
        symlink("../../../../elsewhere/hosts", layer.join("elsewhere/up")).unwrap();
    });
    let above = images.layer("above", |layer| {
        for directory in ["etc", "data"] {
            fs::create_dir_all(layer.join(directory)).unwrap();
        }
        fs::write(layer.join("data/.wh.gone"), "").unwrap();
        // Where belljar puts mounts and files.
        symlink("/elsewhere", layer.join("workspace")).unwrap();
        symlink("/elsewhere", layer.join("tmp")).unwrap();
        symlink("../elsewhere/resolv", layer.join("etc/resolv.conf")).unwrap();
        symlink("/elsewhere/passwd", layer.join("etc/passwd")).unwrap();
        symlink("/elsewhere/marker", layer.join(".belljar")).unwrap();
    });
    images.import(&[&below, &above], &[]);
    let before = everything(&images.state().join("images/layers"));
    let fixture = images.start(backend, |_| {}).await;
    assert_eq!(
        fixture.answer("echo made > /workspace/x; echo made > /tmp/x; cat /workspace/x").await,
        "made"
    );
    assert!(fixture.host("x").exists(), "the workspace is the workspace");
    assert_eq!(
        fixture
            .answer("id -un; cat /data/stays; ls /data; echo x > /home/agent/y && cat /home/agent/y")
            .await,
        "agent\nbelowstays\nx"
    );
    assert_eq!(
        fixture.answer("ls /elsewhere | cat").await.replace("agent\n", ""),
        "up",
        "nothing was put where links lead"
    );
    for held in ["/etc/resolv.conf", "/.belljar", "/etc/belljar/network.txt"] {
        assert_ne!(fixture.sh(&format!("echo x > {held}")).await.exit_code, Some(0), "{held}");
    }
    drop(fixture);
    let after = everything(&images.state().join("images/layers"));
    assert_eq!(after, before, "what many share is changed by none");
}

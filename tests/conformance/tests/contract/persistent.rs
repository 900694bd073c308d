//! What outlives a sandbox, and how it is told what it is: volumes, homes, layers and clones of kept sandboxes; the marker; and the
//! one whose machine it is.

use belljar_engine::{Changes, Engine, Sandbox};
use belljar_spec::workspace::{CloneSpec, WorkspaceMode};
use belljar_spec::{Admin, BackendName, ErrorCode, PersistentIdentity, SandboxError, SandboxSpec, Volume};
use belljar_tests_conformance::*;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

for_every_backend! {
    everywhere:
        a_volume_outlives_its_sandbox_and_is_shared,
        the_marker_says_which_sandbox_this_is,
        an_administrator_can_be_root_inside,
        a_layer_continues_in_the_next_life,
        a_clone_continues_in_the_next_life;
    each_launcher:
        a_home_that_is_kept_is_there_in_the_next_life,
        a_volume_can_lie_in_a_home_that_is_kept,
        a_workspace_of_its_own_is_kept,
        an_administrator_has_no_marker_and_no_protected_paths;
}

/// A state directory, and an engine that keeps everything there.
struct State {
    directory: TempDir,
    engine: Engine,
}

impl State {
    fn new() -> State {
        let directory = TempDir::new().unwrap();
        let engine = Engine::new().with_state(directory.path()).with_records(directory.path().join("audit"));
        State { directory, engine }
    }

    fn at(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    fn volume(&self, name: &str, target: &str) -> Volume {
        Volume { source: self.at("fleet/volumes").join(name), target: target.parse().unwrap() }
    }

    fn home(&self) -> Option<PathBuf> {
        Some(self.at("fleet/sandboxes/bj-a/home"))
    }

    async fn fixture(&self, backend: BackendName, change: impl FnOnce(&mut SandboxSpec)) -> SandboxFixture {
        SandboxFixture::made_by(&self.engine, backend, change)
            .await
            .unwrap_or_else(|error| panic!("no sandbox: {error}"))
    }

    async fn sandbox(&self, spec: SandboxSpec) -> Result<Sandbox, SandboxError> {
        self.engine.create(spec).await
    }
}

fn persistent() -> Option<PersistentIdentity> {
    Some(PersistentIdentity { name: "bj-a".into(), key: "a".into() })
}

async fn run(sandbox: &Sandbox, script: &str) -> String {
    let result = sandbox.exec(&sh(script)).await.unwrap();
    assert_eq!(result.exit_code, Some(0), "{script}: {}", text(&result.stderr));
    text(&result.stdout).trim_end().to_string()
}

async fn ended(sandbox: &Sandbox) -> Changes {
    sandbox.dispose().await;
    sandbox.changes().unwrap().unwrap()
}

async fn a_volume_outlives_its_sandbox_and_is_shared(backend: BackendName) {
    let state = State::new();
    let volumes = vec![state.volume("cache", "/volumes/deep/cache"), state.volume("b", "/data")];
    if !is_isolated(backend) {
        let refused = SandboxFixture::made_by(&state.engine, backend, |spec| spec.volumes = volumes).await;
        assert_eq!(refused.err().unwrap().code, ErrorCode::NotSupported);
        return;
    }
    let first = state.fixture(backend, |spec| spec.volumes = volumes.clone()).await;
    first.answer("mkdir /volumes/deep/cache/d && echo kept > /volumes/deep/cache/d/f && touch /data/x").await;
    let second = state.fixture(backend, |spec| spec.volumes = volumes).await;
    assert_eq!(second.answer("cat /volumes/deep/cache/d/f; cd /data && ls").await, "kept\nx");
    // Both see one directory, and who owns it on the host owns what is in it.
    second.answer("echo more >> /volumes/deep/cache/d/f").await;
    assert_eq!(first.answer("cat /volumes/deep/cache/d/f").await, "kept\nmore");
    assert_eq!(fs::read_to_string(state.at("fleet/volumes/cache/d/f")).unwrap(), "kept\nmore\n");
    assert_eq!(first.sh("touch /volumes/x").await.exit_code, Some(1));
}

async fn a_home_that_is_kept_is_there_in_the_next_life(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let state = State::new();
    let first = state.fixture(backend, |spec| spec.home = state.home()).await;
    assert_eq!(first.answer("cd && ls -A && echo $HOME").await, ".bashrc\n.zshrc\n/home/agent");
    first.answer("echo x > ~/.history && mkdir -p ~/.config/tool").await;
    drop(first);
    let second = state.fixture(backend, |spec| spec.home = state.home()).await;
    assert_eq!(second.answer("cat ~/.history; cd && ls -A").await, "x\n.bashrc\n.config\n.history\n.zshrc");
}

async fn a_volume_can_lie_in_a_home_that_is_kept(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let state = State::new();
    let with = |home: Option<PathBuf>| {
        let volume = state.volume("npm", "/home/agent/.cache/npm");
        move |spec: &mut SandboxSpec| (spec.home, spec.volumes) = (home, vec![volume])
    };
    state.fixture(backend, with(state.home())).await.answer("echo x > ~/.cache/npm/f").await;
    assert_eq!(fs::read_to_string(state.at("fleet/volumes/npm/f")).unwrap(), "x\n");
    assert_eq!(state.fixture(backend, with(None)).await.answer("cat ~/.cache/npm/f").await, "x");
}

async fn a_workspace_of_its_own_is_kept(backend: BackendName) {
    let state = State::new();
    let folder = state.at("fleet/sandboxes/bj-a/workspace");
    let own = || SandboxSpec { mode: WorkspaceMode::Own(folder.clone()), ..spec(backend) };
    let first = state.sandbox(own()).await.unwrap();
    run(&first, "echo x > f; mkdir d").await;
    first.dispose().await;
    let second = state.sandbox(own()).await.unwrap();
    assert_eq!(run(&second, "cat f; ls").await, "x\nd\nf");
    second.dispose().await;
    let elsewhere = WorkspaceMode::Own(state.at("vault"));
    let refused = state.sandbox(SandboxSpec { mode: elsewhere, ..spec(backend) }).await;
    assert_eq!(refused.err().unwrap().code, ErrorCode::PathRefused);
}

async fn the_marker_says_which_sandbox_this_is(backend: BackendName) {
    let state = State::new();
    let fixture = state.fixture(backend, |spec| spec.persistent = persistent()).await;
    if !is_isolated(backend) {
        assert_eq!(fixture.sh("test -e /.belljar").await.exit_code, Some(1));
        return;
    }
    let marker: serde_json::Value = serde_json::from_str(&fixture.answer("cat /.belljar").await).unwrap();
    assert_eq!(marker["sandbox"], fixture.id().to_string());
    assert_eq!(marker["backend"], backend.to_string());
    assert_eq!((&marker["name"], &marker["key"]), (&"bj-a".into(), &"a".into()));
    // A backend may accept a change of mode without effect: what counts is whether it opens anything.
    let opened = "chmod 777 /.belljar; echo x > /.belljar";
    for attack in ["echo x > /.belljar", "rm -f /.belljar", "mv /.belljar /tmp/x", opened] {
        assert_ne!(fixture.sh(attack).await.exit_code, Some(0), "{attack}");
    }
    let plain: serde_json::Value =
        serde_json::from_str(&SandboxFixture::new(backend).await.answer("cat /.belljar").await).unwrap();
    assert!(plain.get("name").is_none() && plain.get("key").is_none(), "{plain}");
}

async fn an_administrator_has_no_marker_and_no_protected_paths(backend: BackendName) {
    let state = State::new();
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join(".git/hooks")).unwrap();
    let with = |admin| SandboxSpec {
        workspace: Some(folder.path().into()),
        protected: vec!["Makefile".parse().unwrap()],
        admin,
        ..spec(backend)
    };
    let write = "echo x > .git/hooks/post-commit && echo x > Makefile && rm .git/hooks/post-commit Makefile";
    let admin = state.sandbox(with(Admin::User)).await.unwrap();
    run(&admin, write).await;
    run(&admin, "test ! -e /.belljar").await;
    let recorded = fs::read_to_string(state.at(&format!("audit/{}.jsonl", admin.id()))).unwrap();
    assert!(recorded.contains("an administrator"), "{recorded}");
    admin.dispose().await;
    if is_isolated(backend) {
        let agent = state.sandbox(with(Admin::No)).await.unwrap();
        assert_ne!(agent.exec(&sh(write)).await.unwrap().exit_code, Some(0));
    }
}

async fn an_administrator_can_be_root_inside(backend: BackendName) {
    let state = State::new();
    if !is_isolated(backend) {
        let refused = SandboxFixture::made_by(&state.engine, backend, |spec| spec.admin = Admin::Root).await;
        assert_eq!(refused.err().unwrap().code, ErrorCode::NotSupported);
        return;
    }
    if matches!(backend, BackendName::Docker(_)) {
        let refused = SandboxFixture::made_by(&state.engine, backend, |spec| spec.admin = Admin::Root).await;
        assert_eq!(refused.err().unwrap().code, ErrorCode::NotSupported);
        return;
    }
    let volume = state.volume("v", "/volumes/v");
    let fixture = state
        .fixture(backend, |spec| {
            (spec.admin, spec.volumes, spec.home) = (Admin::Root, vec![volume], state.home());
        })
        .await;
    assert_eq!(fixture.answer("id -u; id -g; whoami; echo $USER").await, "0\n0\nroot\nroot");
    fixture.answer("echo x > w && echo x > /volumes/v/f && echo x > ~/h && echo x > /tmp/t").await;
    assert_eq!(fixture.answer("stat -c %u w /volumes/v/f ~/h /tmp/t").await, "0\n0\n0\n0");
    // On the host their owner is that of the directories, and not root.
    for (file, directory) in [
        (fixture.host("w"), fixture.on_host().to_path_buf()),
        (state.at("fleet/volumes/v/f"), state.at("fleet/volumes/v")),
    ] {
        use std::os::unix::fs::MetadataExt;
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        assert_eq!(owner(&file), owner(&directory), "{}", file.display());
    }
    for attack in [
        "mount -t tmpfs none /mnt",
        "echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start",
        "echo x > /usr/x",
        "chown 1000 w",
        "mknod /tmp/n c 1 3",
    ] {
        assert_ne!(fixture.sh(attack).await.exit_code, Some(0), "{attack}");
    }
}

async fn a_layer_continues_in_the_next_life(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    for admin in [Admin::No, Admin::Root] {
        // A container refuses it by name.
        if admin == Admin::Root && matches!(backend, BackendName::Docker(_)) {
            continue;
        }
        let state = State::new();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("old"), "old\n").unwrap();
        let life = || SandboxSpec {
            workspace: Some(folder.path().into()),
            mode: WorkspaceMode::Overlay { layer: None },
            persistent: persistent(),
            admin,
            ..spec(backend)
        };
        let first = state.sandbox(life()).await.unwrap();
        run(&first, "echo new > new; rm old").await;
        assert!(state.sandbox(life()).await.is_err(), "one life at a time");
        let Changes::Layer { id, .. } = ended(&first).await else { panic!("no layer") };
        let second = state.sandbox(life()).await.unwrap();
        assert_eq!(run(&second, "ls").await, "new");
        run(&second, "echo more > more").await;
        let Changes::Layer { id: again, summary, .. } = ended(&second).await else { panic!("no layer") };
        assert_eq!((again, summary.added, summary.deleted), (id, 2, 1));
        assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "old\n");
        state.engine.forget("bj-a").unwrap();
        let third = state.sandbox(life()).await.unwrap();
        assert_eq!(run(&third, "ls").await, "old");
        third.dispose().await;
        state.engine.forget("bj-a").unwrap();
    }
}

async fn a_clone_continues_in_the_next_life(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let state = State::new();
    let origin = TempDir::new().unwrap();
    let git = |script: &str| {
        let out = std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(origin.path())
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
    };
    git("git init -q -b main && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first");
    let life = |url: &Path| SandboxSpec {
        mode: WorkspaceMode::Clone(CloneSpec { url: url.display().to_string(), branch: None, depth: None }),
        persistent: persistent(),
        ..spec(backend)
    };
    let first = state.sandbox(life(origin.path())).await.unwrap();
    assert_eq!(first.warning(), None);
    run(
        &first,
        "echo x > f; git add f; git -c user.name=a -c user.email=a@b commit -q -m second; echo y > g",
    )
    .await;
    first.dispose().await;
    let second = state.sandbox(life(origin.path())).await.unwrap();
    assert_eq!(run(&second, "git log --format=%s; cat f g").await, "second\nfirst\nx\ny");
    second.dispose().await;
    let other = TempDir::new().unwrap();
    assert!(state.sandbox(life(other.path())).await.is_err());
    state.engine.forget("bj-a").unwrap();
    let third = state.sandbox(life(origin.path())).await.unwrap();
    assert_eq!(run(&third, "git log --format=%s").await, "first");
}

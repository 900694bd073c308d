//! Roots that bring their own system: directories, images' layers, the golden root. What they are made of never changes, and what
//! is changed goes, or stays where the sandbox is kept.
//!
//! The systems in here are made of busybox. The mirror of Alpine is a server of the test's own, and its `apk` a script of a few
//! lines that really fetches packages from there, through the sandbox's egress, and unpacks them: no Alpine is available without
//! the internet, so what the real apk makes of a sandbox is not tried here.

use belljar_engine::{BuildOptions, BuildProgress, Engine, Golden};
use belljar_spec::{
    Admin, BackendName, ErrorCode, GoldenTier, PersistentIdentity, Root, SandboxError, SandboxSpec,
};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{HttpServer, Response};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use tempfile::TempDir;

for_every_backend![
    a_directory_is_a_root_that_stays_as_it_is,
    what_is_no_root_is_refused,
    links_of_a_root_lead_nowhere_else,
    files_of_a_root_count_as_disk,
    what_root_changes_is_there_in_the_next_life,
    a_golden_root_is_built_from_its_mirror_alone,
];

/// A program of the host, with the libraries that it needs: busybox without libraries of its own cannot ask for names.
fn furnish(root: &Path, program: &str) {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let libraries = text(&output.stdout);
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/')).chain([program]);
    for path in paths {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
}

async fn a_directory_is_a_root_that_stays_as_it_is(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let directory = TempDir::new().unwrap();
    system(directory.path());
    let before = everything(directory.path());
    let root = || Root::Directory(directory.path().into());
    let fixture = SandboxFixture::with(backend, |spec| spec.root = root()).await;
    assert_eq!(
        fixture.answer("id -un; cat /etc/alpine-release; echo $SHELL $HOME").await,
        "agent\n3.24.9\n/bin/sh /home/agent"
    );
    assert_eq!(fixture.answer("echo made > /workspace/x; cat /workspace/x").await, "made");
    assert_eq!(fs::read_to_string(fixture.host("x")).unwrap(), "made\n");
    assert_eq!(
        fixture.answer("test -e /usr/lib && echo the host || echo nothing").await,
        "nothing",
        "nothing of the host"
    );
    // A process that may write to the root writes to a layer.
    fixture
        .sh("echo x > /etc/new; rm -rf /usr /bin/stat /etc/alpine-release; echo x > /bin/busybox; touch /new")
        .await;
    for held in ["/etc/belljar/network.txt", "/etc/resolv.conf", "/.belljar"] {
        let result = fixture.sh(&format!("echo x > {held}")).await;
        assert_ne!(result.exit_code, Some(0), "{held} can be changed");
    }
    drop(fixture);
    assert_eq!(everything(directory.path()), before);
    let again = SandboxFixture::with(backend, |spec| spec.root = root()).await;
    assert_eq!(again.answer("test -e /etc/new && echo there || echo gone").await, "gone");
}

async fn what_is_no_root_is_refused(backend: BackendName) {
    let code = |error: Option<SandboxError>| error.map(|error| error.code);
    let empty = TempDir::new().unwrap();
    let try_root = |root: Root| SandboxFixture::try_with(backend, |spec| spec.root = root);
    if !is_isolated(backend) {
        assert_eq!(
            code(try_root(Root::Directory(empty.path().into())).await.err()),
            Some(ErrorCode::NotSupported)
        );
        return;
    }
    if !has_roots(backend) {
        return;
    }
    for (path, refusal) in [
        ("/", ErrorCode::PathRefused),
        ("/home", ErrorCode::PathRefused),
        ("/proc", ErrorCode::PathRefused),
        ("/run", ErrorCode::PathRefused),
        ("/no/such/root", ErrorCode::PathInvalid),
        (empty.path().to_str().unwrap(), ErrorCode::ImageRefused),
    ] {
        assert_eq!(code(try_root(Root::Directory(path.into())).await.err()), Some(refusal), "{path}");
    }
    // Belljar's own state, by a link too.
    let records = TempDir::new().unwrap();
    system(&records.path().join("system"));
    let link = empty.path().join("link");
    symlink(records.path(), &link).unwrap();
    let engine = Engine::new().with_records(records.path().join("audit"));
    fs::create_dir(records.path().join("bin")).unwrap();
    let made =
        SandboxFixture::made_by(&engine, backend, |spec| spec.root = Root::Directory(link.clone())).await;
    assert_eq!(code(made.err()), Some(ErrorCode::PathRefused));
}

async fn links_of_a_root_lead_nowhere_else(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let (directory, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    system(directory.path());
    // Where belljar puts files and mounts.
    let secret = outside.path().join("secret");
    fs::write(&secret, "the host's own").unwrap();
    fs::remove_file(directory.path().join("etc/passwd")).unwrap();
    symlink(&secret, directory.path().join("etc/passwd")).unwrap();
    symlink(&secret, directory.path().join("etc/hosts")).unwrap();
    symlink(outside.path(), directory.path().join("workspace")).unwrap();
    symlink(outside.path(), directory.path().join("home")).unwrap();
    symlink("../../../../../../../etc/shadow", directory.path().join("etc/group.d")).unwrap();
    let before = everything(outside.path());
    let fixture =
        SandboxFixture::with(backend, |spec| spec.root = Root::Directory(directory.path().into())).await;
    let seen = fixture
        .answer("cat /etc/passwd /etc/hosts /etc/group; ls /home; cat /etc/group.d 2>&1 || true")
        .await;
    assert!(!seen.contains("host's own") && seen.contains("agent:x:1000"), "{seen}");
    fixture.sh("echo x > /etc/hosts; echo x > /workspace/y").await;
    assert_eq!(everything(outside.path()), before);
    assert!(fixture.host("y").exists(), "the workspace is the workspace");
}

async fn files_of_a_root_count_as_disk(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let directory = TempDir::new().unwrap();
    system(directory.path());
    let fixture = SandboxFixture::with(backend, |spec| {
        spec.root = Root::Directory(directory.path().into());
        spec.admin = Admin::Root;
        spec.limits.disk = Some("16m".parse().unwrap());
    })
    .await;
    let result = fixture.sh("dd if=/dev/zero of=/filler bs=1M count=64; ls -l /filler").await;
    assert!(text(&result.stderr).contains("No space left"), "{}", text(&result.stderr));
}

/// A kept sandbox of a state directory.
fn persistent(spec: &mut SandboxSpec, state: &Path, root: &Path) {
    spec.root = Root::Directory(root.into());
    spec.admin = Admin::Root;
    spec.persistent = Some(PersistentIdentity { name: "bj-a".into(), key: "a".into() });
    spec.home = Some(state.join("fleet/sandboxes/bj-a/home"));
}

async fn what_root_changes_is_there_in_the_next_life(backend: BackendName) {
    if !has_roots(backend) {
        return;
    }
    let (state, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (state, root) = (state.path().canonicalize().unwrap(), directory.path().canonicalize().unwrap());
    system(&root);
    let before = everything(&root);
    let engine = Engine::new().with_state(&state).with_records(state.join("audit"));
    let life = || SandboxFixture::made_by(&engine, backend, |spec| persistent(spec, &state, &root));
    let first = life().await.unwrap();
    first.answer("id -u; echo one > /etc/installed; rm /etc/alpine-release; rm -r /usr; mkdir /usr; touch /usr/new").await;
    if backend == BackendName::Native && is_root() {
        // With all ids, root of a root of its own can give files away, as package managers do.
        assert_eq!(first.answer("chown 33:33 /usr/new && stat -c %u:%g /usr/new").await, "33:33");
    }
    let second = life().await;
    assert_eq!(second.err().map(|error| error.code), Some(ErrorCode::InUse), "two cannot change it at once");
    // Locked for as long as a caller has the sandbox.
    drop(first);
    let second = life().await.unwrap();
    assert_eq!(
        second.answer("cat /etc/installed; ls /etc/alpine-release /usr 2>/dev/null || true").await,
        "one\n/usr:\nnew"
    );
    if backend == BackendName::Native && is_root() {
        assert_eq!(second.answer("stat -c %u:%g /usr/new").await, "33:33");
    }
    drop(second);
    assert_eq!(everything(&root), before);
    assert!(
        state.join("fleet/sandboxes/bj-a/root/changes/upper/etc/installed").exists(),
        "it goes with its sandbox"
    );
}

/// A mirror of Alpine, and what it was asked for.
struct Mirror {
    server: HttpServer,
    digest: String,
}

impl Mirror {
    fn start() -> Mirror {
        let directory = TempDir::new().unwrap();
        let root = directory.path().join("root");
        system(&root);
        furnish(&root, "/usr/bin/curl");
        // Under another name than those of the packages that it fetches.
        fs::rename(root.join("usr/bin/curl"), root.join("sbin/fetch")).unwrap();
        fs::write(root.join("sbin/apk"), APK).unwrap();
        fs::set_permissions(root.join("sbin/apk"), PermissionsExt::from_mode(0o755)).unwrap();
        let archive = packed(&root);
        let digest = sha256(&archive);
        let listing = format!(
            "---\n-\n  title: \"Mini root filesystem\"\n  desc: |\n    Minimal.\n  branch: v3.24\n  version: 3.24.9\n  \
             flavor: alpine-minirootfs\n  file: {ARCHIVE}\n  sha256: {digest}\n"
        );
        let server = HttpServer::start(LOOPBACK, move |request| {
            let path = request.target.trim_start_matches("/alpine/v3.24/");
            let releases = format!("releases/{ARCH}/");
            if let Some(file) = path.strip_prefix(&releases) {
                return match file {
                    "latest-releases.yaml" => Response::ok(listing.clone()),
                    ARCHIVE => Response::ok(archive.clone()),
                    _ => Response::status(404),
                };
            }
            match path.strip_prefix("main/").and_then(|name| name.strip_suffix(".tar.gz")) {
                Some(name) if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') => {
                    let directory = TempDir::new().unwrap();
                    fs::create_dir_all(directory.path().join("usr/bin")).unwrap();
                    let program = directory.path().join("usr/bin").join(name);
                    fs::write(&program, format!("#!/bin/sh\necho {name} 1.0\n")).unwrap();
                    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
                    Response::ok(packed(directory.path()))
                }
                _ => Response::status(404),
            }
        });
        Mirror { server, digest }
    }

    fn options(&self, world: &World) -> BuildOptions {
        BuildOptions {
            mirror: format!("http://mirror.test:{}/alpine", self.server.port()),
            release: Some("3.24.9".into()),
            digest: Some(format!("sha256:{}", self.digest).parse().unwrap()),
            tier: GoldenTier::Small,
            network: world.policy([]),
        }
    }
}

async fn a_golden_root_is_built_from_its_mirror_alone(backend: BackendName) {
    // It is built with this backend, whichever the sandboxes have that use it.
    if backend != BackendName::Native {
        return;
    }
    let world = World::new([("mirror.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let mirror = Mirror::start();
    let state = TempDir::new().unwrap();
    let options = mirror.options(&world);
    let build = |options: BuildOptions, anew: bool| {
        let state = state.path().to_path_buf();
        tokio::task::spawn_blocking(move || {
            let reported = Mutex::new(Vec::new());
            let golden = Golden::new(&state).unwrap();
            let built = golden.build(&options, anew, &|what| {
                if !matches!(what, BuildProgress::Fetched(..)) {
                    reported.lock().unwrap().push(format!("{what:?}"));
                }
            });
            (built, reported.into_inner().unwrap())
        })
    };
    // An archive that does not match the caller's digest is refused, whatever the mirror says of it.
    let wrong = BuildOptions {
        digest: Some(format!("sha256:{}", "0".repeat(64)).parse().unwrap()),
        ..options.clone()
    };
    assert_eq!(build(wrong, false).await.unwrap().0.unwrap_err().code, ErrorCode::ImageRefused);
    let missing = BuildOptions { mirror: options.mirror.replace("alpine", "nothing"), ..options.clone() };
    assert_eq!(build(missing, false).await.unwrap().0.unwrap_err().code, ErrorCode::RegistryFailed);
    // Two at once build one.
    let (first, second) = tokio::join!(build(options.clone(), false), build(options.clone(), false));
    let (first, second) = (first.unwrap(), second.unwrap());
    let built = first.0.unwrap();
    assert_eq!(second.0.unwrap(), built);
    assert_eq!((built.release.as_str(), built.tier), ("3.24.9", GoldenTier::Small));
    let archives =
        mirror.server.requests().iter().filter(|request| request.target.ends_with(ARCHIVE)).count();
    assert_eq!(archives, 1, "{:?}", (first.1, second.1));
    let packages =
        mirror.server.requests().iter().filter(|request| request.target.contains("/main/")).count();
    assert_eq!(packages, GoldenTier::Small.packages().len(), "they came through the sandbox");

    let engine = Engine::new().with_state(state.path()).with_records(state.path().join("audit"));
    let fixture = SandboxFixture::made_by(&engine, backend, |spec| spec.root = Root::Golden).await.unwrap();
    assert_eq!(
        fixture.answer("python3 --version; cat /lib/apk/db/installed").await.lines().next(),
        Some("python3 1.0")
    );

    // A new one takes its place; who lives keeps the old one.
    let smaller = BuildOptions { tier: GoldenTier::Base, ..options };
    let anew = build(smaller, true).await.unwrap().0.unwrap();
    assert_ne!(anew.build, built.build);
    assert_eq!(fixture.answer("git --version").await, "git 1.0");
    let builds = || fs::read_dir(state.path().join("golden/builds")).unwrap().count();
    assert_eq!(builds(), 2);
    drop(fixture);
    let removed = tokio::task::spawn_blocking({
        let state = state.path().to_path_buf();
        move || Golden::new(&state).unwrap().remove().unwrap()
    });
    assert_eq!(removed.await.unwrap(), 0);
    assert_eq!(builds(), 0);
}

#[cfg(target_arch = "x86_64")]
const ARCH: &str = "x86_64";
#[cfg(target_arch = "aarch64")]
const ARCH: &str = "aarch64";
#[cfg(target_arch = "x86_64")]
const ARCHIVE: &str = "alpine-minirootfs-3.24.9-x86_64.tar.gz";
#[cfg(target_arch = "aarch64")]
const ARCHIVE: &str = "alpine-minirootfs-3.24.9-aarch64.tar.gz";
/// Fetches packages from the first repository that has them, and unpacks them. Tries to reach another host, too.
const APK: &str = r#"#!/bin/sh
[ "$1" = add ] && shift || exit 2
if fetch -fsS -m 5 -o /dev/null http://other.test/; then echo "the whole world is in reach" >&2; exit 3; fi
for package; do
    case $package in --*) continue ;; esac
    found=
    while read -r repository; do
        fetch -fsS -m 20 -o /tmp/package "$repository/$package.tar.gz" || continue
        busybox tar -xzf /tmp/package -C / && found=yes && break
    done < /etc/apk/repositories
    [ "$found" ] || { echo "ERROR: $package: there is no such package" >&2; exit 1; }
    echo "P:$package" >> /lib/apk/db/installed
done
"#;

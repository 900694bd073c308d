//! Work beside the host's repository, from end to end: what comes back, what does not, and what an agent that worked in the folder
//! before has prepared. Judged by the host's refs and files.

use belljar_engine::{Changes, Engine, ExecResult, Sandbox};
use belljar_spec::workspace::{CloneSpec, WorkspaceMode};
use belljar_spec::{BackendChoice, BackendName, Command, ErrorCode, SandboxError, SandboxSpec};
use belljar_tests_containment::folders::{Found, everything};
use belljar_tests_containment::{backends, folder, gateway_backends, linux_backends, text, wait_for};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;

#[test]
fn a_push_from_a_managed_clone_arrives_once_and_only_on_its_branch() {
    for backend in backends() {
        let fixture = Fixture::new();
        let main = fixture.git("rev-parse main");
        let script = "echo x > x; git add x; git commit -q -m inside; git push 2>&1
            /usr/bin/git push -f host HEAD:main 2>&1; /usr/bin/git push host :main HEAD:other HEAD:refs/tags/t 2>&1; true";
        let (result, changes) = fixture.run(*backend, clone_name("agent/x"), script).unwrap();
        let printed = text(&result.stdout);
        assert!(
            printed.contains("[new branch]") && !printed.contains("Everything up-to-date"),
            "{backend}: {printed}"
        );
        assert!(
            matches!(changes, Changes::ManagedClone { ref left, .. } if left.is_on_host()),
            "{backend}: {changes:?}"
        );
        assert_eq!(fixture.git("log -1 --format=%s agent/x"), "inside", "{backend}");
        assert_eq!(fixture.git("rev-parse main"), main, "{backend}: {printed}");
        assert_eq!(
            fixture.git("for-each-ref --format=%(refname)"),
            "refs/heads/agent/x\nrefs/heads/main",
            "{backend}"
        );
    }
}

/// Whatever stands in the agent's way inside only explains; what protects is outside. So all of it is gone around: git by its path, its
/// plumbing, config and environment, and pushes that no git wrote.
#[test]
fn going_around_the_guard_moves_nothing_of_the_host() {
    for backend in gateway_backends() {
        for mode in [WorkspaceMode::Bind, WorkspaceMode::Overlay { layer: None }, clone_name("agent/x")] {
            let fixture = Fixture::new();
            fixture.git("branch topic");
            fs::write(fixture.path("repo/.git/hooks/pre-push"), "#!/bin/sh\nexit 1\n").unwrap();
            let is_bind = mode == WorkspaceMode::Bind;
            let is_managed_clone = matches!(mode, WorkspaceMode::ManagedClone { .. });
            let before = fixture.guarded();
            let (result, _) = fixture.run(*backend, mode, AROUND).unwrap();
            let printed = text(&result.stdout) + &text(&result.stderr);
            assert!(text(&result.stdout).ends_with("END\n"), "{backend}: {printed}");
            let mut after = fixture.guarded();
            if is_bind {
                // There the refs are the agent's own to move.
                after.refs.clone_from(&before.refs);
            } else {
                assert!(
                    printed.contains("ng refs/heads/main"),
                    "{backend}: the hand-written push was heard: {printed}"
                );
            }
            assert_eq!(after, before, "{backend}: {printed}");
            // Written by hand as well, and allowed: it was no other reason that kept the others out.
            if is_managed_clone {
                assert_eq!(fixture.git("log -1 --format=%s agent/x"), "evil", "{backend}: {printed}");
            }
        }
    }
}

const AROUND: &str = r#"
git=/usr/bin/git
echo x > x; $git add x; $git commit -q --no-verify -m inside
for words in "push -f host HEAD:main" "push host +HEAD:main" "push --force-with-lease host HEAD:main" "push --mirror host" \
    "push --delete host main" "push host :topic" "push --prune host refs/heads/*:refs/heads/*" "push host HEAD:refs/tags/t" \
    "push host HEAD:HEAD" "push host HEAD:refs/belljar/../heads/main" "push host HEAD:refs/heads/main/below" "push --no-verify host HEAD:topic" \
    "-c core.hooksPath=/dev/null push -f host HEAD:main" "-c push.default=matching push -f host" \
    "push -f --receive-pack=true host HEAD:main" "push -f -o x=y host HEAD:main" "push --atomic -f host HEAD:main HEAD:topic"; do
  $git $words 2>&1
done
url=$($git config remote.host.url)
$git send-pack --force $url HEAD:refs/heads/main 2>&1
$git send-pack --force --mirror $url 2>&1
HUSKY=0 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null $git push -f host HEAD:main 2>&1
GIT_DIR=/workspace/.git $git push -f host HEAD:topic 2>&1
$git config core.hooksPath /tmp 2>&1; $git config --global core.hooksPath /tmp 2>&1
$git config alias.x '!touch /tmp/y' 2>&1; printf '[core]\n\tfsmonitor = /tmp/x\n' >> .git/config
printf '#!/bin/sh\n' > .git/hooks/pre-push; rm -f .git/hooks/pre-push; mv .git/hooks .git/aside; mv .git aside; cp -r aside .git
/usr/bin/python3 - "$url" <<'END_OF_PROGRAM' 2>&1
import hashlib, re, socket, struct, sys, zlib
address = re.match(r'git://([^:/]+):(\d+)/(.*)', sys.argv[1])
if address is None:
    sys.exit()
def packet(content):
    return b'%04x' % (len(content) + 4) + content
def name(kind, content):
    return hashlib.sha1(kind + b' %d\0' % len(content) + content).hexdigest()
def entry(number, content):
    size, head, out = len(content) >> 4, number << 4 | len(content) & 15, b''
    while size:
        out, head, size = out + bytes([head | 128]), size & 127, size >> 7
    return out + bytes([head]) + zlib.compress(content)
blob = b'evil\n'
tree = b'100644 evil\0' + bytes.fromhex(name(b'blob', blob))
def made(parent):
    commit = b'tree %s\n%sauthor E <e@example.org> 1 +0000\ncommitter E <e@example.org> 1 +0000\n\nevil\n' % (name(b'tree', tree).encode(), parent)
    pack = b'PACK' + struct.pack('>II', 2, 3) + entry(1, commit) + entry(2, tree) + entry(3, blob)
    return name(b'commit', commit), pack + hashlib.sha1(pack).digest()
evil, zero = 'evil', '0' * 40
def push(wanted, on_top_of=None):
    with socket.create_connection((address[1], int(address[2])), 10) as link:
        link.settimeout(10)
        link.sendall(packet(b'git-receive-pack /%s\0host=x\0' % address[3].encode()))
        heard = b''
        while not heard.endswith(b'0000'):
            heard += link.recv(65536) or b'0000'
        known = dict((ref.split(b'\0')[0].decode().strip(), hash.decode()) for hash, ref in re.findall(rb'([0-9a-f]{40}) ([^\n]*)', heard))
        hash, pack = made(b'parent %s\n' % known[on_top_of].encode() if on_top_of in known else b'')
        lines = []
        for ref, new in wanted:
            new = hash if new == evil else new
            lines.append('%s %s %s' % (known.get(ref, zero), new, ref) + ('' if lines else '\0 report-status delete-refs atomic quiet'))
        body = b''.join(packet(line.encode()) for line in lines) + b'0000'
        link.sendall(body + (pack if any(new != zero for _, new in wanted) else b''))
        answer = b''
        while True:
            more = link.recv(65536)
            if not more:
                break
            answer += more
        print(wanted, answer.decode(errors='replace'))
for wanted in [[('refs/heads/main', evil)], [('refs/heads/main', zero)], [('refs/heads/topic', evil)], [('refs/heads/evil', evil)],
        [('HEAD', evil)], [('refs/tags/t', evil)], [('refs/heads/../../config', evil)], [('refs/heads/main.lock', evil)],
        [('refs/belljar/x', evil)], [('hooks/pre-push', evil)], [('config', evil)], [('refs/heads/main', evil), ('refs/heads/topic', evil)],
        [('refs/heads/agent/x', evil), ('refs/heads/main', evil)]]:
    for on_top_of in [None, 'refs/heads/main']:
        try:
            push(wanted, on_top_of)
        except OSError as error:
            print(wanted, error)
push([('refs/heads/agent/x', evil)], 'refs/heads/agent/x')
END_OF_PROGRAM
echo END
"#;

/// The repositories that belljar itself keeps for them are the host's too: its git works in them.
#[test]
fn what_git_obeys_in_a_managed_clone_or_a_clone_cannot_be_changed() {
    for backend in linux_backends() {
        let fixture = Fixture::new();
        for mode in [clone_name("agent/x"), clone(&fixture.path("repo"))] {
            let sandbox = fixture.start(*backend, mode.clone()).unwrap();
            let obeyed = || {
                let mut all = everything(&fixture.path("state"));
                all.retain(|path, _| {
                    // In a worktree's own part of the git directory, git looks only for these.
                    let is_own = path.iter().any(|part| part == "worktrees");
                    let of_own = ["config.worktree", "commondir"].iter().any(|name| path.ends_with(name));
                    let path = path.to_string_lossy();
                    if is_own { of_own } else { OBEYED.iter().any(|name| path.contains(name)) }
                });
                all
            };
            let before = obeyed();
            assert!(before.keys().any(|path| path.ends_with("config")), "{backend} {mode:?}: {before:?}");
            let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", OBEY]).unwrap())).unwrap();
            let printed = text(&result.stdout) + &text(&result.stderr);
            assert!(printed.contains("committed"), "{backend} {mode:?}: {printed}");
            assert_eq!(obeyed(), before, "{backend} {mode:?}: {printed}");
            sandbox.dispose_blocking();
        }
    }
}

const OBEYED: [&str; 6] = ["/hooks", "/config", "/info/attributes", "/.husky", "/.belljar", "/objects/info"];
const OBEY: &str = r#"
own=$(git rev-parse --absolute-git-dir); common=$(cd "$own" && cd "$(git rev-parse --git-common-dir)" && pwd)
for dir in "$own" "$common"; do
  printf '[core]\n\tfsmonitor = /tmp/x\n' >> $dir/config; printf x > $dir/config.worktree; git config core.fsmonitor /tmp/x
  mv $dir/config $dir/aside; rm -f $dir/config; ln -sf /tmp/x $dir/config
  mkdir -p $dir/hooks; printf '#!/bin/sh\n' > $dir/hooks/post-checkout; chmod 755 $dir/hooks/post-checkout
  mv $dir/hooks $dir/aside; rm -rf $dir/hooks; ln -s /tmp $dir/hooks
  test -e $dir/commondir && { echo /tmp > $dir/commondir; rm -f $dir/commondir; mv $dir/commondir $dir/else; }
  mkdir -p $dir/info; echo '* filter=x' > $dir/info/attributes; echo /tmp > $dir/objects/info/alternates
done
mkdir -p .husky; echo x > .husky/pre-commit; rm -rf .husky; mv .husky aside; echo x > .belljar/config.toml; rm -rf .belljar
echo x > x; git add x; git commit -q -m inside && echo committed
"#;

/// Sandboxes of two repositories at the same time, each with the same address inside: each has its own, and the host has none.
#[test]
fn the_hosts_repository_is_served_inside_of_its_sandbox_alone() {
    for backend in backends() {
        let (one, other) = (Fixture::new(), Fixture::new());
        other.git("branch secret");
        let sandboxes = [&one, &other].map(|fixture| fixture.start(*backend, clone_name("agent/x")).unwrap());
        let refs = sandboxes.each_ref().map(|sandbox| {
            let command = Command::new(["/usr/bin/git", "ls-remote", "host"]).unwrap();
            text(&wait_for(sandbox.exec(&command)).unwrap().stdout)
        });
        assert!(refs[0].contains("refs/heads/main") && !refs[0].contains("secret"), "{backend}: {refs:?}");
        assert!(refs[1].contains("refs/heads/secret"), "{backend}: {refs:?}");
        assert!(std::net::TcpStream::connect(("127.0.0.1", RELAY)).is_err(), "{backend}");
        sandboxes.iter().for_each(Sandbox::dispose_blocking);
    }
}

/// Where the remote `host` is, inside.
const RELAY: u16 = 9418;

#[test]
fn only_branches_that_policy_names_are_pushed_to() {
    for backend in gateway_backends() {
        let fixture = Fixture::new();
        let mut spec = fixture.spec(*backend, clone_name("agent/x"));
        spec.pushes.branches = vec!["agent/*".parse().unwrap()];
        let script = "git commit -q --allow-empty -m inside; \
            /usr/bin/git push host HEAD:agent/y 2>&1; /usr/bin/git push host HEAD:other 2>&1; true";
        let (result, _) = fixture.run_as(&spec, script).unwrap();
        assert_eq!(
            fixture.git("log -1 --format=%s agent/y"),
            "inside",
            "{backend}: {}",
            text(&result.stdout)
        );
        assert_eq!(fixture.git("branch --list other"), "", "{backend}: {}", text(&result.stdout));
    }
}

#[test]
fn a_branch_that_follows_another_remote_still_works_in_an_overlay() {
    for backend in gateway_backends() {
        let fixture = Fixture::new();
        fixture.git("remote add origin /nowhere");
        fixture.git("config branch.main.remote origin");
        fixture.git("config branch.main.merge refs/heads/main");
        let script = "git commit -q --allow-empty -m inside; git status -sb 2>&1; git push host 2>&1";
        let (result, _) = fixture.run(*backend, WorkspaceMode::Overlay { layer: None }, script).unwrap();
        let printed = text(&result.stdout);
        assert!(!printed.contains("multiple upstream"), "{backend}: {printed}");
        assert_eq!(fixture.git("log -1 --format=%s refs/belljar/main"), "inside", "{backend}: {printed}");
        assert_eq!(fixture.git("log -1 --format=%s main"), "first", "{backend}");
    }
}

#[test]
fn what_was_planted_in_a_git_directory_leads_the_hosts_git_nowhere() {
    for backend in backends() {
        let fixture = Fixture::new();
        let victim = fixture.path("victim");
        fs::create_dir(&victim).unwrap();
        symlink(&victim, fixture.path("repo/.git/refs/heads/agent")).unwrap();
        let error = fixture.run(*backend, clone_name("agent/x"), "true").unwrap_err();
        assert_eq!(error.code, ErrorCode::PathRefused, "{backend}: {error}");
        // Commits of an overlay would come out there too.
        let error = fixture.run(*backend, WorkspaceMode::Overlay { layer: None }, "true").unwrap_err();
        assert_eq!(error.code, ErrorCode::NotSupported, "{backend}: {error}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{backend}");
    }
}

#[test]
fn the_objects_of_another_repository_do_not_become_this_ones() {
    for backend in backends() {
        let fixture = Fixture::new();
        let script = "echo /elsewhere/objects > .git/objects/info/alternates; rm -f .git/objects/info/alternates; \
            mv .git/objects/info .git/objects/old; mv .git/objects .git/old; true";
        fixture.run(*backend, WorkspaceMode::Bind, script).unwrap();
        assert!(!fixture.path("repo/.git/objects/info/alternates").exists(), "{backend}");
        assert_eq!(fixture.git("log -1 --format=%s main"), "first", "{backend}");
    }
}

#[test]
fn nothing_that_happened_in_a_clone_is_thrown_away() {
    let clones = |fixture: &Fixture| {
        let entries = fs::read_dir(fixture.path("state/clones")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name() != ".lock").count()
    };
    // Decided on the host, by what is in the clone when its sandbox is gone.
    for backend in gateway_backends() {
        for (script, kept) in [
            ("cat a", 0),
            ("echo x > a; git stash -q", 1),
            ("git commit -q --allow-empty -m x; git tag t; git reset -q --hard HEAD~1", 1),
            ("git commit -q --allow-empty -m x", 1),
        ] {
            let fixture = Fixture::new();
            let (result, _) = fixture.run(*backend, clone(&fixture.path("repo")), script).unwrap();
            assert_eq!(result.exit_code, Some(0), "{backend} {script}: {}", text(&result.stderr));
            assert_eq!(clones(&fixture), kept, "{backend}: {script}");
        }
        // What cannot be cloned is no workspace: nothing starts, and nothing stays of it.
        let fixture = Fixture::new();
        let refused = fixture.start(*backend, clone(&fixture.path("none"))).err();
        assert!(
            refused.as_ref().is_some_and(|error| error.code == ErrorCode::RegistryFailed),
            "{backend}: {refused:?}"
        );
        assert_eq!(clones(&fixture), 0, "{backend}");
    }
}

fn clone_name(branch: &str) -> WorkspaceMode {
    WorkspaceMode::ManagedClone { branch: Some(branch.parse().unwrap()) }
}

fn clone(from: &std::path::Path) -> WorkspaceMode {
    WorkspaceMode::Clone(CloneSpec { url: from.to_str().unwrap().to_string(), branch: None, depth: None })
}

/// Of a repository on the host.
#[derive(Debug, PartialEq, Eq)]
struct Guarded {
    refs: Vec<String>,
    head: String,
    config: String,
    hooks: BTreeMap<PathBuf, Found>,
    info: BTreeMap<PathBuf, Found>,
}

/// A repository `repo` on the host with one commit, and a state directory.
struct Fixture {
    directory: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture { directory: folder() };
        for name in ["repo", "state"] {
            fs::create_dir(fixture.path(name)).unwrap();
        }
        fs::write(fixture.path("repo/a"), "a\n").unwrap();
        for line in ["init -q -b main", "add a", "commit -q -m first"] {
            fixture.git(line);
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    /// The host's git, in `repo`.
    fn git(&self, line: &str) -> String {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(line.split(' '))
            .current_dir(self.path("repo"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        text(&output.stdout).trim_end().to_string()
    }

    /// What only the host may change; branches that were pushed as they may be are left out.
    fn guarded(&self) -> Guarded {
        let refs = self.git("for-each-ref --format=%(refname)%20%(objectname)%20%(symref)");
        let is_pushed =
            |line: &str| line.starts_with("refs/heads/agent/x ") || line.starts_with("refs/belljar/");
        let of = |name: &str| everything(&self.path("repo/.git").join(name));
        Guarded {
            refs: refs.lines().filter(|line| !is_pushed(line)).map(String::from).collect(),
            head: fs::read_to_string(self.path("repo/.git/HEAD")).unwrap(),
            config: fs::read_to_string(self.path("repo/.git/config")).unwrap(),
            hooks: of("hooks"),
            info: of("info"),
        }
    }

    fn spec(&self, backend: BackendName, mode: WorkspaceMode) -> SandboxSpec {
        let is_clone = matches!(mode, WorkspaceMode::Clone(_));
        SandboxSpec {
            backend: BackendChoice::Named(backend),
            workspace: (!is_clone).then(|| self.path("repo")),
            mode,
            ..SandboxSpec::default()
        }
    }

    fn start(&self, backend: BackendName, mode: WorkspaceMode) -> Result<Sandbox, SandboxError> {
        Engine::new().with_state(self.path("state")).create_blocking(&self.spec(backend, mode))
    }

    /// Runs a script in a sandbox to its end, and gives what became of the workspace.
    fn run(
        &self,
        backend: BackendName,
        mode: WorkspaceMode,
        script: &str,
    ) -> Result<(ExecResult, Changes), SandboxError> {
        self.run_as(&self.spec(backend, mode), script)
    }

    fn run_as(&self, spec: &SandboxSpec, script: &str) -> Result<(ExecResult, Changes), SandboxError> {
        let sandbox = Engine::new().with_state(self.path("state")).create_blocking(spec)?;
        let result = wait_for(sandbox.exec(&Command::new(["sh", "-c", script]).unwrap()))?;
        sandbox.dispose_blocking();
        Ok((result, sandbox.changes().unwrap()?))
    }
}

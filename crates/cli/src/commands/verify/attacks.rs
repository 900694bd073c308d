//! The attacks: a shell script each, and what outside would show that it worked. Each does nothing harmful where it works, since it
//! also runs in peers that hold nothing.

use super::scene::{PROTECTED, Scene};
use std::path::PathBuf;
use std::str::FromStr;

/// A promise, and what is tried against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    Network,
    Names,
    Files,
    Processes,
    Sockets,
    Privileges,
    Limits,
    WorkTree,
}

impl Promise {
    pub(crate) const ALL: [Promise; 8] = [
        Promise::Network,
        Promise::Names,
        Promise::Files,
        Promise::Processes,
        Promise::Sockets,
        Promise::Privileges,
        Promise::Limits,
        Promise::WorkTree,
    ];

    /// For programs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Promise::Network => "network",
            Promise::Names => "names",
            Promise::Files => "files",
            Promise::Processes => "processes",
            Promise::Sockets => "sockets",
            Promise::Privileges => "privileges",
            Promise::Limits => "limits",
            Promise::WorkTree => "work_tree",
        }
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Promise::Network => "this machine and its networks cannot be reached",
            Promise::Names => "no question for a name leaves because a program inside asks it",
            Promise::Files => "files outside of the workspace are neither read nor written",
            Promise::Processes => "processes of this machine are neither found nor ended",
            Promise::Sockets => "services of this machine are not reached by their sockets",
            Promise::Privileges => "a command has no rights that the kernel could be attacked with",
            Promise::Limits => "a command cannot take all processes of this machine",
            Promise::WorkTree => "files that programs outside execute or obey are not changed",
        }
    }
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Promise, String> {
        Promise::ALL.into_iter().find(|promise| promise.word() == text).ok_or_else(|| {
            let words: Vec<&str> = Promise::ALL.into_iter().map(Promise::word).collect();
            format!("write one of {}", words.join(", "))
        })
    }
}

/// What shows that an attack worked. All but the first is seen outside; the first shows a word that only outside knows.
#[derive(Debug, Clone)]
pub(super) enum Evidence {
    /// The secret word is in what the attack printed.
    Secret,
    /// The attack's call arrived at a canary.
    Arrived,
    /// A file is there now.
    Exists(PathBuf),
    /// A file is no longer what it was.
    Changed(PathBuf, Vec<u8>),
    /// The canary process is gone.
    CanaryEnded,
    /// The kernel of this machine says this of the process that runs the attack: a line of its status, and the only harmless value.
    Status(&'static str, fn(&str) -> bool),
    /// More processes of the attack than this run at once.
    Processes(usize),
}

pub(super) struct Attack {
    /// Words that name it, unique.
    pub(super) name: String,
    pub(super) promise: Promise,
    pub(super) script: String,
    pub(super) evidence: Evidence,
    /// It cannot be judged in a peer, of which this is not known.
    pub(super) ours_only: bool,
}

/// All of them.
pub(super) fn all(scene: &Scene) -> Vec<Attack> {
    let all = [
        network(scene),
        names(scene),
        files(scene),
        processes(scene),
        sockets(scene),
        privileges(),
        limits(),
        work_tree(scene),
    ];
    all.into_iter().flatten().collect()
}

fn attack(promise: Promise, name: &str, script: String, evidence: Evidence) -> Attack {
    Attack { name: name.into(), promise, script, evidence, ours_only: false }
}

/// A word for scripts and payloads.
pub(super) fn slug(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

fn network(scene: &Scene) -> Vec<Attack> {
    let fixed = [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "127.8.9.1",
        "::1",
        "::ffff:127.0.0.1",
    ];
    let own: Vec<String> = Scene::own_addresses().iter().map(ToString::to_string).collect();
    let dial = |address: &str| {
        let name = format!("dial this machine as {address}");
        let script = format!("dial {address} {} {}/{}", scene.port, scene.call, slug(&name));
        attack(Promise::Network, &name, script, Evidence::Arrived)
    };
    let mut all: Vec<Attack> =
        fixed.iter().copied().chain(own.iter().map(String::as_str)).map(dial).collect();
    let name = "dial with a raw client of the shell";
    all.push(attack(
        Promise::Network,
        name,
        format!(
            "have bash && timeout 3 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{} && echo {}/{} >&3'",
            scene.port,
            scene.call,
            slug(name)
        ),
        Evidence::Arrived,
    ));
    for gateway in ["the default gateway", "host.docker.internal"] {
        let name = format!("dial {gateway}");
        let address = match gateway {
            "the default gateway" => {
                "$(ip route 2>/dev/null | sed -n 's/^default via \\([^ ]*\\).*/\\1/p' | head -n 1)"
            }
            other => other,
        };
        let script = format!(
            "host={address}; [ -n \"$host\" ] && dial \"$host\" {} {}/{}",
            scene.port,
            scene.call,
            slug(&name)
        );
        all.push(attack(Promise::Network, &name, script, Evidence::Arrived));
    }
    all
}

fn names(scene: &Scene) -> Vec<Attack> {
    let lookups = [
        ("ask for a name by the system's resolver", "have getent && getent hosts NAME"),
        ("ask for a name that carries data", "have getent && getent ahosts NAME"),
        (
            "ask by python",
            "have python3 && python3 -c 'import socket,sys; socket.getaddrinfo(sys.argv[1], 443)' NAME",
        ),
        (
            "ask the resolver of this machine at its port",
            "have python3 && python3 -c '
import socket, sys
name = b\"\".join(bytes([len(p)]) + p for p in sys.argv[1].encode().split(b\".\")) + b\"\\0\"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b\"ab\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\" + name + b\"\\0\\1\\0\\1\", (\"127.0.0.1\", PORT))' NAME",
        ),
    ];
    let lookup = |(name, script): (&str, &str)| {
        // Labels of a name: what arrives has the lengths of labels between them.
        let host = format!("{}.{}.verify.test", slug(name), scene.call);
        let script =
            script.replace("NAME", &format!("'{host}'")).replace("PORT", &scene.resolver.to_string());
        Attack { ours_only: true, ..attack(Promise::Names, name, script, Evidence::Arrived) }
    };
    lookups.into_iter().map(lookup).collect()
}

fn files(scene: &Scene) -> Vec<Attack> {
    let outside = scene.outside();
    let canary = outside.join("canary");
    let canary = canary.display();
    let mut all = Vec::new();
    for (name, path) in [
        ("read a file beside the workspace", format!("{canary}")),
        ("read it by a link in the workspace", "link".into()),
        ("read it through the root of process 1", format!("/proc/1/root{canary}")),
        ("read it through our own root", format!("/proc/self/root{canary}")),
        ("read it from the workspace upwards", "../outside/canary".into()),
        ("read it through the working folder of the parent", "/proc/$PPID/cwd/../outside/canary".into()),
        (
            "read it through the root of a process of this machine",
            format!("/proc/{}/root{canary}", scene.canary()),
        ),
        (
            "read it through the folder of a process of this machine",
            format!("/proc/{}/cwd{canary}", scene.canary()),
        ),
    ] {
        all.push(attack(Promise::Files, name, format!("cat {path}"), Evidence::Secret));
    }
    let hidden = |name: &str, script: &str, made: &str| {
        let path = outside.join(made);
        attack(
            Promise::Files,
            name,
            script.replace("TARGET", &path.display().to_string()),
            Evidence::Exists(path),
        )
    };
    all.push(hidden("write a file beside the workspace", "echo x > TARGET", "written"));
    all.push(hidden("write through our own root", "echo x > /proc/self/root/TARGET", "through-root"));
    all.push(hidden("move a file out of the workspace", "echo x > moved; mv moved TARGET", "moved"));
    all.push(hidden("link a file out of the workspace", "echo x > linked; ln linked TARGET", "linked"));
    all.push(hidden("make a folder beside the workspace", "mkdir -p TARGET", "folder"));
    all.push(hidden("unpack an archive upwards", "ln -s TARGET up; echo x > up; rm -f up", "unpacked"));
    let content = format!("{}\n", scene.secret).into_bytes();
    let changed = |name: &str, script: String| {
        let evidence = Evidence::Changed(outside.join("canary"), content.clone());
        attack(Promise::Files, name, script, evidence)
    };
    all.push(changed("change a file beside the workspace", format!("echo x >> {canary}")));
    all.push(changed("change a file by a link in the workspace", "echo x >> link".into()));
    all.push(changed(
        "remove a file beside the workspace",
        format!("mv {canary} {canary}.gone && mv {canary}.gone {canary} && echo x >> {canary}"),
    ));
    let mark = format!("belljar-verify-{}", scene.call);
    for folder in ["/etc", "/usr/bin", "/var/tmp", "/tmp"] {
        let path = PathBuf::from(folder).join(&mark);
        let name = format!("write to {folder} of this machine");
        let script = format!("echo x > {}", path.display());
        all.push(attack(Promise::Files, &name, script, Evidence::Exists(path)));
    }
    all
}

fn processes(scene: &Scene) -> Vec<Attack> {
    let pid = scene.canary();
    let secret = |name: &str, script: String| attack(Promise::Processes, name, script, Evidence::Secret);
    vec![
        secret(
            "read the variables of every process",
            "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep VERIFY".into(),
        ),
        secret(
            "read the variables of a process by its number",
            format!("tr '\\0' '\\n' < /proc/{pid}/environ"),
        ),
        secret("list processes with their variables", "have ps && ps eauxww".into()),
        secret("read the variables of process 1", "tr '\\0' '\\n' < /proc/1/environ".into()),
        secret("read our own variables", "env".into()),
        secret(
            "read files that were left open",
            "for fd in /proc/self/fd/[3-9] /proc/self/fd/[1-9][0-9]; do timeout 1 head -c 4096 $fd; done"
                .into(),
        ),
        attack(
            Promise::Processes,
            "end a process by its number",
            format!("kill -9 {pid}"),
            Evidence::CanaryEnded,
        ),
        attack(
            Promise::Processes,
            "end a process by its name",
            format!("have pkill && pkill -9 -f '[6]00.{}'", super::scene::digits(&scene.call)),
            Evidence::CanaryEnded,
        ),
    ]
}

fn sockets(scene: &Scene) -> Vec<Attack> {
    let python = |name: &str, address: &str| {
        let script = format!(
            "have python3 && python3 -c '
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(2)
s.connect({address})
s.sendall(b\"{}/{} \")'",
            scene.call,
            slug(name)
        );
        attack(Promise::Sockets, name, script, Evidence::Arrived)
    };
    let path = scene.outside().join("service.sock");
    let service = path.display();
    let nc = |name: &str, path: &str| {
        let script = format!("have nc && echo {}/{} | timeout 3 nc -U -w 1 {path}", scene.call, slug(name));
        attack(Promise::Sockets, name, script, Evidence::Arrived)
    };
    let answers = |name: &str, path: &str| {
        let script = format!(
            "[ -S {path} ] && have curl && curl -s -m 3 --unix-socket {path} http://localhost/version && echo SECRET"
        );
        attack(Promise::Sockets, name, script.replace("SECRET", "$SOCKET_WORD"), Evidence::Secret)
    };
    vec![
        python("reach a service by an abstract name", &format!("b\"\\0{}\"", scene.abstract_name)),
        python("reach a service by its path", &format!("\"{service}\"")),
        python("reach a service through our own root", &format!("\"/proc/self/root{service}\"")),
        python("reach a service from the workspace upwards", "\"../outside/service.sock\""),
        nc("reach a service by another client", &service.to_string()),
        answers("reach the Docker daemon", "/var/run/docker.sock"),
        answers("reach containerd", "/run/containerd/containerd.sock"),
        answers("reach systemd", "/run/systemd/private"),
    ]
}

fn privileges() -> Vec<Attack> {
    let status = |name: &str, line: &'static str, is_fine: fn(&str) -> bool| {
        attack(Promise::Privileges, name, "exec sleep 1.5".into(), Evidence::Status(line, is_fine))
    };
    let works = |name: &str, script: &str| {
        attack(Promise::Privileges, name, format!("( {script} ) && echo \"$WORD\""), Evidence::Secret)
    };
    let none: fn(&str) -> bool = |value| value.trim_start_matches('0').is_empty();
    vec![
        status("keep capabilities", "CapEff", none),
        status("keep capabilities to be gained", "CapPrm", none),
        status("keep capabilities for programs", "CapInh", none),
        status("keep capabilities around", "CapAmb", none),
        status("gain rights by a program with a set-id bit", "NoNewPrivs", |value| value == "1"),
        status("call any system call", "Seccomp", |value| value == "2"),
        works("mount a filesystem", "mkdir -p m && mount -t tmpfs none m && umount m"),
        works("mount a folder over another", "mkdir -p a b && mount --bind a b && umount b"),
        works("make a user namespace", "unshare -Ur true"),
        works("make a network namespace", "unshare -n true"),
        works("make a device file", "mknod d c 1 5 && rm d"),
        works(
            "change a setting of the kernel",
            "cat /proc/sys/vm/swappiness > w && cat w > /proc/sys/vm/swappiness",
        ),
        works(
            "change a setting of all processes",
            "cat /proc/sys/kernel/pid_max > w && cat w > /proc/sys/kernel/pid_max",
        ),
        works("read the memory of this machine", "head -c 1 /dev/mem > w && [ -s w ]"),
        works("read the kernel's memory", "head -c 64 /proc/kcore > w && [ -s w ]"),
        works(
            "read a disk",
            "ok=1; for disk in /dev/sd? /dev/vd? /dev/nvme?n?; do [ -b $disk ] && head -c 1 $disk > w && ok=0; done; [ $ok = 0 ]",
        ),
        works("change the root", "chroot / true"),
        works(
            "write to a control group",
            "for g in /sys/fs/cgroup /sys/fs/cgroup/*; do [ -d $g ] && mkdir $g/belljar-verify && rmdir $g/belljar-verify && exit 0; done; exit 1",
        ),
        works("trace process 1", "have strace && timeout 1 strace -p 1 -o w 2>&1 | grep -q attached"),
        works("change a variable of every start", "head -c 0 /dev/null >> /etc/profile"),
    ]
}

fn limits() -> Vec<Attack> {
    let fork = |name: &str, script: &str| {
        attack(Promise::Limits, name, script.into(), Evidence::Processes(MAX_PROCESSES))
    };
    vec![fork(
        "start processes without end",
        // A number of seconds that no other process sleeps.
        "i=0; all=; while [ $i -lt 400 ]; do sleep $NUMBER & all=\"$all $!\"; i=$((i+1)); done 2>/dev/null; sleep 1.6; kill $all; wait",
    )]
}

fn work_tree(scene: &Scene) -> Vec<Attack> {
    let workspace = scene.workspace();
    let mut all = Vec::new();
    for (path, content) in PROTECTED {
        let evidence = || Evidence::Changed(workspace.join(path), content.as_bytes().to_vec());
        let name = format!("change {path}");
        all.push(attack(Promise::WorkTree, &name, format!("echo x >> {path}"), evidence()));
        let name = format!("replace {path}");
        let script = format!("echo x > new; mv -f new {path}");
        all.push(attack(Promise::WorkTree, &name, script, evidence()));
    }
    for path in [".git/hooks/post-checkout", ".claude/settings.json", ".git/objects/info/alternates"] {
        let name = format!("make {path}");
        let script = format!("mkdir -p $(dirname {path}); echo x > {path}");
        all.push(attack(Promise::WorkTree, &name, script, Evidence::Exists(workspace.join(path))));
    }
    let name = "put another folder in the place of .git";
    let script = "mv .git old && mkdir -p .git/hooks && echo x > .git/config && echo x > .git/hooks/planted"
        .to_string();
    all.push(attack(Promise::WorkTree, name, script, Evidence::Exists(workspace.join(".git/hooks/planted"))));
    all
}

/// Far more than a shell needs, far fewer than the attack starts.
const MAX_PROCESSES: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn attacks_have_names_of_their_own_and_every_promise_is_tried() {
        let scene = Scene::set().unwrap();
        let all = all(&scene);
        let names: BTreeSet<String> = all.iter().map(|attack| slug(&attack.name)).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 60, "{}", all.len());
        let tried: BTreeSet<Promise> = all.iter().map(|attack| attack.promise).collect();
        assert_eq!(tried.len(), Promise::ALL.len());
    }
}

//! What was not named does not exist inside, and what was named read-only stays as it is.

use belljar_spec::{BackendName, Permission, WorkspacePath};
use belljar_tests_containment::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A file that is removed again.
struct Planted(PathBuf);

impl Planted {
    fn in_folder(folder: &Path, content: &str) -> Option<Planted> {
        let path = folder.join(format!(".{}", canary("file")));
        fs::write(&path, content).ok()?;
        // Every user may read it: only the isolation hides it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).ok()?;
        Some(Planted(path))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn nothing_of_homes_and_of_the_hosts_own_folders_is_seen() {
    let secret = canary("secret");
    let home = std::env::var("HOME").unwrap_or_default();
    let mut places = vec![home, "/root".into(), "/home/tester".into(), "/tmp".into(), "/var/tmp".into()];
    places.extend(
        ["/srv", "/var/lib", "/var/log", "/mnt", "/media", "/run", "/etc", "/boot", "/dev/shm"]
            .map(String::from),
    );
    let planted: Vec<Planted> =
        places.iter().filter_map(|place| Planted::in_folder(Path::new(place), &secret)).collect();
    assert!(!planted.is_empty());
    for backend in backends() {
        // Where each file takes milliseconds, the system and the tools, which docker's other runtime shows as well, are left out.
        let known = if tells_of_read_only(*backend) { NOTHING_IS_KNOWN } else { looking::tools(*backend) };
        let script = format!("{known}{LOOK_FOR_CANARIES}");
        let found = jail(*backend).successes(
            &script,
            &[
                &[secret.as_str()],
                &planted.iter().map(|file| file.0.to_str().unwrap()).collect::<Vec<_>>()[..],
            ]
            .concat(),
        );
        assert_eq!(found, Vec::<String>::new(), "{backend}");
    }
}

/// In a mount namespace of the test's own, whose mounts are shared, as those of most machines are. Bubblewrap lets them through, which
/// SECURITY.md says.
#[test]
fn what_the_host_mounts_later_is_not_seen() {
    if !is_root() {
        return;
    }
    for backend in backends().iter().filter(|backend| **backend == BackendName::Native) {
        let workspace = tempfile::tempdir().unwrap();
        let output = std::process::Command::new("unshare")
            .args(["--mount", "--propagation", "shared", "sh", "-c", MOUNT_LATER, "sh"])
            .args([belljar().as_os_str(), backend.as_str().as_ref(), workspace.path().as_os_str()])
            .output()
            .unwrap();
        let received = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            received,
            "the folder is there\n",
            "{backend}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{backend}");
    }
}

const MOUNT_LATER: &str = r#"
set -e
mount -t tmpfs belljar-test /opt
mkdir /opt/later
"$1" run --backend "$2" --workspace "$3" -- sh -c '
  touch begun
  while [ ! -e go ]; do sleep 0.02; done
  [ ! -d /opt/later ] || echo the folder is there
  ls -A /opt/later' &
while [ ! -e "$3/begun" ]; do kill -0 $!; sleep 0.02; done
mount -t tmpfs belljar-test /opt/later
touch /opt/later/secret "$3/go"
wait $!
"#;

const NOTHING_IS_KNOWN: &str = "is_tool = None\n";
const LOOK_FOR_CANARIES: &str = r#"
secret = sys.argv[1].encode()
for directory, folders, files in os.walk('/', followlinks=False):
    is_known = is_tool and (directory == '/usr' or is_tool(directory))
    if is_known or directory.startswith(('/proc', '/sys')):
        folders[:] = []
        continue
    for name in files:
        path = os.path.join(directory, name)
        if 'canary-' in name and '.pyenv' not in directory:
            print('name', path)
        try:
            status = os.lstat(path)
            if status.st_mode & 0o170000 == 0o100000 and status.st_size == len(secret):
                with open(path, 'rb') as f:
                    if f.read() == secret:
                        print('content', path)
        except OSError:
            pass
# The ways round.
for path in sys.argv[2:]:
    for way in (path, '/proc/self/root' + path, '/proc/1/root' + path, '/proc/self/cwd/../..' + path, '/../..' + path):
        attack(way, lambda: open(way, 'rb').read())
"#;

#[test]
fn keys_and_passwords_of_the_machine_are_absent() {
    for backend in backends() {
        let seen = jail(*backend).successes(
            r#"
import glob
for path in ['/etc/shadow', '/etc/gshadow', '/etc/sudoers', '/etc/ssh', '/etc/ssl/private', '/etc/krb5.keytab',
    '/etc/NetworkManager', '/etc/wireguard', '/etc/docker', '/etc/kubernetes', '/etc/gitconfig', '/etc/netrc',
    '/root', '/home/tester', '/var/lib', '/var/log', '/var/run/docker.sock', '/run/docker.sock', '/run/dbus',
    '/run/user', '/run/systemd', '/boot', '/srv', '/mnt', '/media', '/sys/kernel', '/sys/fs', '/sys/firmware', '/sys/class']:
    attack(path, lambda: open(path, 'rb').read(1) if os.path.isfile(path) else [e for e in os.listdir(path) if e not in sys.argv[1:]] or (_ for _ in ()).throw(OSError()))
"#,
            // What of root's home is on PATH, and so visible; and where a container has an empty directory, which keeps the
            // daemon from mounting the host's there.
            &[".cargo", ".pyenv", ".rustup", ".local", if is_docker(*backend) { "cgroup" } else { "" }],
        );
        assert_eq!(seen, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn nothing_of_the_system_can_be_changed() {
    let watched = ["/usr/bin/env", "/usr/bin", "/usr", "/etc/os-release", "/usr/lib/os-release", "/"];
    let look = || -> Vec<_> {
        let see = |path: &&str| {
            fs::metadata(path).map(|m| (m.mtime(), m.mtime_nsec(), m.mode(), m.len(), m.ino())).ok()
        };
        watched.iter().map(see).collect()
    };
    for backend in backends() {
        let before = look();
        let jail = jail(*backend);
        let done = jail.successes(
            r#"
ws = '/workspace'
import fcntl
def changed(path):
    # A kernel may say that it did it. What counts is whether it did.
    os.chmod(path, 0o777)
    if os.stat(path).st_mode & 0o777 != 0o777:
        raise OSError()
for base in ('/usr', '/usr/bin', '/usr/local', '/etc', '/', '/run', '/opt', '/sys', '/dev', '/lib', '/bin', '/sys/devices/system/cpu'):
    for prefix in ('', '/proc/self/root', '/proc/thread-self/root', '/proc/1/root', '/proc/%d/root' % os.getppid()):
        p = prefix + base
        attack('create ' + p, lambda: os.close(os.open(p + '/planted', os.O_CREAT | os.O_WRONLY)) or (_ for _ in ()).throw(OSError()) if p.endswith('/dev') else os.open(p + '/planted', os.O_CREAT | os.O_WRONLY))
        attack('mkdir ' + p, lambda: os.mkdir(p + '/planted-dir'))
        attack('link ' + p, lambda: os.symlink('/x', p + '/planted-link'))
        attack('chmod ' + p, lambda: changed(p))
target = '/usr/bin/env'
attack('write', lambda: open(target, 'r+b'))
attack('append', lambda: open(target, 'ab'))
attack('truncate', lambda: os.truncate(target, 0))
attack('unlink', lambda: os.unlink(target))
attack('rename', lambda: os.rename(target, ws + '/env'))
attack('rename over', lambda: (open(ws + '/new', 'w').write('x'), os.rename(ws + '/new', target)))
attack('hard link', lambda: os.link(target, ws + '/hard'))
attack('hard link in /usr', lambda: os.link(target, '/usr/bin/env2'))
attack('chmod', lambda: os.chmod(target, 0o4755))
attack('chown', lambda: os.chown(target, os.getuid(), -1))
attack('utime', lambda: os.utime(target))
attack('xattr', lambda: os.setxattr(target, 'user.x', b'x'))
fd = os.open(target, os.O_PATH)
for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_APPEND):
    attack('reopen O_PATH', lambda: os.open('/proc/self/fd/%d' % fd, flags))
attack('truncate O_PATH', lambda: os.truncate('/proc/self/fd/%d' % fd, 0))
attack('chmod O_PATH', lambda: os.chmod('/proc/self/fd/%d' % fd, 0o777))
attack('link O_PATH', lambda: syscall(265, fd, b'', -100, ws.encode() + b'/hard2', 0x1000))
attack('reopen read-only', lambda: os.open('/proc/self/fd/%d' % os.open(target, os.O_RDONLY), os.O_RDWR))
def openat2(path, flags, resolve):
    how = struct.pack('QQQ', flags, 0, resolve)
    return syscall(437, -100, path.encode(), ctypes.create_string_buffer(how, 24), 24)
for resolve in (0, 1, 2, 4, 8, 16):
    attack('openat2 %d' % resolve, lambda: openat2(target, os.O_RDWR, resolve))
attack('tmpfile', lambda: os.open('/usr/bin', os.O_TMPFILE | os.O_WRONLY))
import mmap
f = os.open(target, os.O_RDONLY)
attack('shared mapping', lambda: mmap.mmap(f, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE | mmap.PROT_READ))
attack('fallocate', lambda: os.posix_fallocate(f, 0, 1))
attack('inode flags', lambda: fcntl.ioctl(f, 0x40086602, struct.pack('l', 0x10)))
"#,
            &[],
        );
        assert_eq!(look(), before, "{backend}: {done:?}");
        assert_eq!(done, Vec::<String>::new(), "{backend}");
        assert!(
            !jail.outside("hard").exists()
                && !jail.outside("hard2").exists()
                && !jail.outside("env").exists()
        );
    }
}

#[test]
fn links_in_the_workspace_lead_nowhere_outside() {
    for backend in backends() {
        let secret = canary("linked");
        let outside = folder();
        fs::write(outside.path().join("f"), &secret).unwrap();
        let jail = jail_with(*backend, |_, workspace| {
            symlink(outside.path().join("f"), workspace.join("file")).unwrap();
            symlink(outside.path(), workspace.join("dir")).unwrap();
            symlink(
                "../".repeat(20) + outside.path().to_str().unwrap().trim_start_matches('/'),
                workspace.join("up"),
            )
            .unwrap();
            symlink("/proc/1/root", workspace.join("root")).unwrap();
        });
        let path = outside.path().to_str().unwrap();
        let result = jail.sh(&format!("cat file dir/f up/f root{path}/f; echo changed > file; echo changed > dir/f; echo changed > up/f; echo x > dir/new"));
        assert!(!text(&result.stdout).contains(&secret), "{backend}");
        // The sandbox's own file operations follow the same links.
        for name in ["file", "dir/f", "up/f"] {
            let read = wait_for(jail.sandbox.read_file(name));
            assert!(!read.is_ok_and(|content| text(&content) == secret), "{backend}: {name}");
            let _ = wait_for(jail.sandbox.write_file(name, b"changed"));
            let _ = wait_for(jail.sandbox.remove(name, true));
        }
        let _ = wait_for(jail.sandbox.mkdir("dir/made/deep", true));
        assert_eq!(fs::read_to_string(outside.path().join("f")).unwrap(), secret, "{backend}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{backend}");
    }
}

#[test]
fn a_read_only_share_stays_as_it_is() {
    for backend in backends() {
        let shared = folder();
        fs::write(shared.path().join("f"), "good").unwrap();
        fs::set_permissions(shared.path().join("f"), fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let jail = jail_with(*backend, |spec, _| spec.shared = vec![share(shared.path(), Permission::Read)]);
        let path = shared.path().to_str().unwrap();
        jail.sh(&format!(
            "cd {path}; echo evil > f; echo evil >> f; : > f; mv f g; rm -f f; ln f h; ln -s x l; chmod 777 f; touch n; mv {path} {path}2; \
             mount -o remount,rw,bind {path}; umount {path}; ln f /workspace/h && echo evil > /workspace/h; \
             echo evil > /proc/self/root{path}/f; echo evil > /proc/self/cwd/f"
        ));
        assert_eq!(fs::read_to_string(shared.path().join("f")).unwrap(), "good", "{backend}");
        assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 1, "{backend}");
    }
}

/// The caller said "read-only" of a folder; that it can also be seen as part of another one is no excuse.
#[test]
fn a_read_only_share_inside_the_workspace_cannot_be_changed_through_the_workspace() {
    for backend in backends() {
        for place in [WorkspacePath::Standard, WorkspacePath::SameAsHost] {
            let jail = jail_with(*backend, |spec, workspace| {
                fs::create_dir(workspace.join("keep")).unwrap();
                fs::write(workspace.join("keep/f"), "good").unwrap();
                spec.shared = vec![share(&workspace.join("keep"), Permission::Read)];
                spec.workspace_path = place;
            });
            jail.sh("echo evil > keep/f; rm -rf keep");
            assert_eq!(
                fs::read_to_string(jail.outside("keep/f")).unwrap_or_default(),
                "good",
                "{backend} {place:?}"
            );
        }
    }
}

#[test]
fn a_read_only_share_inside_a_writable_one_cannot_be_replaced_by_moving_what_holds_it() {
    for backend in backends() {
        let shared = folder();
        fs::create_dir_all(shared.path().join("a/keep")).unwrap();
        fs::write(shared.path().join("a/keep/f"), "good").unwrap();
        let jail = jail_with(*backend, |spec, _| {
            spec.shared = vec![
                share(shared.path(), Permission::Write),
                share(&shared.path().join("a/keep"), Permission::Read),
            ];
        });
        jail.sh(&format!(
            "cd {} && mv a b && mkdir -p a/keep && echo evil > a/keep/f",
            shared.path().display()
        ));
        assert_eq!(
            fs::read_to_string(shared.path().join("a/keep/f")).unwrap_or_default(),
            "good",
            "{backend}"
        );
    }
}

/// An agent of yesterday can leave a link where the caller of today names a folder of the workspace.
#[test]
fn a_share_that_an_earlier_run_replaced_by_a_link_shows_nothing_else() {
    for backend in backends() {
        for permission in [Permission::Read, Permission::Write] {
            let secret = canary("planted-link");
            let private = folder();
            fs::write(private.path().join("key"), &secret).unwrap();
            let workspace = folder();
            let first = jail_with(*backend, |spec, _| spec.workspace = Some(workspace.path().into()));
            first.run(&["ln", "-s", private.path().to_str().unwrap(), "cache"]);
            first.sandbox.dispose_blocking();
            let second = try_jail(*backend, |spec, _| {
                spec.workspace = Some(workspace.path().into());
                spec.shared = vec![share(&workspace.path().join("cache"), permission)];
            });
            // A refusal is an answer.
            if let Ok(second) = second {
                let seen = second
                    .sh(&format!("cat {0}/key cache/key; echo evil > {0}/key", private.path().display()));
                assert!(!text(&seen.stdout).contains(&secret), "{backend} {permission:?}: read");
            }
            assert_eq!(fs::read_to_string(private.path().join("key")).unwrap(), secret, "{backend}: written");
        }
    }
}

#[test]
fn a_mount_point_replaced_by_a_link_does_not_move_the_mount() {
    for backend in backends() {
        // The workspace is at the host's path, and a share lies below it: its mount point is the agent's to replace.
        let workspace = folder();
        let data = workspace.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("f"), "data").unwrap();
        let spec = |spec: &mut belljar_spec::SandboxSpec, _: &Path| {
            spec.workspace = Some(workspace.path().into());
            spec.workspace_path = WorkspacePath::SameAsHost;
            spec.shared = vec![share(&data, Permission::Read)];
        };
        let first = jail_with(*backend, spec);
        first.sh("mv data old; rm -rf data; ln -s /usr/bin data");
        first.sandbox.dispose_blocking();
        if let Ok(second) = try_jail(*backend, spec) {
            assert_eq!(
                second.run(&["test", "-x", "/usr/bin/env"]).exit_code,
                Some(0),
                "{backend}: /usr/bin is covered"
            );
            second.sh("echo evil > data/f");
        }
        let found = fs::read_to_string(data.join("f"));
        assert!(!found.is_ok_and(|content| content.contains("evil")), "{backend}");
    }
}

#[test]
fn no_mountpoint_is_left_in_the_workspace() {
    for backend in backends() {
        let jail = jail_with(*backend, |spec, workspace| {
            fs::create_dir(workspace.join("there")).unwrap();
            spec.workspace_path = WorkspacePath::SameAsHost;
            spec.shared = vec![share(&workspace.join("there"), Permission::Read)];
        });
        jail.run(&["true"]);
        jail.sandbox.dispose_blocking();
        let left: Vec<_> =
            fs::read_dir(jail.workspace.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["there"], "{backend}");
    }
}

#[test]
fn devices_cannot_be_made_or_opened() {
    for backend in backends() {
        let jail = jail_with(*backend, |_, workspace| {
            if is_root() {
                // kmsg, mem and a null device, open to all.
                for (name, major, minor) in
                    [("kmsg", "1", "11"), ("mem", "1", "1"), ("null", "1", "3"), ("vda", "254", "0")]
                {
                    let path = workspace.join(name);
                    let made = std::process::Command::new("mknod")
                        .args([
                            "-m",
                            "666",
                            path.to_str().unwrap(),
                            if name == "vda" { "b" } else { "c" },
                            major,
                            minor,
                        ])
                        .status();
                    assert!(made.unwrap().success());
                }
            }
        });
        let done = jail.successes(
            r#"
for place in ('/workspace', '/tmp', '/home/agent', '/dev', '/dev/shm', '/run'):
    attack('character ' + place, lambda: os.mknod(place + '/c', 0o20666, os.makedev(1, 3)))
    attack('block ' + place, lambda: os.mknod(place + '/b', 0o60666, os.makedev(254, 0)))
for name in ('kmsg', 'mem', 'null', 'vda'):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        attack('open ' + name, lambda: os.open('/workspace/' + name, flags))
for name in os.listdir('/dev'):
    if name not in ('null', 'zero', 'full', 'random', 'urandom', 'tty', 'pts', 'ptmx', 'shm', 'fd', 'stdin', 'stdout', 'stderr', *sys.argv[1:]):
        print('in /dev', name)
for name in ('mem', 'kmem', 'port', 'kmsg', 'vda', 'sda', 'kvm', 'fuse', 'net/tun', 'vhost-net', 'vsock', 'loop-control'):
    attack('/dev/' + name, lambda: os.open('/dev/' + name, os.O_RDONLY))
import fcntl
# IFF_TUN and IFF_TAP by TUNSETIFF.
for flags in (1, 2):
    attack('a device of a network', lambda: fcntl.ioctl(os.open('/dev/net/tun', os.O_RDWR), 0x400454ca, struct.pack('16sH22x', b'x', flags)))
"#,
            // The message queues of a container's own IPC namespace.
            if is_docker(*backend) { &["mqueue"] } else { &[] },
        );
        let is_its_own = |line: &String| {
            devices_of_its_own(*backend)
                .iter()
                .any(|name| *line == format!("in /dev {name}") || line.starts_with(&format!("/dev/{name}")))
        };
        let done: Vec<String> = done.into_iter().filter(|line| !is_its_own(line)).collect();
        assert_eq!(done, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn setuid_programs_give_nothing() {
    for backend in backends() {
        let jail = jail_with(*backend, |_, workspace| {
            let path = workspace.join("python");
            fs::copy(fs::canonicalize("/usr/bin/python3").unwrap(), &path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        });
        let marker = canary("setuid");
        let held = HeldCommand::run(
            &jail,
            &marker,
            &format!(
                "./python -c 'import time; time.sleep(1000)' {marker} & sudo -n sleep 1000 & su -c 'sleep 1000' & wait"
            ),
        );
        assert!(eventually(|| held.pids().len() >= 2));
        let own = belljar_sys::rustix::process::geteuid().as_raw();
        for pid in held.pids() {
            let status = process_file(pid, "status").unwrap_or_default();
            let ids: Vec<&str> = status.lines().filter(|line| line.starts_with("Uid:")).collect();
            for id in ids.iter().flat_map(|line| line.split_whitespace().skip(1)) {
                assert_ne!(id, "0", "{backend}: {ids:?}");
                assert!(is_root() || id == own.to_string(), "{backend}: {ids:?}");
            }
        }
    }
}

/// What the sandbox leaves in the workspace is its owner's: a program with a setuid bit there would make every user of the host
/// who runs it that owner, or root.
#[test]
fn the_sandbox_leaves_no_setuid_program_behind() {
    for backend in backends() {
        let jail = jail(*backend);
        jail.successes(
            r#"
import shutil
os.chdir('/workspace')
os.umask(0)
def fresh(name):
    shutil.copyfile('/usr/bin/env', name)
    return name
for mode in (0o4755, 0o2755, 0o6755):
    n = lambda way: '%s-%o' % (way, mode)
    attack(n('chmod'), lambda: os.chmod(fresh(n('chmod')), mode))
    attack(n('fchmod'), lambda: os.fchmod(os.open(fresh(n('fchmod')), os.O_RDWR), mode))
    attack(n('fchmodat2'), lambda: syscall(452, -100, fresh(n('fchmodat2')).encode(), mode, 0))
    attack(n('open'), lambda: os.open(n('open'), os.O_CREAT | os.O_WRONLY, mode))
    attack(n('creat'), lambda: syscall(85, n('creat').encode(), mode))
    attack(n('openat2'), lambda: syscall(437, -100, n('openat2').encode(), ctypes.create_string_buffer(struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, mode, 0), 24), 24))
    attack(n('mknod'), lambda: os.mknod(n('mknod'), 0o100000 | mode))
    attack(n('high bits'), lambda: syscall(90, fresh(n('high bits')).encode(), (1 << 40) | mode))
"#,
            &[],
        );
        let owner = fs::metadata(jail.workspace.path()).unwrap();
        let left = || fs::read_dir(jail.workspace.path()).unwrap().flatten();
        let set = || -> Vec<_> {
            let gives_away = |found: &fs::Metadata| {
                let user = found.mode() & 0o4000 != 0 && [0, owner.uid()].contains(&found.uid());
                let group = found.mode() & 0o2000 != 0 && [0, owner.gid()].contains(&found.gid());
                found.is_file() && (user || group)
            };
            left()
                .filter(|entry| gives_away(&entry.metadata().unwrap()))
                .map(|entry| entry.file_name())
                .collect()
        };
        assert_eq!(set(), Vec::<std::ffi::OsString>::new(), "{backend}");
        // It was tried, with files that are the owner's; and what had succeeded would have been seen.
        let is_owners = |name: &str| fs::metadata(jail.outside(name)).unwrap().uid() == owner.uid();
        assert!(["chmod-4755", "fchmod-6755", "high bits-2755"].into_iter().all(is_owners), "{backend}");
        fs::set_permissions(jail.outside("chmod-4755"), fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(set(), ["chmod-4755"], "{backend}");
    }
}

#[test]
fn a_sandbox_with_nesting_leaves_no_program_with_capabilities_behind() {
    for backend in nesting_backends() {
        let jail = jail_with(*backend, |spec, _| spec.nesting = belljar_spec::Nesting::Allowed);
        jail.sh(
            "cp /usr/bin/env capable; unshare -r /usr/bin/python3 -c '
import os, struct
os.setxattr(\"/workspace/capable\", \"security.capability\", struct.pack(\"<IIIII\", 0x02000001, 0x84, 0, 0, 0))
'; unshare -r setcap cap_setuid+ep /workspace/capable",
        );
        let seen = std::process::Command::new("/usr/bin/python3")
            .args(["-c", "import os, sys\nprint(os.getxattr(sys.argv[1], 'security.capability').hex())"])
            .arg(jail.outside("capable"))
            .output()
            .unwrap();
        let value = text(&seen.stdout);
        // Version 3 names the root of a namespace, which no user of the host is; version 2, or root 0, counts for every user.
        let for_the_host =
            value.starts_with("01000002") || value.trim().ends_with("00000000") && !value.trim().is_empty();
        assert!(!for_the_host, "{backend}: {value}");
    }
}

#[test]
fn what_a_sandbox_writes_belongs_to_the_owner_of_the_workspace() {
    for backend in backends() {
        let jail = jail(*backend);
        jail.sh("echo x > made; mkdir folder");
        let owner = fs::metadata(jail.workspace.path()).unwrap().uid();
        for name in ["made", "folder"] {
            assert_eq!(fs::metadata(jail.outside(name)).unwrap().uid(), owner, "{backend}");
        }
    }
}

/// Files of others in the workspace of root's sandbox are not the sandbox's to read or change.
#[test]
fn files_of_others_in_the_workspace_stay_theirs() {
    if !is_root() {
        return;
    }
    for backend in backends() {
        let jail = jail_with(*backend, |_, workspace| {
            let path = workspace.join("theirs");
            fs::write(&path, "good").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(1001), Some(1001)).unwrap();
        });
        let read = jail.sh("cat theirs; echo evil > theirs; chmod 777 theirs; chown 1000 theirs");
        assert!(!text(&read.stdout).contains("good"), "{backend}");
        assert_eq!(fs::read_to_string(jail.outside("theirs")).unwrap(), "good", "{backend}");
    }
}

fn seen_with(backend: BackendName, home: &Path, path: &str, command: &str) -> String {
    let workspace = folder();
    let output = std::process::Command::new(belljar())
        .args(["run", "--backend", backend.as_str(), "--workspace"])
        .arg(workspace.path())
        .args(["--", "sh", "-c", command])
        .env("HOME", home)
        .env("PATH", path)
        .output()
        .unwrap();
    text(&output.stdout)
}

#[test]
fn a_home_below_a_system_folder_is_hidden_too() {
    if !is_root() {
        return;
    }
    for backend in backends() {
        let secret = canary("opt-home");
        let home = tempfile::Builder::new().prefix("belljar-test-home-").tempdir_in("/opt").unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(home.path().join(".ssh")).unwrap();
        fs::write(home.path().join(".ssh/id"), &secret).unwrap();
        let path = format!("/usr/local/bin:/usr/bin:/bin:{}/bin", home.path().display());
        let seen = seen_with(*backend, home.path(), &path, &format!("cat {}/.ssh/id", home.path().display()));
        assert!(!seen.contains(&secret), "{backend}");
    }
}

#[test]
fn a_link_on_path_does_not_show_the_home_that_it_leads_to() {
    for backend in backends() {
        let secret = canary("path-link");
        let home = folder();
        fs::create_dir(home.path().join(".ssh")).unwrap();
        fs::write(home.path().join(".ssh/id"), &secret).unwrap();
        symlink(".", home.path().join("bin")).unwrap();
        let bin = home.path().join("bin");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        let seen = seen_with(*backend, home.path(), &path, &format!("cat {}/.ssh/id", bin.display()));
        assert!(!seen.contains(&secret), "{backend}");
    }
}

/// What is mounted below a workspace came with the machine, not with the caller's word.
#[test]
fn a_proc_of_the_host_mounted_below_the_workspace_shows_no_host_process() {
    if !is_root() {
        return;
    }
    for backend in backends() {
        let workspace = folder();
        fs::create_dir(workspace.path().join("proc")).unwrap();
        fs::write(workspace.path().join("attack"), "for f in proc/[0-9]*/cmdline \"$1\"/proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f | grep -o 'canary-host-process-[-0-9a-f]*'; done | sort -u; echo END").unwrap();
        std::os::unix::fs::chown(workspace.path(), Some(1001), Some(1001)).unwrap();
        let marker = canary("host-process");
        let host = HostProgram::start(
            Path::new("/"),
            "import time; print('ready', flush=True); time.sleep(100)",
            &[&marker],
        );
        // As an ordinary user: for root, a proc cannot be shown under another user, which is refused.
        let binary = folder();
        fs::copy(belljar(), binary.path().join("belljar")).unwrap();
        let home = folder();
        std::os::unix::fs::chown(home.path(), Some(1001), Some(1001)).unwrap();
        // Seen once, and seen twice.
        for shared in [String::new(), format!("--ro {}", workspace.path().display())] {
            let script = format!(
                "mount --make-rprivate / && mount -t proc proc {0}/proc && exec setpriv --reuid 1001 --regid 1001 --clear-groups env -i PATH=/usr/bin:/bin HOME={2} {1}/belljar run --backend {backend} --workspace {0} {shared} -- sh attack {0}",
                workspace.path().display(),
                binary.path().display(),
                home.path().display(),
            );
            let output =
                std::process::Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
            assert!(host.pid() > 0 && !text(&output.stdout).contains(&marker), "{backend} {shared}");
            if !is_docker(*backend) {
                let printed = text(&output.stderr);
                assert!(text(&output.stdout).ends_with("END\n"), "{backend} {shared}: {printed}");
            }
        }
    }
}

//! What a daemon's containers, and belljar's work with them, have of this machine.

use crate::Dockerd;
use belljar_tests_cli::left::numbers_of;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// All of it by name, so that a failure says what it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Containers that Docker knows, in whatever state.
    pub containers: BTreeSet<String>,
    /// What containerd keeps of those that run or ran: one directory each, with the address of its shim.
    pub tasks: BTreeSet<PathBuf>,
    /// Shims, runtimes and gVisor's sentries; and whatever has `mark` in its words or mounts.
    pub processes: BTreeSet<String>,
    /// Mounts that every process sees, below the daemon's folder or with `mark` in them.
    pub mounts: BTreeSet<String>,
    pub cgroups: BTreeSet<PathBuf>,
    /// Files, directories and sockets where belljar keeps what it needs of containers.
    pub files: BTreeSet<PathBuf>,
    pub volumes: BTreeSet<String>,
}

impl Left {
    /// Of this daemon, and of sandboxes with `mark` in the path of all that they are about; `state` is where belljar keeps things.
    pub fn of(daemon: &Dockerd, mark: &str, state: &Path) -> Left {
        let group = daemon.folder().file_name().unwrap();
        let mut cgroups = BTreeSet::new();
        for home in entries(Path::new("/sys/fs/cgroup")).into_iter().chain(["/sys/fs/cgroup".into()]) {
            cgroups.extend(entries(&home.join(group)).into_iter().filter(|path| path.is_dir()));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let below = daemon.folder().to_str().unwrap();
        // Docker that is killed while it makes the first layer of a container leaves that mounted; no container has it yet.
        let is_unborn = |line: &str| line.contains("-init/merged");
        let is_ours = |line: &&str| (line.contains(below) && !is_unborn(line)) || line.contains(mark);
        // Their numbers are new each time.
        let point = |line: &str| line.split(' ').skip(3).take(2).collect::<Vec<_>>().join(" ");
        let volumes = daemon.docker(&["volume", "ls", "--quiet"]);
        Left {
            containers: daemon.containers().into_iter().collect(),
            tasks: entries(&daemon.folder().join("containerd/state/io.containerd.runtime.v2.task/moby")),
            processes: processes(below).into_iter().chain(processes(mark)).collect(),
            mounts: mounts.lines().filter(is_ours).map(point).collect(),
            cgroups,
            files: entries(&state.join("docker")).into_iter().filter(|path| !stays(path)).collect(),
            volumes: volumes.lines().map(String::from).collect(),
        }
    }
}

/// Who has the word among its words, or sees a mount of that name, and is in no
/// mount namespace of the machine's own. By their words: the number of one that
/// was started again is another. The two daemons are not left over.
fn processes(mark: &str) -> BTreeSet<String> {
    let words = |pid: u32| {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let own = space("self");
    let first = space("1");
    let sees = |pid: &u32| ![&own, &first].contains(&&space(&pid.to_string()));
    let is_ours = |pid: &u32| words(*pid).contains(mark) || sees(pid);
    let is_daemon = |words: &String| words.starts_with("dockerd ") || words.starts_with("containerd ");
    let found = numbers_of(mark, None).into_iter().filter(is_ours).map(words);
    found.filter(|words| !words.is_empty() && !is_daemon(words)).collect()
}

fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// What says whose containers they are, and the notes of the last minute.
fn stays(path: &Path) -> bool {
    path.ends_with("owner") || path.ends_with("started")
}

//! A cgroup that the Docker daemon made and will remove: read, and given the one limit that no request to the daemon sets.

use super::{Counters, v1};
use belljar_spec::{ErrorCode, Limits, Origin, SandboxError, Term, hint};
use std::fs::{self, File};
use std::path::PathBuf;

/// Where the kernel counts for a process.
pub(crate) struct Foreign {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
}

impl Foreign {
    /// The cgroups of a process.
    pub(crate) fn of(pid: u32) -> Foreign {
        let listed = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Foreign { memory: file(&listed, "memory"), pids: file(&listed, "pids") }
    }

    /// Limits the buffers of TCP connections, which version 1 counts apart. To be called before any command runs.
    pub(crate) fn limit_tcp(&self, limits: &Limits) -> Result<(), SandboxError> {
        let Some(memory) =
            self.memory.as_ref().filter(|memory| memory.join("memory.limit_in_bytes").exists())
        else {
            return Ok(());
        };
        let share = v1::tcp_share(limits.memory.value).to_string();
        match fs::write(memory.join(v1::TCP), share) {
            Err(error) if limits.memory.origin == Origin::Requested => {
                let message = format!(
                    "the limit on memory cannot be held here: the buffers of TCP connections have none ({error})"
                );
                Err(ErrorCode::LimitUnavailable
                    .error(message)
                    .hint(hint!("boot the machine with cgroup version 2, or omit {}", Term::Memory))
                    .caused_by(error))
            }
            _ => Ok(()),
        }
    }

    /// Where the kernel reports forks that it refused; a poll for POLLPRI wakes at each.
    pub(crate) fn refusals(&self) -> Option<File> {
        File::open(self.pids.as_ref()?.join(REFUSALS)).ok()
    }

    pub(crate) fn counters(&self) -> Counters {
        let count = |directory: &Option<PathBuf>, files: &[&str], key: &str| {
            let directory = directory.as_ref()?;
            let text = files.iter().find_map(|file| fs::read_to_string(directory.join(file)).ok())?;
            let line = text.lines().find(|line| line.split(' ').next() == Some(key))?;
            line.split(' ').nth(1)?.trim().parse().ok()
        };
        Counters {
            oom_kills: count(&self.memory, &["memory.events", "memory.oom_control"], "oom_kill").unwrap_or(0),
            forks_refused: count(&self.pids, &[REFUSALS], "max").unwrap_or(0),
        }
    }
}

const REFUSALS: &str = "pids.events";

/// The directory of a controller, of lines `number:controllers:path` (cgroups(7)); version 2 has one for all.
fn file(listed: &str, controller: &str) -> Option<PathBuf> {
    let columns = |line: &str| {
        let mut columns = line.splitn(3, ':').skip(1).map(str::to_string);
        Some((columns.next()?, columns.next()?))
    };
    let all: Vec<(String, String)> = listed.lines().filter_map(columns).collect();
    let is_its = |controllers: &str| controllers.split(',').any(|name| name == controller);
    if let Some((_, path)) = all.iter().find(|(controllers, _)| is_its(controllers)) {
        return Some(PathBuf::from("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')));
    }
    let (_, path) = all.iter().find(|(controllers, _)| controllers.is_empty())?;
    Some(PathBuf::from("/sys/fs/cgroup").join(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controllers_place_is_found_in_either_version() {
        let one = "12:pids:/docker/ab\n5:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n0::/docker/ab\n";
        assert_eq!(file(one, "memory"), Some("/sys/fs/cgroup/memory/docker/ab".into()));
        assert_eq!(file(one, "pids"), Some("/sys/fs/cgroup/pids/docker/ab".into()));
        let two = "0::/system.slice/docker-ab.scope\n";
        assert_eq!(file(two, "memory"), Some("/sys/fs/cgroup/system.slice/docker-ab.scope".into()));
        assert_eq!(file("", "memory"), None);
    }
}

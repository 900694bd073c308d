//! Version 1: a hierarchy a controller, a directory in each that is needed.

use super::directory::Directory;
use super::{Cgroup, Held, Turns, Version, set};
use belljar_spec::{ByteSize, ErrorCode, Limits, Origin, SandboxError, SandboxId, Term, hint};
use std::path::PathBuf;

pub(super) fn create(id: SandboxId, limits: &Limits) -> Result<Option<Cgroup>, SandboxError> {
    let mut held = Held::default();
    let mut directories = Vec::new();
    if let Some(memory) = in_hierarchy("memory", id)? {
        let bytes = limits.memory.value.as_u64().to_string();
        held.memory = set(&memory, "memory.limit_in_bytes", &bytes, limits.memory.origin)?;
        // The buffers of TCP connections are counted apart, and not at all without a limit of their own.
        if memory.has(TCP) {
            let share = tcp_share(limits.memory.value).to_string();
            held.memory &= set(&memory, TCP, &share, limits.memory.origin)?;
        } else if limits.memory.origin == Origin::Requested {
            let message = "the limit on memory cannot be held here: this kernel does not limit the buffers of TCP connections";
            return Err(ErrorCode::LimitUnavailable
                .error(message)
                .hint(hint!("boot the machine with cgroup version 2, or omit {}", Term::Memory)));
        }
        // Swap counts too, where the kernel counts it.
        if memory.has("memory.memsw.limit_in_bytes") {
            set(&memory, "memory.memsw.limit_in_bytes", &bytes, Origin::Default)?;
        }
        directories.push(memory);
    }
    if let Some(pids) = in_hierarchy("pids", id)? {
        held.pids = set(&pids, "pids.max", &limits.pids.value.to_string(), limits.pids.origin)?;
        directories.push(pids);
    }
    // All processors is what every process has anyway: moving a process costs more than it is worth.
    if limits.cpus.origin == Origin::Requested
        && let Some(cpu) = in_hierarchy("cpu", id)?
    {
        let Turns { quota, period } = Turns::of(limits.cpus.value);
        cpu.write("cpu.cfs_period_us", &period.to_string())?;
        held.cpus = set(&cpu, "cpu.cfs_quota_us", &quota.to_string(), Origin::Requested)?;
        directories.push(cpu);
    }
    Ok((!directories.is_empty()).then_some(Cgroup { directories, version: Version::One, held }))
}

/// Where the hierarchies are.
pub(super) fn homes() -> Vec<PathBuf> {
    ["memory", "pids", "cpu"].into_iter().filter_map(hierarchy).collect()
}

/// What TCP connections may hold on top of a sandbox's memory.
pub(super) fn tcp_share(memory: ByteSize) -> u64 {
    (memory.as_u64() / 8).max(LEAST_TCP)
}

/// Counted for sockets that are made after it was written.
pub(super) const TCP: &str = "memory.kmem.tcp.limit_in_bytes";
/// Some connections with the smallest buffers that the kernel gives.
const LEAST_TCP: u64 = 1 << 20;

fn in_hierarchy(controller: &str, id: SandboxId) -> Result<Option<Directory>, SandboxError> {
    match hierarchy(controller) {
        Some(home) => Directory::create(&home, id),
        None => Ok(None),
    }
}

/// The usual places; `cpu` may share one with accounting.
fn hierarchy(controller: &str) -> Option<PathBuf> {
    let names = [controller.to_string(), format!("{controller},{controller}acct")];
    names
        .iter()
        .map(|name| PathBuf::from("/sys/fs/cgroup").join(name))
        .find(|path| path.join("cgroup.procs").exists())
}

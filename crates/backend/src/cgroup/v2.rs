//! Version 2: one directory, below one that is ours. As root that is the top; for a user it is what systemd
//! delegated.

use super::directory::Directory;
use super::{Cgroup, Held, Turns, Version, set};
use belljar_spec::{Limits, SandboxError, SandboxId};
use belljar_sys::rustix::fs::{Access, access};
use belljar_sys::rustix::process::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// Where cgroups of ours go; `None` where version 2 is not what this machine uses.
pub(super) fn home() -> Option<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(top.join("cgroup.controllers")).ok()?;
    if controllers.trim().is_empty() {
        return None;
    }
    if geteuid().is_root() {
        return Some(top.to_path_buf());
    }
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    highest_delegated(top, own)
}

/// The highest cgroup above our own whose processes we may move: those below it are ours to arrange.
fn highest_delegated(top: &Path, own: &str) -> Option<PathBuf> {
    let own = top.join(own);
    let mut found = None;
    for candidate in own.ancestors().take_while(|path| *path != top) {
        if access(candidate.join("cgroup.procs"), Access::WRITE_OK).is_err() {
            break;
        }
        found = Some(candidate.to_path_buf());
    }
    found
}

pub(super) fn create(home: &Path, id: SandboxId, limits: &Limits) -> Result<Option<Cgroup>, SandboxError> {
    // Already on under systemd; where it cannot be turned on, the files below are missing.
    for controller in ["+memory", "+pids", "+cpu"] {
        let _ = fs::write(home.join("cgroup.subtree_control"), controller);
    }
    let Some(directory) = Directory::create(home, id)? else { return Ok(None) };
    let held = apply(&directory, limits)?;
    Ok(Some(Cgroup { directories: vec![directory], version: Version::Two, held }))
}

fn apply(directory: &Directory, limits: &Limits) -> Result<Held, SandboxError> {
    let mut held = Held::default();
    if directory.has("memory.max") {
        let bytes = limits.memory.value.as_u64().to_string();
        held.memory = set(directory, "memory.max", &bytes, limits.memory.origin)?;
        if directory.has("memory.swap.max") {
            set(directory, "memory.swap.max", "0", belljar_spec::Origin::Default)?;
        }
    }
    if directory.has("pids.max") {
        held.pids = set(directory, "pids.max", &limits.pids.value.to_string(), limits.pids.origin)?;
    }
    if directory.has("cpu.max") {
        let Turns { quota, period } = Turns::of(limits.cpus.value);
        held.cpus = set(directory, "cpu.max", &format!("{quota} {period}"), limits.cpus.origin)?;
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_delegated_ancestor_is_found() {
        let top = tempfile::tempdir().unwrap();
        let own = "user.slice/user@1000.service/app.slice/term.scope";
        fs::create_dir_all(top.path().join(own)).unwrap();
        for delegated in [own, "user.slice/user@1000.service/app.slice", "user.slice/user@1000.service"] {
            fs::write(top.path().join(delegated).join("cgroup.procs"), "").unwrap();
        }
        let found = highest_delegated(top.path(), own);
        assert_eq!(found, Some(top.path().join("user.slice/user@1000.service")));
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let home = tempfile::tempdir().unwrap();
        let id = SandboxId::from_random([1; 8]);
        let directory = Directory::create(home.path(), id).unwrap().unwrap();
        let place = home.path().join(format!("belljar-{id}"));
        for file in ["memory.max", "memory.swap.max", "pids.max", "cpu.max"] {
            fs::write(place.join(file), "").unwrap();
        }
        let spec = belljar_spec::LimitsRequest { cpus: "1.5".parse().ok(), ..Default::default() };
        let machine = belljar_spec::Machine { memory: belljar_spec::ByteSize::mebibytes(512), cpus: 2 };
        let held = apply(&directory, &Limits::understand(&spec, machine)).unwrap();
        assert_eq!(held, Held { memory: true, pids: true, cpus: true });
        for (file, expected) in [
            ("memory.max", "268435456"),
            ("memory.swap.max", "0"),
            ("pids.max", "4096"),
            ("cpu.max", "150000 100000"),
        ] {
            assert_eq!(fs::read_to_string(place.join(file)).unwrap(), expected, "{file}");
        }
        // Not a real one: its files would stand in the way.
        fs::remove_dir_all(place).unwrap();
    }
}

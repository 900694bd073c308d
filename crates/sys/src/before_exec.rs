//! What a program gets between fork and exec: a cgroup, limits and a Landlock ruleset of its own, so that nothing of it
//! ever runs without them.

use crate::landlock::Ruleset;
use rustix::io::write;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// The files of a cgroup through which a process enters it: `cgroup.procs` of version 2, or `tasks` of each hierarchy of version 1,
/// open for writing. Entering fails once the cgroup is removed.
#[derive(Debug, Clone)]
pub struct CgroupEntry {
    files: Arc<[File]>,
}

impl CgroupEntry {
    /// Of these files.
    pub fn new(files: Vec<File>) -> CgroupEntry {
        CgroupEntry { files: files.into() }
    }
}

/// Has the program enter a cgroup. One that cannot is not started.
pub fn enter_cgroup<'c>(command: &'c mut Command, entry: &CgroupEntry) -> &'c mut Command {
    let files = Arc::clone(&entry.files);
    let enter = move || {
        for file in &*files {
            // 0 is the process that writes (cgroups(7)).
            write(file, b"0")?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call a file, and allocates nothing.
    unsafe { command.pre_exec(enter) }
}

/// Sets resource limits of the program, soft and hard. One whose limits cannot be set is not started.
pub fn set_limits(command: &mut Command, limits: Vec<(Resource, u64)>) -> &mut Command {
    let set = move || {
        for (resource, most) in &limits {
            let limit = Rlimit { current: Some(*most), maximum: Some(*most) };
            setrlimit(*resource, limit).map_err(io::Error::from)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call a limit, and allocates nothing.
    unsafe { command.pre_exec(set) }
}

/// Holds the program to a ruleset. One that cannot be held to it is not started.
pub fn confine(command: &mut Command, ruleset: Arc<Ruleset>) -> &mut Command {
    let confine = move || ruleset.restrict_self().map_err(io::Error::from);
    // SAFETY: between fork and exec the closure makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(confine) }
}

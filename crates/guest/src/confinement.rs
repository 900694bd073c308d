//! Closes what no command may have: Landlock, capabilities, system calls. After this nothing can be
//! opened again, by us either.

use crate::stream::fault;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use belljar_sys::rustix::io::Errno;
use belljar_sys::{caps, seccomp};
use belljar_wire::message::{
    self, Confinement, Fault, LANDLOCK_WITH_SCOPES, PathUse, Privileges, Supervision, Syscalls,
};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use std::error::Error;

/// Confines this process, which must have one thread, and with it all that it will start. Gives the Landlock version in force.
pub(crate) fn confinement(confinement: &Confinement) -> Result<u32, Fault> {
    if confinement.privileges == Privileges::Unchanged {
        return Ok(0);
    }
    seccomp::no_new_privileges().map_err(|errno| fault("set no_new_privs", errno))?;
    let landlock_abi = match &confinement.landlock {
        Some(rules) => {
            restrict(rules).map_err(|error| fault(format!("apply Landlock: {error}"), Errno::INVAL))?
        }
        None => 0,
    };
    let dropped = match confinement.privileges {
        Privileges::Maintainer => caps::drop_all_but_maintenance(),
        Privileges::Dropped | Privileges::Unchanged => caps::drop_all(),
    };
    dropped.map_err(|errno| fault("drop capabilities", errno))?;
    let filter = match confinement.syscalls {
        Syscalls::Default => DEFAULT_FILTER,
        Syscalls::Nested => NESTED_FILTER,
    };
    seccomp::install(filter).map_err(|errno| fault("install the seccomp filter", errno))?;
    Ok(landlock_abi)
}

/// The second layer of isolation: if a mistake in the first one leaves more writable, still only these paths are; and,
/// where the kernel supports it, only unix sockets that were bound in here can be reached. Returns the Landlock version in
/// force.
fn restrict(rules: &message::Landlock) -> Result<u32, RulesetError> {
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if rules.writable.is_some() {
        ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST))?;
    }
    let mut created = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?.create()?;
    if let Some(writable) = &rules.writable {
        // Granted nowhere: sockets of our own domain are exempt.
        let all = AccessFs::from_all(NEWEST) & !AccessFs::ResolveUnix;
        let everywhere = [("/", AccessFs::from_read(NEWEST))];
        for (path, access) in everywhere.into_iter().chain(writable.iter().map(|path| (path.as_str(), all))) {
            // A path that does not exist needs no permission.
            if let Ok(opened) = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                created = created.add_rule(PathBeneath::new(opened, access))?;
            }
        }
    }
    Ok(match created.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    })
}

/// Who is restricted in a sandbox without namespaces.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Restricted {
    /// The guest, which makes terminals for commands.
    Guest,
    /// Commands: no terminal but their own, no TCP that the supervisor does not make, as far as this version of Landlock knows it, and
    /// signals do not reach the guest.
    Commands,
}

/// One layer of isolation of a sandbox without namespaces: of all paths of the host only those that are listed can be used, and signals do
/// not leave it. What the version has must be there. (A layer without rules for paths would still forbid to move files between
/// directories: landlock(7), `LANDLOCK_ACCESS_FS_REFER`.)
pub(crate) fn restrict_to_paths(supervision: &Supervision, who: Restricted) -> Result<(), Box<dyn Error>> {
    let abi = known(supervision.landlock_abi);
    let all = AccessFs::from_all(abi);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if who == Restricted::Commands && supervision.landlock_abi >= LANDLOCK_WITH_TCP {
        ruleset = ruleset.handle_access(AccessNet::from_all(known(LANDLOCK_WITH_TCP)))?;
    }
    if supervision.landlock_abi >= LANDLOCK_WITH_SCOPES {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    let mut created = ruleset.create()?;
    let terminals = TERMINALS.iter().filter(|_| who == Restricted::Guest);
    let paths = supervision.paths.iter().map(|(path, path_use)| (path.as_str(), path_use));
    for (path, path_use) in paths.chain(terminals.map(|path| (*path, &PathUse::Device))) {
        let access = match path_use {
            PathUse::Read => BitFlags::from(AccessFs::ReadFile) | AccessFs::ReadDir | AccessFs::Execute,
            PathUse::List => AccessFs::ReadDir.into(),
            // Nodes of devices take a capability as well.
            PathUse::Write => all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::ResolveUnix),
            PathUse::Device => (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev) & all,
        };
        let opened = match open_as_planned(path, path_use) {
            Err(Errno::LOOP) if *path_use != PathUse::Device => {
                return Err(format!("`{path}` was replaced by a link").into());
            }
            other => other,
        };
        // A path that does not exist needs no permission.
        if let Ok(opened) = opened {
            // What only directories have is left out where it is none.
            let is_directory = fstat(&opened)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
            let access = if is_directory { access } else { access & AccessFs::from_file(abi) };
            if !access.is_empty() {
                created = created.add_rule(PathBeneath::new(opened, access))?;
            }
        }
    }
    created.restrict_self()?;
    Ok(())
}

/// What is opened is what the host judged: its path had no link when it was planned, and one that was put there meanwhile, by another sandbox
/// that works in a folder above, leads elsewhere.
fn open_as_planned(path: &str, path_use: &PathUse) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match path_use {
        PathUse::Read | PathUse::Write | PathUse::List => {
            openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        }
        PathUse::Device => openat(CWD, path, flags, Mode::empty()),
    }
}

/// A version of Landlock as the crate names it.
fn known(landlock_abi: u32) -> ABI {
    ABI::from(i32::try_from(landlock_abi).unwrap_or(i32::MAX))
}

/// Where terminals are made. All terminals of the user are there.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];
/// Binding and connecting TCP sockets are rights of their own (Linux 6.7).
const LANDLOCK_WITH_TCP: u32 = 4;
/// What the kernel does not know of it is left out.
const NEWEST: ABI = ABI::V9;

/// Compiled by the build script from confine/syscalls.table.
pub(crate) const DEFAULT_FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/default.bpf"));
const NESTED_FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nested.bpf"));

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_that_came_later_opens_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("a folder");
        fs::create_dir_all(top.join("work/sub")).expect("a folder");
        symlink(top.join("work"), top.join("link")).expect("a link");
        let open = |path: &str, path_use| {
            open_as_planned(top.join(path).to_str().expect("text"), &path_use).map(drop)
        };
        assert_eq!(open("work/sub", PathUse::Write), Ok(()));
        for path in ["link", "link/sub"] {
            assert_eq!(open(path, PathUse::Write), Err(Errno::LOOP), "{path}");
            assert_eq!(open(path, PathUse::Read), Err(Errno::LOOP), "{path}");
        }
    }
}

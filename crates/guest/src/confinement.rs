//! Closes what no command may have: Landlock, capabilities, system calls. After this nothing can be
//! opened again, by us either.

use crate::stream::fault;
use belljar_sys::rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::{caps, seccomp};
use belljar_wire::message::{
    self, Confinement, Fault, LANDLOCK_WITH_SCOPES, PathUse, Privileges, Supervision, Syscalls,
};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

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
pub(crate) fn restrict_to_paths(supervision: &Supervision, who: Restricted) -> Result<(), RulesetError> {
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
        // A path that does not exist needs no permission.
        if let Ok(opened) = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            // What only directories have is left out where it is none.
            let is_directory = fstat(&opened)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
            let access = if is_directory { access } else { access & AccessFs::from_file(abi) };
            if !access.is_empty() {
                created = created.add_rule(PathBeneath::new(opened, access))?;
            }
        }
    }
    created.restrict_self().map(drop)
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

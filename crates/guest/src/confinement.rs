//! Closes what no command may have: Landlock, capabilities, system calls. After this nothing can be
//! opened again, by us either.

use crate::stream::fault;
use belljar_sys::rustix::fs::{CWD, Mode, OFlags, openat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::{caps, seccomp};
use belljar_wire::message::{self, Confinement, Fault, Privileges, Syscalls};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};

/// Confines this process, which must have one thread, and with it all that it will start. Gives the Landlock version in force.
pub(crate) fn confinement(confinement: &Confinement) -> Result<u32, Fault> {
    if confinement.privileges == Privileges::Kept {
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
        Privileges::Dropped | Privileges::Kept => caps::drop_all(),
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

/// What the kernel does not know of it is left out.
const NEWEST: ABI = ABI::V9;

/// Compiled by the build script from confine/syscalls.table.
const DEFAULT_FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/default.bpf"));
const NESTED_FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nested.bpf"));

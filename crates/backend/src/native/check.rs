//! Whether namespaces can be made here: by making them. What the kernel says in refusal is turned into what to do.

use super::launch;
use crate::guest::SetupFailure;
use crate::plan::trial;
use belljar_spec::SandboxError;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use std::fs;

/// Starts a sandbox with nothing in it and ends it again: some milliseconds.
pub(super) fn check() -> Result<(), SandboxError> {
    launch::launch(&trial()?, &|| Ok(())).map(|guest| guest.stop())
}

/// Why the kernel did not make the namespaces.
pub(crate) fn refused(doing: &str, errno: Errno) -> SandboxError {
    let message = format!("cannot {doing}: {errno}");
    SandboxError::unavailable("namespaces_refused", message).hint(remedy(errno))
}

/// Why the guest could not build its world. A refusal to mount is a refusal of the whole wall; anything else is
/// about one thing.
pub(crate) fn setup_failed(failure: SetupFailure) -> SandboxError {
    match failure {
        SetupFailure::Step(fault) => {
            let errno = Errno::from_raw_os_error(fault.errno);
            match errno {
                Errno::PERM | Errno::NOSYS | Errno::ACCESS if fault.doing.starts_with("make ") => {
                    refused(&fault.doing, errno)
                }
                Errno::PERM | Errno::NOSYS => refused(&fault.doing, errno),
                _ => {
                    let reason = if fault.errno == 0 { String::new() } else { format!(": {errno}") };
                    SandboxError::runtime("setup_failed", format!("cannot {}{reason}", fault.doing))
                }
            }
        }
        SetupFailure::Silent => {
            SandboxError::runtime("guest_died", "the sandbox's first process died while it was set up")
                .hint("there may be too little memory; `belljar doctor` tries each wall by itself")
        }
    }
}

/// The switches that distributions have for this, in the order of how often they are the reason.
fn remedy(errno: Errno) -> String {
    let switch = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    if errno == Errno::NOSYS {
        let kernel = switch("/proc/sys/kernel/osrelease").unwrap_or_default();
        return format!("the kernel, {kernel}, is older than 5.12: update it");
    }
    if !geteuid().is_root() {
        if switch("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
            return "AppArmor forbids user namespaces to ordinary users here (Ubuntu's default): \
                    `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for belljar: \
                    see docs/walls.md"
                .into();
        }
        if switch("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
            return "user namespaces are switched off for ordinary users: \
                    `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
                .into();
        }
    }
    if switch("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return "user namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=10000`".into();
    }
    if errno == Errno::NOSPC {
        return "there are as many namespaces as this machine allows: end some sandboxes, or raise \
                `user.max_user_namespaces` with sysctl"
            .into();
    }
    "inside a container, start it with `--security-opt seccomp=unconfined`, or use `--backend container` and let \
     the container be the wall"
        .into()
}

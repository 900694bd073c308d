//! Whether namespaces can be made here: by making them. What the kernel says in refusal is turned into what to do.

use super::launch;
use crate::guest::{SetupFailure, not_ready};
use crate::layout::Layout;
use crate::plan::trial;
use belljar_spec::SandboxError;
use belljar_sys::rustix::fs::statfs;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use std::fs;
use std::path::Path;

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
pub(crate) fn setup_failed(failure: SetupFailure, layout: &Layout) -> SandboxError {
    match failure {
        SetupFailure::Step(fault) => {
            let errno = Errno::from_raw_os_error(fault.errno);
            match errno {
                _ if fault.doing.starts_with("lay ") => no_overlay(&fault.doing, errno, layout),
                _ if fault.doing.starts_with("hold ") => not_held(&fault.doing, errno),
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
        SetupFailure::Late(patience) => not_ready(patience),
        SetupFailure::Silent => {
            SandboxError::runtime("guest_died", "the sandbox's first process died while it was set up")
                .hint("there may be too little memory; `belljar doctor` tries each wall by itself")
        }
    }
}

/// Why a layer cannot lie over its folder. Said of the layer, not of the wall: a weaker wall is no remedy.
fn no_overlay(doing: &str, errno: Errno, layout: &Layout) -> SandboxError {
    let kind = |directory: &Path| statfs(directory).map(|found| found.f_type as u64);
    let stacked = layout.layers.iter().find(|layer| kind(&layer.directory) == Ok(OVERLAYFS));
    if let Some(layer) = stacked {
        let message = format!(
            "cannot {doing}: changes would go to `{}`, which lies in an overlay itself, as a container's files do",
            layer.directory.display()
        );
        return SandboxError::unavailable("overlay_unsupported", message).hint(
            "keep belljar's state on a filesystem of its own, a volume or a tmpfs: set XDG_STATE_HOME",
        );
    }
    let hint = match errno {
        Errno::PERM | Errno::NODEV => {
            "an overlay in a user namespace needs a kernel from 5.11 on, with overlayfs"
        }
        _ => {
            "changes need a filesystem like ext4, xfs, btrfs or tmpfs: set XDG_STATE_HOME to a folder on one"
        }
    };
    SandboxError::unavailable("overlay_unsupported", format!("cannot {doing}: {errno}")).hint(hint)
}

/// Why something that is protected cannot be: it is not what it was a moment ago, when it was looked at.
fn not_held(doing: &str, errno: Errno) -> SandboxError {
    let path = doing.trim_start_matches("hold ");
    match errno {
        Errno::LOOP => {
            let message = format!("`{path}` is protected, and it or a folder on the way to it is a link");
            SandboxError::policy("protected_path_is_link", message).hint("put what it points to in its place")
        }
        Errno::NOENT | Errno::NOTDIR => {
            let message = format!("`{path}` is protected, and somebody took it away just now");
            SandboxError::runtime("protected_path_gone", message).hint("try again")
        }
        _ => SandboxError::runtime("setup_failed", format!("cannot {doing}: {errno}")),
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

/// linux/magic.h
const OVERLAYFS: u64 = 0x794c_7630;

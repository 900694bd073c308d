//! Whether it works here: by the calls that it takes, each with its own reason and remedy, and then by starting a sandbox.

use super::launch;
use super::private_dir::sweep_trials;
use crate::container::{around_us, landlock_is_filtered};
use crate::plan::trial_among_hosts_paths;
use belljar_spec::{ErrorCode, Hint, SandboxError, Term, hint};
use belljar_sys::landlock;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::OLDEST_LANDLOCK;
use std::fs;
use std::sync::OnceLock;

/// Starts a sandbox with nothing in it and ends it again.
pub(super) fn check() -> Result<(), SandboxError> {
    sweep_trials(&std::env::temp_dir());
    launch::launch(&trial_among_hosts_paths()?, &|| Ok(())).map(|guest| guest.stop())
}

/// The version of Landlock that is used here, or why none can be.
pub(super) fn landlock_abi() -> Result<u32, SandboxError> {
    static FOUND: OnceLock<Result<u32, SandboxError>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let found = at_most(version()?);
            readable_processes()?;
            Ok(found)
        })
        .clone()
}

fn version() -> Result<u32, SandboxError> {
    match landlock::version() {
        Ok(version @ OLDEST_LANDLOCK..) => Ok(version),
        Ok(version) => Err(refused(
            format!(
                "this kernel's Landlock has version {version}, which lets files be emptied that may only be read"
            ),
            hint!("use Linux 6.2 or newer, or {}", Term::Backend.to("native")),
        )),
        Err(_) if landlock_is_filtered() => Err(refused(
            "Landlock is refused here: the filter of the container around us forbids it",
            "use a newer version of the container engine, whose profile allows the calls `landlock_*`".into(),
        )),
        Err(Errno::OPNOTSUPP) => Err(refused(
            "this kernel has Landlock, and it is switched off",
            "add `landlock` to the kernel's parameter `lsm=`".into(),
        )),
        Err(_) => Err(refused(
            match around_us() {
                Some(_) => "this kernel has no Landlock: the container around us runs on one without it",
                None => "this kernel has no Landlock",
            },
            "use a kernel with CONFIG_SECURITY_LANDLOCK, Linux 6.2 or newer".into(),
        )),
    }
}

/// A lower version can be asked for, to try out what older kernels do: what Landlock does not hold, the supervisor does.
fn at_most(version: u32) -> u32 {
    let asked = std::env::var("BELLJAR_LANDLOCK_ABI").ok().and_then(|text| text.parse::<u32>().ok());
    asked.map_or(version, |asked| asked.clamp(OLDEST_LANDLOCK, version))
}

/// Yama's higher scopes keep the supervisor from reading what the calls of its own children point to.
fn readable_processes() -> Result<(), SandboxError> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim().parse() {
        Ok(scope @ 2u32..) => Err(refused(
            format!("no process may read another's memory here (`kernel.yama.ptrace_scope` is {scope})"),
            hint!("set `kernel.yama.ptrace_scope` to 1, or use {}", Term::Backend.to("native")),
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The guest could not be confined: which part of it the kernel, or a filter around us, refused.
pub(super) fn not_confined(doing: &str, errno: Errno) -> SandboxError {
    let is_listener = doing.contains("supervisor's seccomp filter");
    match errno {
        Errno::BUSY if is_listener => refused(
            "another supervisor answers system calls of this process already: belljar runs inside a sandbox",
            "run belljar outside of that sandbox".into(),
        ),
        Errno::INVAL | Errno::NOSYS if is_listener => refused(
            "this kernel cannot tell system calls to a supervisor (seccomp_unotify(2), Linux 5.19)",
            "use a newer kernel; gVisor's has none of it".into(),
        ),
        errno => refused(
            format!("cannot confine commands here: {doing}: {errno}"),
            hint!("{} tries each backend by itself", Term::Capabilities),
        ),
    }
}

pub(super) fn refused(message: impl Into<String>, hint: Hint) -> SandboxError {
    ErrorCode::BackendUnavailable.error(message.into()).hint(hint)
}

//! Capabilities of the calling thread: all of them into the ambient set, or all of them gone, or all but a few.

use rustix::io::Errno;

/// Gives up every capability for good: ambient, bounding, inheritable, permitted and effective, and forbids that
/// user id 0 brings them back. To be called while the process has one thread.
pub fn drop_all() -> Result<(), Errno> {
    drop_but(0)
}

/// The same, but those that it takes to maintain a system: they stay, over programs that are started too.
pub fn drop_all_but_maintenance() -> Result<(), Errno> {
    let kept = MAINTENANCE.iter().fold(0, |kept, capability| kept | 1 << capability);
    drop_but(kept)?;
    for capability in MAINTENANCE {
        prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, capability)?;
    }
    Ok(())
}

fn drop_but(kept: u64) -> Result<(), Errno> {
    match prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0) {
        // A kernel without them: gVisor.
        Err(Errno::INVAL) => {}
        other => other?,
    }
    for capability in (0..=LAST_CAPABILITY).filter(|capability| kept & (1 << capability) == 0) {
        match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
            // Past the last one this kernel knows.
            Err(Errno::INVAL) => break,
            // Nothing to drop and nothing to drop it with: we never had any.
            Err(Errno::PERM) => break,
            other => other?,
        };
    }
    // Without CAP_SETPCAP there is no power that the bits could guard. A kernel without the bits still has no_new_privs, which
    // keeps programs from bringing anything back.
    match prctl(libc::PR_SET_SECUREBITS, NO_ROOT_LOCKED, 0) {
        Err(Errno::PERM | Errno::INVAL) => {}
        other => {
            other?;
        }
    }
    set(Sets { effective: kept, permitted: kept, inheritable: kept })
}

/// Makes what it takes to build a sandbox ambient, so that it survives an exec by an ordinary user id. Only raw system calls:
/// may run between fork and exec.
pub(crate) fn raise_ambient() -> Result<(), Errno> {
    let mut sets = get()?;
    sets.inheritable = sets.permitted;
    sets.effective = sets.permitted;
    set(sets)?;
    let needed = SETUP.into_iter().chain(MAINTENANCE);
    for capability in needed.filter(|bit| sets.permitted & (1 << bit) != 0) {
        prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, capability)?;
    }
    Ok(())
}

/// Whether the calling thread may use a capability.
pub(crate) fn is_effective(capability: u32) -> bool {
    get().is_ok_and(|sets| sets.effective & (1 << capability) != 0)
}

/// Makes everything permitted effective.
pub(crate) fn raise_effective() -> Result<(), Errno> {
    let sets = get()?;
    set(Sets { effective: sets.permitted, ..sets })
}

/// The three sets as bit masks, capability 0 in the lowest bit.
#[derive(Clone, Copy)]
struct Sets {
    effective: u64,
    permitted: u64,
    inheritable: u64,
}

fn get() -> Result<Sets, Errno> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: header and data are live, of the layout of capget(2) for version 3, which fills two entries.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    check(done)?;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(Sets {
        effective: join(data[0].effective, data[1].effective),
        permitted: join(data[0].permitted, data[1].permitted),
        inheritable: join(data[0].inheritable, data[1].inheritable),
    })
}

fn set(sets: Sets) -> Result<(), Errno> {
    let half = |shift: u32| Data {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: (sets.inheritable >> shift) as u32,
    };
    let mut header = Header { version: VERSION_3, pid: 0 };
    let data = [half(0), half(32)];
    // SAFETY: header and data are live, of the layout of capset(2) for version 3, which reads two entries.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    check(done)
}

pub(crate) fn prctl(option: libc::c_int, arg2: u64, arg3: u64) -> Result<(), Errno> {
    // SAFETY: the options used in this crate take integers only.
    check(unsafe { libc::syscall(libc::SYS_prctl, option, arg2, arg3, 0u64, 0u64) })
}

/// A system call's return value as a result.
pub(crate) fn check(returned: libc::c_long) -> Result<(), Errno> {
    if returned == -1 { Err(last_errno()) } else { Ok(()) }
}

pub(crate) fn last_errno() -> Errno {
    // SAFETY: errno's location is valid for the calling thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`, linux/capability.h.
const VERSION_3: u32 = 0x2008_0522;
/// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID and SYS_CHROOT, linux/capability.h: what package managers use. SETFCAP is not
/// among them: what it writes could be left behind in a folder of the host.
const MAINTENANCE: [u64; 7] = [0, 1, 3, 4, 6, 7, 18];
/// DAC_READ_SEARCH and SYS_ADMIN to mount; SETPCAP to lose all others; NET_BIND_SERVICE, NET_ADMIN and NET_RAW for a network of its
/// own; SYS_RESOURCE to limit what a user namespace may have; SETFCAP, with which an overlay copies a file that has capabilities (it
/// works with those of the process that mounted it). MKNOD, SYS_PTRACE and the others it does without.
const SETUP: [u64; 8] = [2, 8, 10, 12, 13, 21, 24, 31];
/// Higher than any kernel has; unknown ones answer EINVAL.
const LAST_CAPABILITY: u64 = 63;
/// SECBIT_NOROOT and its lock, linux/securebits.h. KEEP_CAPS stays unlocked: ping sets it.
const NO_ROOT_LOCKED: u64 = 0b11;

//! Installing a seccomp filter that was compiled elsewhere.

use crate::caps::{check, prctl};
use rustix::io::Errno;

/// One instruction of classic BPF, as the kernel reads it: linux/filter.h.
const INSTRUCTION: usize = 8;

/// No exec from here on grants anything: the condition for filters without CAP_SYS_ADMIN.
pub fn no_new_privileges() -> Result<(), Errno> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)
}

/// Whether a filter that we were started with answers for calls that a sandbox is made of, as that of a container does: unshare(2)
/// without a flag does nothing, and nothing but a filter refuses it.
pub fn refuses_namespaces() -> bool {
    // SAFETY: without a flag nothing changes.
    unsafe { libc::unshare(0) == -1 }
}

/// Adds a filter to the calling thread and all that it starts. `program` is an array of `sock_filter`.
pub fn install(program: &[u8]) -> Result<(), Errno> {
    install_with(program, 0).map(drop)
}

/// The same with flags of seccomp(2); gives what the kernel returned.
pub(crate) fn install_with(program: &[u8], flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let (instructions, rest) = program.as_chunks::<INSTRUCTION>();
    if !rest.is_empty() || instructions.is_empty() || instructions.len() > usize::from(u16::MAX) {
        return Err(Errno::INVAL);
    }
    // The kernel wants the alignment of sock_filter, which a byte array does not promise.
    let aligned: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|[c0, c1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_ne_bytes([*c0, *c1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_ne_bytes([*k0, *k1, *k2, *k3]),
        })
        .collect();
    let program = libc::sock_fprog { len: aligned.len() as u16, filter: aligned.as_ptr().cast_mut() };
    // SAFETY: `program` points to `len` instructions that live until the call returns; the kernel copies and
    // verifies them, and does not write.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    check(done).map(|()| done)
}

//! clone3(2), in the two ways that we need it; and clone(2) with the same flags where a filter refuses clone3, as Docker's default
//! profile does because it cannot look at flags in memory.

use crate::caps::last_errno;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::arch::asm;

/// What kind of process is made.
pub(crate) struct Args(libc::clone_args);

impl Args {
    /// A child with these namespaces; a handle to it is stored in `pidfd`, which must outlive the call that is made
    /// with this.
    pub(crate) fn new(namespaces: u64, pidfd: &mut libc::c_int) -> Args {
        Args(libc::clone_args {
            flags: namespaces | libc::CLONE_PIDFD as u64,
            pidfd: std::ptr::from_mut(pidfd) as u64,
            child_tid: 0,
            parent_tid: 0,
            exit_signal: libc::SIGCHLD as u64,
            stack: 0,
            stack_size: 0,
            tls: 0,
            set_tid: 0,
            set_tid_size: 0,
            cgroup: 0,
        })
    }

    /// Has our table of descriptors, and not a copy of it: the child must part with it before it changes anything in it
    /// ([`crate::descriptors::part`]). A copy takes as long as we have files open.
    pub(crate) fn share_descriptors(&mut self) {
        self.0.flags |= libc::CLONE_FILES as u64;
    }

    /// A child of our parent, which learns of its end as it would of ours.
    pub(crate) fn be_sibling(&mut self) {
        self.0.flags |= libc::CLONE_PARENT as u64;
        // The kernel takes ours, and none but that.
        self.0.exit_signal = 0;
    }

    /// Has the kernel write the child's number to this place of the child's memory, and clear it when the child ends.
    pub(crate) fn store_thread_id(&mut self, place: u64) {
        self.0.flags |= (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
        self.0.child_tid = place;
    }

    /// Born in this cgroup (version 2). Only clone3 can do that: see [`is_available`].
    pub(crate) fn set_cgroup(&mut self, cgroup: BorrowedFd<'_>) {
        self.0.flags |= CLONE_INTO_CGROUP;
        self.0.cgroup = cgroup.as_raw_fd() as u64;
    }

    /// The same as arguments of clone(2): flags with the signal in them, the end of the stack, and where a handle is stored.
    fn for_clone(&self) -> Result<[u64; 3], Errno> {
        let Args(args) = self;
        if args.flags & CLONE_INTO_CGROUP != 0 {
            return Err(Errno::NOSYS);
        }
        Ok([args.flags | args.exit_signal, args.stack + args.stack_size, args.pidfd])
    }
}

/// Whether clone3 is there. Kernels before 5.3 have none, and filters of containers refuse it: with ENOSYS, so that C libraries
/// fall back to clone, or, older ones, with EPERM.
pub(crate) fn is_available() -> bool {
    // SAFETY: arguments of no size are refused before anything is read.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<libc::clone_args>(), 0) };
    answer != -1 || !matches!(last_errno(), Errno::NOSYS | Errno::PERM)
}

/// Runs `child` in a process that is a copy of this one. Signals must be blocked.
pub(crate) fn run_in_copy<T>(args: Args, arg: &T, child: fn(&T) -> !) -> Result<u32, Errno> {
    match fork(args)? {
        0 => child(arg),
        pid => Ok(pid),
    }
}

/// Makes a process that is a copy of this one, and returns in both: 0 in the copy, whose only thread is the one that called.
pub(crate) fn fork(args: Args) -> Result<u32, Errno> {
    let pid = if is_available() {
        // SAFETY: without CLONE_VM the child runs on a copy of this memory and stack, so returning twice is sound. The
        // struct is live and of the size passed. What is stored in the child's memory is the number of its thread.
        unsafe { libc::syscall(libc::SYS_clone3, &raw const args.0, size_of::<libc::clone_args>()) }
    } else {
        let [flags, stack, pidfd] = args.for_clone()?;
        // Threads have storage of their own, which a copy of a process has already: that argument is never set.
        let [fourth, fifth] =
            if cfg!(target_arch = "x86_64") { [args.0.child_tid, 0] } else { [0, args.0.child_tid] };
        // SAFETY: as above; no stack means the same address in the copy. The handle is stored where the caller keeps it.
        unsafe { libc::syscall(libc::SYS_clone, flags, stack, pidfd, fourth, fifth) }
    };
    match pid {
        -1 => Err(last_errno()),
        pid => Ok(pid as u32),
    }
}

/// Starts `child` in a process that borrows this one's memory, on a stack of its own, as posix_spawn(3) does it: nothing is
/// copied, which is most of the price of a fork. Unlike there, the caller continues at once.
///
/// Until the child has executed a program or ended, `arg`, all that it refers to, and `stack` must stay as they are.
/// Signals must be blocked. `child` must make nothing but system calls, and none that fails on its way: it shares the
/// calling thread's error number.
pub(crate) fn start_borrowing<T>(
    mut args: Args,
    stack: &mut [u128],
    arg: &T,
    child: fn(&T) -> !,
) -> Result<u32, Errno> {
    args.0.flags |= libc::CLONE_VM as u64;
    args.0.stack = stack.as_mut_ptr() as u64;
    args.0.stack_size = size_of_val(stack) as u64;
    let (number, words) = if is_available() {
        let place = std::ptr::from_ref(&args.0) as u64;
        (libc::SYS_clone3, [place, size_of::<libc::clone_args>() as u64, 0])
    } else {
        (libc::SYS_clone, args.for_clone()?)
    };
    let returned = clone_onto_stack(number, words, std::ptr::from_ref(arg).cast(), child as *const ());
    if returned < 0 { Err(Errno::from_raw_os_error(-returned as i32)) } else { Ok(returned as u32) }
}

/// clone3 or clone, with its first arguments; those behind them are for flags that are not set. In the parent, returns what the
/// kernel returned. In the child, calls `child(arg)` on the new stack.
#[cfg(target_arch = "x86_64")]
fn clone_onto_stack(number: libc::c_long, words: [u64; 3], arg: *const (), child: *const ()) -> isize {
    let returned: isize;
    let [first, second, third] = words;
    // SAFETY: the kernel reads what the caller keeps alive. The child starts behind the system call with the new,
    // empty, 16-byte aligned stack and calls a function that never returns; the parent's registers are as the kernel
    // leaves them, which is what is declared, and its stack is not touched.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") number as isize => returned,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") 0_u64,
            in("r8") 0_u64,
            in("r12") arg,
            in("r13") child,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    returned
}

/// The same.
#[cfg(target_arch = "aarch64")]
fn clone_onto_stack(number: libc::c_long, words: [u64; 3], arg: *const (), child: *const ()) -> isize {
    let returned: isize;
    let [first, second, third] = words;
    // SAFETY: as on x86_64.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            in("x8") number,
            inlateout("x0") first as isize => returned,
            in("x1") second,
            in("x2") third,
            in("x3") 0_u64,
            in("x4") 0_u64,
            in("x20") arg,
            in("x21") child,
        );
    }
    returned
}

/// linux/sched.h; not in the libc crate for every target.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

//! System calls that another process answers: seccomp_unotify(2).
//!
//! A filter whose answer is `SECCOMP_RET_USER_NOTIF` stops the caller until the holder of the listener has answered. What the listener
//! tells are numbers: whatever they point to belongs to the caller, who may change it at any time.

use crate::caps::{check, last_errno};
use crate::seccomp;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// A system call that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Of this call alone.
    pub id: u64,
    /// The thread that makes it.
    pub thread: u32,
    pub number: i32,
    pub arguments: [u64; 6],
}

/// What the caller gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Value(i64),
    Error(Errno),
    /// The kernel carries the call out, with whatever the caller's memory and descriptors hold by then. Only for calls that may do
    /// anything.
    Continue,
}

/// At which number a descriptor appears in the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The lowest that is free.
    Lowest,
    /// This one.
    At(u32),
}

/// Adds a filter to the calling thread and all that it starts, and gives what its calls are told to.
pub fn install(program: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE;
    let descriptor = seccomp::install_with(program, flags)?;
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::IO)?;
    // SAFETY: with this flag the kernel returns a new descriptor, close-on-exec, that nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The next call. `NOENT`: the caller is gone by now.
pub fn receive(listener: impl AsFd) -> Result<Waiting, Errno> {
    // The kernel wants zeros.
    let mut notification = Notification::default();
    // SAFETY: the kernel writes one structure of this size to the address.
    ioctl(listener, RECEIVE, (&raw mut notification).cast())?;
    Ok(Waiting {
        id: notification.id,
        thread: notification.pid,
        number: notification.data.nr,
        arguments: notification.data.args,
    })
}

/// Whether the call still waits: what was read of its thread by number was that thread's.
pub fn is_waiting(listener: impl AsFd, id: u64) -> bool {
    ioctl(listener, IS_VALID, (&raw const id).cast_mut().cast()).is_ok()
}

/// Answers a call. `NOENT`: the caller is gone by now.
pub fn answer(listener: impl AsFd, id: u64, answer: Answer) -> Result<(), Errno> {
    let (val, error, flags) = match answer {
        Answer::Value(value) => (value, 0, 0),
        Answer::Error(errno) => (0, -errno.raw_os_error(), 0),
        Answer::Continue => (0, 0, CONTINUE),
    };
    let response = Response { id, val, error, flags };
    ioctl(listener, SEND, (&raw const response).cast_mut().cast()).map(drop)
}

/// Puts a copy of a descriptor into the caller, and answers the call with its number, both or neither. `NOENT`: the caller is gone.
pub fn answer_with(
    listener: impl AsFd,
    id: u64,
    descriptor: impl AsFd,
    place: Place,
    close_on_exec: bool,
) -> Result<(), Errno> {
    let source = descriptor.as_fd().as_raw_fd() as u32;
    let (newfd, more) = match place {
        Place::Lowest => (0, 0),
        Place::At(number) => (number, AT_NUMBER),
    };
    let newfd_flags = if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 };
    let added = Added { id, flags: AND_ANSWER | more, srcfd: source, newfd, newfd_flags };
    ioctl(listener, ADD, (&raw const added).cast_mut().cast()).map(drop)
}

/// Has the caller and the one who answers run on the same processor in turn, where the kernel can (6.6): one hand waits for the other.
pub fn take_turns(listener: impl AsFd) -> Result<(), Errno> {
    let flags: u64 = SYNC_WAKE_UP;
    // The flags are the argument itself.
    ioctl(listener, SET_FLAGS, std::ptr::without_provenance_mut(flags as usize)).map(drop)
}

fn ioctl(listener: impl AsFd, request: u32, argument: *mut libc::c_void) -> Result<i32, Errno> {
    let descriptor = listener.as_fd().as_raw_fd();
    loop {
        // SAFETY: the callers in this module pass a live structure of the size that is part of the request's number.
        let done = unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, argument) };
        match check(done) {
            Ok(()) => return i32::try_from(done).map_err(|_| Errno::IO),
            Err(_) if last_errno() == Errno::INTR => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    data: Data,
}

/// `struct seccomp_data`.
#[repr(C)]
#[derive(Default)]
struct Data {
    nr: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct Added {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

// linux/seccomp.h: `_IOWR('!', 0, struct seccomp_notif)` and so on.
const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const IS_VALID: u32 = 0x4008_2102;
const ADD: u32 = 0x4018_2103;
const SET_FLAGS: u32 = 0x4008_2104;
/// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: a signal does not start a call again that is being answered (5.19).
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;
/// SECCOMP_USER_NOTIF_FLAG_CONTINUE
const CONTINUE: u32 = 1;
/// SECCOMP_ADDFD_FLAG_SETFD, SECCOMP_ADDFD_FLAG_SEND
const AT_NUMBER: u32 = 1;
const AND_ANSWER: u32 = 2;
/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
const SYNC_WAKE_UP: u64 = 1;

/// The calls that a supervisor may be asked about, by their numbers on this architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Socket,
    Connect,
    Bind,
    Listen,
    Sendto,
    Sendmsg,
    Sendmmsg,
    Recvfrom,
    Recvmsg,
    Recvmmsg,
    Getsockname,
    Getpeername,
    Chmod,
    Fchmod,
    Fchmodat,
    Fchmodat2,
    Chown,
    Lchown,
    Fchown,
    Fchownat,
    Utime,
    Utimes,
    Futimesat,
    Utimensat,
    Setxattr,
    Lsetxattr,
    Fsetxattr,
    Removexattr,
    Lremovexattr,
    Fremovexattr,
    Kill,
    Tkill,
    Tgkill,
    RtSigqueueinfo,
    RtTgsigqueueinfo,
    PidfdSendSignal,
    Fcntl,
    Ioctl,
}

impl Name {
    /// The call of this number, if it is one of these.
    pub fn of(number: i32) -> Option<Name> {
        let number = libc::c_long::from(number);
        NAMES.iter().chain(OLD_NAMES).find(|(known, _)| *known == number).map(|(_, name)| *name)
    }
}

const NAMES: &[(libc::c_long, Name)] = &[
    (libc::SYS_socket, Name::Socket),
    (libc::SYS_connect, Name::Connect),
    (libc::SYS_bind, Name::Bind),
    (libc::SYS_listen, Name::Listen),
    (libc::SYS_sendto, Name::Sendto),
    (libc::SYS_sendmsg, Name::Sendmsg),
    (libc::SYS_sendmmsg, Name::Sendmmsg),
    (libc::SYS_recvfrom, Name::Recvfrom),
    (libc::SYS_recvmsg, Name::Recvmsg),
    (libc::SYS_recvmmsg, Name::Recvmmsg),
    (libc::SYS_getsockname, Name::Getsockname),
    (libc::SYS_getpeername, Name::Getpeername),
    (libc::SYS_fchmod, Name::Fchmod),
    (libc::SYS_fchmodat, Name::Fchmodat),
    (FCHMODAT2, Name::Fchmodat2),
    (libc::SYS_fchown, Name::Fchown),
    (libc::SYS_fchownat, Name::Fchownat),
    (libc::SYS_utimensat, Name::Utimensat),
    (libc::SYS_setxattr, Name::Setxattr),
    (libc::SYS_lsetxattr, Name::Lsetxattr),
    (libc::SYS_fsetxattr, Name::Fsetxattr),
    (libc::SYS_removexattr, Name::Removexattr),
    (libc::SYS_lremovexattr, Name::Lremovexattr),
    (libc::SYS_fremovexattr, Name::Fremovexattr),
    (libc::SYS_kill, Name::Kill),
    (libc::SYS_tkill, Name::Tkill),
    (libc::SYS_tgkill, Name::Tgkill),
    (libc::SYS_rt_sigqueueinfo, Name::RtSigqueueinfo),
    (libc::SYS_rt_tgsigqueueinfo, Name::RtTgsigqueueinfo),
    (libc::SYS_pidfd_send_signal, Name::PidfdSendSignal),
    (libc::SYS_fcntl, Name::Fcntl),
    (libc::SYS_ioctl, Name::Ioctl),
];
#[cfg(target_arch = "x86_64")]
const OLD_NAMES: &[(libc::c_long, Name)] = &[
    (libc::SYS_chmod, Name::Chmod),
    (libc::SYS_chown, Name::Chown),
    (libc::SYS_lchown, Name::Lchown),
    (libc::SYS_utime, Name::Utime),
    (libc::SYS_utimes, Name::Utimes),
    (libc::SYS_futimesat, Name::Futimesat),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_NAMES: &[(libc::c_long, Name)] = &[];
/// The same number on every architecture; not in every version of the libc crate.
const FCHMODAT2: libc::c_long = 452;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getppid;
    use std::sync::mpsc::channel;
    use std::thread;

    /// Tells of getppid(2), and allows everything else: linux/filter.h, linux/seccomp.h.
    fn program() -> Vec<u8> {
        let instruction = |code: u16, jump: [u8; 2], value: u32| {
            [&code.to_ne_bytes()[..], &jump, &value.to_ne_bytes()].concat()
        };
        [
            instruction(0x20, [0, 0], 0),
            instruction(0x15, [0, 1], libc::SYS_getppid as u32),
            instruction(0x06, [0, 0], 0x7fc0_0000),
            instruction(0x06, [0, 0], 0x7fff_0000),
        ]
        .concat()
    }

    #[test]
    fn a_call_waits_for_its_answer_and_fails_when_nobody_is_left_to_give_one() {
        let (tell, receiver) = channel();
        let caller = thread::spawn(move || {
            seccomp::no_new_privileges().expect("no privileges");
            let Ok(listener) = install(&program()) else { return None };
            tell.send(listener).expect("the test waits");
            // SAFETY: takes nothing, and changes nothing.
            let call = || unsafe { libc::syscall(libc::SYS_getppid) };
            Some([call(), call(), call()])
        });
        // A kernel, or a filter around us, that has none of it.
        let Ok(listener) = receiver.recv() else { return };
        let first = receive(&listener).expect("a call");
        assert!(Name::of(first.number).is_none() && is_waiting(&listener, first.id));
        answer(&listener, first.id, Answer::Value(4711)).expect("it waits");
        assert!(!is_waiting(&listener, first.id));
        let second = receive(&listener).expect("a call");
        answer(&listener, second.id, Answer::Continue).expect("it waits");
        drop(listener);
        let answers = caller.join().expect("it ends").expect("it was filtered");
        let parent = getppid().map_or(0, |parent| i64::from(parent.as_raw_nonzero().get()));
        assert_eq!(answers, [4711, parent, -1]);
    }
}

//! The kernel's list of bound unix sockets, by sock_diag(7): only those that a process could connect or send to. A process
//! that holds a thousand sandboxes has thousands of connected pairs, which /proc/net/unix would spell out at every start.
//! It is still what is read where the kernel was built without the other.

use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The absolute paths of sockets that can be connected to.
pub(super) fn bound() -> io::Result<Vec<PathBuf>> {
    either(asked(), || fs::read("/proc/net/unix"))
}

/// What the kernel answered, or what it writes in /proc. Neither is an error, and never an empty list.
fn either(
    answer: Result<Vec<PathBuf>, Errno>,
    written: impl FnOnce() -> io::Result<Vec<u8>>,
) -> io::Result<Vec<PathBuf>> {
    answer.or_else(|_| written().map(|listed| spelled_out(&listed).collect()))
}

fn asked() -> Result<Vec<PathBuf>, Errno> {
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &question(), SendFlags::empty())?;
    let mut paths = Vec::new();
    let mut buffer = vec![0; ANSWER];
    loop {
        let (length, _) = recv(&kernel, &mut buffer[..], RecvFlags::empty())?;
        if length == 0 {
            return Err(Errno::IO);
        }
        if understand(&buffer[..length], &mut paths)? == Dump::Done {
            return Ok(paths);
        }
    }
}

/// `nlmsghdr` (linux/netlink.h) and `unix_diag_req` (linux/unix_diag.h).
fn question() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    bytes.extend(40u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([AddressFamily::UNIX.as_raw() as u8, 0, 0, 0]);
    bytes.extend((1u32 << TCP_ESTABLISHED | 1 << TCP_LISTEN | 1 << TCP_CLOSE).to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(UDIAG_SHOW_NAME.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Dump {
    GoesOn,
    Done,
}

/// The messages of one answer.
fn understand(mut answer: &[u8], paths: &mut Vec<PathBuf>) -> Result<Dump, Errno> {
    while let Some((length, kind)) = header(answer) {
        let message = answer.get(HEADER..length).ok_or(Errno::IO)?;
        match kind {
            NLMSG_DONE => return Ok(Dump::Done),
            NLMSG_ERROR => return Err(Errno::IO),
            _ => paths.extend(name(message)),
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Dump::GoesOn)
}

fn header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    (length >= HEADER).then_some((length, kind))
}

/// The name in a `unix_diag_msg`, if it is one of the filesystem and can be connected to. Abstract names begin with a zero byte.
fn name(message: &[u8]) -> Option<PathBuf> {
    let [_family, kind, state, ..] = *message else { return None };
    // One end of a connection has its listener's name, and is no way in. A datagram socket is one: a process that connected
    // to it made it look like that, and any other may still send to it.
    if u32::from(state) == TCP_ESTABLISHED && kind != SOCK_DGRAM {
        return None;
    }
    let mut attributes = message.get(UNIX_DIAG_MSG..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if kind == UNIX_DIAG_NAME {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            return value.starts_with(b"/").then(|| OsStr::from_bytes(&value[..end]).into());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// The absolute paths in /proc/net/unix: what follows seven columns. Abstract names begin with `@` there.
/// Names are bytes: one that is no text hides no other.
fn spelled_out(listed: &[u8]) -> impl Iterator<Item = PathBuf> {
    listed.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let mut rest = line.trim_ascii_start();
        for _ in 0..7 {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            rest = rest[end..].trim_ascii_start();
        }
        rest.starts_with(b"/").then(|| OsStr::from_bytes(rest).into())
    })
}

const HEADER: usize = 16;
const UNIX_DIAG_MSG: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const UDIAG_SHOW_NAME: u32 = 1;
const UNIX_DIAG_NAME: u16 = 0;
/// linux/net.h
const SOCK_DGRAM: u8 = 2;
/// States of a socket (net/tcp_states.h): connected; not connected, so any process may send to it; and waiting for connections.
const TCP_ESTABLISHED: u32 = 1;
const TCP_CLOSE: u32 = 7;
const TCP_LISTEN: u32 = 10;
/// What the kernel fills at most at once (af_netlink.c).
const ANSWER: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_in_proc_is_read_as_the_kernel_writes_it() {
        let listed = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
                      0000: 00000002 00000000 00010000 0001 01 16163 /run/docker.sock\n\
                      0000: 00000003 00000000 00000000 0001 03 16288\n\
                      0000: 00000002 00000000 00010000 0001 01 1 @abstract /not/one\n\
                      0000: 00000002 00000000 00010000 0001 01 23 /srv/app/no text \xff.sock\n\
                      0000: 00000002 00000000 00010000 0001 01 22 /srv/app/tmp/with space.sock\n";
        let paths: Vec<_> = spelled_out(listed).collect();
        let no_text = OsStr::from_bytes(b"/srv/app/no text \xff.sock");
        assert_eq!(paths, ["/run/docker.sock".as_ref(), no_text, "/srv/app/tmp/with space.sock".as_ref()]);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_no_empty_one() {
        let written = || Ok(b"Num\n0: 1 2 3 4 5 6 /a\xff\n0: 1 2 3 4 5 6 /b\n".to_vec());
        assert_eq!(either(Err(Errno::PROTONOSUPPORT), written).unwrap().len(), 2);
        assert_eq!(either(Ok(vec!["/c".into()]), written).unwrap(), [PathBuf::from("/c")]);
        let unreadable = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(either(Err(Errno::PERM), unreadable).is_err());
    }

    #[test]
    fn a_broken_answer_is_an_error_or_nothing() {
        for answer in
            [&[0; 3][..], &[0; 16], &[255; 64], &[17, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]]
        {
            let mut paths = Vec::new();
            let _ = understand(answer, &mut paths);
            assert!(paths.is_empty(), "{answer:?}");
        }
    }
}

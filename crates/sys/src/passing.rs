//! Passing descriptors over a unix socket.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// The most descriptors one packet carries; the kernel's own bound is 253 (SCM_MAX_FD).
pub const MAX_PASSED: usize = 64;

/// Sends one packet of a single byte with these descriptors.
pub fn send(socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    send_with(socket, &[1], descriptors).map(drop)
}

/// Sends these bytes, or the first of them, with these descriptors.
pub fn send_with(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

/// The descriptors of the next packet; `None` when the other side is gone.
pub fn receive(socket: impl AsFd) -> Result<Option<Vec<OwnedFd>>, Errno> {
    let (length, descriptors) = receive_with(socket, &mut [0])?;
    Ok((length > 0).then_some(descriptors))
}

/// The next bytes of a stream and the descriptors that came with them; no bytes when the other side is gone.
pub fn receive_with(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        })
        .flatten()
        .collect();
    Ok((received.bytes, descriptors))
}

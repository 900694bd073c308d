//! Watching a directory for the host, until the host has seen enough. One thread, which sleeps while nothing happens.

mod tree;

use crate::files::PathRoot;
use crate::stream::{Stream, fault};
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::inotify::Reader;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::{Change, Reply};
use std::io;
use std::mem::MaybeUninit;
use tree::Tree;

/// Watches a directory, with `recursive` all below it too.
pub(crate) fn answer(place: &PathRoot, path: &str, recursive: bool, stream: &mut Stream) -> io::Result<()> {
    let failed = |errno: Errno| Reply::Failed(fault(format!("watch {path}"), errno));
    let mut tree = match Tree::watch(place, path, recursive) {
        Ok(tree) => tree,
        Err(errno) => return stream.send_message(&failed(errno)),
    };
    stream.send_message(&Reply::Opened)?;
    let events = tree.events()?;
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut reader = Reader::new(&events, &mut buffer);
    loop {
        send(stream, tree.take())?;
        if tree.is_over() {
            return stream.send_message(&Reply::Changes(Vec::new()));
        }
        match reader.next() {
            Ok(event) => tree.understand(&event),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                tree.caught_up();
                send(stream, tree.take_all())?;
                if !wait(&events, stream)? {
                    return Ok(());
                }
            }
            Err(errno) => return stream.send_message(&failed(errno)),
        }
    }
}

fn send(stream: &mut Stream, changes: Vec<Change>) -> io::Result<()> {
    for some in changes.chunks(CHANGES_A_MESSAGE) {
        stream.send_message(&Reply::Changes(some.to_vec()))?;
    }
    Ok(())
}

/// Waits until something changes; `false` when the host does not want to know any more.
fn wait(events: &OwnedFd, stream: &Stream) -> Result<bool, Errno> {
    loop {
        let mut waiting =
            [PollFd::new(events, PollFlags::IN), PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut waiting, None) {
            Ok(_) => return Ok(waiting[1].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Room for some hundred events of the usual length.
const BUFFER: usize = 16 * 1024;
/// With the longest paths that are watched, this stays below the longest frame.
const CHANGES_A_MESSAGE: usize = 256;

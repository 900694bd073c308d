//! The door: setup first, then a thread a request, until the host is gone.

use crate::files::Place;
use crate::stream::Stream;
use crate::{exec, files, seal, setup, tree};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::process::{DumpableBehavior, WaitOptions, getpid, set_dumpable_behavior, wait};
use belljar_sys::{launch, passing};
use belljar_wire::message::{Fault, Request, Sealed, Setup, SetupReply};
use std::io;
use std::sync::Arc;
use std::thread;

/// Serves until the door closes.
pub(crate) fn serve() -> io::Result<()> {
    // Nobody with our user id may read our memory, our descriptors or our limits through /proc, or trace us.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let door = launch::first_inherited();
    let Some(place) = open(&door)? else { return Ok(()) };
    let place = Arc::new(place);
    while let Some(descriptors) = passing::receive(&door)? {
        reap();
        for descriptor in descriptors {
            let place = Arc::clone(&place);
            // A thread that cannot be made drops the stream: the host sees it end without an answer.
            let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
                // An error here is a host that hung up.
                let _ = answer(&place, Stream::new(descriptor));
            });
        }
    }
    // Process 1 takes everybody along by ending; elsewhere it has to be done by hand.
    tree::kill_below(getpid());
    Ok(())
}

/// Takes the first stream and builds what it says. `None`: the host left, or was told that it failed.
fn open(door: &OwnedFd) -> io::Result<Option<Place>> {
    let Some(descriptors) = passing::receive(door)? else { return Ok(None) };
    let mut descriptors = descriptors.into_iter();
    let Some(first) = descriptors.next() else { return Ok(None) };
    let mut stream = Stream::new(first);
    let setup: Setup = stream.receive_message()?;
    match build(setup, descriptors.collect()) {
        Ok((place, sealed)) => {
            stream.send_message(&SetupReply::Ready(sealed))?;
            Ok(Some(place))
        }
        Err(fault) => {
            stream.send_message(&SetupReply::Failed(fault))?;
            Ok(None)
        }
    }
}

fn build(setup: Setup, passed: Vec<OwnedFd>) -> Result<(Place, Sealed), Fault> {
    if setup.version != belljar_wire::VERSION {
        return Err(Fault {
            doing: format!("speak version {} of the guest protocol", setup.version),
            errno: 0,
        });
    }
    setup::carry_out(&setup.steps, passed)?;
    let place = Place::open(setup.files, setup.workspace)?;
    let sealed = seal::seal(&setup.seal)?;
    Ok((place, sealed))
}

fn answer(place: &Place, mut stream: Stream) -> io::Result<()> {
    match stream.receive_message()? {
        Request::Exec(request) => exec::run(place, request, stream),
        other => files::answer(place, other, &mut stream),
    }
}

/// Collects supervisors that have nothing left to supervise, and orphans whose supervisor was killed.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// A request's thread: its buffers are on the heap.
const STACK: usize = 256 * 1024;

//! What a process leaves behind when it crashes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fs, io};

/// From now on this process leaves no image of its memory behind, whatever ends it. Programs that it starts inherit that,
/// and may ask for one again.
///
/// Not by PR_SET_DUMPABLE: that would also close our own files in /proc to us, those of a child that still borrows our
/// memory among them, and an ordinary user could not write a sandbox's user map any more.
pub fn leave_none() -> io::Result<()> {
    let before = getrlimit(Resource::Core);
    let current = before.maximum.map_or(NO_CORE, |most| most.min(NO_CORE));
    setrlimit(Resource::Core, Rlimit { current: Some(current), maximum: before.maximum })?;
    // Where the limit has to stay 0, a handler still gets an image: with no memory in it.
    fs::write("/proc/self/coredump_filter", "0")
}

/// With 0 the kernel still hands the image to the host's handler of crashes, if it has one; with 1 it does not, and a file
/// of one byte is not written either: core(5), fs/coredump.c.
const NO_CORE: u64 = 1;

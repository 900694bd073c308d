//! The guest: process 1 of every sandbox, whatever the wall.
//!
//! It gets one descriptor, the door (3), or where a wall hands out none, the place of a socket to knock at. Through the door come streams: the first carries the setup, which is
//! carried out, sealed and answered; every later one carries one request and gets a thread of its own. Threads
//! of process 1 cannot be signalled from inside, and nothing here is dumpable. When the door closes, the host is
//! gone, and so are we and everything we started. Where we are not process 1 and somebody kills us, the supervisors of
//! our commands become this program again (`orphaned`) and do it.
//!
//! Called with the word `reap` it is none of that, but a process outside of sandboxes that cleans up after one.
//!
//! It holds no policy and no secret, resolves no name through libc, and prints nothing.

mod connect;
mod exec;
mod files;
mod intake;
mod muxed;
mod pause;
mod reap;
mod relay;
mod seal;
mod serve;
mod setup;
mod stream;
mod tree;
mod upload;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word.as_encoded_bytes() == tree::ORPHANED.to_bytes()) {
        tree::kill_below_us();
        return ExitCode::SUCCESS;
    }
    if reap::is_wanted() {
        return reap::run();
    }
    match serve::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

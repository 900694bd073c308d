//! The guest: process 1 of every sandbox, in every backend.
//!
//! It inherits one descriptor, the control socket (3), or, where the backend hands it none, gets the path of a
//! socket to connect to. Over the control socket come streams: the first carries the setup: the guest carries it out,
//! confines itself and answers; every later one carries one request and gets a thread of its own. Threads of process 1
//! cannot be signalled from inside, and nothing here is dumpable. When the control socket closes, the host is gone, and the
//! guest ends with everything it started. Where the guest is not process 1 and is killed, the supervisors of its commands
//! become this program again (`orphaned`) and kill their trees.
//!
//! Started with the argument `hold`, it is first the process above such a guest, which commands cannot reach.
//!
//! Started with the argument `reap`, it is none of that, but a process outside of sandboxes that cleans up after one.
//!
//! It holds no policy and no secret, resolves no name through libc, and prints nothing.

mod attributes;
mod confinement;
mod connect;
mod egress;
mod exec;
mod files;
mod holder;
mod listening;
mod muxed;
mod pause;
mod reap;
mod relay;
mod serve;
mod setup;
mod stream;
mod supervised;
mod tree;
mod upload;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word.as_encoded_bytes() == tree::ORPHANED.to_bytes()) {
        tree::kill_below_us();
        return ExitCode::SUCCESS;
    }
    if reap::is_requested() {
        return reap::run();
    }
    if let Some(landlock_abi) = holder::is_requested()
        && holder::hold(landlock_abi).is_err()
    {
        return ExitCode::FAILURE;
    }
    match serve::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

//! The daemon as others see it: over its sockets, with bytes that were written by hand where that is what matters.

#![allow(clippy::unwrap_used, reason = "tests stop where they cannot continue")]

mod daemon;
mod framing;
mod limits;
mod refusals;
mod sockets;
mod through;

/// Not a test of its own: the process that the daemon starts as a shim.
#[test]
fn shim_process() {
    if let Some(directory) = std::env::var_os(daemon::DIRECTORY) {
        let code = belljar_server::shim::run(std::path::Path::new(&directory), || Ok(()));
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

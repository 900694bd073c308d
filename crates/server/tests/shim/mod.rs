//! Shims as processes, each with a real sandbox: what their daemon would ask of them, over their sockets.

mod commands;
mod files;
mod life;
mod ports;
mod speaking;
mod started;

use std::path::PathBuf;

/// Not a test of its own: the process that the others start.
#[test]
fn shim_process() {
    if let Some(directory) = std::env::var_os(started::DIRECTORY) {
        let code = belljar_server::shim::run(&PathBuf::from(directory), || Ok(()));
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

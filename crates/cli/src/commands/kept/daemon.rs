//! The daemon, asked or started.

use belljar_client::Client;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Our daemon; it is started where none listens.
pub(super) fn client() -> Client {
    Client::local(start)
}

/// Starts one that nobody waits for. It ends by itself when nothing is left to do.
fn start() -> io::Result<Child> {
    let log = log()?;
    Command::new(std::env::current_exe()?)
        .args(["serve", "--idle-exit", IDLE])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // What is typed at our terminal is not meant for it.
        .process_group(0)
        .spawn()
}

/// Where it says what it has to say.
fn log() -> io::Result<File> {
    let folder = belljar_audit::state_directory().map_err(io::Error::other)?.join("fleet");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join("daemon.log"))
}

const IDLE: &str = "10m";

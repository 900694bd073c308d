//! The daemon, asked or started.

use belljar_api::client::Client;
use belljar_spec::REGIONAL_VARIABLES;
use belljar_state::{create_private, state_directory};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Our daemon; it is started where none listens.
pub(super) fn client() -> Client {
    Client::local(start)
}

/// What a sandbox that is started takes from our environment, and not from that of the process that started the daemon:
/// where programs are, which shell, the language and the time zone. What a variable holds that is not UTF-8 cannot be sent,
/// and is the daemon's own then.
pub(super) fn caller_environment() -> BTreeMap<String, String> {
    let one = |name: &str| std::env::var(name).ok().map(|value| (name.to_string(), value));
    ["PATH", "SHELL"].into_iter().chain(REGIONAL_VARIABLES).filter_map(one).collect()
}

/// Starts one in the background. It ends by itself when nothing is left to do.
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
    let folder = state_directory().map_err(io::Error::other)?.join("fleet");
    let path = folder.join("daemon.log");
    if path.metadata().is_ok_and(|found| found.len() > LARGEST_LOG) {
        // The one before that goes.
        let _ = std::fs::rename(&path, folder.join("daemon.log.old"));
    }
    create_private(&folder)
        .and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(&path))
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write its log `{}`: {error}", path.display()))
        })
}

const IDLE: &str = "10m";
/// In bytes: more than a person reads.
const LARGEST_LOG: u64 = 4 * 1024 * 1024;

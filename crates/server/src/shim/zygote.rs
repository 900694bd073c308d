//! The zygote: a process of one thread that has loaded what every shim needs, and makes each shim as a copy of itself. Memory that no
//! shim changes is there once for all of them, and a shim begins without loading and preparing a program.
//!
//! ```text
//!   daemon ──Order, and the shim's standard streams──> zygote ──fork──> shim, a child of the daemon
//!          <──its number and a handle, or why not───────┘                (process)
//! ```
//! It does what the daemon says that started it, one order at a time, and ends with it. It reads no file of a sandbox, holds no secret and
//! starts no thread. Shims do not notice its end. Why it is so: docs/decisions/0027-zygote.md.

use super::{process, routes_of_api};
use belljar_engine::load_for_shims;
use belljar_spec::SandboxError;
use belljar_sys::fork::{Alone, Forked, Sibling, fork_sibling};
use belljar_sys::passing;
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::{Errno, fcntl_dupfd_cloexec};
use belljar_sys::rustix::process::setsid;
use belljar_sys::rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A shim that is to be: with it come its standard input, output and error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) directory: PathBuf,
    /// Variables instead of the daemon's, or beside them.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// Makes shims until the daemon at the other end of standard input is gone. `start_log` begins the log of a shim, on its own standard error.
pub fn run(start_log: impl FnOnce() -> Result<(), SandboxError>) -> ExitCode {
    match serve() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(directory)) => process::run(&directory, start_log),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Gives the directory of its shim in each copy, and nothing in the zygote.
fn serve() -> io::Result<Option<PathBuf>> {
    let daemon = fcntl_dupfd_cloexec(stdin(), 3)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    drop(null);
    // Who signals the daemon's group does not mean the zygote.
    let _ = setsid();
    prepare();
    loop {
        let Some((order, streams)) = receive(&daemon)? else { return Ok(None) };
        match order.and_then(|order| Ok((order, fork_sibling()?))) {
            Ok((order, Forked::Copy(alone))) => {
                drop(daemon);
                return become_shim(&alone, order, streams).map(Some);
            }
            Ok((_, Forked::Original(Sibling { pid, pidfd }))) => {
                passing::send_with(&daemon, &pid.to_le_bytes(), &[pidfd.as_fd()])?;
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
                passing::send_with(&daemon, &errno.to_le_bytes(), &[])?;
            }
        }
    }
}

/// Loads what every shim needs, and none changes.
fn prepare() {
    load_for_shims();
    drop(routes_of_api());
}

/// The next order; nothing when the daemon is gone.
fn receive(daemon: &OwnedFd) -> io::Result<Option<(io::Result<Order>, [OwnedFd; 3])>> {
    let mut bytes = vec![0; MAX_ORDER_BYTES];
    let (length, streams) = passing::receive_with(daemon, &mut bytes)?;
    if length == 0 {
        return Ok(None);
    }
    let streams =
        <[OwnedFd; 3]>::try_from(streams).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(Some((Order::from_bytes(&bytes[..length]), streams)))
}

/// Makes the copy what a program would be that the daemon executed: its streams, its variables, its words.
fn become_shim(alone: &Alone, order: Order, [input, output, error]: [OwnedFd; 3]) -> io::Result<PathBuf> {
    dup2_stdin(&input)?;
    dup2_stdout(&output)?;
    dup2_stderr(&error)?;
    for (name, value) in &order.environment {
        alone.set_variable(name, value);
    }
    // For people who look at processes.
    let _ = alone.show_words(&["belljar".into(), "shim".into(), order.directory.clone().into()]);
    Ok(order.directory)
}

impl Order {
    /// Neither a path nor a variable has a zero in it: zeros part them.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.directory.as_os_str().as_bytes().to_vec();
        for (name, value) in &self.environment {
            bytes.extend([b"\0", name.as_bytes(), b"=", value.as_bytes()].concat());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> io::Result<Order> {
        let mut parts = bytes.split(|byte| *byte == 0);
        let directory = parts.next().map(|path| Path::new(OsStr::from_bytes(path)).to_path_buf());
        let variable = |part: &[u8]| {
            let at = part.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            Some((OsString::from_vec(part[..at].to_vec()), OsString::from_vec(part[at + 1..].to_vec())))
        };
        let environment: Option<Vec<_>> = parts.map(variable).collect();
        match (directory, environment) {
            (Some(directory), Some(environment)) => Ok(Order { directory, environment }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Longer than any search path: one packet.
pub(crate) const MAX_ORDER_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        for environment in [vec![], vec![variable("PATH", "/bin:/a=b"), variable("LANG", "")]] {
            let directory = PathBuf::from(OsString::from_vec(b"/state/\xff box".to_vec()));
            let order = Order { directory, environment };
            assert_eq!(Order::from_bytes(&order.to_bytes()).expect("an order"), order);
        }
    }

    #[test]
    fn a_variable_without_a_name_is_no_order() {
        for bytes in [&b"/state\0PATH"[..], b"/state\0=x", b"/state\0"] {
            assert!(Order::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }
}

//! Where the daemon is.

use belljar_spec::{ErrorCode, SandboxError};
use std::env;
use std::path::PathBuf;

/// The socket of the daemon that DOCKER_HOST names, or the usual one.
pub fn socket() -> Result<PathBuf, SandboxError> {
    match env::var("DOCKER_HOST") {
        Ok(address) if !address.is_empty() => named(&address),
        _ => Ok(USUAL.into()),
    }
}

/// Every place where a daemon's socket is looked for here, whether one is there or not: what no sandbox may be given.
pub fn sockets() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from(USUAL), PathBuf::from("/run/docker.sock")];
    all.extend(env::var_os("XDG_RUNTIME_DIR").map(|directory| PathBuf::from(directory).join("docker.sock")));
    all.extend(socket());
    all.dedup();
    all
}

fn named(address: &str) -> Result<PathBuf, SandboxError> {
    match address.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        _ => {
            let message =
                format!("DOCKER_HOST is `{address}`, and belljar speaks to daemons of this machine only");
            Err(ErrorCode::BackendUnavailable.error(message).hint(
                "unset it, or set it to the daemon's socket: `DOCKER_HOST=unix:///var/run/docker.sock`",
            ))
        }
    }
}

/// Where every distribution puts it.
const USUAL: &str = "/var/run/docker.sock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_of_this_machine_is_a_daemon() {
        assert_eq!(named("unix:///x/y.sock").unwrap(), PathBuf::from("/x/y.sock"));
        for address in
            ["tcp://1.2.3.4:2375", "ssh://host", "unix://", "unix://relative", "/x/y.sock", "npipe:////./x"]
        {
            assert_eq!(named(address).unwrap_err().code, ErrorCode::BackendUnavailable, "{address}");
        }
    }
}

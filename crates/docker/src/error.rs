//! What goes wrong with a daemon, as an error that a person can act on.

use belljar_spec::{ErrorCode, SandboxError};
use bollard::errors::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Why no daemon answers at a socket.
pub(crate) fn unreachable(socket: &Path, error: &io::Error) -> SandboxError {
    let at = socket.display();
    match error.kind() {
        ErrorKind::NotFound => ErrorCode::BackendUnavailable
            .error(format!("there is no Docker daemon at `{at}`"))
            .hint("start it (`systemctl start docker`), install Docker, or set DOCKER_HOST to its socket"),
        ErrorKind::PermissionDenied => {
            let message = format!("you may not speak to the Docker daemon at `{at}`");
            ErrorCode::BackendUnavailable.error(message).hint(
                "run as root, or have an administrator add you to its group: `sudo usermod -aG docker $USER`, then log in again; \
                 its members can become root here",
            )
        }
        ErrorKind::ConnectionRefused => {
            let message = format!(
                "the Docker daemon at `{at}` does not run: its socket exists, and no process listens on it"
            );
            ErrorCode::BackendUnavailable.error(message).hint("start it: `systemctl start docker`")
        }
        _ => {
            ErrorCode::BackendUnavailable.error(format!("cannot reach the Docker daemon at `{at}`: {error}"))
        }
    }
}

/// What a daemon said while something was done.
pub fn refused(doing: &str, error: &Error) -> SandboxError {
    let reason = match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_string(),
        Error::DockerStreamError { error } => error.trim().to_string(),
        Error::RequestTimeoutError => "it does not answer".to_string(),
        other => whole(other),
    };
    ErrorCode::StartFailed
        .error(format!("the Docker daemon could not {doing}: {reason}"))
        .hint("`docker info` says whether it is well; its log says more (`journalctl -u docker`)")
}

/// Whether a daemon said that what was named does not exist.
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

/// An error with what is behind it: hyper's own words say little.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_what_to_do() {
        for (kind, code) in [
            (ErrorKind::NotFound, ErrorCode::BackendUnavailable),
            (ErrorKind::PermissionDenied, ErrorCode::BackendUnavailable),
            (ErrorKind::ConnectionRefused, ErrorCode::BackendUnavailable),
        ] {
            let error = unreachable(Path::new("/x.sock"), &kind.into());
            assert_eq!(error.code, code);
            assert!(error.message.contains("/x.sock") && error.hint.is_some(), "{error:?}");
        }
    }
}

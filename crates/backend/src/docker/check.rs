//! Whether a daemon is here that can run this backend: by asking it. Starting a container takes a hundred times as long as the answer.

use super::launch;
use belljar_spec::{CommandLine, ErrorCode, Runtime, SandboxError, Term, hint};

/// Whether the daemon says that it has what this takes.
pub(super) fn check(runtime: Runtime) -> Result<(), SandboxError> {
    accept(runtime)?;
    let daemon = super::daemon()?;
    let info = daemon.run("say what it is", async |client| client.info().await)?;
    let options = info.security_options.unwrap_or_default();
    if options.iter().any(|option| option.contains("rootless")) {
        let message = "this Docker daemon is an ordinary user's, and cannot be shown what root puts together";
        return Err(ErrorCode::BackendUnavailable.error(message).hint(hint!(
            "use the machine's own daemon (DOCKER_HOST), or {}, which needs no root at all",
            Term::Backend.to("native")
        )));
    }
    if !options.iter().any(|option| option.contains("seccomp")) {
        let message = "this Docker daemon can filter no system calls";
        return Err(ErrorCode::BackendUnavailable
            .error(message)
            .hint(hint!("use a daemon and a kernel with seccomp, or {}", Term::Backend.to("native"))));
    }
    if !info.runtimes.unwrap_or_default().contains_key(runtime.as_str()) {
        return Err(no_runtime(runtime));
    }
    launch::accept_us()
}

/// Refuses a runtime whose guest cannot reach belljar: its control socket is a unix socket of the host's, and no connection
/// to one leaves a virtual machine.
pub(super) fn accept(runtime: Runtime) -> Result<(), SandboxError> {
    match runtime {
        Runtime::Runc | Runtime::Runsc => Ok(()),
        Runtime::Kata => {
            let message = "belljar cannot use the runtime `kata` yet: nothing in its virtual machine reaches belljar's socket";
            Err(ErrorCode::BackendUnavailable.error(message).hint(hint!(
                "use {} (gVisor), which has a kernel of its own too, or {}",
                Term::Backend.to("docker+runsc"),
                Term::Backend.to("native")
            )))
        }
    }
}

/// What to write where, for a runtime that the daemon does not have.
pub(super) fn no_runtime(runtime: Runtime) -> SandboxError {
    let name = runtime.as_str();
    let message = format!("the Docker daemon has no runtime `{name}`");
    let hint = match runtime {
        Runtime::Runsc => hint!(
            "install gVisor, write {} to /etc/docker/daemon.json, and restart the daemon: `systemctl restart docker` ({})",
            GVISOR,
            CommandLine::Help.of("gvisor")
        ),
        // Kata is refused before the daemon is asked for it.
        Runtime::Runc | Runtime::Kata => {
            "install it, and restart the daemon: `systemctl restart docker`".into()
        }
    };
    ErrorCode::BackendUnavailable.error(message).hint(hint)
}

const GVISOR: &str = r#"{"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--host-uds=open"]}}}"#;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ErrorKind;

    #[test]
    fn a_runtime_that_cannot_work_is_refused_by_name_whether_there_is_a_daemon_or_not() {
        let error = check(Runtime::Kata).expect_err("it cannot work");
        assert_eq!((error.kind(), error.code), (ErrorKind::Unavailable, ErrorCode::BackendUnavailable));
        assert!(
            error.message.contains("kata")
                && error.hint.is_some_and(|hint| hint.to_string().contains("runsc"))
        );
        for runtime in [Runtime::Runc, Runtime::Runsc] {
            assert_eq!(accept(runtime), Ok(()));
        }
    }
}

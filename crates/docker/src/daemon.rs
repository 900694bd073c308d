//! One daemon.

use crate::error::{is_missing, refused, unreachable};
use belljar_spec::{ErrorCode, SandboxError};
use bollard::errors::Error;
use bollard::query_parameters::{RemoveContainerOptions, WaitContainerOptions};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use futures_util::TryStreamExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

/// A daemon that answers. Every call waits for its answer.
pub struct Daemon {
    client: Docker,
    /// Always there, until it is dropped.
    runtime: Option<Runtime>,
    socket: PathBuf,
}

impl Daemon {
    /// The daemon of this machine.
    pub fn connect() -> Result<Daemon, SandboxError> {
        Daemon::at(crate::socket()?)
    }

    /// The daemon at this socket.
    pub fn at(socket: PathBuf) -> Result<Daemon, SandboxError> {
        // Said by the kernel itself, a refusal is plainer than through three libraries.
        UnixStream::connect(&socket).map_err(|error| unreachable(&socket, &error))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            ErrorCode::StartFailed.error(format!("cannot wait for answers: {error}")).caused_by(error)
        })?;
        let path = socket.to_string_lossy();
        let client = Docker::connect_with_unix(&path, CALL_TIMEOUT.as_secs(), API_DEFAULT_VERSION)
            .map_err(|error| refused("be spoken to", &error))?;
        let daemon = Daemon { client, runtime: Some(runtime), socket };
        daemon.run("say its version", async |client| client.clone().negotiate_version().await)?;
        daemon.new_enough()?;
        Ok(daemon)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Has it do something, and waits for the whole answer, but not for ever. `doing` follows "could not" in the error.
    pub fn run<T: Send>(
        &self,
        doing: &str,
        call: impl AsyncFnOnce(&Docker) -> Result<T, Error> + Send,
    ) -> Result<T, SandboxError> {
        self.try_run(call).map_err(|error| refused(doing, &error))
    }

    /// The same, with the daemon's own error.
    pub fn try_run<T: Send>(
        &self,
        call: impl AsyncFnOnce(&Docker) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.wait(Some(CALL_TIMEOUT), call)
    }

    /// The same for what takes as long as it takes, a build or a pull: only the beginning of the answer has a time.
    pub fn try_follow<T: Send>(
        &self,
        call: impl AsyncFnOnce(&Docker) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.wait(None, call)
    }

    /// The client's own time is over when an answer begins. A daemon that hangs then would be waited for as long as it hangs.
    fn wait<T: Send>(
        &self,
        time_limit: Option<Duration>,
        call: impl AsyncFnOnce(&Docker) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let runtime = self.runtime.as_ref().expect("only `drop` takes the runtime");
        let wait = || {
            runtime.block_on(async {
                let answer = call(&self.client);
                match time_limit {
                    None => answer.await,
                    Some(time_limit) => {
                        timeout(time_limit, answer).await.unwrap_or(Err(Error::RequestTimeoutError))
                    }
                }
            })
        };
        if Handle::try_current().is_err() {
            return wait();
        }
        // A thread of another runtime may not wait in this one.
        thread::scope(|scope| scope.spawn(wait).join()).unwrap_or(Err(Error::RequestTimeoutError))
    }

    /// Removes a container, whatever it is doing, and waits until it is gone. One that is not there is fine.
    pub fn remove_container(&self, name: &str) -> Result<(), SandboxError> {
        self.remove_within(TO_BE_REMOVED, name)
    }

    fn remove_within(&self, time_limit: Duration, name: &str) -> Result<(), SandboxError> {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        match self.try_run(async |client| client.remove_container(name, Some(options)).await) {
            // Another caller is removing it already.
            Err(Error::DockerResponseServerError { status_code: CONFLICT, .. }) => {
                let options = WaitContainerOptions { condition: "removed".into() };
                let gone = self.wait(Some(time_limit), async |client| {
                    client.wait_container(name, Some(options)).try_for_each(async |_| Ok(())).await
                });
                match gone {
                    // How its process ended is not what was asked.
                    Ok(()) | Err(Error::DockerContainerWaitError { .. }) => Ok(()),
                    Err(error) if is_missing(&error) => Ok(()),
                    Err(error) => Err(refused(&format!("remove the container {name}"), &error)),
                }
            }
            Err(error) if !is_missing(&error) => {
                Err(refused(&format!("remove the container {name}"), &error))
            }
            _ => Ok(()),
        }
    }

    fn new_enough(&self) -> Result<(), SandboxError> {
        let ClientVersion { major_version, minor_version } = self.client.client_version();
        if (major_version, minor_version) >= OLDEST {
            return Ok(());
        }
        let message = format!(
            "the Docker daemon at `{}` speaks version {major_version}.{minor_version} of its API, and {}.{} is needed",
            self.socket.display(),
            OLDEST.0,
            OLDEST.1
        );
        Err(ErrorCode::BackendUnavailable.error(message).hint("update Docker to 20.10 or newer"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A sandbox may be dropped in a task of another runtime, where this runtime must not wait for its own tasks.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Docker 20.10's.
const OLDEST: (usize, usize) = (1, 41);
/// A daemon that is busy with many containers takes its time.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// A removal by another caller takes a moment; after this time it is left to the next sweep.
const TO_BE_REMOVED: Duration = Duration::from_secs(10);
/// The status code for a container that is being removed already.
const CONFLICT: u16 = 409;

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::query_parameters::ListContainersOptions;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// A daemon that answers by this, as long as the test runs: to `METHOD path`, bytes after which nothing comes.
    fn stuck(answer: fn(&str) -> &'static str) -> (tempfile::TempDir, Daemon) {
        let place = tempfile::tempdir().expect("a folder");
        let socket = place.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                thread::spawn(move || serve(&connection, answer));
            }
        });
        let daemon = Daemon::at(socket).expect("it says its version");
        (place, daemon)
    }

    fn serve(mut connection: &UnixStream, answer: fn(&str) -> &'static str) {
        let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
        while let Some(first) = lines.next() {
            // None of these requests has a body.
            lines.by_ref().find(String::is_empty);
            let answer = if first.contains("/version") { VERSION } else { answer(&first) };
            if connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    const VERSION: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"ApiVersion\":\"1.41\"}";
    const BEGINNING: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn a_daemon_that_hangs_within_its_answer_is_not_waited_for() {
        let (_place, daemon) = stuck(|_| BEGINNING);
        let listed = daemon.wait(Some(SHORT_TIMEOUT), async |client| {
            client.list_containers(None::<ListContainersOptions>).await
        });
        assert!(matches!(listed, Err(Error::RequestTimeoutError)), "{listed:?}");
    }

    #[test]
    fn a_removal_by_another_caller_that_never_ends_is_not_waited_for() {
        let (_place, daemon) = stuck(|first| match first.starts_with("DELETE") {
            true => {
                "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{\"message\":\"at it\"}"
            }
            false => BEGINNING,
        });
        let error =
            daemon.remove_within(SHORT_TIMEOUT, "one").expect_err("the daemon does not say that it is gone");
        assert_eq!(error.code, ErrorCode::StartFailed);
        assert!(error.message.contains("remove the container one: it does not answer"), "{error}");
    }

    const SHORT_TIMEOUT: Duration = Duration::from_millis(200);
}

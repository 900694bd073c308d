//! One daemon.

use crate::error::{is_missing, refused, unreachable};
use belljar_spec::SandboxError;
use bollard::errors::Error;
use bollard::query_parameters::{RemoveContainerOptions, WaitContainerOptions};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use futures_util::TryStreamExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use tokio::runtime::{Builder, Handle, Runtime};

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
            SandboxError::runtime("docker_failed", format!("cannot wait for answers: {error}"))
        })?;
        let path = socket.to_string_lossy();
        let client = Docker::connect_with_unix(&path, PATIENCE_S, API_DEFAULT_VERSION)
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

    /// Has it do something, and waits for the answer. `doing` follows "could not" in the error.
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
        let runtime = self.runtime.as_ref().expect("it is taken by nobody but the drop");
        let wait = || runtime.block_on(call(&self.client));
        if Handle::try_current().is_err() {
            return wait();
        }
        // A thread of another runtime may not wait in this one.
        thread::scope(|scope| scope.spawn(wait).join()).unwrap_or(Err(Error::RequestTimeoutError))
    }

    /// Removes a container, whatever it is doing, and waits until it is gone. One that is not there is fine.
    pub fn remove_container(&self, name: &str) -> Result<(), SandboxError> {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        match self.try_run(async |client| client.remove_container(name, Some(options)).await) {
            // Somebody else is at it.
            Err(Error::DockerResponseServerError { status_code: CONFLICT, .. }) => {
                let options = WaitContainerOptions { condition: "removed".into() };
                let gone = self.try_run(async |client| {
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
        Err(SandboxError::unavailable("docker_too_old", message).hint("update Docker to 20.10 or newer"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Whoever drops a sandbox may be a task of another runtime, where this one must not wait for its own.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Docker 20.10's.
const OLDEST: (usize, usize) = (1, 41);
/// A daemon that is busy with many containers takes its time.
const PATIENCE_S: u64 = 120;
/// What is said of a container that is being removed already.
const CONFLICT: u16 = 409;

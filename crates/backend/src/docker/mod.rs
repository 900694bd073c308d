//! A container of Docker's: the daemon makes the namespaces, enforces the limits and drops the capabilities; belljar
//! furnishes the root from a stage, opens the egress sockets from outside, and has its guest as the container's first
//! process. Nothing in the container ever had a capability, and no process that enters it later gets one.

mod check;
mod container;
mod container_dir;
mod control_socket;
mod gvisor;
mod helper;
mod image;
mod launch;
mod look;
mod network;
mod stage;
mod strays;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_docker::Daemon;
use belljar_spec::{BackendName, Runtime, SandboxError};
use std::sync::{Arc, OnceLock};

pub(crate) use container_dir::sweep_containers;
pub use look::{fetch_image, image_root};

/// The daemon of this machine, asked for its version once a process.
fn daemon() -> Result<Arc<Daemon>, SandboxError> {
    static DAEMON: OnceLock<Arc<Daemon>> = OnceLock::new();
    match DAEMON.get() {
        Some(daemon) => Ok(Arc::clone(daemon)),
        None => {
            let daemon = Arc::new(Daemon::connect()?);
            Ok(Arc::clone(DAEMON.get_or_init(|| daemon)))
        }
    }
}

pub(crate) struct Docker(pub(crate) Runtime);

impl Backend for Docker {
    fn name(&self) -> BackendName {
        BackendName::Docker(self.0)
    }

    fn check(&self) -> Result<(), SandboxError> {
        check::check(self.0)
    }

    fn launch(&self, plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
        launch::launch(self.0, plan, meanwhile)
    }

    fn draw(&self, plan: &Plan) -> Result<Drawing, SandboxError> {
        launch::draw(self.0, plan)
    }
}

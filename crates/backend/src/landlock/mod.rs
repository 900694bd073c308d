//! No namespaces at all: the sandbox's processes are processes of the host, among its paths and in its network, and the kernel holds
//! them there by Landlock (files, signals) and by a supervisor outside that makes every socket and connects it. For hosts and containers
//! that refuse namespaces.

mod check;
mod launch;
mod private_dir;
pub(crate) mod supervisor;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_spec::{BackendName, SandboxError};

pub(crate) use private_dir::{PrivateDir, place, sweep_private_dirs};

pub(crate) struct Landlock;

impl Backend for Landlock {
    fn name(&self) -> BackendName {
        BackendName::Landlock
    }

    fn check(&self) -> Result<(), SandboxError> {
        check::check()
    }

    fn launch(&self, plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
        launch::launch(plan, meanwhile)
    }

    fn draw(&self, plan: &Plan) -> Result<Drawing, SandboxError> {
        launch::draw(plan)
    }
}

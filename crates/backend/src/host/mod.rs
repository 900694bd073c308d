//! No isolation, only when asked for by name. Commands run as you, on your machine; the environment still starts empty,
//! trees are still killed whole, and file operations are still held beneath the workspace.

mod check;
mod launch;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_spec::{BackendName, SandboxError};

pub(crate) struct Host;

impl Backend for Host {
    fn name(&self) -> BackendName {
        BackendName::Host
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

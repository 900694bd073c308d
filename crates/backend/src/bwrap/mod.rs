//! The isolation of the native backend, made by bubblewrap, for people who trust what their distribution ships: bubblewrap
//! makes the namespaces and the root of system directories; what it has no options for (one limit on all private files,
//! mounts shown under another user) the guest does before it confines itself, as everywhere.

mod args;
mod check;
mod launch;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_spec::{BackendName, SandboxError};

pub(crate) struct Bwrap;

impl Backend for Bwrap {
    fn name(&self) -> BackendName {
        BackendName::Bwrap
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

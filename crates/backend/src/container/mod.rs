//! The container that belljar runs in already is the isolation: for places where namespaces are refused. Shared with
//! everything else in it, so only the environment is ours to clean; never outside a container, even when forced.

mod check;
mod launch;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_spec::{BackendName, SandboxError};

pub use check::{around_us, landlock_is_filtered};

pub(crate) struct Container;

impl Backend for Container {
    fn name(&self) -> BackendName {
        BackendName::Container
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

//! Own namespaces: the default backend, with nothing to install.
//!
//! As an ordinary user, the sandbox's one user is that user, without any capability. As root, the sandbox's users are an
//! unprivileged range of the host's, and what the caller named comes in mapped to its owner, so root inside has no rights
//! outside and files come back with the owner that they had.

mod check;
mod identity;
mod launch;
mod prepared;
mod shares;
mod steps;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_spec::{BackendName, SandboxError};

pub(crate) use check::{remedy_for_bubblewrap, setup_failed};
pub(crate) use identity::{Identity, Users, user_inside, user_of_container};
pub(crate) use prepared::PreparedRoot;
pub(crate) use prepared::prune as prune_prepared;
pub(crate) use steps::{
    DEVICES, Sources, after_root, bind_steps, private_step, private_step_beside, root_step,
};

pub(crate) struct Native;

impl Backend for Native {
    fn name(&self) -> BackendName {
        BackendName::Native
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

//! From a plan to a guest without isolation.

use crate::{Drawing, Guest, Meanwhile, Plan, open_place};
use belljar_spec::SandboxError;

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    open_place::launch(plan, meanwhile)
}

pub(super) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    open_place::draw(plan)
}

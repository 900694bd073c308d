//! From a plan to a guest in the container around us.

use super::check::is_around_us;
use crate::{Drawing, Guest, Meanwhile, Plan, open_place};
use belljar_spec::SandboxError;

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    is_around_us()?;
    open_place::launch(plan, meanwhile)
}

pub(super) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    is_around_us()?;
    open_place::draw(plan)
}

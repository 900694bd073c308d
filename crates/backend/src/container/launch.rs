//! From a plan to a guest in the container around us.

use super::check::check;
use crate::{Guest, Meanwhile, Plan, open_place};
use belljar_spec::SandboxError;

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    check()?;
    open_place::launch(plan, meanwhile)
}

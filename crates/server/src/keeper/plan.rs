//! From a keeper's plan to the sandbox that it keeps.

use belljar_fleet::request::{self, Surroundings, Understood};
use belljar_fleet::{KeptPlan, Place};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use std::path::Path;

/// What the place says that is to be kept there.
pub(super) fn read(place: &Place) -> Result<KeptPlan, SandboxError> {
    let broken = |error: &dyn std::fmt::Display| {
        SandboxError::new(
            ErrorCode::StateFailed,
            format!("cannot read `{}`: {error}", place.plan().display()),
        )
        .hint("keepers are started by `belljar serve`")
    };
    let text = std::fs::read(place.plan()).map_err(|error| broken(&error))?;
    serde_json::from_slice(&text).map_err(|error| broken(&error))
}

/// The sandbox that a plan means.
pub(super) fn understand(plan: &KeptPlan, place: &Place) -> Result<Understood, SandboxError> {
    let id = SandboxId::parse(&plan.id).ok_or_else(|| {
        SandboxError::new(
            ErrorCode::StateFailed,
            format!("`{}` is not the name of a sandbox's life", plan.id),
        )
    })?;
    // The places of sandboxes are in `sandboxes`, beside `volumes`.
    let fleet = place.directory().parent().and_then(Path::parent).unwrap_or(place.directory());
    let surroundings = Surroundings {
        name: plan.name.clone(),
        key: plan.key.clone(),
        id: Some(id),
        persistent: plan.persistent,
        place: place.clone(),
        volumes: fleet.join("volumes"),
    };
    request::understand(&plan.sandbox, &surroundings)
}

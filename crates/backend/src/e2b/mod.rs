//! Sandboxes of an E2B-compatible service: E2B's own, or those of another belljar. The service isolates; the guest is served on the
//! host, as a translation onto the service's data plane (`belljar-e2b-client`).
//!
//! The sandbox lives elsewhere: no folder of the host is in it, and no gateway of ours in its path. What of a policy the service can be
//! told is translated into its rules; everything else is refused by name.

mod check;
mod launch;
mod network;
mod own;

use crate::{Backend, Drawing, Guest, Meanwhile, Plan};
use belljar_spec::{BackendName, SandboxError};
use std::path::PathBuf;
use std::sync::Arc;

pub use belljar_e2b_client::{Named, Service};
pub use check::service;
pub use own::forget;

/// The service that makes the sandboxes of a plan.
#[derive(Clone)]
pub struct Remote {
    pub service: Arc<Service>,
    /// What its sandboxes are made of.
    pub template: String,
    /// Where we note which sandboxes are ours.
    pub directory: PathBuf,
}

pub(crate) struct E2b;

impl Backend for E2b {
    fn name(&self) -> BackendName {
        BackendName::E2b
    }

    fn check(&self) -> Result<(), SandboxError> {
        Err(check::not_configured())
    }

    fn launch(&self, plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
        launch::launch(plan, meanwhile)
    }

    fn draw(&self, plan: &Plan) -> Result<Drawing, SandboxError> {
        launch::draw(plan)
    }
}

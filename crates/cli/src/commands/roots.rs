//! What a sandbox's root is made of, made ready where the user can watch.

use super::{golden, images};
use belljar_spec::{Assurance, BackendChoice, BackendName, Root, SandboxError, SandboxSpec};

/// Fetches or builds what is not here yet. What the backend cannot use is refused later, and nothing is fetched for it.
pub(super) fn make_ready(spec: &SandboxSpec) -> Result<(), SandboxError> {
    match (&spec.root, spec.backend) {
        (_, BackendChoice::Named(backend)) if !backend.assurance().is_at_least(Assurance::Namespace) => {
            Ok(())
        }
        (Root::Image(image), BackendChoice::Named(BackendName::Docker(_))) => images::fetch_by_docker(image),
        (Root::Image(image), _) => images::make_ready(image),
        (Root::Golden, _) => golden::make_ready(),
        (Root::Host | Root::Directory(_), _) => Ok(()),
    }
}

//! What holds for a sandbox's pushes to git hosts.

use belljar_gateway::Pushes;
use belljar_spec::SandboxSpec;
use belljar_workspace::inert::Leash;
use belljar_workspace::pack_judge::{self, PackJudge};
use std::path::Path;
use std::sync::Arc;

/// As the caller said, or the defaults. Pushes are kept below belljar's state while they are looked at, or beside the
/// records where there is none; git looks at them on the sandbox's leash.
pub(crate) fn pushes(spec: &SandboxSpec, records: &Path, leash: &Leash) -> Pushes {
    let state = belljar_state::state_directory().unwrap_or_else(|_| records.to_path_buf());
    let judge = PackJudge::new(state.join(pack_judge::DIRECTORY), leash);
    Pushes::new(spec.pushes.to_network(), Arc::new(judge))
}

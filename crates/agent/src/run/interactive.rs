//! An agent's own terminal interface: the same sandbox as for a run, and a person in front of it. Its output is not parsed,
//! so there is neither log nor result.

use super::{RunRequest, ready, set_up};
use belljar_engine::{Engine, Sandbox};
use belljar_spec::{Command, Permission, SandboxError, SharedPath};

/// Makes the place, and says what to start in it. The caller gives it a terminal.
pub async fn open(engine: &Engine, request: &RunRequest) -> Result<(Sandbox, Command), SandboxError> {
    let ready = ready(request)?;
    let mut spec = request.sandbox.clone();
    for needed in &ready.found.needs {
        spec.shared.push(SharedPath { path: needed.clone(), permission: Permission::Read });
    }
    let sandbox = engine.create(spec).await?;
    let command =
        set_up(ready.adapter, &ready.found, request, &sandbox, |adapter| adapter.interactive).await?;
    Ok((sandbox, command))
}

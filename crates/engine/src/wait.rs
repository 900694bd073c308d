//! A start blocks its thread, and a few of its steps are asynchronous: a pull, the build of the golden root, a request to a forge.
//! They are waited for here.

use belljar_spec::{ErrorCode, SandboxError};
use std::io;
use std::panic::resume_unwind;
use tokio::runtime::{Builder, Handle};

/// Runs `work` to its end on this thread, or on another one if this thread belongs to an event loop, where blocking would panic.
pub(crate) fn wait<T: Send>(
    work: impl AsyncFnOnce() -> Result<T, SandboxError> + Send,
) -> Result<T, SandboxError> {
    let run = || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_runtime)?;
        runtime.block_on(work())
    };
    if Handle::try_current().is_err() {
        return run();
    }
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

fn no_runtime(error: io::Error) -> SandboxError {
    ErrorCode::Internal
        .error(format!("cannot make an event loop: {error}"))
        .hint("the process may have too many files open: raise `ulimit -n`")
        .caused_by(error)
}

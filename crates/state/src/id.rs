//! Unique names on this machine.

use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};

/// A new sandbox's id.
pub fn new_id() -> Result<SandboxId, SandboxError> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| {
        ErrorCode::Internal.error(format!("the kernel gives no random bytes: {errno}")).caused_by(errno)
    })?;
    Ok(SandboxId::from_random(bytes))
}

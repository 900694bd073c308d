//! What the backends know of this machine, for callers that do not know them.

use crate::sweep;
use belljar_config::machine;
use belljar_spec::{ImageName, Limits, LimitsRequest, SandboxError};

/// The container that this process runs in, if it is one: its kind, for people.
pub fn container_around_us() -> Option<&'static str> {
    belljar_backend::container_around_us()
}

/// Whether a seccomp filter around this process keeps Landlock from it.
pub fn landlock_is_filtered() -> bool {
    belljar_backend::landlock_is_filtered()
}

/// The shell of a sandbox whose root is the host's.
pub fn host_shell() -> &'static str {
    belljar_backend::shell()
}

/// The limits that this machine can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsHeld {
    pub memory: bool,
    pub cpus: bool,
}

/// Those of a request that a cgroup would hold here: tried with one that is removed at once.
pub fn limits_held(limits: &LimitsRequest) -> LimitsHeld {
    let held = belljar_backend::held_by_cgroup(&Limits::understand(limits, machine()));
    LimitsHeld { memory: held.memory, cpus: held.cpus }
}

/// Has the Docker daemon pull an image that it does not have. `told` hears how much of how much is there.
pub fn fetch_docker_image(
    image: &ImageName,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<(), SandboxError> {
    belljar_backend::fetch_image(image, progress)
}

/// Loads what every sandbox needs and what no file says, for this process and for copies of it: starts of theirs are quicker, and its
/// memory is there once. They leave what others left to their daemon, which calls [`crate::sweep_leftovers`].
pub fn load_for_shims() {
    sweep::leave_to_others();
    belljar_backend::hold_guest_program();
    belljar_config::machine();
}

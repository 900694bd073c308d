//! What the backends know of this machine, for callers that do not know them.

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

/// Removes the cgroups of sandboxes whose holder is gone.
pub fn sweep_cgroups() {
    belljar_backend::sweep();
}

/// Has the Docker daemon pull an image that it does not have. `told` hears how much of how much is there.
pub fn fetch_docker_image(
    image: &ImageName,
    told: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<(), SandboxError> {
    belljar_backend::fetch_image(image, told)
}

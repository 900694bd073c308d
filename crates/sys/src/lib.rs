//! The kernel, safely. All `unsafe` of the project lives here, a system call a function, with owned descriptors
//! going in and out; what rustix already offers safely is re-exported as it is. Knows nothing of sandboxes.

pub mod arrivals;
pub mod before_exec;
pub mod caps;
mod clone3;
pub mod core_dump;
pub mod datagram;
mod descriptors;
pub mod errno;
pub mod fork;
pub mod heap;
pub mod ids;
mod inherited;
pub mod landlock;
pub mod launch;
pub mod mark;
pub mod mount;
pub mod net;
pub mod notify;
pub mod opened;
pub mod orphan;
pub mod passing;
pub mod proc;
pub mod remove;
pub mod remove_tree;
pub mod seccomp;
pub mod signal;
pub mod spawn;
pub mod standby;
pub mod terminal;

pub use inherited::Inherited;
pub use rustix;

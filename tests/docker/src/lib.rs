//! Sandboxes that Docker holds, and a Docker that dies. One file a subject under `tests/`.
//!
//! A [`Dockerd`] is a real daemon with a containerd of its own, which a test may kill; dropped, nothing of it is left. Images are
//! made on the spot, from this machine's busybox. What is judged is what Docker, the kernel and the disk say, not belljar.
//!
//! It needs root, `dockerd` and `runsc`: without them a test is skipped by name, and where `CI=true` it fails.

#![allow(clippy::unwrap_used, reason = "tests stop where they cannot continue")]

mod daemon;
mod image;
mod left;
mod registry;
mod work;

pub use daemon::Dockerd;
pub use image::busybox;
pub use left::Left;
pub use registry::Registry;
pub use work::Work;

pub use belljar_tests_daemon::eventually;

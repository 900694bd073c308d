//! Managed clones, on real repositories with real git. "The agent" is plain git, started in the worktree.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

mod branches;
mod following;
mod hostile;
mod keeping;
mod killed;
mod machine;

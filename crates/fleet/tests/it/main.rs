//! A fleet against shims that are not there: everything that happens to sandboxes, in stopped time.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod access;
mod asking;
mod identity;
mod killed;
mod life;
mod model;
mod pool;
mod process;
mod races;
mod swept;
mod world;

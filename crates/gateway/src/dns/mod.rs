//! Names: what a sandbox asks, and what it is told.

pub mod message;
mod name;
pub(crate) mod serve;

pub use serve::is_localhost;

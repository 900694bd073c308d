//! Names: what a sandbox asks, and what it is told.

pub mod message;
pub(crate) mod serve;
mod name;

//! Templates that clients build: a recipe of steps, made in a sandbox, kept as a snapshot. Sandboxes of a template begin with it.
//!
//! ```text
//!   POST /v3/templates ──> record: waiting
//!   GET, PUT …/files   ──> uploads: archives, unpacked inside only
//!   POST …/builds/ID   ──> recipe ──> build: base, steps, snapshots ──> record: ready | failed
//!   GET …/status       ──> log
//! ```

pub(crate) mod build;
pub(crate) mod log;
pub(crate) mod recipe;
pub(crate) mod record;
pub(crate) mod start;
pub(crate) mod uploads;

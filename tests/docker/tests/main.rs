//! What needs a Docker daemon, a subject a module.

mod backend;
mod build;

//! `belljar build-base` and `belljar build`, with a real Docker, a real npm, and a registry of packages on loopback.

#![allow(clippy::unwrap_used, reason = "tests stop where they cannot continue")]

mod base;
mod belljar;
mod debian;
mod node;
mod npm;
mod own_image;
mod repository;

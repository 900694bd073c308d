//! The dashboard: pages for a browser, rendered here, over the daemon's own HTTP API, which is asked as the owner's command line asks it.
//!
//! ```text
//!   browser ──> serve: one address of its own, HTTP/1.1 ──> access: Host, link, cookie, origin ─┬─> pages ──┐
//!                                                                                               └─> actions ─┴─> daemon
//! ```
//! It decides nothing and keeps nothing. A page works without the script, which only renews it. Called by `belljar ui`.

mod access;
mod actions;
mod decisions;
mod html;
mod pages;
mod peer;
mod serve;

pub use serve::{Bound, Starter};

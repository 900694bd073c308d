//! Runs agents in sandboxes: a prompt and a folder in; finished work, a truthful account and a bill out.
//!
//! ```text
//! request ─> adapter: what to start, where its model is ─> sandbox ─> its output ─> parser ─> log ─┐
//!                                                             │                                    ├─> result
//!                                                             └──────────> gateway's own count ────┘
//! ```
//!
//! What an agent says of itself is a claim, and is kept as one. What it used, what it cost and what it was refused comes from
//! the gateway; how it ended, from the kernel; what it changed, from the workspace. Prints nothing.

pub mod adapter;
pub mod budget;
pub mod claims;
mod clip;
pub mod entry;
pub mod heard;
pub mod input;
pub mod lines;
pub mod log;
pub mod parse;
pub mod phases;
pub mod provider;
pub mod read;
mod recent;
pub mod run;
pub mod stop;
pub mod stream;
pub mod transcript;

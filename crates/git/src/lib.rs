//! git as it crosses a wire: packet lines, pushes, and how they are judged. Pure: bytes in, values out.
//!
//! Used where a push arrives: by the relay on this machine, and by the gateway on the way to a git host.

pub mod config;

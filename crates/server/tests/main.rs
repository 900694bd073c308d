//! The daemon and its shims from outside, over their sockets.

mod front;
mod shim;

//! The daemon, from outside: the real binary, its sockets, its HTTP. One file a subject under `tests/`.
//!
//! A [`Home`] is a daemon with directories of its own, and knows what could be left of it on this machine; dropped, it takes all
//! of that away, also where a test failed. A [`Client`] speaks plain HTTP/1.1 and knows nothing of belljar: it says what a test
//! wants to be said, right or wrong.

#![allow(clippy::unwrap_used, reason = "tests stop where they cannot continue")]

mod client;
mod events;
mod home;
mod left;
mod sandbox;
mod wire;

pub use client::{Ask, Client};
pub use events::{Event, Events};
pub use home::{Home, Started, kill};
pub use left::Left;
pub use sandbox::{Command, Sandbox};
pub use wire::{Address, Answer, Body, Connection};

pub use belljar_tests_cli::left::eventually;

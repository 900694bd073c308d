//! The E2B-compatible server, driven from outside: by the SDKs as they are published (`./dev setup` installs them), and by requests that
//! no SDK makes.

#![allow(clippy::unwrap_used, reason = "tests stop where they cannot continue")]

mod daemon;
mod elsewhere;
mod many;
mod refusals;
mod sdk;

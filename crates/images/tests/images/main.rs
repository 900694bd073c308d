//! Images as the engine has them, judged from outside: by what is in the store, beside it, and in a real overlay of it.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "all of this is a test")]

mod archive;
mod hostile;
mod importing;
mod keeping;
mod overlay;
mod properties;
mod pulling;
mod pulling_broken;
mod pulling_hostile;
mod registry;
mod served;
mod server;

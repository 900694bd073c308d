//! Sandboxes that are kept, as a person sees them: the real binary, a real daemon of its own for each test.

mod agent_config;
mod home;
mod life;
mod restart;
mod terminal;
mod volumes;
mod words;

//! A daemon that many use, is killed and starts again, a subject a module.

mod api;
mod cycles;
mod restart;
mod restart_egress;

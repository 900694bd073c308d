//! Parsers of what a sandbox sends first, on bytes of real programs.

mod dns;
mod hello;

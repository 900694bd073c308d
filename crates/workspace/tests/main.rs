//! Clones, the private git directory's neighbours, managed clones and the relay: real git, real repositories, one module per
//! subject.

mod clone;
mod git_host;
mod inert;
mod inert_killed;
mod managed;
mod pack_judge;
mod relay;
mod relay_attacks;
mod relay_ending;
mod relay_killed;
mod relay_raw;
mod relay_ways;
mod repository;

//! Clones, the private git directory's neighbours, shelves and the relay: real git, real repositories, a subject a module.

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

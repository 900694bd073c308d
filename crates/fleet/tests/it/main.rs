//! A fleet against keepers that are not there: everything that happens to sandboxes, in stopped time.

mod access;
mod identity;
mod killed;
mod life;
mod model;
mod races;
mod swept;
mod world;

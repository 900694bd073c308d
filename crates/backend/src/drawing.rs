//! A wall as it would be built, without building it: for people who want to see it, and made by what builds it.

use belljar_wire::message::Setup;
use std::path::PathBuf;

/// A wall as it would be built.
pub struct Drawing {
    /// The program that builds it and its words, the first of which is its name; none where belljar does it itself.
    pub program: Option<(PathBuf, Vec<String>)>,
    /// The sandbox's user, inside and outside.
    pub user: (u32, u32),
    /// What the guest is told.
    pub setup: Setup,
}

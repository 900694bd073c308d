//! What a sandbox may do to the branches of a repository that is not its own.

mod branch;
mod pattern;
mod policy;

pub use branch::{BranchName, BranchNameError};
pub use pattern::{RefPattern, RefPatternError};
pub use policy::{PushLimits, PushRules, RefPolicy};

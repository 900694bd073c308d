//! The files that are worked on: how they reach a sandbox, and what of them no process inside may change.

mod hidden;
mod mode;
mod protected;
mod view;

pub use hidden::{HidePattern, HidePatternError};
pub use mode::{CloneSpec, GitAccess, WorkspaceMode};
pub use protected::{ProtectedPath, ProtectedPathError};
pub use view::{
    BorrowedObjects, CoveredFile, DotGit, Layer, LinkedGit, PrivateGitView, Shield, Shielded, View,
};

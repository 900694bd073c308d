//! Whether the parts of a request make sense together. Each of them makes sense by itself.

use super::{LimitsRequest, SandboxRequest, WorkspaceRequest};
use crate::{ErrorCode, SandboxError};
use std::fmt::Display;

impl SandboxRequest {
    /// Refuses what cannot be said together, or is out of range.
    pub fn check(&self) -> Result<(), SandboxError> {
        self.workspace.check()?;
        self.limits.check()?;
        if self.admin && !self.volumes.is_empty() {
            let why = "an administrator's sandbox has none: other sandboxes can write there, and it may change what they may not";
            return Err(conflict("volumes", why));
        }
        if self.root && !self.admin {
            return Err(conflict("root", "only an administrator is root inside: `root` needs `admin`"));
        }
        if self.ports.contains(&0) {
            return Err(wrong_value("ports", "there is no port 0"));
        }
        let mut targets: Vec<_> = self.volumes.values().collect();
        targets.sort();
        match targets.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(conflict("volumes", &format!("two volumes cannot both be at `{}`", pair[0]))),
            None => Ok(()),
        }
    }
}

impl WorkspaceRequest {
    fn check(&self) -> Result<(), SandboxError> {
        let (has_folder, has_clone) = (self.folder.is_some(), self.clone.is_some());
        let conflicts = [
            (
                self.same_path && !has_folder && !has_clone,
                "same_path",
                "only a folder of the host has a path there: name one with `folder`",
            ),
            (
                self.overlay && (self.branch.is_some() || has_clone),
                "overlay",
                "it cannot be combined with `branch` or `clone`",
            ),
            (self.depth.is_some() && !has_clone, "depth", "it says how much to clone: it needs `clone`"),
            (has_clone && has_folder, "clone", "a clone is worked on instead of a folder: omit `folder`"),
            (
                self.branch.is_some() && !has_folder && !has_clone,
                "branch",
                "a branch is one of a folder's repository: it needs `folder`",
            ),
            (self.overlay && !has_folder, "overlay", "a layer lies over a folder: it needs `folder`"),
        ];
        if let Some((_, field, why)) = conflicts.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            return Err(conflict(&format!("workspace.{field}"), why));
        }
        match self.depth {
            Some(0) => Err(wrong_value("workspace.depth", "a clone has one commit at least")),
            Some(_) | None => Ok(()),
        }
    }
}

impl LimitsRequest {
    fn check(&self) -> Result<(), SandboxError> {
        if self.pids == Some(0) {
            return Err(wrong_value("limits.pids", "a sandbox has one process at least"));
        }
        if self.open_files.is_some_and(|number| number < 3) {
            return Err(wrong_value("limits.open_files", "a process has three open files at least"));
        }
        Ok(())
    }
}

/// A value of a request that makes no sense.
pub fn wrong_value(field: &str, why: impl Display) -> SandboxError {
    ErrorCode::RequestValue.error(format!("`{field}`: {why}")).hint(format!("correct `sandbox.{field}`"))
}

fn conflict(field: &str, why: &str) -> SandboxError {
    ErrorCode::RequestConflict.error(format!("`{field}`: {why}")).hint(format!("correct `sandbox.{field}`"))
}

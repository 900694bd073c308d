//! The directories of a sandbox that a snapshot is taken of.

use std::path::{Path, PathBuf};

/// A sandbox's directory. The caller holds its lock, so that no process uses its files, unless documented otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxFiles(PathBuf);

/// A part of a sandbox's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// What was changed of a root that is not the host's.
    Root,
    Home,
    /// The folder that belongs to the sandbox.
    Workspace,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Root, Part::Home, Part::Workspace];

    /// Its directory in a layer.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Root => "root",
            Part::Home => "home",
            Part::Workspace => "workspace",
        }
    }
}

impl SandboxFiles {
    pub fn new(directory: impl Into<PathBuf>) -> SandboxFiles {
        SandboxFiles(directory.into())
    }

    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Where a part's changes are: the upper directory of an overlay, or the whole part where no layer lies below.
    pub fn upper(&self, part: Part) -> PathBuf {
        self.0.join(part_paths(part).0)
    }

    /// The work directory that an overlay of the part needs.
    pub fn work(&self, part: Part) -> PathBuf {
        self.0.join(part_paths(part).1)
    }

    pub(super) fn chain(&self) -> PathBuf {
        self.0.join("chain.json")
    }
}

/// Relative to the place: changes, and the work directory beside them.
fn part_paths(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::Root => ("root/changes/upper", "root/changes/work"),
        Part::Home => ("home", "home.work"),
        Part::Workspace => ("workspace", "workspace.work"),
    }
}

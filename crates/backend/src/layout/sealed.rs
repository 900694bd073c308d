//! Files of earlier snapshots, below what a sandbox changes: they never change, and many sandboxes may see them.

use super::opened::{OpenedPaths, walk};
use super::workspace::Layered;
use super::{Bind, BindKind, BindOrigin, text};
use belljar_spec::SandboxError;
use std::path::{Path, PathBuf};

/// Directories that lie below what a sandbox keeps, named from one that holds them all, topmost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealedLayers {
    pub holder: PathBuf,
    /// Below what was changed of the root.
    pub root: Vec<String>,
    /// Below its home.
    pub home: Vec<String>,
    /// Below the folder that belongs to it.
    pub workspace: Vec<String>,
}

impl SealedLayers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty() && self.home.is_empty() && self.workspace.is_empty()
    }

    /// The same with real paths: no link is followed when they are mounted.
    pub(super) fn real(&self) -> SealedLayers {
        SealedLayers { holder: walk(&self.holder).real, ..self.clone() }
    }

    /// Shows a directory that a sandbox keeps with these layers below it. The directory takes the changes; `DIRECTORY.work` is beside it.
    pub(super) fn over(
        &self,
        lowers: &[String],
        directory: &Path,
        target: &str,
        opened: &mut OpenedPaths,
    ) -> Result<(Bind, Layered), SandboxError> {
        let real = walk(directory).real;
        let name = text(Path::new(real.file_name().unwrap_or_default()))?.to_string();
        let around = real.parent().unwrap_or(Path::new("/")).to_path_buf();
        text(&around)?;
        for directory in [&self.holder, &around] {
            opened.open_source(directory)?;
        }
        let (kind, origin) = (BindKind::ReadWrite, BindOrigin::Named);
        let bind = Bind { source: self.holder.clone(), target: target.to_string(), kind, origin };
        let layered = Layered {
            target: target.to_string(),
            directory: around,
            work: format!("{name}.work"),
            upper: name,
            mountpoints: Vec::new(),
            lowers: lowers.to_vec(),
        };
        Ok((bind, layered))
    }
}

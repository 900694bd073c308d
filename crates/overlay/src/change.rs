//! One change: the folder's entry, and the layer's in its place.

use super::path::RelPath;
use super::stat::{Kind, Stat};
use serde::Serialize;

/// The changes that a layer would make to a folder.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// In the order of their paths.
    pub list: Vec<Change>,
    /// A change of the layer that will not be applied.
    pub left_out: Vec<LeftOut>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its path.
    pub path: RelPath,
    /// Its former path, if it was moved.
    pub from: Option<RelPath>,
    /// The folder's entry, at this path or the former one.
    pub old: Option<Stat>,
    /// The layer's entry.
    pub new: Option<Stat>,
    /// Whether the content differs.
    pub content: bool,
    /// Whether that is known: a file that is too large to compare counts as different.
    pub compared: bool,
    /// Whether extended attributes differ.
    pub attributes: bool,
    /// Whether the layer's file began as a copy of the folder's.
    pub(super) copied: bool,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    /// A different type of entry, such as a file where a link or a directory was.
    TypeChanged,
    /// Permissions or extended attributes.
    ModeChanged,
}

/// A change of the layer that will not be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub path: RelPath,
    pub why: LeftOutWhy,
}

/// Why it is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutWhy {
    /// The host would execute or obey it.
    Protected,
    /// With it, git on the host would take a directory for a repository and obey it.
    Repository,
    Socket,
    Fifo,
    Device,
    /// The file is applied, its set-user-id or set-group-id bit is not.
    SetId,
    /// Not even its owner may read it.
    Unreadable,
    /// It is nested deeper than the limit.
    TooDeep,
    /// The layer has more entries than the limit; this is the first one beyond it.
    TooMany,
}

impl Change {
    /// The kind of a change.
    pub fn kind(&self) -> ChangeKind {
        match (&self.old, &self.new) {
            _ if self.from.is_some() => ChangeKind::Renamed,
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            (Some(old), Some(new)) if old.kind != new.kind => ChangeKind::TypeChanged,
            (Some(_), Some(_)) if self.content => ChangeKind::Modified,
            (Some(_), Some(_)) => ChangeKind::ModeChanged,
        }
    }

    /// Whether it is a directory on both sides, or on the only one.
    pub fn is_directory(&self) -> bool {
        let directory = |stat: &Option<Stat>| stat.is_none_or(|stat| stat.kind == Kind::Directory);
        directory(&self.old) && directory(&self.new)
    }

    /// The permissions that the folder will have: set-id bits only where they are already, on the same content.
    pub(super) fn mode(&self) -> Option<u32> {
        let new = self.new?;
        let kept = self.old.filter(|old| old.kind == new.kind && !self.content).map_or(0, |old| old.mode);
        Some(new.permissions() | (new.mode & kept & 0o7000))
    }
}

impl LeftOutWhy {
    /// A short description.
    pub fn words(self) -> &'static str {
        match self {
            LeftOutWhy::Protected => "protected: git or belljar on this machine would obey it",
            LeftOutWhy::Repository => {
                "git on this machine would obey it: the directory is, or would be, a repository"
            }
            LeftOutWhy::Socket => "a socket",
            LeftOutWhy::Fifo => "a named pipe",
            LeftOutWhy::Device => "a device",
            LeftOutWhy::SetId => "its set-id bit; the file itself is applied without it",
            LeftOutWhy::TooDeep => "too deep: it lies in more than 1000 folders in one another",
            LeftOutWhy::TooMany => {
                "the layer has more than 2,000,000 entries: from here on they were not looked at, and stay in the layer"
            }
            LeftOutWhy::Unreadable => "unreadable: its permissions shut out its owner",
        }
    }

    /// Whether leaving it out loses something that the user may want.
    pub(super) fn is_loss(self) -> bool {
        match self {
            LeftOutWhy::Unreadable | LeftOutWhy::TooDeep | LeftOutWhy::TooMany => true,
            // It may be a test's repository, which is harmless.
            LeftOutWhy::Repository => true,
            LeftOutWhy::Protected
            | LeftOutWhy::Socket
            | LeftOutWhy::Fifo
            | LeftOutWhy::Device
            | LeftOutWhy::SetId => false,
        }
    }
}

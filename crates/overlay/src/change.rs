//! One change: what the folder has, what the layer has in its place.

use super::path::RelPath;
use super::stat::{Kind, Stat};
use serde::Serialize;

/// What a layer would do to a folder.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// In the order of their paths.
    pub list: Vec<Change>,
    /// What is in the layer and will not be applied.
    pub left_out: Vec<LeftOut>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: RelPath,
    /// Where it was before, if it was moved.
    pub from: Option<RelPath>,
    /// What the folder has, there or where it came from.
    pub old: Option<Stat>,
    /// What the layer has.
    pub new: Option<Stat>,
    /// Whether the content is another one.
    pub content: bool,
    /// Whether that is known: what is too large to be compared counts as another one.
    pub compared: bool,
    /// Whether extended attributes are others.
    pub attributes: bool,
    /// Whether the layer's began as a copy of the folder's.
    pub(super) copied: bool,
}

/// What kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    /// A file where a link or a directory was, or the like.
    TypeChanged,
    /// Permissions or extended attributes.
    ModeChanged,
}

/// What is in the layer and will not be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub path: RelPath,
    pub why: LeftOutWhy,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutWhy {
    /// The host would obey it.
    Protected,
    /// With it, git on the host would take a directory for a repository and obey it.
    Repository,
    Socket,
    Fifo,
    Device,
    /// The file is applied, its set-user-id or set-group-id bit is not.
    SetId,
    /// Its permissions do not even let its owner read it.
    Unreadable,
    /// It lies in more directories in one another than are looked at.
    TooDeep,
    /// The layer has more entries than are looked at; this is the first one that was not.
    TooMany,
}

impl Change {
    /// What kind of change.
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

    /// Whether it is about a directory on both sides, or on the only one.
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
    /// In a few words.
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

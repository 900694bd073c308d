//! Files in a sandbox.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileStat {
    pub kind: FileKind,
    pub size: u64,
    pub mtime_ms: i64,
    /// Permission bits.
    #[serde(default)]
    pub mode: u32,
    /// The user that it belongs to, as the sandbox knows it.
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
    /// What a symbolic link holds; text with what is no UTF-8 replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Attributes that users may write (`user.*`, xattr(7)): names without `user.`, and values as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// A folder's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Text with what is no UTF-8 replaced.
    pub name: String,
    /// The bytes, where the text is not the whole truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    pub kind: FileKind,
}

/// A file or folder that gets another name; what has that name is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    pub from: String,
    pub to: String,
}

/// Attributes that a file gets, and has none beside whose names begin with the prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAttributes {
    pub path: String,
    /// What the names begin with.
    #[serde(default)]
    pub prefix: String,
    /// Names without `user.`, and values.
    pub attributes: BTreeMap<String, String>,
}

/// A folder to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeFolder {
    pub path: String,
    /// Also those above it; one that is there is fine.
    #[serde(default)]
    pub recursive: bool,
}

/// Something happened below a path that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    pub kind: WatchKind,
    /// Relative to the path that is watched.
    pub path: String,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WatchKind {
    Created,
    Modified,
    Removed,
    /// More happened than could be told.
    Overflow,
}

//! Persistent sandboxes: who one is in all its lives, what outlives it, and who works in it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Who a sandbox is, beyond the one life that a [`crate::SandboxId`] names. Its next life continues with the layer or the clone of
/// its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentIdentity {
    /// Follows from the key: `bj-web-3f2a9c04d1e7`.
    pub name: String,
    pub key: String,
}

/// A directory that belljar keeps, writable inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// On the host.
    pub source: PathBuf,
    /// Inside.
    pub target: VolumePath,
}

/// The name of a volume: the last part of a path, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

/// The name of a snapshot, written like that of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName(String);

/// Where a volume is seen inside: absolute, in its plainest spelling, where it covers nothing of the system's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumePath(String);

/// Who works in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admin {
    /// An agent, whose work is reviewed: with marker and protected paths.
    #[default]
    No,
    /// The owner of the machine: the same mounts and the same egress, without marker and protected paths.
    User,
    /// The same, as root inside, who has no rights outside.
    Root,
}

impl VolumeName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SnapshotName {
    /// The id of a new snapshot.
    pub fn of_id(id: crate::SandboxId) -> SnapshotName {
        SnapshotName(format!("{SNAPSHOT_ID}{id}"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has the form of an id, which no caller may choose as a name.
    pub fn is_id(&self) -> bool {
        self.0.starts_with(SNAPSHOT_ID)
    }
}

impl VolumePath {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::text::serde_as_text!(VolumeName, VolumePath, SnapshotName);

/// Not a name of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot name a volume: write small letters, digits, `-`, `_` and `.`, at most 64, a letter or digit first"
)]
pub struct VolumeNameError(String);

/// Not a name of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot name a snapshot: write small letters, digits, `-`, `_` and `.`, at most 64, a letter or digit first"
)]
pub struct SnapshotNameError(String);

/// Not a place for a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a volume cannot be at `{0}`: write /data, or an absolute path without `..` below /volumes, /data, /srv, /mnt or /home/agent"
)]
pub struct VolumePathError(String);

impl FromStr for VolumeName {
    type Err = VolumeNameError;

    fn from_str(text: &str) -> Result<VolumeName, VolumeNameError> {
        match is_one_part(text) {
            true => Ok(VolumeName(text.to_string())),
            false => Err(VolumeNameError(text.escape_debug().to_string())),
        }
    }
}

impl FromStr for SnapshotName {
    type Err = SnapshotNameError;

    fn from_str(text: &str) -> Result<SnapshotName, SnapshotNameError> {
        match is_one_part(text) {
            true => Ok(SnapshotName(text.to_string())),
            false => Err(SnapshotNameError(text.escape_debug().to_string())),
        }
    }
}

/// The last part of a path, and nothing that needs quoting.
fn is_one_part(text: &str) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_more = |byte: u8| is_first(&byte) || b"-_.".contains(&byte);
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_first) && bytes.len() <= 64 && bytes.iter().copied().all(is_more)
}

impl FromStr for VolumePath {
    type Err = VolumePathError;

    fn from_str(text: &str) -> Result<VolumePath, VolumePathError> {
        let refused = || VolumePathError(text.escape_debug().to_string());
        if !text.starts_with('/') || text.chars().any(char::is_control) {
            return Err(refused());
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(refused());
        }
        let plain = format!("/{}", parts.join("/"));
        let is_below =
            |root: &str| plain.strip_prefix(root).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
        if !OWN.contains(&plain.as_str()) && !ROOTS.iter().any(|root| is_below(root)) {
            return Err(refused());
        }
        Ok(VolumePath(plain))
    }
}

/// How the id of a snapshot begins.
const SNAPSHOT_ID: &str = "snap-";

/// Paths that are not the system's inside: no program, no library and no setting of the system is looked for below these.
const ROOTS: [&str; 5] = ["/volumes", "/data", "/srv", "/mnt", "/home/agent"];

/// Those of them that can be a volume as a whole.
const OWN: [&str; 1] = ["/data"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_covers_nothing_of_the_system() {
        for (text, plain) in [
            ("/volumes/cache", "/volumes/cache"),
            ("/volumes//a/./b/", "/volumes/a/b"),
            ("/home/agent/.cache", "/home/agent/.cache"),
            ("/data/x", "/data/x"),
            ("/data/", "/data"),
        ] {
            assert_eq!(text.parse::<VolumePath>().unwrap().as_str(), plain);
        }
        for text in [
            "",
            "/",
            "volumes/a",
            "/volumes",
            "/volumes/",
            "/volumes/..",
            "/volumes/../usr",
            "/volumesx/a",
            "/usr",
            "/usr/local",
            "/proc",
            "/proc/self",
            "/etc/ssl",
            "/opt/x",
            "/dev/shm",
            "/home",
            "/home/agent",
            "/home/ann/x",
            "/workspace",
            "/workspace/a",
            "/run/belljar",
            "/tmp/x",
            "/.belljar",
            "/volumes/a\n",
            "/volumes/\0",
        ] {
            assert!(text.parse::<VolumePath>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_volumes_name_is_one_part_of_a_path() {
        for text in ["cache", "a", "0", "npm-cache_2.x"] {
            assert_eq!(text.parse::<VolumeName>().unwrap().as_str(), text);
        }
        let long = "a".repeat(65);
        for text in ["", ".", "..", ".hidden", "-x", "a/b", "A", "a b", "ä", "a\0", &long] {
            assert!(text.parse::<VolumeName>().is_err(), "{text}");
        }
    }
}

//! A path of the host in a request.

use crate::text::OsText;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An absolute path of the host: the caller is somewhere else, where a relative one means something else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPath(PathBuf);

/// Not such a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an absolute path: write it from the root")]
pub struct HostPathError(String);

impl HostPath {
    pub fn into_path_buf(self) -> PathBuf {
        self.0
    }
}

impl TryFrom<PathBuf> for HostPath {
    type Error = HostPathError;

    fn try_from(path: PathBuf) -> Result<HostPath, HostPathError> {
        match path.is_absolute() && !path.as_os_str().as_bytes().contains(&0) {
            true => Ok(HostPath(path)),
            false => Err(HostPathError(path.to_string_lossy().escape_debug().to_string())),
        }
    }
}

impl FromStr for HostPath {
    type Err = HostPathError;

    fn from_str(text: &str) -> Result<HostPath, HostPathError> {
        PathBuf::from(text).try_into()
    }
}

impl Deref for HostPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OsText::from(self.0.as_os_str()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostPath, D::Error> {
        let text: OsString = OsText::deserialize(deserializer)?.into_os_string();
        PathBuf::from(text).try_into().map_err(D::Error::custom)
    }
}

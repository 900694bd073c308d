//! Stored files that belljar cannot parse: the one notion of damage for layers, managed clones and clones.
//!
//! *Absent*, *unfinished* and *damaged* are three things. A directory in the making has a name that says so ([`UNFINISHED`]); only
//! those, and directories being removed, may be swept, and only by a command that makes something. A directory with an ordinary
//! name whose label is missing, unreadable, cut short or of another version is [`Damaged`]: it is listed with its path, never
//! swept, and removed only by its whole name. A command that only reads removes nothing.

use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_sys::rustix::fs::{Mode, OFlags, open};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A stored item that belljar cannot parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Its full name, by which it can be removed.
    pub id: String,
    /// The path of its files.
    pub directory: PathBuf,
    /// The reason.
    pub reason: String,
}

impl Damaged {
    pub fn new(id: impl Into<String>, directory: &Path, reason: impl Into<String>) -> Damaged {
        Damaged { id: id.into(), directory: directory.to_path_buf(), reason: reason.into() }
    }

    /// As an error: the reason, the path of its files, and the command that removes it.
    pub fn error(&self) -> SandboxError {
        let directory = self.directory.display().to_string();
        let directory = directory.escape_debug();
        ErrorCode::WorkspaceFailed.error(self.to_string()).hint(hint!(
            "its files are in `{}`: copy what you need from there; {} then removes it",
            directory.to_string(),
            CommandLine::Discard.of(self.id.escape_debug())
        ))
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is damaged: {}", self.id.escape_debug(), self.reason)
    }
}

/// Reads the label of a stored item: `None` if its directory does not exist, an error with the reason if the directory exists and
/// the label cannot be parsed. Never blocks and follows no link.
pub fn read_label<T: DeserializeOwned>(path: &Path, versions: &[u32]) -> Result<Option<T>, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let text = match read_small(path, MAX_LABEL_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // An inaccessible directory counts as existing.
            let directory = path.parent().unwrap_or(path);
            return match directory.symlink_metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                _ => Err(format!("its label `{name}` is missing")),
            };
        }
        Err(error) => return Err(format!("its label `{name}` cannot be read: {error}")),
    };
    understand(&text, versions).map(Some).map_err(|reason| format!("its label `{name}`: {reason}"))
}

/// Parses a label of a known version. The version is checked first: another one has other fields.
pub fn understand<T: DeserializeOwned>(text: &[u8], versions: &[u32]) -> Result<T, String> {
    let Format { version } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if !versions.contains(&version) {
        return Err(format!("it was made by another version of belljar (format {version})"));
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Reads a small regular file. Never blocks on a pipe or a device in its place, and follows no link.
pub fn read_small(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"));
    }
    let mut text = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut text)?;
    match text.len() as u64 > most {
        true => Err(io::Error::new(ErrorKind::InvalidData, format!("it has more than {most} bytes"))),
        false => Ok(text),
    }
}

/// The field that every label has.
#[derive(Deserialize)]
struct Format {
    version: u32,
}

/// The name prefix of unfinished directories.
pub const UNFINISHED: &str = ".new-";
/// A label is a few lines.
const MAX_LABEL_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[derive(Deserialize, Debug)]
    struct Label {
        name: String,
    }

    #[test]
    fn absent_and_not_understood_are_two_things() {
        let place = tempfile::tempdir().unwrap();
        let read = |path: &Path| read_label::<Label>(path, &[1]);
        assert!(read(&place.path().join("none/label.json")).unwrap().is_none());
        let label = place.path().join("label.json");
        assert!(read(&label).unwrap_err().contains("missing"));
        for (text, why) in [
            ("", "EOF"),
            ("{", "EOF"),
            (r#"{"name":"x"}"#, "version"),
            (r#"{"version":7,"name":"x"}"#, "another version"),
            (r#"{"version":1}"#, "name"),
        ] {
            fs::write(&label, text).unwrap();
            let reason = read(&label).unwrap_err();
            assert!(reason.contains(why), "{text}: {reason}");
        }
        fs::write(&label, r#"{"version":1,"name":"x"}"#).unwrap();
        assert_eq!(read(&label).unwrap().unwrap().name, "x");
        fs::set_permissions(&label, PermissionsExt::from_mode(0o000)).unwrap();
        // root can read it anyway.
        assert!(
            read(&label).is_ok_and(|label| label.is_some())
                || read(&label).unwrap_err().contains("cannot be read")
        );
        fs::remove_file(&label).unwrap();
        fs::create_dir(&label).unwrap();
        assert!(read(&label).unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let label = place.path().join("label.json");
        assert!(std::process::Command::new("mkfifo").arg(&label).status().unwrap().success());
        assert!(read_label::<Label>(&label, &[1]).unwrap_err().contains("not a regular file"));
    }
}

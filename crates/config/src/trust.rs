//! The repository files that the user trusts: for each, the hash of the trusted content.
//!
//! A record is one small file, `<state>/trust/<SHA-256 of the file's path>`, with one line as sha256sum(1) writes it. It is found
//! by name; nothing is listed. A record that other users could have written, or that lies in the workspace itself, where a sandbox
//! writes, is ignored.

use crate::fault::{argument, shown};
use crate::flags::EgressFlags;
use crate::layer::Settings;
use crate::load::above;
use crate::origin::ConfigPaths;
use crate::read::{self, FILE, FOLDER, Unread};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::{Survives, create_private, write_atomic};
use belljar_sys::rustix::fs::{Mode, OFlags, fstat, open};
use belljar_sys::rustix::process::geteuid;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The user's decision on a repository's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Exactly this content is trusted.
    Trusted,
    /// Another content was trusted.
    Changed,
    /// Nothing.
    Unknown,
}

/// A repository's file, read once: [`Proposal::keep`] stores the content that was shown.
#[derive(Debug)]
pub struct Proposal {
    /// The file, without links on the way.
    pub file: PathBuf,
    /// The hash of its content, in hexadecimal.
    pub sha256: String,
    /// The earlier decision.
    pub standing: Standing,
    /// Its settings.
    pub settings: Settings,
    record: Record,
}

/// Reads a repository's file, to be shown and then trusted. It has to be valid, also together with the higher files.
pub fn propose(workspace: &Path) -> Result<Proposal, SandboxError> {
    propose_from(&ConfigPaths::real(), workspace)
}

/// The same, with files from elsewhere.
pub fn propose_from(places: &ConfigPaths, workspace: &Path) -> Result<Proposal, SandboxError> {
    let workspace = canonical(workspace)?;
    let file = workspace.join(FOLDER).join(FILE);
    let bytes = match read::repository(&workspace) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let message = format!("there is nothing to trust: `{}` does not exist", shown(&file));
            return Err(ErrorCode::ConfigInvalid
                .error(message)
                .hint(hint!("name the folder of the repository: {}", CommandLine::Trust.of("DIR"))));
        }
        Err(why) => return Err(unusable(&file, &why)),
    };
    propose_content(places, &workspace, bytes)
}

/// The same for content that the file has, or is about to get: only that is trusted by [`Proposal::keep`].
pub(crate) fn propose_content(
    places: &ConfigPaths,
    workspace: &Path,
    bytes: Vec<u8>,
) -> Result<Proposal, SandboxError> {
    let workspace = canonical(workspace)?;
    let file = workspace.join(FOLDER).join(FILE);
    let record = Record::of(places, &workspace, &bytes)?;
    let standing = standing(places, &workspace, &bytes);
    let sha256 = hex(&Sha256::digest(&bytes));
    let text = read::repository_text(&file, bytes).map_err(|why| unusable(&file, &why))?;
    let settings = Settings::understand(&text)?;
    let mut layers = above(places, &mut Vec::new())?;
    layers.repository = Some(settings.clone());
    layers.merge(&EgressFlags::default(), &mut Vec::new())?;
    Ok(Proposal { file, sha256, standing, settings, record })
}

fn unusable(file: &Path, why: &Unread) -> SandboxError {
    ErrorCode::ConfigInvalid
        .error(format!("`{}` cannot be trusted: {why}", shown(file)))
        .hint("replace it with a text file, or remove it")
}

impl Proposal {
    /// The file, safe to show.
    pub fn name(&self) -> String {
        shown(&self.file)
    }

    /// Records that this content is trusted.
    pub fn keep(&self) -> Result<(), SandboxError> {
        self.record.write().map_err(|error| {
            let message = format!("cannot keep that `{}` is trusted: {error}", shown(&self.file));
            let folder = self.record.file.parent().unwrap_or(Path::new("/"));
            ErrorCode::StateFailed
                .error(message)
                .hint(format!("see to it that you can write in {}", argument(folder)))
                .caused_by(error)
        })
    }
}

/// Removes the trust in a repository's file. Returns whether it was trusted.
pub fn revoke(workspace: &Path) -> Result<bool, SandboxError> {
    revoke_from(&ConfigPaths::real(), workspace)
}

/// The same, with files from elsewhere.
pub fn revoke_from(places: &ConfigPaths, workspace: &Path) -> Result<bool, SandboxError> {
    let record = Record::of(places, &canonical(workspace)?, b"")?;
    match fs::remove_file(&record.file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(ErrorCode::StateFailed
            .error(format!("cannot remove `{}`: {error}", shown(&record.file)))
            .hint("remove the file by hand")
            .caused_by(error)),
    }
}

/// The decision on this content.
pub(crate) fn standing(places: &ConfigPaths, workspace: &Path, bytes: &[u8]) -> Standing {
    let record = canonical(workspace).and_then(|workspace| Record::of(places, &workspace, bytes));
    match record.ok().and_then(|record| Some(record.read()? == record.line)) {
        Some(true) => Standing::Trusted,
        Some(false) => Standing::Changed,
        None => Standing::Unknown,
    }
}

/// The record that a content is trusted.
#[derive(Debug)]
struct Record {
    file: PathBuf,
    line: Vec<u8>,
}

impl Record {
    /// For a workspace without links on its way.
    fn of(places: &ConfigPaths, workspace: &Path, bytes: &[u8]) -> Result<Record, SandboxError> {
        let state = places.state.as_deref().ok_or_else(|| {
            ErrorCode::ConfigInvalid
                .error("there is no place to keep what is trusted: HOME is not set")
                .hint("set HOME, or XDG_STATE_HOME")
        })?;
        // The part of it that exists, since it may still have to be made.
        let existing = state.ancestors().find_map(|folder| folder.canonicalize().ok());
        if existing.is_some_and(|folder| folder.starts_with(workspace)) {
            let message = format!(
                "what is trusted is kept in `{}`, inside the workspace, where a sandbox can write",
                shown(state)
            );
            return Err(ErrorCode::PathRefused
                .error(message)
                .hint("set XDG_STATE_HOME to a folder outside, or choose another workspace"));
        }
        let path = workspace.join(FOLDER).join(FILE);
        let mut line = hex(&Sha256::digest(bytes)).into_bytes();
        line.extend_from_slice(b"  ");
        line.extend_from_slice(path.as_os_str().as_bytes());
        line.push(b'\n');
        let name = hex(&Sha256::digest(path.as_os_str().as_bytes()));
        Ok(Record { file: state.join("trust").join(name), line })
    }

    /// The stored list, if no other user can have written it.
    fn read(&self) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(&self.file, flags, Mode::empty()).ok()?;
        let found = fstat(&file).ok()?;
        let mine = found.st_uid == geteuid().as_raw() && found.st_mode & WRITABLE_BY_OTHERS == 0;
        mine.then(|| read::bytes(file).ok())?
    }

    /// Atomically: a reader never sees a partial file.
    fn write(&self) -> io::Result<()> {
        let folder = self.file.parent().ok_or(ErrorKind::InvalidInput)?;
        create_private(folder)?;
        write_atomic(&self.file, &self.line, Survives::PowerCut)
    }
}

fn canonical(workspace: &Path) -> Result<PathBuf, SandboxError> {
    workspace.canonicalize().map_err(|error| {
        ErrorCode::WorkspaceMissing
            .error(format!("cannot enter `{}`: {error}", shown(workspace)))
            .hint("name a folder that exists")
            .caused_by(error)
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const WRITABLE_BY_OTHERS: u32 = 0o022;

//! Imports commits from a repository that an agent writes to into one of ours.
//!
//! Its objects are copied as files into a scratch repository: packs without their indexes, which are made anew, and loose objects.
//! No alternates, no commit graphs, no bitmaps come along. From there new objects are packed and go through
//! `git index-pack --strict`, which treats them as a push from a stranger: every object is checked and is named by its content, or
//! nothing is taken.

use super::objects::Copied;
use super::{Foreign, ForeignError};
use crate::inert::{Git, GitError, pack_limits};
use belljar_git::ObjectId;
use belljar_spec::git::PushLimits;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// One import: commit, source and destination.
#[derive(Clone, Copy)]
pub struct Import<'a> {
    pub git: &'a Git,
    /// A bare repository of ours.
    pub ours: &'a Path,
    pub from: &'a Foreign,
    /// The commit that is wanted.
    pub tip: &'a ObjectId,
    /// A directory for untrusted objects, on any filesystem; made, and removed again.
    pub scratch: &'a Path,
    pub limits: PushLimits,
}

/// Why nothing was taken.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot keep what came: {0}")]
    Keep(#[from] io::Error),
    #[error("commit {tip} did not pass: {reason}")]
    Refused { tip: ObjectId, reason: String },
}

/// Imports a commit with all it needs into a repository of ours; afterwards it exists there, without a ref.
pub fn import(import: &Import<'_>) -> Result<(), ImportError> {
    let git = import.git.on_any_leash();
    let import = &Import { git: &git, ..*import };
    if complete(import)? {
        return Ok(());
    }
    // Leftovers of a killed import.
    remove(import.scratch)?;
    let outcome = through_scratch(import);
    let removed = remove(import.scratch);
    outcome?;
    Ok(removed?)
}

fn through_scratch(import: &Import<'_>) -> Result<(), ImportError> {
    let Import { git, ours, scratch, tip, .. } = import;
    let format = git.on(ours).args(["rev-parse", "--show-object-format"]).line()?;
    let init = git.anywhere().args(["init", "-q", "--bare", "--template="]);
    init.arg(format!("--object-format={format}")).arg(scratch).output()?;
    let mut copied = Copied::new(import.limits);
    let packs = copied.everything(import.from, Some(&ours.join("objects")), &scratch.join("objects"))?;
    let on_scratch = || {
        let call = git.on(scratch).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", ours.join("objects"));
        call.env("GIT_ALLOC_LIMIT", LARGEST_PIECE)
    };
    // The sandbox's cgroup is gone by now.
    let limits = || pack_limits(import.limits.bytes.as_u64());
    for pack in packs {
        on_scratch().arg("index-pack").arg(pack).limit(1 << 20).limited(limits()).output()?;
    }
    let refused = |reason: String| ImportError::Refused { tip: (*tip).clone(), reason };
    let shallow = import.from.read("shallow", MAX_SHALLOW_BYTES)?;
    if let Some(shallow) = shallow.filter(|_| ours.join("shallow").exists()) {
        fs::write(scratch.join("shallow"), shallow)?;
    }
    // Objects that we have are not packed; our own refs decide that, not the foreign repository.
    let known = git.on(ours).args(["for-each-ref", "--format=^%(objectname)"]).output()?;
    let revisions = [tip.as_str().as_bytes(), b"\n", &known].concat();
    let packing = on_scratch().args(["pack-objects", "--revs", "-q", "--delta-base-offset"]);
    let packed = packing.arg(scratch.join("new")).limited(limits()).run_with(&revisions)?;
    if packed.code != Some(0) {
        return Err(refused(packed.reason()));
    }
    let name = String::from_utf8_lossy(&packed.stdout).trim_end().to_string();
    let pack = File::open(scratch.join(format!("new-{name}.pack")))?;
    let reading = git.on(ours).args(["index-pack", "--stdin", "--strict", "--fix-thin"]);
    let read = reading.env("GIT_ALLOC_LIMIT", LARGEST_PIECE).limited(limits()).input(pack).run()?;
    if read.code != Some(0) {
        return Err(refused(read.reason()));
    }
    match complete(import)? {
        true => Ok(()),
        false => Err(refused("something that it refers to is missing".to_string())),
    }
}

/// Is the commit in our repository, with everything that it needs?
fn complete(import: &Import<'_>) -> Result<bool, GitError> {
    let Import { git, ours, tip, .. } = import;
    let is_commit = git.on(ours).args(["cat-file", "-t", tip.as_str()]).run()?;
    if is_commit.stdout.trim_ascii_end() != b"commit" {
        return Ok(false);
    }
    let walk = git.on(ours).args(["rev-list", "--objects", "--quiet", tip.as_str(), "--not", "--all"]);
    Ok(walk.run()?.code == Some(0))
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A few bytes can claim to unpack to many: git fails if one allocation would be larger.
const LARGEST_PIECE: &str = "512m";
const MAX_SHALLOW_BYTES: u64 = 16 << 20;

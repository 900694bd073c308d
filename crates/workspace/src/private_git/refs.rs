//! The host's refs, for the sandbox's git directory.

use super::setup::{HostFilesOfGit, SetupError, Target};
use super::{HostGit, Synced};
use crate::foreign::Foreign;
use crate::inert::Git;
use belljar_git::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The commits of a repository's local branches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchTips {
    /// The checked-out commit; `None` before the first one.
    pub head: Option<ObjectId>,
    /// The commits of all branches, each once.
    pub others: Vec<ObjectId>,
}

/// Reads them, without a call of git if refs are files.
pub fn branch_tips(host: &HostGit) -> Result<BranchTips, SetupError> {
    let source = HostFilesOfGit::open(host)?;
    let found = match host.common.join("reftable").exists() {
        true => by_git(&source, &Git::find()?)?,
        false => of_files(&source)?,
    };
    let mut all = found.all();
    let head = match found.head.strip_prefix("ref: ") {
        Some(name) => all.get(name).cloned(),
        None => found.head.parse().ok(),
    };
    all.retain(|name, _| name.starts_with("refs/heads/"));
    let others: BTreeSet<ObjectId> = all.into_values().collect();
    Ok(BranchTips { head, others: others.into_iter().collect() })
}

/// HEAD and the refs of a repository at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    head: String,
    /// `packed-refs` without belljar's own refs, if it exists.
    packed: Vec<u8>,
    /// Loose refs: hashes, and symbolic ones.
    loose: BTreeMap<String, String>,
}

/// Reads them as files.
pub(super) fn of_files(source: &HostFilesOfGit<'_>) -> Result<Snapshot, SetupError> {
    let head = head_of_files(source)?;
    if head.is_empty() {
        return Err(SetupError::Unsupported("its HEAD cannot be read".to_string()));
    }
    let packed = source.common.read("packed-refs", MAX_PACKED_BYTES)?.unwrap_or_default();
    let mut loose = BTreeMap::new();
    of_directory(&source.common, "refs", &mut loose)?;
    if source.host.own != source.host.common {
        // A worktree has its own bisection and rewritten refs.
        for name in ["refs/bisect", "refs/rewritten", "refs/worktree"] {
            of_directory(&source.own, name, &mut loose)?;
        }
    }
    Ok(Snapshot { head, packed: without_own(packed), loose })
}

fn head_of_files(source: &HostFilesOfGit<'_>) -> Result<String, SetupError> {
    let head = source.own.read("HEAD", MAX_REF_BYTES)?.unwrap_or_default();
    let head = String::from_utf8(head).unwrap_or_default().trim_end().to_string();
    match head.strip_prefix("ref:").map(str::trim) {
        Some(name) if is_ref_name(name) => Ok(format!("ref: {name}")),
        Some(name) => {
            let message = format!("its HEAD names `{}`, which is no ref", name.escape_debug());
            Err(SetupError::Unsupported(message))
        }
        None => Ok(head),
    }
}

/// Whether a name can be a ref's file: below `refs`, without `..`.
fn is_ref_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.starts_with("refs/") && name.split('/').all(is_part) && !name.contains(char::is_control)
}

fn of_directory(source: &Foreign, top: &str, loose: &mut BTreeMap<String, String>) -> Result<(), SetupError> {
    let mut waiting = vec![top.to_string()];
    while let Some(path) = waiting.pop() {
        for name in source.names(&path)? {
            let path = format!("{path}/{name}");
            if path == OWN || name.ends_with(".lock") {
                continue;
            }
            match source.below(&path) {
                Ok(Some(_)) => waiting.push(path),
                // A link, or another file that is no ref.
                Err(_) => {}
                Ok(None) => {
                    let Some(bytes) = source.read(&path, MAX_REF_BYTES)? else { continue };
                    let text = String::from_utf8(bytes).unwrap_or_default().trim_end().to_string();
                    if text.starts_with("ref: ") || text.parse::<ObjectId>().is_ok() {
                        loose.insert(path, text);
                    }
                }
            }
            if loose.len() > MAX_LOOSE_REFS {
                let message =
                    format!("it has more than {MAX_LOOSE_REFS} loose refs: run `git pack-refs --all`");
                return Err(SetupError::Unsupported(message));
            }
        }
    }
    Ok(())
}

/// Asks git, for refs that are not stored as files.
pub(super) fn by_git(source: &HostFilesOfGit<'_>, git: &Git) -> Result<Snapshot, SetupError> {
    let call = || source.host.call(git).time_limit(READ_TIMEOUT);
    let symbolic = call().args(["symbolic-ref", "--quiet", "HEAD"]).run()?;
    let head = match symbolic.code {
        Some(0) => format!("ref: {}", String::from_utf8_lossy(&symbolic.stdout).trim_end()),
        _ => call().args(["rev-parse", "HEAD"]).line()?,
    };
    let list = call().args(["for-each-ref", "--format=%(objectname) %(refname) %(symref)"]).output()?;
    let mut loose = BTreeMap::new();
    let mut packed = SORTED.as_bytes().to_vec();
    let text = String::from_utf8_lossy(&list).into_owned();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(id), Some(name)) = (words.next(), words.next()) else { continue };
        match words.next().filter(|target| !target.is_empty()) {
            Some(target) => drop(loose.insert(name.to_string(), format!("ref: {target}"))),
            None => packed.extend_from_slice(format!("{id} {name}\n").as_bytes()),
        }
    }
    Ok(Snapshot { head, packed: without_own(packed), loose })
}

impl Snapshot {
    /// A branch that is a symbolic ref to another one would move on the host without its index.
    pub(super) fn refuse_symbolic_branch(&self) -> Result<(), SetupError> {
        let text = self.head.strip_prefix("ref: ").and_then(|name| self.loose.get(name));
        match text.and_then(|text| text.strip_prefix("ref: ")) {
            None => Ok(()),
            Some(other) => {
                let other = other.escape_debug();
                let message = format!("the branch that it has checked out is another name for `{other}`");
                Err(SetupError::Unsupported(message))
            }
        }
    }

    /// Whether HEAD is still on the same branch and commit, by reading their files alone: a commit that moves a branch gives it a
    /// loose file.
    pub(super) fn is_where_files_say(&self, source: &HostFilesOfGit<'_>) -> Result<bool, SetupError> {
        if head_of_files(source)? != self.head {
            return Ok(false);
        }
        let Some(name) = self.head.strip_prefix("ref: ") else { return Ok(true) };
        let now = match source.common.read(name, MAX_REF_BYTES) {
            Ok(Some(now)) => String::from_utf8(now).unwrap_or_default().trim_end().to_string(),
            // It may have been packed meanwhile, or never had a loose file.
            Ok(None) => return Ok(!self.loose.contains_key(name)),
            Err(_) => return Ok(true),
        };
        Ok(self.loose.get(name) == Some(&now))
    }

    /// Whether HEAD is on the same branch and commit.
    pub(super) fn is_same_place(&self, other: &Snapshot) -> bool {
        let at = |one: &Snapshot| one.head.strip_prefix("ref: ").and_then(|name| one.all().remove(name));
        self.head == other.head && at(self) == at(other)
    }

    /// The text of HEAD.
    pub(super) fn head(&self) -> &str {
        &self.head
    }

    /// Branches and tags.
    pub(super) fn shown(&self) -> BTreeMap<String, ObjectId> {
        let is_shown = |name: &String| name.starts_with("refs/heads/") || name.starts_with("refs/tags/");
        self.all().into_iter().filter(|(name, _)| is_shown(name)).collect()
    }

    /// Every ref that is not symbolic.
    fn all(&self) -> BTreeMap<String, ObjectId> {
        let packed = self.packed.split(|byte| *byte == b'\n').filter_map(|line| {
            let (id, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            Some((name.to_string(), id.parse().ok()?)).filter(|_| is_ref_name(name))
        });
        let loose = self.loose.iter().filter_map(|(name, id)| Some((name.clone(), id.parse().ok()?)));
        packed.chain(loose).collect()
    }

    /// Writes them into a git directory, and returns the written refs.
    pub(super) fn write(&self, target: &Target<'_>) -> Result<Synced, SetupError> {
        target.write("HEAD", format!("{}\n", self.head).as_bytes())?;
        let all = self.all();
        if self.loose.len() > FEW_LOOSE_REFS {
            // One file each would take longer than the start. Without peeled tags in the file, git peels each when needed.
            let mut packed = SORTED.to_string();
            for (name, id) in &all {
                packed += &format!("{id} {name}\n");
            }
            target.write("packed-refs", packed.as_bytes())?;
        } else {
            if !self.packed.is_empty() {
                target.write("packed-refs", &self.packed)?;
            }
            for (name, text) in self.loose.iter().filter(|(_, text)| !text.starts_with("ref: ")) {
                target.write(name, format!("{text}\n").as_bytes())?;
            }
        }
        for (name, text) in self.loose.iter().filter(|(_, text)| text.starts_with("ref: ")) {
            target.write(name, format!("{text}\n").as_bytes())?;
        }
        // Build scripts read the loose file of the branch.
        let is_written = |name: &str| self.loose.len() <= FEW_LOOSE_REFS && self.loose.contains_key(name);
        if let Some(name) = self.head.strip_prefix("ref: ")
            && let Some(id) = all.get(name)
            && !is_written(name)
        {
            target.write(name, format!("{id}\n").as_bytes())?;
        }
        let refs = self.shown();
        Ok(Synced { head: self.head.clone(), refs, ..Synced::default() })
    }
}

/// Lines of `packed-refs` without belljar's own refs and their peeled values.
fn without_own(packed: Vec<u8>) -> Vec<u8> {
    let own = format!(" {OWN}/");
    if !packed.windows(own.len()).any(|window| window == own.as_bytes()) {
        return packed;
    }
    let mut kept = Vec::with_capacity(packed.len());
    let mut is_own = false;
    for line in packed.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(b"^") {
            is_own = line.windows(own.len()).any(|window| window == own.as_bytes());
        }
        if !is_own {
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// Refs that belljar keeps in the host's repository; no sandbox sees them.
pub(super) const OWN: &str = "refs/belljar";
/// A million refs take seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const SORTED: &str = "# pack-refs with: sorted \n";
const FEW_LOOSE_REFS: usize = 200;
const MAX_LOOSE_REFS: usize = 100_000;
const MAX_REF_BYTES: u64 = 4096;
const MAX_PACKED_BYTES: u64 = 128 << 20;

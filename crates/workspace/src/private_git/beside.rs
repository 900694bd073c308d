//! Belljar's refs for commits that no branch of the host took over.

use crate::foreign::excludes;
use crate::quarantine::{Landing, QuarantineError};
use belljar_git::{ObjectFormat, ObjectId, RefName};
use std::collections::BTreeMap;

/// The refs of one sandbox below `refs/belljar/ID/`, now and after the import.
pub(super) struct Beside {
    id: String,
    format: ObjectFormat,
    /// After the import.
    refs: BTreeMap<String, ObjectId>,
    landings: Vec<Landing>,
}

impl Beside {
    pub(super) fn new(id: &str, format: ObjectFormat, refs: &BTreeMap<String, ObjectId>) -> Beside {
        let prefix = format!("refs/belljar/{id}/");
        let ours = refs.iter().filter(|(name, _)| name.starts_with(&prefix));
        let refs = ours.map(|(name, id)| (name.clone(), id.clone())).collect();
        Beside { id: id.to_string(), format, refs, landings: Vec::new() }
    }

    /// Keeps a commit under the name of its ref inside, `refs/heads/x` as `refs/belljar/ID/heads/x`. An earlier commit there that
    /// is not its ancestor moves to a numbered name. Returns the commit's name.
    pub(super) fn keep(
        &mut self,
        reference: &str,
        commit: &ObjectId,
        contains: impl Fn(&ObjectId) -> Result<bool, QuarantineError>,
    ) -> Result<String, QuarantineError> {
        let below = match reference {
            "HEAD" => "head",
            name => name.strip_prefix("refs/").unwrap_or(name),
        };
        let name = format!("refs/belljar/{}/{below}", self.id);
        if !fits(&name) || !is_plain(&name) || self.refs.keys().any(|other| excludes(other, &name)) {
            return self.keep_numbered("kept", commit);
        }
        let there = self.refs.get(&name).cloned();
        if let Some(there) = there.filter(|there| there != commit)
            && !contains(&there)?
        {
            self.keep_numbered("kept", &there)?;
        }
        self.set(&name, commit)?;
        Ok(name)
    }

    /// Keeps a commit under the next number, unless one of these refs has it.
    pub(super) fn keep_numbered(
        &mut self,
        folder: &str,
        commit: &ObjectId,
    ) -> Result<String, QuarantineError> {
        let prefix = format!("refs/belljar/{}/{folder}/", self.id);
        let mut there = self.refs.iter().filter(|(name, _)| name.starts_with(&prefix));
        if let Some((name, _)) = there.find(|(_, id)| *id == commit) {
            return Ok(name.clone());
        }
        let mut numbers = (0..).map(|number: u32| format!("{prefix}{number}"));
        let name = numbers.find(|name| !self.refs.contains_key(name));
        let name = name.ok_or_else(|| QuarantineError::Unusable("too many refs".to_string()))?;
        self.set(&name, commit)?;
        Ok(name)
    }

    /// Removes a name whose commits are in another ref now.
    pub(super) fn release(
        &mut self,
        reference: &str,
        is_taken: impl Fn(&ObjectId) -> Result<bool, QuarantineError>,
    ) -> Result<(), QuarantineError> {
        let name = format!("refs/belljar/{}/{}", self.id, reference.trim_start_matches("refs/"));
        let (Some(old), Ok(whole)) = (self.refs.get(&name).cloned(), RefName::parse(name.as_bytes())) else {
            return Ok(());
        };
        if is_taken(&old)? {
            self.refs.remove(&name);
            self.landings.push(Landing { name: whole, old, new: ObjectId::zero(self.format) });
        }
        Ok(())
    }

    /// A belljar ref at this commit.
    pub(super) fn set(&mut self, name: &str, commit: &ObjectId) -> Result<(), QuarantineError> {
        if self.refs.get(name) == Some(commit) {
            return Ok(());
        }
        let whole = RefName::parse(name.as_bytes())
            .map_err(|_| QuarantineError::Unusable(format!("`{name}` cannot be a ref")))?;
        let old = self.refs.insert(name.to_string(), commit.clone());
        let old = old.unwrap_or_else(|| ObjectId::zero(self.format));
        self.landings.push(Landing { name: whole, old, new: commit.clone() });
        Ok(())
    }

    pub(super) fn landings(self) -> Vec<Landing> {
        self.landings
    }
}

/// Whether a name is harmless in a shell: users are told to run commands with it.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@=,%#".contains(&byte))
}

/// Whether a file system has room for a ref of this name: a sandbox may have packed a ref whose name is too long for a file.
pub(super) fn fits(name: &str) -> bool {
    name.len() < MAX_NAME_BYTES && name.split('/').all(|part| part.len() < MAX_PART_BYTES)
}

/// The length of a path below the git directory, with room for `.lock` and `logs/`.
const MAX_NAME_BYTES: usize = 1000;
const MAX_PART_BYTES: usize = 200;

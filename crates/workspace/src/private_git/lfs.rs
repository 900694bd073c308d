//! Imports git-lfs objects that were made inside, together with the commits that have pointers to them.
//!
//! git-lfs keeps the content of a file as `lfs/objects/aa/bb/SHA256`, and commits a small text with that name. Only objects that
//! new commits name are imported, and a file is taken only if its content matches its name.

use super::Importer;
use crate::foreign::make_folder;
use crate::quarantine::{Owner, Quarantine, QuarantineError, Taken};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{AtFlags, Mode, OFlags, open, openat, renameat, statat, unlinkat};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};

impl Importer<'_> {
    /// Imports the objects that pointer files in a pack name, and reports the ones that are too large. If there are none inside, no
    /// git is started.
    pub(super) fn take_lfs(
        &self,
        quarantine: &Quarantine,
        taken: Option<&Taken>,
    ) -> Result<Vec<String>, QuarantineError> {
        let mut notes = Vec::new();
        let Some(taken) = taken.filter(|_| self.from.below(OBJECTS).is_ok_and(|found| found.is_some()))
        else {
            return Ok(notes);
        };
        let small = quarantine.small_files(taken, MAX_POINTER_BYTES)?;
        let pointers: BTreeMap<String, u64> = small.iter().filter_map(|text| pointer(text)).collect();
        let mut left = self.policy.limits.bytes.as_u64();
        for (name, size) in pointers {
            let folder = format!("{OBJECTS}/{}/{}", &name[..2], &name[2..4]);
            // An entry that is no regular file is not from git-lfs.
            let Ok(Some(file)) = self.from.file(&format!("{folder}/{name}")) else { continue };
            let place = self.host.common.join(&folder);
            let failed = QuarantineError::file("write", &place);
            // Following no link: an agent may once have made the git directory.
            let owner = self.repository.owner();
            let common = open(&self.host.common, OPEN_DIRECTORY, Mode::empty()).map_err(io::Error::from);
            let folder =
                common.and_then(|common| make_folder(&common, &folder, |made| owner.take_open(made)));
            let folder = match folder {
                Ok(folder) => folder,
                Err(error) => return Err(failed(error)),
            };
            if statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                continue;
            }
            match left.checked_sub(size) {
                None => notes.push(format!(
                    "the git-lfs object {} of {size} bytes was not taken over: more than `[git] bytes` allows at once",
                    &name[..12]
                )),
                Some(rest) => {
                    left = rest;
                    match copy(file, &folder, &name, size, owner) {
                        Err(error) if error.kind() == ErrorKind::InvalidData => notes.push(format!(
                            "the git-lfs object {} was not taken over: its content has another name",
                            &name[..12]
                        )),
                        outcome => outcome.map_err(failed)?,
                    }
                }
            }
        }
        Ok(notes)
    }
}

/// The object name and size in a git-lfs pointer file (git-lfs' `docs/spec.md`).
fn pointer(text: &[u8]) -> Option<(String, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    if lines.next()? != "version https://git-lfs.github.com/spec/v1" {
        return None;
    }
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let name = value("oid sha256:")?;
    let is_name = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    Some((name.to_string(), value("size ")?.parse().ok()?)).filter(|_| is_name)
}

/// Copies a file, and gives it its name only if the content matches.
fn copy(from: File, folder: &OwnedFd, name: &str, size: u64, owner: Owner) -> io::Result<()> {
    let passing = format!("tmp_belljar_{name}");
    let _ = unlinkat(folder, &passing, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut to = File::from(openat(folder, &passing, flags, Mode::from_raw_mode(0o644))?);
    let copied = copy_content(from, &mut to, name, size).and_then(|()| owner.take_open(&to));
    let moved = copied.and_then(|()| Ok(renameat(folder, &passing, folder, name)?));
    if moved.is_err() {
        let _ = unlinkat(folder, &passing, AtFlags::empty());
    }
    moved
}

fn copy_content(from: File, to: &mut File, name: &str, size: u64) -> io::Result<()> {
    let mut hash = Sha256::new();
    let (mut from, mut piece, mut total) = (from.take(size + 1), vec![0; PIECE], 0);
    loop {
        let count = from.read(&mut piece)?;
        if count == 0 {
            break;
        }
        total += count as u64;
        hash.update(&piece[..count]);
        to.write_all(&piece[..count])?;
    }
    let found = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if found != name || total != size {
        return Err(ErrorKind::InvalidData.into());
    }
    to.sync_all()
}

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OBJECTS: &str = "lfs/objects";
/// git-lfs itself reads no larger pointer file.
const MAX_POINTER_BYTES: u64 = 1024;
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::pointer;

    #[test]
    fn only_what_git_lfs_writes_names_an_object() {
        let name = "0123456789abcdef".repeat(4);
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize 12\n");
        assert_eq!(pointer(text.as_bytes()), Some((name.clone(), 12)));
        for (from, to) in [
            ("spec/v1", "spec/v9"),
            ("sha256:0", "sha256:/"),
            ("sha256:01", "sha256:"),
            ("12", "-1"),
            ("oid", "no"),
        ] {
            assert_eq!(pointer(text.replace(from, to).as_bytes()), None, "{from}");
        }
    }
}

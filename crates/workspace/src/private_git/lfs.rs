//! Objects of git-lfs that were made inside, taken over together with the commits whose files stand for them.
//!
//! git-lfs keeps the content of a file as `lfs/objects/aa/bb/SHA256`, and commits a small text with that name. Only names that new
//! commits have are looked for, and a file is taken only if its content has the name.

use super::Importer;
use crate::quarantine::{HostRepository, Quarantine, QuarantineError, Taken};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

impl Importer<'_> {
    /// Takes over the objects that files in a pack stand for, and says which ones are too large. Without any inside no git is started.
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
            let path = format!("{OBJECTS}/{}/{}/{name}", &name[..2], &name[2..4]);
            let place = self.host.common.join(&path);
            // What is no file there is not one of git-lfs' either.
            let Ok(Some(file)) = self.from.file(&path) else { continue };
            if place.exists() {
                continue;
            }
            match left.checked_sub(size) {
                None => notes.push(format!(
                    "the git-lfs object {} of {size} bytes was not taken over: more than `[git] bytes` allows at once",
                    &name[..12]
                )),
                Some(rest) => {
                    left = rest;
                    match copy(file, &place, &name, size, self.repository, self.host.common.as_path()) {
                        Err(error) if error.kind() == ErrorKind::InvalidData => notes.push(format!(
                            "the git-lfs object {} was not taken over: its content has another name",
                            &name[..12]
                        )),
                        outcome => outcome.map_err(QuarantineError::file("write", &place))?,
                    }
                }
            }
        }
        Ok(notes)
    }
}

/// The name and size that a file of git-lfs stands for (git-lfs' `docs/spec.md`).
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

/// Copies a file, and gives it its name only if the content has it.
fn copy(
    from: File,
    place: &Path,
    name: &str,
    size: u64,
    repository: &HostRepository,
    common: &Path,
) -> io::Result<()> {
    let owned = |path: &Path| repository.owner().take(path).map_err(io::Error::other);
    let mut folder = common.to_path_buf();
    for part in place.strip_prefix(common).ok().and_then(Path::parent).into_iter().flat_map(Path::components)
    {
        folder.push(part);
        match fs::create_dir(&folder) {
            Ok(()) => owned(&folder)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let passing = folder.join(format!("tmp_belljar_{name}"));
    let _ = fs::remove_file(&passing);
    let copied =
        File::options().write(true).create_new(true).mode(0o644).open(&passing).and_then(|mut to| {
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
            to.sync_all()?;
            owned(&passing)
        });
    let moved = copied.and_then(|()| fs::rename(&passing, place));
    if moved.is_err() {
        let _ = fs::remove_file(&passing);
    }
    moved
}

const OBJECTS: &str = "lfs/objects";
/// git-lfs itself reads no larger file as one of its own.
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

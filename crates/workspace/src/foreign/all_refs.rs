//! All branches and tags of a repository that an agent writes to, and the logs beside them.

use super::directory::{Directory, Entry};
use super::refs::{MAX_LOOSE_REFS, MAX_PACKED_REFS_BYTES, MAX_REF_BYTES};
use super::{Foreign, ForeignError, object};
use belljar_git::{ObjectId, RefName};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// Branches and tags, by their whole names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AllRefs {
    pub refs: BTreeMap<String, ObjectId>,
    /// Names whose file is no ref: a link, a pipe, a symbolic ref, text. Such a name tells nothing, not even that the ref is gone.
    pub unreadable: BTreeSet<String>,
    /// Refs of both kinds above that are listed under a derived name.
    pub renamed: BTreeSet<String>,
}

impl AllRefs {
    /// The name that a branch or tag is listed under: its own, or one derived from it. `None` for other refs, and for git's lock
    /// files.
    fn spoken(&mut self, name: &[u8]) -> Option<String> {
        let kind =
            ["refs/heads/", "refs/tags/"].into_iter().find(|kind| name.starts_with(kind.as_bytes()))?;
        if name.ends_with(b".lock") {
            return None;
        }
        if let Ok(name) = RefName::parse(name) {
            return Some(name.as_str().to_string());
        }
        let is_plain = |char: &char| char.is_ascii_alphanumeric();
        let rest = String::from_utf8_lossy(&name[kind.len()..]);
        let rest: String = rest.chars().filter(is_plain).take(MAX_SPOKEN_CHARS).collect();
        let hash = Sha256::digest(name)[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let name = format!("{kind}odd-name-{rest}-{hash}");
        self.renamed.insert(name.clone());
        Some(name)
    }
}

impl Foreign {
    /// All branches and tags. One whose name is not valid UTF-8, too long, or otherwise not expressible in a policy, is listed
    /// under a derived name: so its commits are not lost.
    pub fn refs(&self) -> Result<AllRefs, ForeignError> {
        // A reftable repository's HEAD names an impossible branch, so that older gits do not take it for empty.
        if self.has("reftable") {
            return Err(ForeignError::spoiled("reftable", "refs kept as a reftable are not read"));
        }
        let mut all = AllRefs::default();
        // Loose refs first: git packs them by writing `packed-refs` and removing the files afterwards, so only in this order a ref
        // is never missed.
        self.below_each(&["refs/heads", "refs/tags"], |name, entry| {
            let Some(name) = all.spoken(name) else { return };
            match entry.and_then(|text| object(text.trim_end())) {
                Some(id) => drop(all.refs.insert(name, id)),
                None => drop(all.unreadable.insert(name)),
            }
        })?;
        let packed = self.read("packed-refs", MAX_PACKED_REFS_BYTES)?.unwrap_or_default();
        for line in packed.split(|byte| *byte == b'\n') {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let (Ok(hash), Some(name)) =
                (std::str::from_utf8(&line[..space]), all.spoken(&line[space + 1..]))
            else {
                continue;
            };
            let is_loose = all.refs.contains_key(&name) || all.unreadable.contains(&name);
            if !is_loose && let Some(id) = object(hash) {
                all.refs.insert(name, id);
            }
        }
        Ok(all)
    }

    /// The values of a ref over time, oldest first, from its reflog. Empty if there is no log; lines that git did not write are
    /// skipped.
    pub fn log(&self, reference: &str) -> Result<Vec<ObjectId>, ForeignError> {
        let bytes = self.read(&format!("logs/{reference}"), MAX_LOG_BYTES)?.unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
            let new = line.split(|byte| *byte == b' ').nth(1)?;
            ObjectId::parse(new).ok().filter(|id| !id.is_zero())
        });
        Ok(lines.collect())
    }

    /// The names of the branches that have a log, including deleted branches whose log git kept.
    pub fn logged_branches(&self) -> Result<Vec<String>, ForeignError> {
        let mut names = Vec::new();
        self.below_each(&["logs/refs/heads"], |path, _| {
            let path = std::str::from_utf8(path).ok().and_then(|path| path.strip_prefix("logs/"));
            names.extend(path.map(str::to_string));
        })?;
        Ok(names)
    }

    /// Every name below some folders, with the beginning of its text if it is a file.
    fn below_each(
        &self,
        folders: &[&str],
        mut found: impl FnMut(&[u8], Option<String>),
    ) -> Result<(), ForeignError> {
        let mut waiting: Vec<(Vec<u8>, Directory)> = Vec::new();
        for folder in folders {
            // A link in the place of the folder: there are no refs that could be read.
            if let Entry::Directory(directory) = self.directory.entry(folder)? {
                waiting.push((folder.as_bytes().to_vec(), directory));
            }
        }
        let mut seen = 0;
        while let Some((path, directory)) = waiting.pop() {
            let names = directory.all_names()?;
            seen += names.len();
            if seen > MAX_LOOSE_REFS {
                return Err(ForeignError::TooMuch { what: "more refs", most: MAX_LOOSE_REFS as u64 });
            }
            for name in names {
                let whole = [&path, name.as_bytes()].join(&b'/');
                match directory.entry(&name)? {
                    Entry::Directory(below)
                        if whole.iter().filter(|byte| **byte == b'/').count() < DEEPEST =>
                    {
                        waiting.push((whole, below));
                    }
                    Entry::Directory(_) | Entry::Other => found(&whole, None),
                    Entry::File(file) => {
                        let mut text = Vec::new();
                        let read = file.take(MAX_REF_BYTES).read_to_end(&mut text);
                        found(&whole, read.ok().and_then(|_| String::from_utf8(text).ok()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// For a name that cannot be used unchanged: enough of it to recognize it.
const MAX_SPOKEN_CHARS: usize = 40;
/// Each level costs a descriptor while it is read, and git's names have fewer levels.
const DEEPEST: usize = 64;
/// A hundred thousand moves of one ref.
const MAX_LOG_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn only_plain_files_and_lines_are_refs() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        for folder in ["refs/heads/a", "refs/tags", "logs/refs/heads"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (name, content) in [
            ("refs/heads/a/b", format!("{one}\n")),
            ("refs/heads/symbolic", "ref: refs/heads/a/b\n".to_string()),
            ("refs/heads/a/b.lock", format!("{two}\n")),
            ("refs/heads/text", "x".repeat(10_000)),
            (&format!("refs/heads/{}", "l".repeat(250)), format!("{one}\n")),
            ("refs/stash", format!("{two}\n")),
            ("secret", format!("{two}\n")),
        ] {
            fs::write(at(name), content).unwrap();
        }
        let odd = place.path().join(OsStr::from_bytes(b"refs/heads/f\xfcr"));
        fs::write(odd, format!("{two}\n")).unwrap();
        symlink("../../secret", at("refs/heads/link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("refs/heads/pipe")).status().unwrap().success());
        let packed = format!(
            "# pack-refs with: peeled\n{two} refs/heads/a/b\n{two} refs/heads/packed\n^{one}\n{two} refs/heads/link\n\
             {two} refs/remotes/origin/x\n{two} refs/heads/../x\n{two} refs/tags/v1\nx refs/tags/v2\n"
        );
        fs::write(at("packed-refs"), packed).unwrap();
        fs::write(
            at("logs/HEAD"),
            format!("{one} {two} A <a> 1 +0\tx\nnothing\n{two} {} A\n", "0".repeat(40)),
        )
        .unwrap();
        let foreign = Foreign::open(place.path()).unwrap();
        let all = foreign.refs().unwrap();
        let refs = all.refs.iter().map(|(name, id)| (name.as_str(), id.as_str())).collect::<Vec<_>>();
        let long = format!("refs/heads/odd-name-{}-", "l".repeat(40));
        let is_odd = |name: &str| name.contains("/odd-name-");
        let odd: Vec<_> = refs.iter().filter(|(name, _)| is_odd(name)).collect();
        // The third is `refs/heads/../x`.
        assert_eq!(odd.len(), 3, "{odd:?}");
        assert!(odd.iter().any(|(name, id)| name.starts_with(&long) && *id == one), "{odd:?}");
        assert!(
            odd.iter().any(|(name, id)| name.starts_with("refs/heads/odd-name-fr-") && *id == two),
            "{odd:?}"
        );
        let refs: Vec<_> = refs.into_iter().filter(|(name, _)| !is_odd(name)).collect();
        let expected = [
            ("refs/heads/a/b", one.as_str()),
            ("refs/heads/packed", two.as_str()),
            ("refs/tags/v1", two.as_str()),
        ];
        assert_eq!(refs, expected);
        let unreadable = all.unreadable.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(
            unreadable,
            ["refs/heads/link", "refs/heads/pipe", "refs/heads/symbolic", "refs/heads/text"]
        );
        assert_eq!(foreign.log("HEAD").unwrap(), [two.parse().unwrap()]);
    }
}

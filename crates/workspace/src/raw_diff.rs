//! Parses the output of git's diff commands with `--raw -z --no-renames`: `:MODE MODE HASH HASH STATUS`, a zero byte, the path, a
//! zero byte; with `--stdin` the commit precedes its changes (git-diff-tree(1), "RAW OUTPUT FORMAT").

use std::iter::from_fn;

/// One part of the output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'r> {
    /// The commit that the next parts belong to.
    Commit(&'r [u8]),
    Change(Change<'r>),
}

/// A path that differs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change<'r> {
    /// The mode and the object of both sides.
    pub(crate) old: (&'r [u8], &'r [u8]),
    pub(crate) new: (&'r [u8], &'r [u8]),
    pub(crate) status: &'r [u8],
    pub(crate) path: &'r [u8],
}

/// All parts, in order. Malformed records are skipped.
pub(crate) fn parts(raw: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut fields = raw.split(|byte| *byte == 0);
    let one = move || {
        loop {
            let field = fields.next()?;
            let Some(record) = field.strip_prefix(b":") else { return Some(Part::Commit(field)) };
            let path = fields.next().unwrap_or_default();
            let words = record.split(|byte| *byte == b' ').collect::<Vec<_>>();
            if let [old_mode, new_mode, old, new, status] = words[..] {
                let (old, new) = ((old_mode, old), (new_mode, new));
                return Some(Part::Change(Change { old, new, status, path }));
            }
        }
    };
    from_fn(one)
}

/// The mode of a gitlink.
pub(crate) const GITLINK: &[u8] = b"160000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_and_changes_are_read_in_order() {
        let raw = b"c1\0:100644 160000 a b M\0one\0:nonsense\0x\0c2\0:000000 100644 0 d A\0two\0";
        let change = |old, new, status, path| Part::Change(Change { old, new, status, path });
        let expected = [
            Part::Commit(b"c1"),
            change((b"100644", b"a"), (b"160000", b"b"), b"M", b"one"),
            Part::Commit(b"c2"),
            change((b"000000", b"0"), (b"100644", b"d"), b"A", b"two"),
            Part::Commit(b""),
        ];
        assert_eq!(parts(raw).collect::<Vec<_>>(), expected);
    }
}

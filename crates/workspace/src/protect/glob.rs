//! The files that a shell pattern matches now: `*`, `?` and `[...]` in a word that is run. Only existing files are found: a
//! matching file that is made later is not. Called for words of hooks and of commands in config.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The files below `top` that match a path with patterns in its parts; none, if it has no patterns. Links are not followed.
pub(super) fn files(path: &Path, top: &Path) -> Vec<PathBuf> {
    let Ok(parts) = path.strip_prefix(top) else { return Vec::new() };
    if !parts.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte)) {
        return Vec::new();
    }
    let mut found = vec![top.to_path_buf()];
    for part in parts.components() {
        let Component::Normal(part) = part else { return Vec::new() };
        let pattern = part.as_bytes();
        found = match pattern.iter().any(|byte| b"*?[".contains(byte)) {
            true => found.iter().flat_map(|folder| entries(folder, pattern)).take(MAX_FILES).collect(),
            false => found.into_iter().map(|folder| folder.join(part)).collect(),
        };
    }
    found.retain(|path| path.symlink_metadata().is_ok_and(|kind| kind.is_file()));
    found
}

/// The entries of a folder whose name matches.
fn entries(folder: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    if !folder.symlink_metadata().is_ok_and(|kind| kind.is_dir()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.take(MAX_ENTRIES).flatten().map(|entry| entry.file_name());
    // A shell skips hidden files unless the pattern begins with a dot.
    let names = names.filter(|name| !name.as_bytes().starts_with(b".") || pattern.starts_with(b"."));
    names.filter(|name| fits(pattern, name.as_bytes())).map(|name| folder.join(name)).collect()
}

/// glob(7) for one part of a path. The time is the product of both lengths.
fn fits(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // The position of the last `*`, and how much it had matched: to retry with one byte more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let next = match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, name));
                Some((rest, name))
            }
            ([], []) => return true,
            ([], _) | (_, []) => None,
            ([b'?', more @ ..], [_, rest @ ..]) => Some((more, rest)),
            ([b'[', set @ ..], [byte, rest @ ..]) => match one_of(set, *byte) {
                Some((more, true)) => Some((more, rest)),
                Some((_, false)) => None,
                // Without a closing bracket it stands for itself.
                None => (*byte == b'[').then_some((set, rest)),
            },
            ([literal, more @ ..], [byte, rest @ ..]) => (literal == byte).then_some((more, rest)),
        };
        match (next, retry) {
            (Some(next), _) => (pattern, name) = next,
            (None, Some((after, [_, rest @ ..]))) => {
                retry = Some((after, rest));
                (pattern, name) = (after, rest);
            }
            (None, _) => return false,
        }
    }
}

/// The rest after a set, and whether the byte is in it; `None` without a `]`.
fn one_of(set: &[u8], byte: u8) -> Option<(&[u8], bool)> {
    let (is_negated, set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    // A `]` at the beginning belongs to the set.
    let end = set.iter().skip(1).position(|byte| *byte == b']')? + 1;
    let (inside, rest) = (&set[..end], &set[end + 1..]);
    let mut at = 0;
    let mut is_in = false;
    while at < inside.len() {
        match inside[at..] {
            [from, b'-', to, ..] => {
                is_in |= (from..=to).contains(&byte);
                at += 3;
            }
            _ => {
                is_in |= inside[at] == byte;
                at += 1;
            }
        }
    }
    Some((rest, is_in != is_negated))
}

/// As many as a hook has a reason to run.
const MAX_FILES: usize = 256;
/// Limit of entries of one folder.
const MAX_ENTRIES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.sh", "a.sh", true),
            ("*.sh", "a.py", false),
            ("too?s", "tools", true),
            ("too?s", "toos", false),
            ("a[bc]d", "acd", true),
            ("a[!bc]d", "acd", false),
            ("a[b-d]", "ac", true),
            ("a[]]", "a]", true),
            ("a[b", "a[b", true),
            ("a[b", "ab", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("[", "[", true),
            ("[]", "]", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}

//! The names that git takes for `.git` on some filesystem (read-cache.c `verify_path`, path.c `is_ntfs_dotgit`, utf8.c
//! `is_hfs_dotgit`).

/// Whether git, on some filesystem, would take this name for `.git`: in any letter case, with characters that HFS+ ignores, in
/// NTFS's short form, and with a suffix that NTFS drops. A name with `\` in it is a path there.
pub(super) fn is_dot_git(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'\\').any(|part| is_dot_git_of_ntfs(part) || is_dot_git_of_hfs(part))
}

fn is_dot_git_of_ntfs(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.len() >= with.len() && name[..with.len()].eq_ignore_ascii_case(with);
    let rest = match (begins(b".git"), begins(b"git~1")) {
        (true, _) => &name[4..],
        (false, true) => &name[5..],
        (false, false) => return false,
    };
    let mut rest = rest.iter().skip_while(|byte| matches!(byte, b'.' | b' '));
    matches!(rest.next(), None | Some(b':'))
}

fn is_dot_git_of_hfs(name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(name) else { return false };
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    text.chars().filter(|c| !ignored(c)).map(|c| c.to_ascii_lowercase()).eq(".git".chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_that_git_refuses_is_one() {
        for name in [
            ".git",
            ".GIT",
            ".gIt",
            "git~1",
            "GIT~1",
            ".git.",
            ".git ",
            ".git. .",
            ".git\u{200c}",
            ".g\u{200d}it",
            "\u{feff}.git",
            ".git::$INDEX_ALLOCATION",
            "x\\.git",
            ".git\\x",
            "git~1 ",
        ] {
            assert!(is_dot_git(name.as_bytes()), "{name:?}");
        }
        for name in
            [".gitignore", ".gitmodules", ".gitx", "git", "git~2", ".github", "x.git", ".git~1", "a\u{200c}"]
        {
            assert!(!is_dot_git(name.as_bytes()), "{name:?}");
        }
    }
}

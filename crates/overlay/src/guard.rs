//! Paths that are never applied, by name: the host's git, or belljar, would obey their content.
//!
//! Inside a sandbox the same paths are read-only, and every `.git` is the sandbox's own. This is the second check of the same rule:
//! an agent wrote the layer, and it is not assumed that it wrote through the mounts. Names match in any letter case, since some
//! filesystems ignore case, and at any depth, since a repository may lie in a folder.

use super::dot_git::is_dot_git;
use super::path::RelPath;
use belljar_spec::workspace::ProtectedPath;

/// The paths that are never applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    /// Paths from the policy.
    named: Vec<Vec<u8>>,
}

impl Guard {
    pub(super) fn new(named: &[ProtectedPath]) -> Guard {
        Guard { named: named.iter().map(|path| path.as_str().as_bytes().to_vec()).collect() }
    }

    /// Whether it is, or lies below, a protected path.
    pub(super) fn protects(&self, path: &RelPath) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        self.named.iter().any(|named| begins_with(&parts, named))
            || begins_with(&parts, b".husky")
            || begins_with(&parts, b".belljar")
            || parts.iter().any(|part| is_dot_git(part))
    }

    /// Whether a protected path lies below it: then it may only be a directory.
    pub(super) fn anchors(&self, path: &RelPath) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        let leads_to = |named: &Vec<u8>| {
            let names: Vec<&[u8]> = named.split(|byte| *byte == b'/').collect();
            names.len() > parts.len() && parts.iter().zip(&names).all(|(a, b)| a.eq_ignore_ascii_case(b))
        };
        self.named.iter().any(leads_to)
    }
}

fn begins_with(parts: &[&[u8]], named: &[u8]) -> bool {
    let mut names = named.split(|byte| *byte == b'/');
    let mut parts = parts.iter();
    names.all(|name| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn path(text: &str) -> RelPath {
        RelPath::understand(Path::new(text)).unwrap()
    }

    #[test]
    fn what_git_obeys_is_never_applied() {
        let guard = Guard::new(&[".github/workflows".parse().unwrap()]);
        let protected = [
            ".git",
            ".git/hooks/pre-commit",
            ".git/index",
            ".git/refs/heads/main",
            ".GIT/Config",
            ".husky/pre-push",
            ".belljar/config.toml",
            ".github/workflows/ci.yml",
            "vendor/x/.git",
            "vendor/x/.git/hooks/post-checkout",
            ".git\u{200c}/index",
            "git~1/config",
        ];
        for text in protected {
            assert!(guard.protects(&path(text)), "{text}");
        }
        let free = [
            "src/main.rs",
            "hooks/x",
            "config",
            ".gitignore",
            ".gitattributes",
            ".gitmodules",
            "a/.husky/x",
            ".github/CODEOWNERS",
        ];
        for text in free {
            assert!(!guard.protects(&path(text)), "{text}");
        }
    }

    #[test]
    fn what_holds_it_stays_a_directory() {
        let guard = Guard::new(&[".github/workflows".parse().unwrap()]);
        assert!(guard.anchors(&path(".github")));
        for text in ["src", ".gitmodules", ".github/workflows"] {
            assert!(!guard.anchors(&path(text)), "{text}");
        }
    }
}

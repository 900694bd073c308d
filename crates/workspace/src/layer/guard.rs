//! What is never applied, whoever asks: paths whose content the host's git, or belljar, would obey.
//!
//! The same paths are read-only inside a sandbox. This is the second lock on the same door: a layer is what an agent
//! wrote, and is not trusted to have been written through a mount. Names count in any case of letters, since some
//! filesystems do not tell them apart, and at any depth, since a repository may lie in a folder.

use super::path::RelPath;
use belljar_spec::workspace::ProtectedPath;

/// What is never applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    /// Named by policy.
    named: Vec<Vec<u8>>,
    /// Whether the folder has no `.git` yet: then none may be made.
    without_git: bool,
}

impl Guard {
    pub(super) fn new(named: &[ProtectedPath], without_git: bool) -> Guard {
        Guard { named: named.iter().map(|path| path.as_str().as_bytes().to_vec()).collect(), without_git }
    }

    /// Whether it is, or lies below, what is protected.
    pub(super) fn protects(&self, path: &RelPath) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        self.named.iter().any(|named| begins_with(&parts, named))
            || begins_with(&parts, b".husky")
            || begins_with(&parts, b".belljar")
            || (self.without_git && parts[0].eq_ignore_ascii_case(b".git"))
            || below_git(&parts).is_some_and(|inside| obeyed(inside) == Obeyed::Yes)
    }

    /// Whether something that is protected lies below it, or may: it may be a directory, and nothing else.
    pub(super) fn anchors(&self, path: &RelPath) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        let leads_to = |named: &Vec<u8>| {
            let wanted: Vec<&[u8]> = named.split(|byte| *byte == b'/').collect();
            wanted.len() > parts.len() && parts.iter().zip(&wanted).all(|(a, b)| a.eq_ignore_ascii_case(b))
        };
        self.named.iter().any(leads_to)
            || below_git(&parts).is_some_and(|inside| obeyed(inside) == Obeyed::Below)
    }
}

/// Whether git obeys what is there.
#[derive(Debug, PartialEq, Eq)]
enum Obeyed {
    Yes,
    /// What lies below it, in part.
    Below,
    No,
}

/// By the parts after a `.git` (gitrepository-layout(5)).
fn obeyed(inside: &[&[u8]]) -> Obeyed {
    let lower: Vec<Vec<u8>> = inside.iter().map(|part| part.to_ascii_lowercase()).collect();
    let parts: Vec<&[u8]> = lower.iter().map(Vec::as_slice).collect();
    match parts.as_slice() {
        [] | [b"info" | b"modules" | b"objects"] | [b"objects", b"info"] => Obeyed::Below,
        [b"hooks" | b"worktrees", ..] => Obeyed::Yes,
        // `git rebase --continue` runs the `exec` lines and options that it finds there, and `git am` likewise.
        [b"rebase-merge" | b"rebase-apply" | b"sequencer", ..] => Obeyed::Yes,
        [b"config" | b"config.worktree" | b"commondir", ..] => Obeyed::Yes,
        [b"info", b"attributes", ..] => Obeyed::Yes,
        // Objects of any repository that the host can read become this one's.
        [b"objects", b"info", b"alternates" | b"http-alternates", ..] => Obeyed::Yes,
        // A submodule's name may have slashes, and submodules of its own: any of these, at any depth.
        [b"modules", rest @ ..] => {
            let named = |name: &[u8]| {
                matches!(
                    name,
                    b"hooks"
                        | b"config"
                        | b"config.worktree"
                        | b"commondir"
                        | b"worktrees"
                        | b"attributes"
                        | b"alternates"
                        | b"http-alternates"
                        | b"rebase-merge"
                        | b"rebase-apply"
                        | b"sequencer"
                )
            };
            if rest.iter().any(|part| named(part)) { Obeyed::Yes } else { modules(rest) }
        }
        _ => Obeyed::No,
    }
}

/// Below `modules`: everything may be a submodule's git directory, but for what is plainly inside of one.
fn modules(rest: &[&[u8]]) -> Obeyed {
    let inside = |part: &&[u8]| matches!(*part, b"objects" | b"refs" | b"logs" | b"lfs");
    if rest.iter().any(inside) { Obeyed::No } else { Obeyed::Below }
}

/// Whether it is a `.git`, or lies in one.
pub(super) fn is_below_git(path: &RelPath) -> bool {
    let parts: Vec<&[u8]> = path.parts().collect();
    below_git(&parts).is_some()
}

/// The parts after the first `.git`.
fn below_git<'a, 'b>(parts: &'b [&'a [u8]]) -> Option<&'b [&'a [u8]]> {
    let at = parts.iter().position(|part| part.eq_ignore_ascii_case(b".git"))?;
    Some(&parts[at + 1..])
}

fn begins_with(parts: &[&[u8]], named: &[u8]) -> bool {
    let mut wanted = named.split(|byte| *byte == b'/');
    let mut parts = parts.iter();
    wanted.all(|name| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(name)))
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
        let guard = Guard::new(&[".github/workflows".parse().unwrap()], false);
        let protected = [
            ".git/hooks",
            ".git/hooks/pre-commit",
            ".git/config",
            ".GIT/Config",
            ".git/info/attributes",
            ".git/commondir",
            ".git/config.worktree",
            ".git/modules/a/hooks/x",
            ".git/modules/a/b/config",
            ".git/modules/a/modules/b/config",
            ".git/worktrees/x/gitdir",
            ".git/rebase-merge/git-rebase-todo",
            ".git/Rebase-Apply/next",
            ".git/sequencer/todo",
            ".git/objects/info/alternates",
            ".git/modules/a/objects/info/alternates",
            ".git/modules/a/rebase-merge/git-rebase-todo",
            ".husky/pre-push",
            ".belljar/config.toml",
            ".github/workflows/ci.yml",
            "vendor/x/.git/hooks/post-checkout",
            "vendor/x/.git/config",
        ];
        for text in protected {
            assert!(guard.protects(&path(text)), "{text}");
        }
        let free = [
            "src/main.rs",
            ".git/index",
            ".git/HEAD",
            ".git/refs/heads/hooks",
            ".git/objects/ab/cd",
            "hooks/x",
            "config",
            ".gitignore",
            ".gitattributes",
            "a/.husky/x",
            ".github/CODEOWNERS",
            ".git/modules/a/HEAD",
            ".git/info/exclude",
        ];
        for text in free {
            assert!(!guard.protects(&path(text)), "{text}");
        }
    }

    #[test]
    fn what_holds_it_stays_a_directory() {
        let guard = Guard::new(&[".github/workflows".parse().unwrap()], false);
        let anchors = [
            ".git",
            ".git/info",
            ".git/modules",
            ".git/modules/a",
            ".git/objects/info",
            ".github",
            "vendor/x/.git",
        ];
        for text in anchors {
            assert!(guard.anchors(&path(text)), "{text}");
        }
        for text in ["src", ".git/objects/ab", ".git/refs", ".git/modules/a/objects/ab", ".gitmodules"] {
            assert!(!guard.anchors(&path(text)), "{text}");
        }
    }

    #[test]
    fn no_repository_is_made_where_there_was_none() {
        let guard = Guard::new(&[], true);
        assert!(guard.protects(&path(".git/HEAD")) && guard.protects(&path(".git")));
        assert!(!guard.protects(&path("vendor/x/.git/HEAD")));
    }
}

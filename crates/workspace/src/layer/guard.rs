//! What is never applied, whoever asks: paths whose content the host's git, or belljar, would obey.
//!
//! The same paths are read-only inside a sandbox. This is the second lock on the same door: a layer is what an agent
//! wrote, and is not trusted to have been written through a mount. Names count in any case of letters, since some
//! filesystems do not tell them apart, and at any depth, since a repository may lie in a folder. Below a `.git` it is the other
//! way around: [`git_names`] has the names that may be applied.

use super::git_names::{self, MayBe, is_dot_git};
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
            || (self.without_git && is_dot_git(parts[0]))
            || self.below_git(&parts) == Some(MayBe::Nothing)
    }

    /// Whether something that is protected lies below it, or may: it may be a directory, and nothing else.
    pub(super) fn anchors(&self, path: &RelPath) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        let leads_to = |named: &Vec<u8>| {
            let wanted: Vec<&[u8]> = named.split(|byte| *byte == b'/').collect();
            wanted.len() > parts.len() && parts.iter().zip(&wanted).all(|(a, b)| a.eq_ignore_ascii_case(b))
        };
        self.named.iter().any(leads_to) || self.below_git(&parts) == Some(MayBe::Anchor)
    }

    /// Whether it may be this: below a `.git` a file's name is not a directory's.
    pub(super) fn allows(&self, path: &RelPath, directory: bool) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        match self.below_git(&parts) {
            None | Some(MayBe::Any) => true,
            Some(MayBe::Anchor | MayBe::Directory) => directory,
            Some(MayBe::File) => !directory,
            Some(MayBe::Nothing) => false,
        }
    }

    /// Whether its content has to be looked at, and then whether it may be applied.
    pub(super) fn looks_into(&self, path: &RelPath) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        inside_git(&parts).is_some_and(git_names::has_rules)
    }

    pub(super) fn allows_content(&self, path: &RelPath, content: &[u8]) -> bool {
        let parts: Vec<&[u8]> = path.parts().collect();
        inside_git(&parts).is_none_or(|inside| git_names::is_plausible(inside, content))
    }

    /// What it may be, if it is a `.git` or lies in one. Another spelling of that name is nobody's repository, and would be one
    /// elsewhere.
    fn below_git(&self, parts: &[&[u8]]) -> Option<MayBe> {
        let inside = inside_git(parts)?;
        let spelled = parts[parts.len() - inside.len() - 1];
        Some(if spelled == b".git" { git_names::below(inside) } else { MayBe::Nothing })
    }
}

/// Whether it is a `.git`, or lies in one.
pub(super) fn is_below_git(path: &RelPath) -> bool {
    path.parts().any(is_dot_git)
}

/// Whether it is the git directory itself that git looks for.
pub(super) fn is_git_directory(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next() == Some(b".git")
}

/// The parts after the first `.git`.
fn inside_git<'a, 'b>(parts: &'b [&'a [u8]]) -> Option<&'b [&'a [u8]]> {
    let at = parts.iter().position(|part| is_dot_git(part))?;
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
            ".git/info/exclude",
            ".git/foo/hooks/pre-receive",
            ".git/x/.git/config",
            ".git/remotes/origin",
            "sub/.git/y/HEAD",
            ".GIT/index",
            ".git\u{200c}/index",
            "git~1/config",
        ];
        for text in protected {
            assert!(guard.protects(&path(text)), "{text}");
        }
        let free = [
            "src/main.rs",
            ".git/index",
            ".git/HEAD",
            ".git/refs/heads/hooks",
            ".git/objects/ab/0123456789abcdef0123456789abcdef012345",
            "hooks/x",
            "config",
            ".gitignore",
            ".gitattributes",
            "a/.husky/x",
            ".github/CODEOWNERS",
            ".git/modules/a/HEAD",
        ];
        for text in free {
            assert!(!guard.protects(&path(text)), "{text}");
        }
    }

    #[test]
    fn what_holds_it_stays_a_directory() {
        let guard = Guard::new(&[".github/workflows".parse().unwrap()], false);
        let anchors =
            [".git", ".git/modules", ".git/modules/a", ".git/objects/info", ".github", "vendor/x/.git"];
        for text in anchors {
            assert!(guard.anchors(&path(text)), "{text}");
        }
        for text in ["src", ".git/objects/ab", ".git/refs/heads", ".git/modules/a/objects/ab", ".gitmodules"]
        {
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

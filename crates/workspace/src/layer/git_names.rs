//! What may be applied below a `.git`: by name what git itself writes when it commits, and nothing else.
//!
//! A list of what is dangerous can never be complete (`remotes`, `branches`, `shallow`, `info/grafts`, a repository in a
//! folder that git does not know); the list of what a commit writes is short (gitrepository-layout(5)). Names count as they
//! are spelled: another spelling of `.git` that some filesystem takes for it is refused as a whole, as git's own `verify_path`
//! does (read-cache.c, path.c `is_ntfs_dotgit`, utf8.c `is_hfs_dotgit`).

/// What a path may be, by the parts after `.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayBe {
    /// A directory, and never anything else or gone: something that stays lies below it, or may.
    Anchor,
    /// A directory, or gone.
    Directory,
    /// A file, or gone.
    File,
    /// Either: refs that are called `a`, and then `a/b`.
    Any,
    /// Not applied.
    Nothing,
}

/// What a path may be, by the parts after `.git`.
pub(super) fn below(inside: &[&[u8]]) -> MayBe {
    match inside {
        // A `.git` in a `.git` is a repository that git does not know of.
        parts if parts.iter().any(|part| is_dot_git(part)) => MayBe::Nothing,
        [b"modules"] => MayBe::Anchor,
        [b"modules", rest @ ..] => module(rest),
        [b"worktrees"] => MayBe::Anchor,
        [b"worktrees", _] => MayBe::Anchor,
        // What belongs to a worktree alone: neither `gitdir` nor `commondir` nor `config.worktree`.
        [b"worktrees", _, b"objects" | b"packed-refs" | b"lfs" | b"reftable", ..] => MayBe::Nothing,
        [b"worktrees", _, rest @ ..] => of_git_directory(rest),
        parts => of_git_directory(parts),
    }
}

/// A submodule's name may have slashes, and submodules of its own: what remains after any of its beginnings counts.
fn module(rest: &[&[u8]]) -> MayBe {
    let splits = (1..=rest.len()).map(|at| &rest[at..]);
    let mut best = MayBe::Nothing;
    for inside in splits {
        match of_git_directory(inside) {
            MayBe::Nothing => {}
            // It may be the git directory itself, or lead to one.
            MayBe::Anchor if inside.is_empty() => {
                best = if best == MayBe::Nothing && !has_refused_name(rest) { MayBe::Anchor } else { best };
            }
            found => {
                return if has_refused_name(&rest[..rest.len() - inside.len()]) {
                    MayBe::Nothing
                } else {
                    found
                };
            }
        }
    }
    best
}

/// Names that are plainly inside of a git directory and not part of a submodule's name.
fn has_refused_name(parts: &[&[u8]]) -> bool {
    let refused: [&[u8]; 13] = [
        b"hooks",
        b"info",
        b"worktrees",
        b"config",
        b"config.worktree",
        b"commondir",
        b"gitdir",
        b"remotes",
        b"branches",
        b"rebase-merge",
        b"rebase-apply",
        b"sequencer",
        b"shallow",
    ];
    parts.iter().any(|part| refused.iter().any(|name| part.eq_ignore_ascii_case(name)))
}

fn of_git_directory(inside: &[&[u8]]) -> MayBe {
    match inside {
        [] => MayBe::Anchor,
        [b"objects" | b"refs" | b"logs"] | [b"objects", b"info" | b"pack"] => MayBe::Anchor,
        [b"objects", fan] if is_hex(fan, &[2]) => MayBe::Directory,
        [b"objects", fan, rest] if is_hex(fan, &[2]) && is_hex(rest, &[38, 62]) => MayBe::File,
        [b"objects", b"pack", name] if is_pack(name) => MayBe::File,
        // Another object in the place of one: nobody who looks at history would see it.
        [b"refs", b"replace", ..] => MayBe::Nothing,
        [b"refs", name @ ..] if name.iter().all(|part| is_ref_part(part)) => MayBe::Any,
        [b"logs", b"HEAD"] => MayBe::File,
        [b"logs", b"refs"] => MayBe::Directory,
        [b"logs", b"refs", name @ ..] if name.iter().all(|part| is_ref_part(part)) => MayBe::Any,
        // git-lfs: named by their content.
        [b"lfs"] | [b"lfs", b"objects"] => MayBe::Directory,
        [b"lfs", b"objects", one] if is_hex(one, &[2]) => MayBe::Directory,
        [b"lfs", b"objects", one, two] if is_hex(one, &[2]) && is_hex(two, &[2]) => MayBe::Directory,
        [b"lfs", b"objects", one, two, name]
            if is_hex(one, &[2]) && is_hex(two, &[2]) && is_hex(name, &[64]) =>
        {
            MayBe::File
        }
        // Where refs are kept as tables (`extensions.refStorage`).
        [b"reftable"] => MayBe::Anchor,
        [b"reftable", name] if *name == b"tables.list" || name.ends_with(b".ref") => MayBe::File,
        [name] if FILES.contains(name) => MayBe::File,
        // What an index that is split (`core.splitIndex`) cannot be read without.
        [name] if name.strip_prefix(b"sharedindex.").is_some_and(|hash| is_hex(hash, &[40, 64])) => {
            MayBe::File
        }
        _ => MayBe::Nothing,
    }
}

/// `pack-HASH.pack` and what lies beside it, and the index over several of them.
fn is_pack(name: &[u8]) -> bool {
    let (stem, end) = match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => (&name[..dot], &name[dot + 1..]),
        None => return name == b"multi-pack-index",
    };
    let of_pack = stem.strip_prefix(b"pack-").is_some_and(|hash| is_hex(hash, &[40, 64]));
    let of_several = stem.strip_prefix(b"multi-pack-index-").is_some_and(|hash| is_hex(hash, &[40, 64]));
    match end {
        b"pack" | b"idx" | b"mtimes" => of_pack,
        b"rev" | b"bitmap" => of_pack || of_several,
        _ => false,
    }
}

/// A part of a ref's name; a lock that was left would keep the host's git from moving it.
fn is_ref_part(part: &[u8]) -> bool {
    !part.starts_with(b".") && !part.ends_with(b".lock")
}

fn is_hex(text: &[u8], lengths: &[usize]) -> bool {
    lengths.contains(&text.len()) && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What the content of a file must be, where its name alone is not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// `packed-refs` can hold what the name of a loose ref is refused for.
    PackedRefs,
    /// A `HEAD` that is none makes every command of the host's git fail. A ref may have any name, also the one of a hook or of a
    /// `config` in the git directory of a submodule that is called `x/refs`: it has an object's name in it, and nothing else.
    Ref,
    /// The same for `logs`: a line a move of a ref.
    Log,
    /// One of both, where a submodule's name leaves open which.
    RefOrLog,
    Any,
}

fn content_of(inside: &[&[u8]]) -> Content {
    let own = match inside {
        [b"worktrees", _, rest @ ..] => rest,
        parts => parts,
    };
    match own {
        [b"refs", ..] => Content::Ref,
        [b"logs", ..] => Content::Log,
        _ if below(inside) == MayBe::Any => Content::RefOrLog,
        [.., b"logs", b"HEAD"] => Content::RefOrLog,
        [.., b"HEAD"] => Content::Ref,
        [.., b"packed-refs"] => Content::PackedRefs,
        _ => Content::Any,
    }
}

/// Whether the content of a file that may be applied is what git would write there.
pub(super) fn is_plausible(inside: &[&[u8]], content: &[u8]) -> bool {
    match content_of(inside) {
        Content::PackedRefs => !content.split(|byte| *byte == b'\n').any(names_replacement),
        Content::Ref => is_ref(content),
        Content::Log => is_log(content),
        Content::RefOrLog => is_ref(content) || is_log(content),
        Content::Any => true,
    }
}

/// An object's name, or the name of another ref.
fn is_ref(content: &[u8]) -> bool {
    let text = content.trim_ascii_end();
    text.strip_prefix(b"ref: refs/").is_some_and(|name| !name.contains(&b'\n')) || is_hex(text, &[40, 64])
}

fn is_log(content: &[u8]) -> bool {
    content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).all(is_move)
}

/// Whether it must be looked at: see [`is_plausible`].
pub(super) fn has_rules(inside: &[&[u8]]) -> bool {
    content_of(inside) != Content::Any
}

/// `OLD NEW WHO…`, a line of a reflog.
fn is_move(line: &[u8]) -> bool {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let mut is_object = || words.next().is_some_and(|word| is_hex(word, &[40, 64]));
    is_object() && is_object() && words.next().is_some()
}

fn names_replacement(line: &[u8]) -> bool {
    line.splitn(2, |byte| *byte == b' ').nth(1).is_some_and(|name| name.starts_with(b"refs/replace/"))
}

/// Whether git, on some filesystem, would take this name for `.git`: in any case of letters, with what HFS+ ignores, as NTFS
/// shortens it, and with what NTFS drops at its end. A name with `\` in it is several there.
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

/// What a commit, a merge or a fetch writes at the top of a git directory.
const FILES: [&[u8]; 15] = [
    b"HEAD",
    b"ORIG_HEAD",
    b"FETCH_HEAD",
    b"MERGE_HEAD",
    b"MERGE_MSG",
    b"MERGE_MODE",
    b"MERGE_RR",
    b"AUTO_MERGE",
    b"CHERRY_PICK_HEAD",
    b"REVERT_HEAD",
    b"SQUASH_MSG",
    b"COMMIT_EDITMSG",
    b"TAG_EDITMSG",
    b"index",
    b"packed-refs",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> MayBe {
        let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        below(&parts)
    }

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

    #[test]
    fn what_a_commit_writes_is_applied_and_nothing_else() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        for path in [
            "HEAD",
            "index",
            "packed-refs",
            "ORIG_HEAD",
            "COMMIT_EDITMSG",
            "logs/HEAD",
            "MERGE_MSG",
            &format!("objects/01/{}", &hash[2..]),
            &format!("objects/pack/pack-{hash}.pack"),
            &format!("objects/pack/pack-{hash}.rev"),
            "modules/a/index",
            "modules/a/b/HEAD",
            "modules/a/modules/b/packed-refs",
            "worktrees/x/HEAD",
            "worktrees/x/logs/HEAD",
            "objects/pack/multi-pack-index",
            &format!("sharedindex.{hash}"),
        ] {
            assert_eq!(of(path), MayBe::File, "{path}");
        }
        for path in [
            "refs/heads/main",
            "refs/heads/hooks",
            "refs/stash",
            "logs/refs/heads/a/b",
            "modules/a/refs/heads/x",
        ] {
            assert_eq!(of(path), MayBe::Any, "{path}");
        }
        for path in
            ["refs", "objects", "modules", "modules/a", "modules/a/b", "objects/info", "objects/pack", "logs"]
        {
            assert_eq!(of(path), MayBe::Anchor, "{path}");
        }
        for path in [
            "foo/HEAD",
            "foo/config",
            "foo/hooks/pre-receive",
            "remotes/origin",
            "branches/x",
            "shallow",
            "info/grafts",
            "info/exclude",
            "refs/replace/x",
            "hooks/pre-commit",
            "hooks",
            "config",
            "Config",
            "HOOKS/x",
            "x/.git/hooks/x",
            "refs/.git/config",
            "objects/info/alternates",
            "objects/info/commit-graph",
            "rebase-merge/git-rebase-todo",
            "index.lock",
            "refs/heads/main.lock",
            "objects/pack/pack-x.promisor",
            "commondir",
            "gitdir",
            "description",
            "worktrees/x/gitdir",
            "worktrees/x/commondir",
            "worktrees/x/config.worktree",
            "worktrees/x/objects/01/x",
            "modules/a/config",
            "modules/a/hooks/x",
            "modules/a/b/config",
            "modules/a/info/attributes",
            "modules/a/objects/info/alternates",
            "modules/a/hooks/HEAD",
            "gc.pid",
            "lfs/x",
            "objects/01/x",
        ] {
            assert_eq!(of(path), MayBe::Nothing, "{path}");
        }
    }

    #[test]
    fn no_replacement_comes_among_packed_refs_and_no_head_that_is_none() {
        let packed: [&[u8]; 1] = [b"packed-refs"];
        assert!(is_plausible(&packed, b"# pack-refs with: sorted\nabc refs/heads/main\n^def\n"));
        assert!(!is_plausible(&packed, b"abc refs/heads/main\nabc refs/replace/def\n"));
        let head: [&[u8]; 1] = [b"HEAD"];
        assert!(is_plausible(&head, b"ref: refs/heads/main\n"));
        assert!(!is_plausible(&head, b"rubbish\n"));
    }

    #[test]
    fn below_refs_and_logs_no_hook_and_no_config_comes_whatever_a_submodule_is_called() {
        let is = |path: &str, content: &str| {
            let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            assert!(has_rules(&parts), "{path}");
            is_plausible(&parts, content.as_bytes())
        };
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let log =
            format!("{hash} {hash} A <a@example.org> 1 +0000\tcommit: x\n{hash} {hash} A <a> 2 +0000\n");
        for path in
            ["refs/heads/logs/x", "modules/a/refs/remotes/origin/HEAD", "worktrees/w/HEAD", "refs/stash"]
        {
            assert!(is(path, &format!("{hash}\n")) && is(path, "ref: refs/heads/main\n"), "{path}");
            assert!(!is(path, "#!/bin/sh\n") && !is(path, "[core]\n"), "{path}");
        }
        assert!(!has_rules(&[b"modules", b"x", b"logs", b"index"]), "of a submodule that is called `x/logs`");
        // `x/refs` and `x/logs/refs` are names that a submodule may have.
        for path in
            ["modules/x/refs/hooks/pre-commit", "modules/x/refs/config", "modules/x/logs/refs/hooks/x"]
        {
            assert!(!is(path, "#!/bin/sh\ntouch x\n") && !is(path, "[core]\n\tfsmonitor = x\n"), "{path}");
        }
        for path in
            ["logs/HEAD", "modules/plain/logs/HEAD", "worktrees/w/logs/HEAD", "logs/refs/heads/refs/a"]
        {
            assert!(is(path, &log) && is(path, ""), "{path}");
            assert!(!is(path, "#!/bin/sh\n") && !is(path, &format!("{log}[core]\n")), "{path}");
        }
    }
}

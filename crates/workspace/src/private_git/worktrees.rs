//! Worktrees that git inside made (`git worktree add`). Their git directories are removed with the sandbox, and the `.git` file
//! that stays in the folder leads nowhere.

use super::Importer;
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;

/// One of them.
#[derive(Debug)]
pub(super) struct Worktree {
    /// Its path inside, from its git directory; `None` for a worktree of the host, in which the sandbox may have worked too.
    place: Option<String>,
    name: String,
    /// Commits that its HEAD was at: those of a detached HEAD are in no branch.
    pub(super) heads: Vec<ObjectId>,
}

impl Worktree {
    /// A note on it for the user.
    pub(super) fn sentence(&self) -> Option<String> {
        match &self.place {
            Some(place) => Some(format!(
                "`{}` is a worktree that was made inside: git here does not know it, and its commits are kept; remove the folder, or \
                 make it anew with `git worktree add`",
                Printable::from(place.as_str())
            )),
            None if self.heads.len() > 1 => Some(format!(
                "the sandbox worked in the worktree `{}` of this repository: its HEAD here stays where it was, and the commits are kept",
                Printable::from(self.name.as_str())
            )),
            None => None,
        }
    }
}

impl Importer<'_> {
    /// The existing worktrees; unreadable ones are skipped.
    pub(super) fn worktrees(&self) -> Vec<Worktree> {
        let names = self.from.names("worktrees").unwrap_or_default();
        let read = |path: String| {
            let text = self.from.read(&path, MAX_FILE_BYTES).ok().flatten()?;
            String::from_utf8(text).ok().map(|text| text.trim_end().to_string())
        };
        let one = |name: &String| {
            let place = read(format!("worktrees/{name}/gitdir"))?;
            let place = place.strip_suffix("/.git").unwrap_or(&place).to_string();
            // The host's worktrees, which are listed so that git inside does not touch their branches. A log exists only if one was
            // used.
            let place = Some(place).filter(|place| place != NOT_HERE);
            let below = self.from.below(&format!("worktrees/{name}")).ok().flatten()?;
            let mut heads = below.log("HEAD").unwrap_or_default();
            heads.extend(read(format!("worktrees/{name}/HEAD")).and_then(|head| head.parse().ok()));
            Some(Worktree { place, name: name.clone(), heads })
        };
        names.iter().take(MAX_WORKTREES).filter_map(one).collect()
    }
}

/// The path that is given for the host's worktrees.
pub(super) const NOT_HERE: &str = "/run/belljar/no-such-worktree";
const MAX_FILE_BYTES: u64 = 4096;
const MAX_WORKTREES: usize = 256;

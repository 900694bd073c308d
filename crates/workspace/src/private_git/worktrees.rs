//! Worktrees that git inside made (`git worktree add`). Their git directories go away with the sandbox, and what is left in the folder is a
//! `.git` file that names nothing.

use super::Importer;
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;

/// One of them.
#[derive(Debug)]
pub(super) struct Worktree {
    /// Where it is inside, as its git directory says.
    place: String,
    /// Commits that its HEAD was at: those of a detached one are in no branch.
    pub(super) heads: Vec<ObjectId>,
}

impl Worktree {
    /// What a person should know of it.
    pub(super) fn sentence(&self) -> String {
        format!(
            "`{}` is a worktree that was made inside: git here does not know it, and its commits are kept; remove the folder, or make it \
             anew with `git worktree add`",
            Printable::from(self.place.as_str())
        )
    }
}

impl Importer<'_> {
    /// Those that are there; of one that cannot be read nothing is known.
    pub(super) fn worktrees(&self) -> Vec<Worktree> {
        let names = self.from.names("worktrees").unwrap_or_default();
        let read = |path: String| {
            let text = self.from.read(&path, MAX_FILE_BYTES).ok().flatten()?;
            String::from_utf8(text).ok().map(|text| text.trim_end().to_string())
        };
        let one = |name: &String| {
            let place = read(format!("worktrees/{name}/gitdir"))?;
            let place = place.strip_suffix("/.git").unwrap_or(&place).to_string();
            // Those of the host, which are named so that git inside leaves their branches alone.
            if place == NOT_HERE {
                return None;
            }
            let below = self.from.below(&format!("worktrees/{name}")).ok().flatten()?;
            let mut heads = below.log("HEAD").unwrap_or_default();
            heads.extend(read(format!("worktrees/{name}/HEAD")).and_then(|head| head.parse().ok()));
            Some(Worktree { place, heads })
        };
        names.iter().take(MAX_WORKTREES).filter_map(one).collect()
    }
}

/// Where worktrees of the host are said to be.
pub(super) const NOT_HERE: &str = "/run/belljar/no-such-worktree";
const MAX_FILE_BYTES: u64 = 4096;
const MAX_WORKTREES: usize = 256;

//! Worktrees that git inside made (`git worktree add`). Their git directories go away with the sandbox, and what is left in the folder is a
//! `.git` file that names nothing.

use super::Importer;
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;

/// One of them.
#[derive(Debug)]
pub(super) struct Worktree {
    /// Where it is inside, as its git directory says; nothing for one of the host, at whose path the sandbox works as well.
    place: Option<String>,
    name: String,
    /// Commits that its HEAD was at: those of a detached one are in no branch.
    pub(super) heads: Vec<ObjectId>,
}

impl Worktree {
    /// What a person should know of it.
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
            // Those of the host, which are named so that git inside leaves their branches alone. A log is only there if it was used.
            let place = Some(place).filter(|place| place != NOT_HERE);
            let below = self.from.below(&format!("worktrees/{name}")).ok().flatten()?;
            let mut heads = below.log("HEAD").unwrap_or_default();
            heads.extend(read(format!("worktrees/{name}/HEAD")).and_then(|head| head.parse().ok()));
            Some(Worktree { place, name: name.clone(), heads })
        };
        names.iter().take(MAX_WORKTREES).filter_map(one).collect()
    }
}

/// Where worktrees of the host are said to be.
pub(super) const NOT_HERE: &str = "/run/belljar/no-such-worktree";
const MAX_FILE_BYTES: u64 = 4096;
const MAX_WORKTREES: usize = 256;

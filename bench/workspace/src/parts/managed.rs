//! Two hundred branches in managed clones: does the last one take longer than the first?

use crate::Outcome;
use crate::belljar::{Belljar, is_here, must, quiet};
use crate::tree;
use belljar_bench_sample::{Case, print};
use std::fs;
use std::path::Path;

pub(super) fn run(belljar: &Belljar, folder: &Path) -> Outcome<()> {
    if !is_here("git") {
        return Ok(());
    }
    let (repository, peer) = (folder.join("repository"), folder.join("peer"));
    fs::create_dir_all(&repository)?;
    tree::make(&repository, FILES)?;
    let git = |directory: &Path, words: &[&str]| {
        let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        must(quiet("git").args(identity).args(words).current_dir(directory))
    };
    git(&repository, &["init", "--quiet", "--initial-branch=main"])?;
    git(&repository, &["add", "."])?;
    git(&repository, &["commit", "--quiet", "--message=all"])?;
    git(folder, &["clone", "--quiet", "repository", "peer"])?;
    let name = |branch: usize| format!("bench/{branch}");
    if !belljar.can(&repository, &["--branch", &name(0)]) {
        return Ok(());
    }
    let titles = ["first", "of 2 to 20", "of 181 to 199", "200th"];
    let cases = |who: &str| titles.map(|title| Case::new(format!("{who}, {title}")));
    let (mut theirs, mut ours, mut again) =
        (cases("git worktree add"), cases("belljar run --branch"), cases("the same branch again"));
    for number in 1..=BRANCHES {
        let slot = match number {
            1 => Some(0),
            2..=20 => Some(1),
            181..=199 => Some(2),
            BRANCHES => Some(3),
            _ => None,
        };
        let branch = name(number);
        let place = format!("../worktree-{number}");
        let add = || git(&peer, &["worktree", "add", "--quiet", "-b", &branch, &place]);
        let run = || must(&mut belljar.run(&repository, &["--branch", &branch], &["true"]));
        match slot {
            Some(slot) => {
                theirs[slot].time(add)?;
                ours[slot].time(run)?;
                again[slot].time(run)?;
            }
            None => {
                add()?;
                run()?;
            }
        }
    }
    let cases: Vec<Case> = theirs.into_iter().chain(ours).chain(again).collect();
    print("Managed clone: branches of a repository of 5,000 files", &cases, "git worktree add, first");
    fs::remove_dir_all(folder)?;
    Ok(())
}

const FILES: usize = 5_000;
const BRANCHES: usize = 200;

//! The start on a folder of 200,000 files beside the start on an empty one, and beside a copy: what a sandbox without
//! layers would have to make.

use crate::Outcome;
use crate::belljar::{Belljar, must, quiet};
use crate::tree;
use belljar_bench_sample::{Case, print};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

pub(super) fn run(belljar: &Belljar, folder: &Path, rounds: usize) -> Outcome<()> {
    let (empty, large) = (folder.join("empty"), folder.join("large"));
    fs::create_dir_all(&empty)?;
    fs::create_dir_all(&large)?;
    tree::make(&large, FILES)?;
    let has_overlay = belljar.has_layers(&empty);
    let mut cases = Vec::new();
    for (workspace, size) in [(&empty, "empty folder"), (&large, "200,000 files")] {
        for flags in [&[][..], &["--overlay"]] {
            if has_overlay || flags.is_empty() {
                let name = [&["belljar run"], flags, &["on", size]].concat().join(" ");
                cases.push((Case::new(name), workspace, flags));
            }
        }
    }
    for _ in 0..rounds * OFTEN {
        for (case, workspace, flags) in &mut cases {
            case.time(|| must(&mut belljar.run(workspace, flags, &["true"])))?;
            // The kernel takes namespaces apart after their last process is gone: that is not the next one's time.
            thread::sleep(PAUSE);
        }
    }
    let mut copy = Case::new("cp -a of 200,000 files");
    let copied = folder.join("copy");
    for _ in 0..rounds.min(COPIES) {
        copy.time(|| must(quiet("cp").arg("-a").arg(&large).arg(&copied)))?;
        fs::remove_dir_all(&copied)?;
    }
    let mut cases: Vec<Case> = cases.into_iter().map(|(case, ..)| case).collect();
    cases.push(copy);
    print("Start: `true` in a new sandbox, from exec to exit", &cases, "belljar run on empty folder");
    fs::remove_dir_all(folder)?;
    Ok(())
}

const FILES: usize = 200_000;
/// Starts are short, copies are not.
const OFTEN: usize = 8;
const COPIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(15);

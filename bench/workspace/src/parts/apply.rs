//! Ten thousand changed files taken over from a layer, beside a copy of the changed tree.

use crate::Outcome;
use crate::belljar::{Belljar, is_here, must, quiet};
use crate::tree;
use belljar_bench_sample::{Case, print};
use std::fs;
use std::path::Path;
use std::process::Command;

pub(super) fn run(belljar: &Belljar, folder: &Path, rounds: usize) -> Outcome<()> {
    let (original, changed, target) =
        (folder.join("original"), folder.join("changed"), folder.join("target"));
    fs::create_dir_all(&original)?;
    tree::make(&original.join(TREE), FILES)?;
    fs::copy(std::env::current_exe()?, original.join("load"))?;
    if !belljar.has_layers(&original) {
        return Ok(());
    }
    must(quiet("cp").arg("-a").arg(&original).arg(&changed))?;
    tree::change(&changed.join(TREE))?;
    let mut words: Vec<(&str, Vec<&str>)> = vec![("cp -a", vec!["cp", "-a"])];
    if is_here("rsync") {
        words.push(("rsync -a", vec!["rsync", "-a"]));
        words.push(("rsync -a --fsync", vec!["rsync", "-a", "--fsync"]));
    }
    let mut cases: Vec<Case> = words.iter().map(|(name, _)| Case::new(*name)).collect();
    let (mut diff, mut apply) = (Case::new("belljar diff --stat"), Case::new("belljar apply"));
    for _ in 0..rounds {
        for (case, (_, words)) in cases.iter_mut().zip(&words) {
            afresh(&original, &target)?;
            let mut command = quiet(words[0]);
            command.args(&words[1..]).arg(changed.join(TREE)).arg(&target);
            case.time(|| must(&mut command))?;
        }
        afresh(&original, &target)?;
        must(&mut belljar.run(&target, &["--overlay"], &["./load", "change", TREE]))?;
        diff.time(|| must(belljar.word("diff", &target).arg("--stat")))?;
        apply.time(|| must(&mut belljar.word("apply", &target)))?;
        // Judged from outside: it did what the others did.
        must(Command::new("diff").arg("-rq").arg(&changed).arg(&target))?;
    }
    cases.extend([diff, apply]);
    print("Apply: 10,000 changed files of 10,000", &cases, "cp -a");
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn afresh(original: &Path, target: &Path) -> Outcome<()> {
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    must(quiet("cp").arg("-a").arg(original).arg(target))
}

const FILES: usize = 10_000;
const TREE: &str = "node_modules";

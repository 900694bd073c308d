//! Fifty thousand small files made, read and removed, inside and outside, by the same program.

use crate::Outcome;
use crate::belljar::{Belljar, quiet};
use crate::load::{BEFORE, STEPS, understand};
use crate::sample::{Case, print};
use crate::tree;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) fn run(belljar: &Belljar, folder: &Path, rounds: usize) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    let program = folder.join("load");
    fs::copy(std::env::current_exe()?, &program)?;
    tree::make(&folder.join(BEFORE), FILES)?;
    let count = FILES.to_string();
    let load = ["./load", "files", &count];
    let mut ways = vec![("host", None), ("belljar, the folder itself", Some(&[][..]))];
    if belljar.has_layers(folder) {
        ways.push(("belljar, a layer over it", Some(&["--overlay"][..])));
    }
    let cases = || ways.iter().map(|(name, _)| Case::new(*name)).collect::<Vec<_>>();
    let mut tables: Vec<[Vec<Case>; 2]> = STEPS.iter().map(|_| [cases(), cases()]).collect();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            // Nobody always comes after the same neighbour.
            let index = (round + turn) % ways.len();
            let mut command = match ways[index].1 {
                None => on_host(folder, &load),
                Some(flags) => belljar.run(folder, flags, &load),
            };
            let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
            if !output.status.success() {
                return Err(format!("{command:?}: {}", output.status).into());
            }
            for ([wall, cpu], step) in tables.iter_mut().zip(understand(&output.stdout)?) {
                wall[index].add(step.wall);
                cpu[index].add(step.cpu);
            }
        }
    }
    for (step, [wall, cpu]) in STEPS.iter().zip(&tables) {
        print(&format!("Small files: {step} (50,000), wall time"), wall, "host");
        print(&format!("Small files: {step} (50,000), processor time"), cpu, "host");
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn on_host(folder: &Path, words: &[&str]) -> Command {
    let mut command = quiet(folder.join(words[0]));
    command.args(&words[1..]).current_dir(folder);
    command
}

const FILES: usize = 50_000;

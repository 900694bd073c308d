//! Fifty thousand small files made, read and removed, inside and outside, by the same program.

use crate::Outcome;
use crate::belljar::{Belljar, quiet};
use crate::load::{BEFORE, NEW_FILES, STEPS, understand};
use crate::tree;
use belljar_bench_sample::{Case, print};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) fn run(belljar: &Belljar, folder: &Path, rounds: usize) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    let program = folder.join("load");
    fs::copy(std::env::current_exe()?, &program)?;
    tree::make(&folder.join(BEFORE), FILES)?;
    let count = FILES.to_string();
    let load = ["./load", "files", &count];
    let mut ways = vec![("host", Way::Host), ("belljar, the folder itself", Way::Belljar(&[]))];
    if belljar.has_layers(folder) {
        ways.push(("belljar, a layer over it", Way::Belljar(&["--overlay"])));
        // What the kernel itself takes for a layer.
        let alone = folder.with_extension("alone");
        for part in ["upper", "work", "mounted"] {
            fs::create_dir_all(alone.join(part))?;
        }
        if overlay_alone(folder, &alone, &["true"]).status().is_ok_and(|status| status.success()) {
            ways.push(("overlayfs alone, no belljar", Way::OverlayAlone(alone)));
        }
    }
    let cases = || ways.iter().map(|(name, _)| Case::new(*name)).collect::<Vec<_>>();
    let mut tables: Vec<[Vec<Case>; 2]> = STEPS.iter().map(|_| [cases(), cases()]).collect();
    let mut whole = cases();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            // No way always comes after the same neighbour.
            let index = (round + turn) % ways.len();
            let mut command = match &ways[index].1 {
                Way::Host => on_host(folder, &load),
                Way::Belljar(flags) => belljar.run(folder, flags, &load),
                Way::OverlayAlone(alone) => overlay_alone(folder, alone, &load),
            };
            let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
            if !output.status.success() {
                return Err(format!("{command:?}: {}", output.status).into());
            }
            let steps = understand(&output.stdout)?;
            whole[index].add(steps[NEW_FILES..].iter().map(|step| step.backend).sum());
            for ([backend, cpu], step) in tables.iter_mut().zip(steps) {
                backend[index].add(step.backend);
                cpu[index].add(step.cpu);
            }
        }
    }
    for (step, [backend, cpu]) in STEPS.iter().zip(&tables) {
        print(&format!("Small files: {step} (50,000), wall time"), backend, "host");
        print(&format!("Small files: {step} (50,000), processor time"), cpu, "host");
    }
    print("Small files: create, read and delete together (50,000), wall time", &whole, "host");
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// Where the load runs.
enum Way {
    Host,
    /// Inside, with these flags.
    Belljar(&'static [&'static str]),
    /// On a layer that is only mounted, with its parts in this folder.
    OverlayAlone(PathBuf),
}

/// In namespaces that an ordinary user may have, with the options that belljar uses.
fn overlay_alone(folder: &Path, alone: &Path, words: &[&str]) -> Command {
    let mount = "mount -t overlay overlay -o lowerdir=\"$1\",upperdir=upper,workdir=work,userxattr mounted \
        && cd mounted && shift && exec \"$@\"";
    let mut command = quiet("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]);
    command.arg(folder).args(words).current_dir(alone);
    command
}

fn on_host(folder: &Path, words: &[&str]) -> Command {
    let mut command = quiet(folder.join(words[0]));
    command.args(&words[1..]).current_dir(folder);
    command
}

const FILES: usize = 50_000;

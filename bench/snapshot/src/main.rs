//! Forks of a sandbox with a gigabyte in fifty thousand files, and sandboxes from a snapshot of it beside plain ones; and the same files in
//! a container of Docker, by `docker commit` and `docker run`. In one run, in turn.
//!
//! `cargo run --release -p belljar-bench-snapshot [-- ROUNDS [FILES [BYTES OF A FILE]]]`; wants the `belljar` binary in the same target
//! directory. Docker takes part where we are root and `dockerd` is installed. `docs/benchmarks.md` says how to read it.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod docker;

use belljar_bench_sample::{Case, Figures, print, say_how_busy};
use belljar_tests_daemon::{Home, Sandbox};
use serde_json::json;
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let rounds = args.next().transpose()?.unwrap_or(20);
    let files = args.next().transpose()?.unwrap_or(50_000);
    let bytes = args.next().transpose()?.unwrap_or(20_000);
    say_how_busy();
    let home = Home::of(belljar()?);
    let daemon = home.start();
    let client = home.client();
    let source = Sandbox::create(&client, &json!({ "key": "source" }));
    let (_, code) = source.run(&fill("/workspace/files", files, bytes));
    if code != 0 {
        return Err("the sandbox could not be filled".into());
    }
    let mut cases = [PLAIN, FROM, FORK, SNAPSHOT].map(Case::new);
    let mut new_bytes: Vec<u64> = Vec::new();
    for round in 0..rounds + WARM_UP {
        source.run("date > changed");
        let [plain, from, fork, snapshot] = &mut cases;
        let mut quiet = Case::new("warm-up");
        let is_counted = round >= WARM_UP;
        let case = if is_counted { snapshot } else { &mut quiet };
        let taken = case.time(|| client.post(&source.path("/snapshots"), &json!({ "name": "bench" })).ok());
        if taken["how"] != "layered" {
            return Err(format!("files were copied: {taken:#}").into());
        }
        let persistent = |more: serde_json::Value| json!({ "persistent": true, "sandbox": more });
        let case = if is_counted { plain } else { &mut quiet };
        let one = case.time(|| Sandbox::create(&client, &persistent(json!({}))));
        let case = if is_counted { from } else { &mut quiet };
        let other = case.time(|| Sandbox::create(&client, &persistent(json!({ "snapshot": "bench" }))));
        source.run("date > changed");
        let before = used(&home.path("state"));
        let case = if is_counted { fork } else { &mut quiet };
        let forked = case.time(|| client.post(&source.path("/fork"), &json!({})).ok());
        new_bytes.push(used(&home.path("state")).saturating_sub(before));
        let forked = Sandbox::of(&client, forked["sandboxes"][0].clone());
        let (seen, _) = forked.run("find files -type f | wc -l");
        if seen.trim() != files.to_string() {
            return Err(format!("the fork has {seen} files").into());
        }
        for sandbox in [one, other, forked] {
            sandbox.delete();
        }
        client.delete("/v1/snapshots/bench").ok();
    }
    let title = format!("{files} files of {bytes} bytes: until the sandbox is ready for commands");
    print(&title, &cases, PLAIN);
    new_bytes.sort_unstable();
    println!("  new bytes on disk of a fork: {} (median)", new_bytes[new_bytes.len() / 2]);
    source.delete();
    daemon.stop();
    docker::run(rounds.min(3), files, bytes)?;
    let mut figures = Figures::of("snapshot");
    for (name, case) in [PLAIN, FROM, FORK, SNAPSHOT].into_iter().zip(&cases) {
        figures.add(name, case.median());
    }
    Ok(figures.record()?)
}

/// A line of shell that makes so many files, in folders of [`EACH`]. Content that no filesystem compresses or shares.
pub(crate) fn fill(folder: &str, files: usize, bytes: usize) -> String {
    format!(
        "mkdir -p {folder} && cd {folder} && head -c {bytes} /dev/urandom > /tmp/first && mkdir 0 && j=0 && \
         while [ $j -lt {each} ]; do cp /tmp/first 0/$j; j=$((j+1)); done; rm /tmp/first; i=1; \
         while [ $i -lt {folders} ]; do cp -r 0 $i; i=$((i+1)); done",
        folders = files / EACH,
        each = EACH,
    )
}

/// Bytes on disk below a directory, a file with several names once.
fn used(directory: &Path) -> u64 {
    let mut bytes = 0;
    let mut left = vec![directory.to_path_buf()];
    let mut seen = std::collections::HashSet::new();
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if seen.insert(found.ino()) {
                bytes += found.blocks() * 512;
            }
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    bytes
}

/// The binary that was built beside us.
fn belljar() -> Outcome<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("belljar");
    match beside.exists() {
        true => Ok(beside),
        false => Err(format!("there is no {}: run `cargo build --release` first", beside.display()).into()),
    }
}

const PLAIN: &str = "create";
const FROM: &str = "create from a snapshot";
const FORK: &str = "fork";
const SNAPSHOT: &str = "snapshot";
const WARM_UP: usize = 2;
/// Files in a folder.
const EACH: usize = 500;

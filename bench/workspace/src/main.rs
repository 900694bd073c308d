//! What a workspace costs: the start on a folder of any size, small files inside, branches in managed clones, and applying
//! changes; each beside its peers in the same run, in turn, so that a busy moment hits all of them alike. Prints medians and
//! ratios.
//!
//! `cargo run --release -p belljar-bench-workspace [-- ROUNDS] [PART...]`; wants the `belljar` binary in the same target
//! directory (`cargo build --release`), and shows the peers that are installed (cp, rsync, git, bwrap). Works below the
//! current directory, in a folder that it removes: what is measured is the filesystem there. `docs/benchmarks.md` says how
//! to read it.
//!
//! The executable is also the load that it measures (`files`, `change`), so that inside and outside run the same code.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod belljar;
mod load;
mod parts;
mod tree;

use parts::Part;
use std::error::Error;
use std::path::Path;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["files", count] => load::files(count.parse()?),
        ["change", folder] => tree::change(Path::new(folder)),
        rest => conduct(rest),
    }
}

fn conduct(words: &[&str]) -> Outcome<()> {
    let (rounds, names) = match words.split_first().map(|(first, rest)| (first.parse::<usize>(), rest)) {
        Some((Ok(rounds), rest)) => (rounds, rest),
        _ => (ROUNDS, words),
    };
    let parts = Part::chosen(names)?;
    belljar_bench_sample::say_how_busy();
    let folder = tempfile::Builder::new().prefix("belljar-bench-").tempdir_in(std::env::current_dir()?)?;
    let belljar = belljar::Belljar::find(folder.path())?;
    for part in parts {
        part.run(&belljar, folder.path(), rounds)?;
    }
    Ok(())
}

/// How often each case is measured by default.
const ROUNDS: usize = 5;

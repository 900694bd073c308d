//! What belljar costs around an agent: the same two-turn task of the same agent against the same scripted model, on the host
//! and in a sandbox, in turn. Prints medians and ratios.
//!
//! `cargo run --release -p belljar-bench-agents [-- ROUNDS] [AGENT...]`; wants the `belljar` binary in the same target
//! directory, and the agents in `BELLJAR_TEST_AGENTS` or on PATH (`./dev setup` installs them). `docs/benchmarks.md` says how
//! to read it.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod here;
mod under_glass;

use belljar_agent::adapter::{self, Adapter};
use belljar_bench_sample::{Case, print, say_how_busy};
use belljar_tests_hosts::Model;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (rounds, names) = match words.split_first().map(|(first, rest)| (first.parse::<usize>(), rest)) {
        Some((Ok(rounds), rest)) => (rounds, rest),
        _ => (ROUNDS, words.as_slice()),
    };
    say_how_busy();
    let path = path();
    let model = Model::start(std::net::Ipv4Addr::LOCALHOST);
    for adapter in
        adapter::ALL.iter().filter(|one| names.is_empty() || names.iter().any(|name| name == one.name))
    {
        match adapter::find(adapter, &path) {
            Ok(found) => compare(adapter, &found, &path, &model.url(), rounds)?,
            Err(error) => println!("\n{}: left out, {error}", adapter.title),
        }
    }
    Ok(())
}

fn compare(
    adapter: &Adapter,
    found: &adapter::Found,
    path: &OsString,
    model: &str,
    rounds: usize,
) -> Outcome<()> {
    let mut cases = [Case::new("on the host"), Case::new("belljar agent run")];
    // Once for the page cache.
    for round in 0..=rounds {
        let mut discarded = [Case::new(""), Case::new("")];
        let [host, glass] = if round == 0 { &mut discarded } else { &mut cases };
        let (there, here) = (tempfile::tempdir()?, tempfile::tempdir()?);
        host.time(|| here::run(adapter, found, model, here.path()))?;
        glass.time(|| under_glass::run(adapter, path, model, there.path()))?;
        for folder in [&here, &there] {
            did_it(folder.path())?;
        }
    }
    print(&format!("{}: a task of two turns", adapter.title), &cases, "on the host");
    Ok(())
}

/// A time for work that was not done is no time.
fn did_it(folder: &Path) -> Outcome<()> {
    match folder.join("hello.txt").exists() {
        true => Ok(()),
        false => Err(format!("hello.txt was not written in {}", folder.display()).into()),
    }
}

fn path() -> OsString {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let installed =
        std::env::var_os("BELLJAR_TEST_AGENTS").unwrap_or_else(|| "/var/cache/belljar-agents".into());
    let mut all = vec![Path::new(&installed).join("bin")];
    all.extend(std::env::split_paths(&usual));
    std::env::join_paths(all).unwrap_or(usual)
}

pub(crate) const PROMPT: &str = "Write hello.txt. [[mock:hello]]";
const ROUNDS: usize = 10;

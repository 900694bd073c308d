//! What a sandbox's egress costs: new connections, bulk, real TLS, names, memory and the start of a sandbox; each
//! beside its peers in the same run, in turn, so that a busy moment hits all of them alike. Prints medians and ratios.
//!
//! `cargo run --release -p belljar-bench-egress [-- ROUNDS] [PART...]`; wants the `belljar` binary in the same target
//! directory (`cargo build --release`), and shows the peers that are installed (nginx with its stream module,
//! mitmproxy, dnsmasq, bwrap, curl). `docs/benchmarks.md` says how to read it.
//!
//! One executable plays every role, so that it can be shown to a sandbox as one file: started with the name of a role
//! it is a server or a client, and otherwise the conductor, which starts all the others.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod children;
mod parts;
mod query;
mod request;
mod roles;
mod stage;
mod table;
mod target;
mod way;

use parts::Part;
use std::error::Error;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", directory] => roles::server::run(directory.as_ref()),
        ["client", rest @ ..] => roles::client::run(rest),
        ["tls-client", rest @ ..] => roles::tls_client::run(rest),
        ["dns-client", rest @ ..] => roles::dns_client::run(rest),
        ["hold", rest @ ..] => roles::hold::run(rest),
        ["held", rest @ ..] => roles::held::run(rest),
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stage = stage::Stage::set().await?;
        for part in parts {
            part.run(&stage, rounds).await?;
        }
        stage.clear().await;
        Ok(())
    })
}

/// How often each case is measured by default.
const ROUNDS: usize = 7;

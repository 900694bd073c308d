//! From exec to exit of one command in a new sandbox.

use crate::peers::{Peers, works};
use belljar_bench_sample::{Case, print};
use std::thread;
use std::time::Duration;

pub(crate) fn run(peers: &Peers, runs: usize) {
    let mut cases: Vec<Case> = peers.cold.iter().map(|(name, _)| Case::new(name)).collect();
    for round in 0..runs + WARM_UP {
        for (case, (name, words)) in cases.iter_mut().zip(&peers.cold) {
            // The slow ones need not be asked as often.
            if SLOW.contains(&name.as_str()) && round % 5 != 0 {
                continue;
            }
            turn(case, words, round);
        }
    }
    print("Cold start: one command in a new sandbox, from exec to exit", &cases, "bwrap");
}

/// One turn of a command, timed once it is warm.
pub(crate) fn turn(case: &mut Case, words: &[String], round: usize) {
    let run = || {
        works(words);
    };
    if round < WARM_UP {
        run()
    } else {
        case.time(run)
    }
    // The kernel takes namespaces apart after their last process is gone: that is not the next one's time.
    thread::sleep(PAUSE);
}

/// Rounds that are not timed.
pub(crate) const WARM_UP: usize = 5;
const PAUSE: Duration = Duration::from_millis(15);
const SLOW: [&str; 3] = ["firejail", "docker run", "runsc do"];

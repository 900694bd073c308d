//! One life after the other, by one client: created, used twice, deleted; beside a start of bubblewrap.

use crate::Outcome;
use crate::exec::{bwrap, works};
use belljar_bench_sample::{Case, Figures, print_tails};
use belljar_tests_daemon::{Home, Sandbox};
use serde_json::json;
use std::thread::sleep;
use std::time::Duration;

/// The same with sandboxes that the daemon started ahead. Between two requests it has time to start the next one.
pub(crate) fn run_warm(home: &Home, lives: usize, figures: &mut Figures) -> Outcome<()> {
    let client = home.client();
    let mut cases = [CREATE].map(Case::new);
    drop(Sandbox::create(&client, &json!({})));
    for _ in 0..lives {
        sleep(REFILL);
        let [create] = &mut cases;
        let sandbox = create.time(|| Sandbox::create(&client, &json!({})));
        assert_eq!(sandbox.run("true").1, 0, "every sandbox answers");
        sandbox.delete();
    }
    print_tails("create, where the daemon started one ahead", &cases, CREATE);
    figures.add("create_warm_ms", cases[0].median());
    Ok(())
}

pub(crate) fn run(home: &Home, lives: usize, figures: &mut Figures) -> Outcome<()> {
    let client = home.client();
    let mut peer = bwrap();
    let mut cases = [CREATE, FIRST, NEXT, DELETE, BWRAP].map(Case::new);
    for round in 0..lives + WARM_UP {
        let mut discarded = [CREATE, FIRST, NEXT, DELETE, BWRAP].map(Case::new);
        let [create, first, next, delete, bwrap] = if round < WARM_UP { &mut discarded } else { &mut cases };
        let sandbox = create.time(|| Sandbox::create(&client, &json!({})));
        for exec in [first, next] {
            assert_eq!(exec.time(|| sandbox.run("true")).1, 0, "every sandbox answers");
        }
        delete.time(|| sandbox.delete());
        if let Some(command) = &mut peer
            && !bwrap.time(|| works(command))
        {
            peer = None;
        }
    }
    print_tails("one life after the other", &cases, BWRAP);
    let [create, first, _, delete, bwrap] = &cases;
    figures.add("bwrap_ms", bwrap.median());
    figures.add("create_ms", create.median());
    figures.add("first_exec_ms", first.median());
    figures.add("delete_ms", delete.median());
    Ok(())
}

/// Longer than a start takes.
const REFILL: Duration = Duration::from_millis(40);
const WARM_UP: usize = 10;
const CREATE: &str = "create";
const FIRST: &str = "the first exec";
const NEXT: &str = "the next";
const DELETE: &str = "delete";
const BWRAP: &str = "bwrap";

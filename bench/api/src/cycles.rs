//! Short lives, 32 at a time: created, used once, deleted; and what is left of them.

use crate::Outcome;
use belljar_bench_sample::{Case, Figures, print_tails};
use belljar_tests_daemon::{Home, Sandbox, Started, eventually};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

pub(crate) fn run(home: &Home, daemon: &Started, count: usize, figures: &mut Figures) -> Outcome<()> {
    // What is made once, threads and buffers among it, is no leak.
    lives(home, AT_A_TIME * 2);
    eventually(|| home.left(daemon).processes == 0);
    let before = home.left(daemon);
    let start = Instant::now();
    let cases = lives(home, count);
    let took = start.elapsed();
    eventually(|| home.left(daemon).is_at_most(&before));
    let after = home.left(daemon);
    print_tails(&format!("{count} lives, {AT_A_TIME} at a time"), &cases, cases[0].name.as_str());
    let a_second = count as f64 / took.as_secs_f64();
    println!("  all of them: {:.1} s, {a_second:.1} a second", took.as_secs_f64());
    figures.add("lives_a_second", a_second);
    println!("  left behind      before    after");
    for (what, before, after) in before.beside(&after) {
        println!("  {what:<14} {before:>8} {after:>8}");
    }
    Ok(())
}

fn lives(home: &Home, count: usize) -> [Case; 4] {
    let cases = Mutex::new(["create", "exec", "delete", "one life"].map(Case::new));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                let client = home.client();
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    let mut times = vec![Instant::now()];
                    let sandbox = Sandbox::create(&client, &json!({}));
                    times.push(Instant::now());
                    assert_eq!(sandbox.run("true").1, 0, "every sandbox answers");
                    times.push(Instant::now());
                    sandbox.delete();
                    times.push(Instant::now());
                    let mut cases = cases.lock().expect("no thread panics while holding it");
                    for step in 0..3 {
                        cases[step].add(times[step + 1] - times[step]);
                    }
                    cases[3].add(times[3] - times[0]);
                }
            });
        }
    });
    cases.into_inner().expect("no thread panics while holding it")
}

const AT_A_TIME: usize = 32;

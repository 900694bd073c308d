//! Watches the time of all sandboxes. One task: it sleeps until the first one ends, or until a time changes.

use crate::facts::{Facts, Standing, now_ms};
use crate::server::E2b;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Runs until the daemon ends.
pub(crate) async fn watch(e2b: Arc<E2b>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut under_way: HashSet<String> = HashSet::new();
    let mut tasks: JoinSet<String> = JoinSet::new();
    let mut look_for_leftovers = Instant::now();
    loop {
        let now = now_ms();
        let is_leftover_time = Instant::now() >= look_for_leftovers;
        if is_leftover_time {
            look_for_leftovers = Instant::now() + BETWEEN_LEFTOVERS;
            let e2b = Arc::clone(&e2b);
            tokio::spawn(async move { e2b.reconcile().await });
        }
        let is_due = |facts: &Facts| match facts.standing {
            Standing::Running => facts.ends_ms <= now,
            // What a daemon that was killed was doing, and what could not be removed.
            Standing::Making | Standing::Ending => is_leftover_time,
            Standing::Paused | Standing::Stopped => false,
        };
        let mut next = LONGEST_MS;
        for entry in e2b.book.every() {
            let facts = entry.facts();
            if under_way.contains(&facts.id) {
                continue;
            }
            if is_due(&facts) {
                under_way.insert(facts.id.clone());
                let (e2b, turns) = (Arc::clone(&e2b), Arc::clone(&turns));
                tasks.spawn(async move {
                    let _turn = turns.acquire_owned().await;
                    e2b.expire(&entry).await;
                    facts.id
                });
            } else if facts.standing == Standing::Running {
                next = next.min(facts.ends_ms.saturating_sub(now));
            }
        }
        let pause = Duration::from_millis(u64::try_from(next).unwrap_or(0));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = e2b.book.changed.notified() => {}
            Some(done) = tasks.join_next() => {
                if let Ok(id) = done {
                    under_way.remove(&id);
                }
            }
        }
    }
}

/// How many sandboxes are ended at the same time.
const AT_ONCE: usize = 16;
const BETWEEN_LEFTOVERS: Duration = Duration::from_secs(60);
/// The wall clock may be set: nothing sleeps longer without looking at it.
const LONGEST_MS: i64 = 60_000;

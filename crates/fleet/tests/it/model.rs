//! Many things in any order, and what must hold whatever the order was.

use crate::world::*;
use belljar_api::{CreateSandbox, State};
use belljar_fleet::*;
use belljar_spec::ErrorCode;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a caller or a sandbox does.
#[derive(Debug, Clone)]
enum Deed {
    Create {
        key: usize,
        guest: bool,
        lease_s: u64,
        time_limit_ms: u64,
    },
    Drop(usize),
    Renew(usize),
    Use(usize),
    Command {
        key: usize,
        runs: bool,
    },
    Pause(usize),
    Resume(usize),
    Stop(usize),
    Delete(usize),
    /// The shim is killed.
    Kill(usize),
    FailStart,
    Sweep,
    Wait(u64),
}

/// Daemons one after the other, what each of them is asked, and whether it is killed or ended.
fn stories() -> impl Strategy<Value = Vec<(Vec<Vec<Deed>>, bool)>> {
    let key = 0..KEYS.len();
    let deed = prop_oneof![
        6 => (key.clone(), prop::bool::weighted(0.2), 1..400_u64, prop_oneof![4 => Just(60_000), 1 => 0..60_u64])
            .prop_map(|(key, guest, lease_s, time_limit_ms)| Deed::Create { key, guest, lease_s, time_limit_ms }),
        2 => (0..50_usize).prop_map(Deed::Drop),
        1 => (0..50_usize).prop_map(Deed::Renew),
        2 => key.clone().prop_map(Deed::Use),
        2 => (key.clone(), any::<bool>()).prop_map(|(key, runs)| Deed::Command { key, runs }),
        1 => key.clone().prop_map(Deed::Pause),
        1 => key.clone().prop_map(Deed::Resume),
        1 => key.clone().prop_map(Deed::Stop),
        1 => key.clone().prop_map(Deed::Delete),
        1 => key.prop_map(Deed::Kill),
        1 => Just(Deed::FailStart),
        1 => Just(Deed::Sweep),
        3 => (0..300_u64).prop_map(Deed::Wait),
    ];
    let at_once = prop::collection::vec(deed, 1..5);
    prop::collection::vec((prop::collection::vec(at_once, 1..12), any::<bool>()), 1..4)
}

/// A key, and whether its sandbox stays.
const KEYS: [(&str, bool); 3] = [("a", true), ("b", false), ("c", false)];

/// What was promised, by lease: its key, and until when it counts at least.
type Promises = BTreeMap<String, (usize, i64)>;

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    // A story takes a second where the machine is busy; PROPTEST_CASES tells more of them.
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_in_whatever_order(story in stories()) {
        let world = World::new();
        let mut promises = Promises::new();
        for (steps, ended) in story {
            world.run(async |fleet| {
                for deeds in steps {
                    step(&world, &fleet, &mut promises, deeds).await;
                    hold(&world, &fleet, &promises).await;
                }
                if ended {
                    done(fleet.shutdown()).await.unwrap();
                }
            });
        }
        world.run(async |fleet| the_end(&world, &fleet).await);
        world.must_be_right();
    }
}

/// Some deeds at once. Promises that one of them may have taken back are forgotten.
async fn step(world: &World, fleet: &Fleet, promises: &mut Promises, deeds: Vec<Deed>) {
    let held: Vec<String> = promises.keys().cloned().collect();
    let pick = |which: usize| held.get(which % held.len().max(1)).cloned();
    world.let_end(deeds.iter().filter_map(ended_by).map(|key| KEYS[key].0.to_string()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    for deed in &deeds {
        match deed {
            Deed::Drop(which) | Deed::Renew(which) => {
                let Some(lease) = pick(*which) else { continue };
                let Some((key, _)) = promises.get(&lease).copied() else { continue };
                if matches!(deed, Deed::Drop(_)) {
                    promises.remove(&lease);
                }
                let (fleet, deed) = (fleet.clone(), deed.clone());
                tasks.spawn(async move { on_lease(&fleet, &deed, key, &lease).await });
            }
            Deed::Stop(key) | Deed::Delete(key) | Deed::Kill(key) => {
                promises.retain(|_, (of, _)| of != key);
                let (world, fleet, deed) = (world.clone(), fleet.clone(), deed.clone());
                tasks.spawn(async move { act(&world, &fleet, &deed).await });
            }
            _ => {
                let (world, fleet, deed) = (world.clone(), fleet.clone(), deed.clone());
                tasks.spawn(async move { act(&world, &fleet, &deed).await });
            }
        }
    }
    for (lease, key, until_ms) in done(tasks.join_all()).await.into_iter().flatten() {
        if !deeds.iter().any(|deed| ended_by(deed) == Some(key))
            && !deeds.iter().any(|deed| matches!(deed, Deed::Drop(_)))
        {
            promises.insert(lease, (key, until_ms));
        }
    }
}

/// The key of what a deed ends.
fn ended_by(deed: &Deed) -> Option<usize> {
    match deed {
        Deed::Stop(key) | Deed::Delete(key) | Deed::Kill(key) => Some(*key),
        _ => None,
    }
}

/// Everything ends, in a time that is long and no more.
async fn done<T>(work: impl std::future::Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3000), work).await.expect("no caller waits for ever")
}

/// A lease that was given or renewed, if one was.
async fn act(world: &World, fleet: &Fleet, deed: &Deed) -> Option<(String, usize, i64)> {
    let name = |key: &usize| name_of(KEYS[*key].0);
    match deed {
        Deed::Create { key, guest, lease_s, time_limit_ms } => {
            let request = CreateSandbox {
                persistent: Some(KEYS[*key].1),
                owner: Some(!guest),
                lease_s: Some(*lease_s),
                ..keyed(KEYS[*key].0)
            };
            let made =
                tokio::time::timeout(Duration::from_millis(*time_limit_ms), create(fleet, request)).await;
            let made = made.ok()?.ok()?;
            assert_eq!(made.sandbox.persistent, KEYS[*key].1);
            assert!(made.sandbox.leases.contains(&made.lease));
            return Some((made.lease.id, *key, made.lease.until_ms));
        }
        Deed::Use(key) => {
            if let Ok(used) = fleet.shim(&name(key), &owner()).await {
                used.status().await.ok();
            }
        }
        Deed::Command { key, runs } => {
            // As a request does: it goes through it, and is in use until the command runs.
            if let Ok(_used) = fleet.shim(&name(key), &owner()).await
                && let Some(process) = world.process(KEYS[*key].0)
            {
                process.run_commands(u32::from(*runs));
            }
        }
        Deed::Pause(key) => drop(fleet.pause(&name(key), &owner()).await),
        Deed::Resume(key) => drop(fleet.resume(&name(key), &owner()).await),
        Deed::Stop(key) => drop(fleet.stop(&name(key), &owner()).await),
        Deed::Delete(key) => {
            fleet.delete(&name(key), &owner()).await.ok();
        }
        Deed::Kill(key) => {
            if let Some(process) = world.process(KEYS[*key].0) {
                process.die();
            }
        }
        Deed::FailStart => world.set(|world| *world.fail_starts += 1),
        Deed::Sweep => drop(fleet.sweep(false).await.unwrap()),
        Deed::Wait(length) => seconds(*length).await,
        Deed::Drop(_) | Deed::Renew(_) => {}
    }
    None
}

async fn on_lease(fleet: &Fleet, deed: &Deed, key: usize, lease: &str) -> Option<(String, usize, i64)> {
    let name = name_of(KEYS[key].0);
    match deed {
        Deed::Renew(_) => {
            let renewed = fleet.renew(&name, lease, None, &owner()).await.ok()?;
            Some((renewed.id, key, renewed.until_ms))
        }
        _ => {
            fleet.drop_lease(&name, lease, &owner()).await.ok();
            None
        }
    }
}

/// What must hold after every step.
async fn hold(world: &World, fleet: &Fleet, promises: &Promises) {
    world.must_be_right();
    let list = fleet.list(&Filter::default(), &owner()).await.items;
    assert!(list.len() <= KEYS.len(), "one sandbox a key");
    for (lease, (key, until_ms)) in promises {
        if *until_ms > world.now_ms() + 1 {
            let info = list.iter().find(|info| info.key == KEYS[*key].0).expect("what is held is there");
            assert!(matches!(info.state, State::Live | State::Paused | State::Starting), "{info:?}");
            assert!(info.leases.iter().any(|found| found.id == *lease), "{lease} of {info:?}");
        }
    }
    for (key, _) in KEYS {
        let Some(process) = world.process(key) else { continue };
        let info = list.iter().find(|info| info.key == key);
        assert!(info.is_some(), "what lives is told of: {key}");
        assert!(process.commands() < 2);
    }
}

/// Left alone, everything comes to its end; deleted, nothing is left.
async fn the_end(world: &World, fleet: &Fleet) {
    for (key, _) in KEYS {
        if let Some(process) = world.process(key) {
            process.run_commands(0);
        }
    }
    seconds(3600).await;
    let list = fleet.list(&Filter::default(), &owner()).await.items;
    assert_eq!(world.living(), 0, "{list:?}");
    for info in &list {
        assert!(info.persistent && info.state == State::Stopped && info.leases.is_empty(), "{info:?}");
    }
    assert_eq!(world.on_disk().len(), list.len(), "{:?}", world.on_disk());
    for info in list {
        fleet.delete(&info.name, &owner()).await.unwrap();
        assert_eq!(refused(fleet.get(&info.name, &owner()).await), Some(ErrorCode::SandboxNotFound));
    }
    assert_eq!(world.on_disk(), Vec::<String>::new());
}

//! Many at once.

use crate::world::*;
use belljar_api::{CreateSandbox, State};
use belljar_fleet::*;
use belljar_spec::ErrorCode;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

#[test]
fn racing_on_one_key_gives_one_sandbox_and_a_lease_each() {
    let world = World::new();
    world.run(async |fleet| {
        let mut racers = JoinSet::new();
        for _ in 0..50 {
            let fleet = fleet.clone();
            racers.spawn(async move { create(&fleet, keyed("k")).await.unwrap() });
        }
        let came = racers.join_all().await;
        assert_eq!(came.iter().filter(|made| made.created).count(), 1);
        let info = fleet.get(&name_of("k"), &owner()).await.unwrap();
        assert_eq!((info.leases.len(), world.started().len()), (50, 1));
        assert!(came.iter().all(|made| info.leases.contains(&made.lease)));
    });
    world.must_be_right();
}

#[test]
fn only_so_many_are_made_at_once_and_none_is_forgotten() {
    let world = World::new();
    world.run_with(
        |settings| settings.starts = 3,
        async |fleet| {
            let mut racers = JoinSet::new();
            for _ in 0..40 {
                let fleet = fleet.clone();
                racers.spawn(async move { create(&fleet, CreateSandbox::default()).await.unwrap() });
            }
            assert_eq!(racers.join_all().await.len(), 40);
            assert_eq!((world.most_starting(), world.living()), (3, 40));
        },
    );
    world.must_be_right();
}

#[test]
fn a_request_for_what_is_being_deleted_gets_a_new_one() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, keyed("k")).await.unwrap();
        let owner = owner();
        let (deleted, new) =
            tokio::join!(fleet.delete(&made.sandbox.name, &owner), create(&fleet, keyed("k")));
        deleted.unwrap();
        let new = new.unwrap();
        assert!(new.created && new.sandbox.id != made.sandbox.id && new.sandbox.leases.len() == 1);
        assert_eq!(world.living(), 1);
    });
    world.must_be_right();
}

#[test]
fn many_deletions_come_to_one_end() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, keyed("k")).await.unwrap();
        let mut racers = JoinSet::new();
        for _ in 0..10 {
            let (fleet, name) = (fleet.clone(), made.sandbox.name.clone());
            racers.spawn(async move { fleet.delete(&name, &owner()).await });
        }
        assert!(racers.join_all().await.into_iter().all(|outcome| outcome.is_ok()));
        assert_eq!((world.living(), world.on_disk().len()), (0, 0));
    });
    world.must_be_right();
}

#[test]
fn who_goes_away_while_it_is_made_leaves_nothing_behind() {
    for after_ms in [0, 1, 10, 24, 26, 40, 49, 51, 60] {
        let world = World::new();
        world.run(async |fleet| {
            let creation = create(&fleet, ephemeral("k"));
            let _ = timeout(Duration::from_millis(after_ms), creation).await.map(drop);
            seconds(4000).await;
            assert_eq!((world.living(), world.on_disk().len()), (0, 0), "after {after_ms} ms");
            assert_eq!(refused(fleet.shim(&name_of("k"), &owner()).await), Some(ErrorCode::SandboxNotFound));
        });
        world.must_be_right();
    }
}

#[test]
fn who_goes_away_while_it_waits_for_its_turn_starts_nothing() {
    let world = World::new();
    world.run_with(
        |settings| settings.starts = 1,
        async |fleet| {
            let busy = {
                let fleet = fleet.clone();
                tokio::spawn(async move { create(&fleet, keyed("a")).await })
            };
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(timeout(Duration::from_millis(20), create(&fleet, keyed("b"))).await.is_err());
            busy.await.unwrap().unwrap();
            seconds(1).await;
            assert_eq!((world.started().len(), world.on_disk()), (1, vec![name_of("a")]));
        },
    );
    world.must_be_right();
}

#[test]
fn requests_wait_for_a_start_and_hear_of_its_failure() {
    let world = World::new();
    world.run(async |fleet| {
        let name = name_of("k");
        let (made, shim) = tokio::join!(create(&fleet, keyed("k")), async {
            tokio::task::yield_now().await;
            assert_eq!(fleet.get(&name, &owner()).await.unwrap().state, State::Starting);
            fleet.shim(&name, &owner()).await
        });
        assert_eq!(made.unwrap().sandbox.id.as_deref(), Some(shim.unwrap().alive().id.as_str()));
        fleet.stop(&name, &owner()).await.unwrap();
        world.set(|world| *world.fail_starts = 1);
        let (made, shim, other) = tokio::join!(
            create(&fleet, keyed("k")),
            async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                fleet.shim(&name, &owner()).await
            },
            create(&fleet, keyed("k")),
        );
        assert_eq!(
            (refused(made), refused(shim), refused(other)),
            (Some(ErrorCode::StartFailed), Some(ErrorCode::SandboxNotAlive), Some(ErrorCode::StartFailed))
        );
    });
    world.must_be_right();
}

#[test]
fn a_deletion_during_a_start_ends() {
    let world = World::new();
    world.run(async |fleet| {
        let name = name_of("k");
        let (made, deleted) = tokio::join!(create(&fleet, keyed("k")), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            fleet.delete(&name, &owner()).await
        });
        assert!(made.is_ok() && deleted.is_ok());
        assert_eq!((world.living(), world.on_disk().len()), (0, 0));
    });
    world.must_be_right();
}

#[test]
fn a_deletion_ends_a_start_that_hangs() {
    let world = World::new();
    world.set(|world| *world.start_takes = Duration::from_secs(500));
    world.run(async |fleet| {
        let name = name_of("k");
        let (made, deleted) = tokio::join!(create(&fleet, keyed("k")), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            // In stopped time.
            timeout(Duration::from_secs(60), fleet.delete(&name, &owner())).await
        });
        assert!(deleted.is_ok_and(|deleted| deleted.is_ok()));
        assert_eq!(refused(made), Some(ErrorCode::ChangedMeanwhile));
        assert_eq!((world.living(), world.on_disk().len()), (0, 0));
    });
    world.must_be_right();
}

#[test]
fn an_ended_daemon_leaves_what_is_held_and_ends_what_is_not() {
    let world = World::new();
    let held = world.run(async |fleet| {
        let held = create(&fleet, ephemeral("held")).await.unwrap();
        for key in ["idle", "busy"] {
            let made = create(&fleet, ephemeral(key)).await.unwrap();
            fleet.drop_lease(&made.sandbox.name, &made.lease.id, &owner()).await.unwrap();
        }
        world.process("busy").unwrap().run_commands(1);
        let kept = create(&fleet, keyed("kept")).await.unwrap();
        fleet.drop_lease(&kept.sandbox.name, &kept.lease.id, &owner()).await.unwrap();
        seconds(60).await;
        drop(fleet.shim(&held.sandbox.name, &owner()).await.unwrap());
        let (made, closed) = tokio::join!(create(&fleet, ephemeral("late")), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            fleet.shutdown().await
        });
        assert!(made.is_ok() && closed.is_ok(), "what is under way is finished");
        assert_eq!(refused(create(&fleet, keyed("x")).await), Some(ErrorCode::DaemonUnreachable));
        assert_eq!(
            refused(fleet.pause(&held.sandbox.name, &owner()).await),
            Some(ErrorCode::DaemonUnreachable)
        );
        held
    });
    for (key, lives) in [("held", true), ("busy", true), ("late", true), ("idle", false), ("kept", false)] {
        assert_eq!(world.process(key).is_some(), lives, "{key}");
    }
    world.run(async |fleet| {
        let info = fleet.get(&held.sandbox.name, &owner()).await.unwrap();
        assert!(info.leases[0].until_ms >= held.lease.until_ms + 60_000, "its use was written down");
        assert_eq!(fleet.list(&Filter::default(), &owner()).await.items.len(), 4);
    });
    world.must_be_right();
}

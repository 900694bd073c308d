//! A daemon that is killed, at every step of everything.

use crate::world::*;
use belljar_api::{CreateSandbox, State};
use belljar_fleet::*;
use belljar_spec::{ErrorCode, SandboxError};
use std::time::Duration;
use tokio::task::yield_now;

#[test]
fn what_lived_lives_on_with_its_leases() {
    let world = World::new();
    let made = world.run(async |fleet| {
        let mut made = Vec::new();
        for key in ["a", "b"] {
            made.push(create(&fleet, ephemeral(key)).await.unwrap());
        }
        let paused = create(&fleet, keyed("p")).await.unwrap();
        fleet.pause(&paused.sandbox.name, &owner()).await.unwrap();
        fleet.drop_lease(&made[1].sandbox.name, &made[1].lease.id, &owner()).await.unwrap();
        made
    });
    assert_eq!(world.living(), 3);
    world.run(async |fleet| {
        assert_eq!(fleet.swept_at_start().swept, []);
        let again = create(&fleet, ephemeral("a")).await.unwrap();
        assert!(!again.created && again.sandbox.id == made[0].sandbox.id);
        assert_eq!(again.sandbox.leases.len(), 2);
        assert_eq!(again.sandbox.leases[0].id, made[0].lease.id);
        fleet.renew(&made[0].sandbox.name, &made[0].lease.id, None, &owner()).await.unwrap();
        assert_eq!(fleet.get(&name_of("p"), &owner()).await.unwrap().state, State::Paused);
        seconds(119).await;
        assert!(world.process("b").is_some(), "a sandbox without leases gets its grace again");
        seconds(2).await;
        assert!(world.process("b").is_none());
        assert_eq!(world.started().len(), 3);
    });
    world.must_be_right();
}

#[test]
fn what_died_meanwhile_is_swept_when_the_next_one_starts() {
    let world = World::new();
    world.run(async |fleet| {
        create(&fleet, ephemeral("e")).await.unwrap();
        create(&fleet, keyed("p")).await.unwrap();
        create(&fleet, ephemeral("lives")).await.unwrap();
    });
    world.process("e").unwrap().die();
    world.process("p").unwrap().die();
    world.run(async |fleet| {
        let swept = &fleet.swept_at_start().swept;
        let reported: Vec<_> =
            swept.iter().map(|swept| (swept.key.as_str(), swept.action.as_str())).collect();
        assert_eq!(reported, [("e", "removed"), ("p", "stopped")]);
        let info = fleet.get(&name_of("p"), &owner()).await.unwrap();
        assert_eq!((info.state, info.leases.len(), info.fault.is_some()), (State::Stopped, 0, true));
        assert_eq!(refused(fleet.get(&name_of("e"), &owner()).await), Some(ErrorCode::SandboxNotFound));
        assert_eq!(fleet.get(&name_of("lives"), &owner()).await.unwrap().leases.len(), 1);
    });
    world.must_be_right();
}

/// Lets the other tasks have so many turns.
async fn turns(turns: usize) {
    for turn in 0..turns {
        yield_now().await;
        if turn % 4 == 3 {
            // Work that was given to other threads comes back, and time passes.
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }
}

const FEW_MS: Duration = Duration::from_millis(4);

/// Kills the daemon after each number of turns until what it does is done; then looks what became of it.
fn kill_at_every_turn(
    prepare: impl Fn(&World),
    work: impl AsyncFn(&Fleet) -> Result<(), SandboxError>,
    look: impl AsyncFn(&World, &Fleet, bool),
) {
    for after in 0..400 {
        let world = World::new();
        world.set(|world| (*world.start_takes, *world.stop_takes) = (FEW_MS, FEW_MS));
        prepare(&world);
        let done = world.run(async |fleet| {
            tokio::select! {
                biased;
                () = turns(after) => false,
                done = work(&fleet) => done.is_ok(),
            }
        });
        world.run(async |fleet| {
            look(&world, &fleet, done).await;
            for info in fleet.list(&Filter::default(), &owner()).await.items {
                fleet.delete(&info.name, &owner()).await.unwrap();
            }
            assert_eq!((world.living(), world.on_disk()), (0, vec![]), "after {after} turns");
        });
        world.must_be_right();
        if done {
            return;
        }
    }
    panic!("it is never done");
}

#[test]
fn killed_at_any_step_of_making_one_nothing_is_left_and_nothing_promised_is_lost() {
    for persistent in [false, true] {
        kill_at_every_turn(
            |_| {},
            async |fleet| {
                create(fleet, CreateSandbox { persistent: Some(persistent), ..keyed("k") }).await.map(drop)
            },
            async |world, fleet, done| {
                let info = fleet.get(&name_of("k"), &owner()).await.ok();
                assert!(!done || info.as_ref().is_some_and(|info| info.leases.len() == 1));
                if info.is_some() {
                    let again = create(fleet, keyed("k")).await;
                    // Asked for to stay, it is another one; the rest of it is the same.
                    assert!(again.is_ok(), "{again:?}");
                    assert_eq!(world.living(), 1);
                    let held = again.unwrap();
                    for lease in fleet.get(&name_of("k"), &owner()).await.unwrap().leases {
                        fleet.drop_lease(&held.sandbox.name, &lease.id, &owner()).await.unwrap();
                    }
                }
                seconds(200).await;
                assert_eq!(world.living(), 0);
                assert!(persistent || world.on_disk().is_empty(), "{:?}", world.on_disk());
            },
        );
    }
}

#[test]
fn killed_at_any_step_of_deleting_one_it_is_there_or_gone() {
    for stopped in [false, true] {
        kill_at_every_turn(
            |world| {
                world.run(async |fleet| {
                    create(&fleet, keyed("k")).await.unwrap();
                    std::fs::create_dir_all(world.place("k").workspace().join("a")).unwrap();
                    if stopped {
                        fleet.stop(&name_of("k"), &owner()).await.unwrap();
                    }
                });
            },
            async |fleet| fleet.delete(&name_of("k"), &owner()).await,
            async |world, fleet, done| {
                // A deletion that was cut short continues.
                seconds(1).await;
                let there = fleet.get(&name_of("k"), &owner()).await.is_ok();
                assert!(!(done && there));
                assert_eq!(world.on_disk().len(), usize::from(there), "{:?}", world.on_disk());
                if there {
                    assert!(exists(&world.place("k").workspace()), "all of it is there");
                }
                assert!(create(fleet, keyed("k")).await.unwrap().created != there);
            },
        );
    }
}

#[test]
fn killed_at_any_step_of_stopping_and_waking_the_files_are_kept() {
    kill_at_every_turn(
        |world| {
            world.run(async |fleet| {
                create(&fleet, keyed("k")).await.unwrap();
                std::fs::create_dir_all(world.place("k").workspace().join("a")).unwrap();
            });
        },
        async |fleet| {
            fleet.stop(&name_of("k"), &owner()).await?;
            create(fleet, keyed("k")).await.map(drop)
        },
        async |world, fleet, done| {
            seconds(1).await;
            let info = fleet.get(&name_of("k"), &owner()).await.unwrap();
            assert!(!done || info.leases.len() == 1);
            assert!(matches!(info.state, State::Live | State::Stopped));
            assert!(exists(&world.place("k").workspace().join("a")));
            let held = create(fleet, keyed("k")).await.unwrap();
            assert_eq!((held.created, held.sandbox.state, world.living()), (false, State::Live, 1));
        },
    );
}

#[test]
fn a_second_daemon_of_one_directory_is_refused_and_others_do_not_meet() {
    let (world, other) = (World::new(), World::new());
    world.run(async |fleet| {
        create(&fleet, ephemeral("k")).await.unwrap();
        let error = world.open().await.err().unwrap();
        assert_eq!(error.code, ErrorCode::InUse);
        assert!(error.hint.is_some());
        assert_eq!(refused(sweep_alone(&world.directory(), false).await), Some(ErrorCode::InUse));
        assert_eq!(sweep_alone(&other.directory(), false).await.unwrap().swept, []);
        assert!(world.process("k").is_some());
    });
    other.run(async |fleet| {
        assert_eq!(fleet.list(&Filter::default(), &owner()).await.items.len(), 0);
        assert!(create(&fleet, ephemeral("k")).await.unwrap().created);
    });
    assert_eq!((world.living(), other.living()), (1, 1));
    world.run(async |_| {});
}

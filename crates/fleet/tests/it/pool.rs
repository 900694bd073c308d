//! Sandboxes that are started before they are asked for.

use crate::world::*;
use belljar_api::{CreateSandbox, SandboxRequest};
use belljar_fleet::*;
use belljar_spec::{ErrorCode, SandboxError};
use std::time::Duration;
use tokio::time::sleep;

/// One of the machine's, without a key.
fn any() -> CreateSandbox {
    CreateSandbox::default()
}

fn with_admin() -> CreateSandbox {
    CreateSandbox { sandbox: SandboxRequest { admin: true, ..SandboxRequest::default() }, ..any() }
}

async fn listed(fleet: &Fleet) -> usize {
    fleet.list(&Filter::default(), &owner()).await.items.len()
}

#[test]
fn the_second_request_gets_one_that_was_started_before() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 2,
        async |fleet| {
            let cold = create(&fleet, any()).await.unwrap();
            assert!(cold.created && !cold.sandbox.warm);
            seconds(1).await;
            assert_eq!(
                (world.living(), listed(&fleet).await),
                (3, 1),
                "two wait, and no caller is told of them"
            );
            let started = world.started().len();
            let before = world.now_ms();
            let warm = create(&fleet, any()).await.unwrap();
            assert_eq!(
                (world.started().len(), world.now_ms()),
                (started, before),
                "nothing was started for it"
            );
            assert!(warm.created && warm.sandbox.warm && warm.sandbox.name != cold.sandbox.name);
            assert_eq!(warm.sandbox.leases.len(), 1);
            assert_eq!(fleet.get(&warm.sandbox.name, &owner()).await.unwrap(), warm.sandbox);
            let third = create(&fleet, any()).await.unwrap();
            assert_ne!(third.sandbox.name, warm.sandbox.name, "each is handed out once");
            seconds(1).await;
            assert_eq!((world.living(), listed(&fleet).await), (5, 3), "two wait again");
            // A sandbox without leases ends as ever.
            fleet.drop_lease(&warm.sandbox.name, &warm.lease.id, &owner()).await.unwrap();
            seconds(130).await;
            assert_eq!((world.living(), listed(&fleet).await), (4, 2));
        },
    );
    world.must_be_right();
}

#[test]
fn what_is_asked_for_decides_which_ones_wait() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 1,
        async |fleet| {
            let other = test_caller("g", &["*"]);
            for request in [keyed("k"), with_admin(), any()] {
                let made = create(&fleet, request).await.unwrap();
                assert!(!made.sandbox.warm);
            }
            seconds(1).await;
            assert_eq!(world.living(), 5, "of two kinds one waits, and none has a key that a caller gave");
            let of_another = create_as(&fleet, any(), None, &other).await.unwrap();
            assert!(!of_another.sandbox.warm, "what waits for one grant is not handed to another");
            assert!(create(&fleet, any()).await.unwrap().sandbox.warm);
            assert!(create(&fleet, with_admin()).await.unwrap().sandbox.warm);
        },
    );
    world.must_be_right();
}

#[test]
fn one_that_waits_belongs_to_no_caller_and_counts_for_none() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 1,
        async |fleet| {
            let one = TestCaller { most: Some(2), ..test_caller("g", &["*"]) };
            create_as(&fleet, any(), None, &one).await.unwrap();
            seconds(1).await;
            let known: Vec<String> = world.on_disk();
            let key = world.started().last().unwrap().key.clone();
            let error = create_as(&fleet, keyed(&key), None, &one).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::NameTaken, "nor by its key");
            let reported = fleet.list(&Filter::default(), &owner()).await.items;
            let waiting = known.iter().find(|name| reported.iter().all(|info| info.name != **name)).unwrap();
            for caller in [&one as &dyn Permission, &owner()] {
                let error = fleet.get(waiting, caller).await.unwrap_err();
                assert_eq!(error.code, ErrorCode::SandboxNotFound);
                let error = fleet.delete(waiting, caller).await.unwrap_err();
                assert_eq!(error.code, ErrorCode::SandboxNotFound);
            }
            create_as(&fleet, any(), None, &one).await.unwrap();
            seconds(1).await;
            let refused: SandboxError = create_as(&fleet, any(), None, &one).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::QuotaExceeded, "two are held, and a third waits");
        },
    );
    world.must_be_right();
}

#[test]
fn one_that_waited_too_long_or_died_is_not_handed_out() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 1,
        async |fleet| {
            create(&fleet, any()).await.unwrap();
            seconds(1).await;
            let first = world.on_disk();
            seconds(700).await;
            assert_eq!(world.living(), 2);
            assert_ne!(world.on_disk(), first, "it was made anew");
            assert!(create(&fleet, any()).await.unwrap().sandbox.warm);
            seconds(1).await;
            world.kill_all();
            seconds(40).await;
            let made = create(&fleet, any()).await.unwrap();
            assert_eq!(
                fleet.get(&made.sandbox.name, &owner()).await.unwrap().state,
                belljar_api::State::Live
            );
            // A kind that is no longer requested is forgotten.
            fleet.delete(&made.sandbox.name, &owner()).await.unwrap();
            seconds(2 * 3600).await;
            assert_eq!(world.living(), 0);
        },
    );
    world.must_be_right();
}

#[test]
fn the_end_of_the_daemon_ends_what_waits() {
    // Also one that is being started at that moment.
    for after_ms in [1, 20, 70, 1000] {
        let world = World::new();
        world.run_with(
            |settings| settings.warm = 3,
            async |fleet| {
                let made = create(&fleet, any()).await.unwrap();
                sleep(Duration::from_millis(after_ms)).await;
                fleet.shutdown().await.unwrap();
                assert_eq!(world.on_disk(), [made.sandbox.name], "after {after_ms} ms");
            },
        );
        assert_eq!(world.living(), 1, "after {after_ms} ms");
        world.must_be_right();
    }
}

#[test]
fn the_same_idempotency_key_gets_the_same_sandbox() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 1,
        async |fleet| {
            create(&fleet, any()).await.unwrap();
            seconds(1).await;
            let first = create_as(&fleet, any(), Some("once"), &owner()).await.unwrap();
            seconds(1).await;
            let again = create_as(&fleet, any(), Some("once"), &owner()).await.unwrap();
            assert!(first.sandbox.warm);
            assert_eq!((first.sandbox.name, first.lease.id), (again.sandbox.name, again.lease.id));
        },
    );
    world.must_be_right();
}

#[test]
fn a_daemon_that_was_killed_leaves_nothing_that_waits_for_ever() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 2,
        async |fleet| {
            create(&fleet, any()).await.unwrap();
            seconds(1).await;
            assert_eq!(world.living(), 3);
        },
    );
    world.run(async |_fleet| {
        seconds(5).await;
        assert_eq!(world.living(), 1, "no caller was told of them");
    });
    world.must_be_right();
}

#[test]
fn a_request_that_is_refused_gets_nothing_and_starts_nothing() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 2,
        async |fleet| {
            let one = TestCaller { most: Some(1), ..test_caller("g", &["*"]) };
            let none = TestCaller { most: Some(0), ..test_caller("h", &["*"]) };
            let made = create_as(&fleet, any(), None, &one).await.unwrap();
            seconds(1).await;
            assert_eq!(world.living(), 2, "no more wait than the grant may have");
            for request in [any(), with_admin(), any(), with_admin()] {
                for caller in [&one, &none] {
                    let error = create_as(&fleet, request.clone(), None, caller).await.unwrap_err();
                    assert_eq!(error.code, ErrorCode::QuotaExceeded);
                    seconds(1).await;
                }
            }
            let listed = fleet.list(&Filter::default(), &owner()).await.items;
            assert_eq!(listed.iter().map(|info| &info.name).collect::<Vec<_>>(), [&made.sandbox.name]);
            assert_eq!((world.living(), world.started().len()), (2, 2));
        },
    );
    world.must_be_right();
}

#[test]
fn a_grant_that_asks_for_many_kinds_takes_no_place_of_anothers() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 1,
        async |fleet| {
            let (one, other) = (test_caller("g", &["*"]), test_caller("h", &["*"]));
            let kept = create_as(&fleet, any(), None, &one).await.unwrap();
            for number in 0..20 {
                let sandbox = SandboxRequest { ports: vec![8000 + number], ..SandboxRequest::default() };
                let request = CreateSandbox { sandbox, ..any() };
                let made = create_as(&fleet, request, None, &other).await.unwrap();
                fleet.delete(&made.sandbox.name, &other).await.unwrap();
                seconds(1).await;
            }
            assert_eq!(world.living(), 1 + 1 + 4, "one is held, one waits for the one, four for the other");
            let warm = create_as(&fleet, any(), None, &one).await.unwrap();
            assert!(warm.sandbox.warm && warm.sandbox.name != kept.sandbox.name);
            fleet.forget_grant("h");
            seconds(2).await;
            assert_eq!(world.living(), 3, "nothing waits for a grant that was revoked");
        },
    );
    world.must_be_right();
}

#[test]
fn what_dies_as_soon_as_it_lives_is_not_started_over_and_over() {
    let world = World::new();
    world.run_with(
        |settings| settings.warm = 1,
        async |fleet| {
            let made = create(&fleet, any()).await.unwrap();
            for _ in 0..60 {
                seconds(1).await;
                for key in world.started().iter().map(|plan| plan.key.clone()) {
                    if let Some(process) = world.process(&key).filter(|_| key != made.sandbox.key) {
                        process.die();
                    }
                }
            }
            let started = world.started().len();
            assert!((2..=5).contains(&started), "{started} starts in a minute");
        },
    );
    world.must_be_right();
}

//! Requests that mean the same sandbox, and requests that are the same.

use crate::world::*;
use belljar_api::{CreateSandbox, Scope};
use belljar_fleet::*;
use belljar_spec::ErrorCode;

#[test]
fn scopes_share_or_keep_apart() {
    let world = World::new();
    world.run(async |fleet| {
        let by = |scope, wake: &str| CreateSandbox {
            entity: Some("e".into()),
            scope,
            wake: Some(wake.into()),
            ..CreateSandbox::default()
        };
        let name = async |request| create(&fleet, request).await.unwrap().sandbox.name;
        assert_eq!(name(by(None, "1")).await, name(by(Some(Scope::Entity), "2")).await);
        assert_ne!(name(by(Some(Scope::Wake), "1")).await, name(by(Some(Scope::Wake), "2")).await);
        assert_eq!(name(by(Some(Scope::Wake), "1")).await, name_of("e#1"));
        assert_ne!(name(CreateSandbox::default()).await, name(CreateSandbox::default()).await);
    });
}

#[test]
fn heirs_of_what_is_not_there_or_not_alive_are_refused() {
    let world = World::new();
    world.run(async |fleet| {
        let heir = |name: &str| CreateSandbox { inherit: Some(name.into()), ..CreateSandbox::default() };
        assert_eq!(refused(create(&fleet, heir("bj-none")).await), Some(ErrorCode::SandboxNotFound));
        let mut more = heir("bj-none");
        more.persistent = Some(true);
        assert_eq!(refused(create(&fleet, more).await), Some(ErrorCode::RequestConflict));
        let made = create(&fleet, keyed("k")).await.unwrap();
        create(&fleet, heir(&made.sandbox.name)).await.unwrap();
        fleet.stop(&made.sandbox.name, &owner()).await.unwrap();
        assert_eq!(refused(create(&fleet, heir(&made.sandbox.name)).await), Some(ErrorCode::SandboxNotAlive));
    });
}

#[test]
fn the_same_request_gets_the_same_answer() {
    let world = World::new();
    let ask = async |fleet: &Fleet, request, once| create_as(fleet, request, Some(once), &owner()).await;
    let (first, second) = world.run(async |fleet| {
        let first = ask(&fleet, CreateSandbox::default(), "1").await.unwrap();
        let again = ask(&fleet, CreateSandbox::default(), "1").await.unwrap();
        assert_eq!((&again.sandbox.name, &again.lease.id), (&first.sandbox.name, &first.lease.id));
        assert_eq!((again.created, again.sandbox.leases.len()), (true, 1));
        let second = ask(&fleet, CreateSandbox::default(), "2").await.unwrap();
        assert_ne!(second.sandbox.name, first.sandbox.name);
        assert_eq!(refused(ask(&fleet, keyed("k"), "1").await), Some(ErrorCode::IdempotencyMismatch));
        // Another grant's keys are its own.
        let other =
            create_as(&fleet, CreateSandbox::default(), Some("1"), &test_caller("a", &[])).await.unwrap();
        assert_ne!(other.sandbox.name, first.sandbox.name);
        (first, second)
    });
    world.run(async |fleet| {
        for (once, made) in [("1", &first), ("2", &second)] {
            let again = ask(&fleet, CreateSandbox::default(), once).await.unwrap();
            assert_eq!((&again.sandbox.name, &again.lease.id), (&made.sandbox.name, &made.lease.id));
        }
        assert_eq!(refused(ask(&fleet, keyed("k"), "1").await), Some(ErrorCode::IdempotencyMismatch));
        fleet.delete(&first.sandbox.name, &owner()).await.unwrap();
        assert!(
            ask(&fleet, keyed("k"), "1").await.unwrap().created,
            "with the sandbox its requests are forgotten"
        );
    });
    world.must_be_right();
}

#[test]
fn the_same_request_at_once_makes_one() {
    let world = World::new();
    world.run(async |fleet| {
        let mut racers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let fleet = fleet.clone();
            racers
                .spawn(async move { create_as(&fleet, CreateSandbox::default(), Some("1"), &owner()).await });
        }
        let mut leases: Vec<_> =
            racers.join_all().await.into_iter().map(|made| made.unwrap().lease.id).collect();
        leases.dedup();
        assert_eq!((leases.len(), world.started().len()), (1, 1));
    });
    world.must_be_right();
}

#[test]
fn a_request_that_failed_can_be_made_again() {
    let world = World::new();
    world.run(async |fleet| {
        world.set(|world| *world.fail_starts = 1);
        let ask = async |request| create_as(&fleet, request, Some("1"), &owner()).await;
        assert_eq!(refused(ask(keyed("k")).await), Some(ErrorCode::StartFailed));
        assert!(ask(keyed("k")).await.unwrap().created);
    });
    world.must_be_right();
}

#[test]
fn who_went_away_and_asks_again_gets_what_was_made() {
    let world = World::new();
    world.run(async |fleet| {
        let owner = owner();
        let creation = create_as(&fleet, CreateSandbox::default(), Some("1"), &owner);
        let gone = tokio::time::timeout(std::time::Duration::from_millis(30), creation).await;
        assert!(gone.is_err());
        seconds(1).await;
        let again = create_as(&fleet, CreateSandbox::default(), Some("1"), &owner).await.unwrap();
        assert_eq!((again.created, again.sandbox.leases.len(), world.started().len()), (true, 1, 1));
    });
    world.must_be_right();
}

#[test]
fn a_second_asker_who_goes_away_takes_nothing_from_the_first() {
    let world = World::new();
    world.run(async |fleet| {
        let owner = owner();
        let first = create_as(&fleet, keyed("k"), Some("1"), &owner).await.unwrap();
        for _ in 0..20 {
            let mut again = Box::pin(create_as(&fleet, keyed("k"), Some("1"), &owner));
            let _ =
                std::future::poll_fn(|context| std::task::Poll::Ready(again.as_mut().poll(context))).await;
            drop(again);
            seconds(1).await;
        }
        let leases = fleet.get(&first.sandbox.name, &owner).await.unwrap().leases;
        assert_eq!(leases.iter().map(|lease| &lease.id).collect::<Vec<_>>(), [&first.lease.id]);
    });
}

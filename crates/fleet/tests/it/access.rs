//! Who may do what with which sandbox: keys are no capabilities.

use crate::world::*;
use belljar_api::CreateSandbox;
use belljar_fleet::*;
use belljar_spec::ErrorCode;

#[test]
fn a_key_of_another_caller_needs_a_grant() {
    let world = World::new();
    world.run(async |fleet| {
        let a = test_caller("a", &["shared", "own"]);
        let b = test_caller("b", &["shared"]);
        let c = test_caller("c", &[]);
        create_as(&fleet, keyed("shared"), None, &a).await.unwrap();
        create_as(&fleet, keyed("own"), None, &a).await.unwrap();
        assert!(!create_as(&fleet, keyed("shared"), None, &b).await.unwrap().created);
        for request in [keyed("own"), guest("own"), keyed("new")] {
            assert_eq!(refused(create_as(&fleet, request, None, &b).await), Some(ErrorCode::NotGranted));
        }
        let name = name_of("own");
        for code in [
            refused(fleet.get(&name, &b).await),
            refused(fleet.shim(&name, &b).await),
            refused(fleet.delete(&name, &b).await),
            refused(fleet.pause(&name, &b).await),
            refused(fleet.drop_lease(&name, "x", &b).await),
            refused(fleet.identify(&CreateSandbox { inherit: Some(name.clone()), ..Default::default() }, &b)),
        ] {
            // The same as of one that is not there: names follow from keys, and who asks must not learn which are in use.
            assert_eq!(code, Some(ErrorCode::SandboxNotFound));
        }
        let absent = name_of("absent");
        let (of_other, of_none) =
            (fleet.get(&name, &b).await.unwrap_err(), fleet.get(&absent, &b).await.unwrap_err());
        assert_eq!(of_other.message.replace(&name, ""), of_none.message.replace(&absent, ""));
        assert_eq!((of_other.code, of_other.hint), (of_none.code, of_none.hint));
        let names = async |caller: &dyn Permission| fleet.list(&Filter::default(), caller).await.items.len();
        assert_eq!([names(&a).await, names(&b).await, names(&c).await, names(&owner()).await], [2, 1, 0, 2]);
    });
}

#[test]
fn a_generated_key_is_the_callers_own() {
    let world = World::new();
    world.run(async |fleet| {
        let a = test_caller("a", &[]);
        let made = create_as(&fleet, CreateSandbox::default(), None, &a).await.unwrap();
        assert_eq!(made.sandbox.owner, "a");
        let again = create_as(&fleet, keyed(&made.sandbox.key), None, &a).await.unwrap();
        assert_eq!(again.sandbox.name, made.sandbox.name);
        let b = test_caller("b", &[]);
        assert_eq!(
            refused(create_as(&fleet, keyed(&made.sandbox.key), None, &b).await),
            Some(ErrorCode::NotGranted)
        );
        let other = create_as(&fleet, CreateSandbox::default(), None, &b).await.unwrap();
        assert_ne!(other.sandbox.name, made.sandbox.name);
    });
}

#[test]
fn a_guest_uses_and_neither_makes_nor_ends() {
    let world = World::new();
    world.run(async |fleet| {
        let (a, b) = (test_caller("a", &["k"]), test_caller("b", &["k"]));
        assert_eq!(refused(create_as(&fleet, guest("k"), None, &b).await), Some(ErrorCode::SandboxNotAlive));
        assert_eq!((world.on_disk().len(), world.started().len()), (0, 0));
        let made = create_as(&fleet, keyed("k"), None, &a).await.unwrap();
        let name = &made.sandbox.name;
        let mut request = guest("k");
        request.persistent = Some(false);
        request.idle_s = Some(0);
        let held = create_as(&fleet, request, None, &b).await.unwrap();
        assert!(!held.lease.owner && held.sandbox.persistent);
        fleet.shim(name, &b).await.unwrap();
        for code in [
            refused(fleet.delete(name, &b).await),
            refused(fleet.stop(name, &b).await),
            refused(fleet.pause(name, &b).await),
            refused(fleet.resume(name, &b).await),
        ] {
            assert_eq!(code, Some(ErrorCode::NotGranted));
        }
        // The same grant, under the lease of an heir.
        let heir = CreateSandbox { inherit: Some(name.clone()), ..CreateSandbox::default() };
        let heir = create_as(&fleet, heir, None, &a).await.unwrap();
        assert!(!heir.lease.owner && heir.sandbox.key == "k");
        let as_heir = TestCaller { lease: Some(heir.lease.id), ..test_caller("a", &["k"]) };
        assert_eq!(refused(fleet.delete(name, &as_heir).await), Some(ErrorCode::NotGranted));
        assert_eq!(refused(fleet.drop_lease(name, &made.lease.id, &b).await), Some(ErrorCode::NameUnknown));
        assert_eq!(refused(fleet.renew(name, &made.lease.id, None, &b).await), Some(ErrorCode::NameUnknown));
        fleet.drop_lease(name, &made.lease.id, &a).await.unwrap();
        fleet.drop_lease(name, &as_heir.lease.clone().unwrap(), &a).await.unwrap();
        seconds(600).await;
        assert!(world.process("k").is_some(), "the guest holds it, with the owner's grace");
        fleet.drop_lease(name, &held.lease.id, &b).await.unwrap();
        seconds(119).await;
        assert!(world.process("k").is_some());
        seconds(2).await;
        assert_eq!((world.living(), world.on_disk().len()), (0, 1), "what an owner made to stay stays");
    });
    world.must_be_right();
}

#[test]
fn a_grant_has_only_so_many() {
    let world = World::new();
    world.run(async |fleet| {
        let a = TestCaller { most: Some(2), ..test_caller("a", &["*"]) };
        let made = create_as(&fleet, keyed("1"), None, &a).await.unwrap();
        let mut racers = tokio::task::JoinSet::new();
        for key in ["2", "3", "4"] {
            let fleet = fleet.clone();
            racers.spawn(async move {
                let a = TestCaller { most: Some(2), ..test_caller("a", &["*"]) };
                create_as(&fleet, keyed(key), None, &a).await.map_err(|error| error.code)
            });
        }
        let came = racers.join_all().await;
        assert_eq!(came.iter().filter(|made| made.is_ok()).count(), 1);
        assert_eq!(came.iter().filter(|made| **made == Err(ErrorCode::QuotaExceeded)).count(), 2);
        create_as(&fleet, keyed("1"), None, &a).await.unwrap();
        create_as(&fleet, keyed("5"), None, &owner()).await.unwrap();
        fleet.stop(&made.sandbox.name, &a).await.unwrap();
        create_as(&fleet, keyed("6"), None, &a).await.unwrap();
        assert_eq!(refused(create_as(&fleet, keyed("1"), None, &a).await), Some(ErrorCode::QuotaExceeded));
    });
    world.must_be_right();
}

#[test]
fn runs_count_among_what_a_grant_has() {
    let world = World::new();
    world.run(async |fleet| {
        let a = TestCaller { most: Some(2), ..test_caller("a", &["*"]) };
        let (first, second) = (fleet.seat_run(&a).unwrap(), fleet.seat_run(&a).unwrap());
        assert_eq!(refused(fleet.seat_run(&a)), Some(ErrorCode::QuotaExceeded));
        assert_eq!(refused(create_as(&fleet, keyed("1"), None, &a).await), Some(ErrorCode::QuotaExceeded));
        // Others have places of their own.
        create_as(&fleet, keyed("5"), None, &owner()).await.unwrap();
        assert!(fleet.seat_run(&owner()).is_ok());
        drop(first);
        let made = create_as(&fleet, keyed("1"), None, &a).await.unwrap();
        assert!(!create_as(&fleet, keyed("1"), None, &a).await.unwrap().created, "it has this one");
        assert_eq!(refused(fleet.seat_run(&a)), Some(ErrorCode::QuotaExceeded));
        drop(second);
        drop(fleet.seat_run(&a).unwrap());
        // One that is just being made counts.
        let mut making = Box::pin(create_as(&fleet, keyed("2"), None, &a));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut making).await.is_err());
        assert_eq!(refused(fleet.seat_run(&a)), Some(ErrorCode::QuotaExceeded));
        making.await.unwrap();
        assert_eq!(refused(fleet.seat_run(&a)), Some(ErrorCode::QuotaExceeded));
        fleet.delete(&made.sandbox.name, &a).await.unwrap();
        assert!(fleet.seat_run(&a).is_ok());
        fleet.shutdown().await.unwrap();
        assert!(fleet.seat_run(&a).is_err(), "nothing new is begun at the end");
    });
    world.must_be_right();
}

#[test]
fn who_joins_a_sandbox_does_not_own_it_whatever_it_asks() {
    let world = World::new();
    world.run(async |fleet| {
        let (a, b) = (test_caller("a", &["k"]), test_caller("b", &["k"]));
        let made = create_as(&fleet, keyed("k"), None, &a).await.unwrap();
        let name = &made.sandbox.name;
        let insists = CreateSandbox { owner: Some(true), ..keyed("k") };
        assert_eq!(refused(create_as(&fleet, insists.clone(), None, &b).await), Some(ErrorCode::NotGranted));
        let joined = create_as(&fleet, keyed("k"), None, &b).await.unwrap();
        assert!(!joined.lease.owner && made.lease.owner);
        assert_eq!(joined.sandbox.leases.iter().map(|lease| &*lease.holder).collect::<Vec<_>>(), ["b"]);
        for code in [
            refused(fleet.delete(name, &b).await),
            refused(fleet.stop(name, &b).await),
            refused(fleet.pause(name, &b).await),
            refused(
                fleet
                    .delete(
                        name,
                        &TestCaller { lease: Some(joined.lease.id.clone()), ..test_caller("b", &["k"]) },
                    )
                    .await,
            ),
        ] {
            assert_eq!(code, Some(ErrorCode::NotGranted));
        }
        fleet.stop(name, &a).await.unwrap();
        assert_eq!(
            refused(create_as(&fleet, keyed("k"), None, &b).await),
            Some(ErrorCode::SandboxNotAlive),
            "it wakes nothing"
        );
        // The grant says that the key is its own.
        let c = TestCaller { owns: &["k"], ..test_caller("c", &["k"]) };
        assert!(create_as(&fleet, insists, None, &c).await.unwrap().lease.owner);
        fleet.delete(name, &c).await.unwrap();
        assert!(
            create_as(&fleet, keyed("k"), None, &b).await.unwrap().lease.owner,
            "what it makes is its own"
        );
        fleet.delete(name, &b).await.unwrap();
    });
    world.must_be_right();
}

#[test]
fn a_grant_makes_no_record_grow() {
    let world = World::new();
    world.run(async |fleet| {
        let (a, b) = (test_caller("a", &["k"]), test_caller("b", &["k"]));
        let made = create_as(&fleet, keyed("k"), None, &a).await.unwrap();
        let name = &made.sandbox.name;
        let mut held = Vec::new();
        let refusal = loop {
            match create_as(&fleet, keyed("k"), None, &b).await {
                Ok(joined) => held.push(joined.lease.id),
                Err(error) => break error.code,
            }
        };
        assert_eq!((refusal, held.len()), (ErrorCode::QuotaExceeded, 128));
        create_as(&fleet, keyed("k"), None, &a).await.expect("others join as before");
        for lease in held {
            fleet.drop_lease(name, &lease, &b).await.unwrap();
        }
        // Keys of requests are as many, and not for ever.
        for number in 0..200 {
            let joined = create_as(&fleet, keyed("k"), Some(&format!("once-{number}")), &b).await.unwrap();
            fleet.drop_lease(name, &joined.lease.id, &b).await.unwrap();
        }
        assert_eq!(remembered(&world), 64);
        seconds(24 * 60 * 60).await;
        create_as(&fleet, keyed("k"), Some("a day later"), &a).await.unwrap();
        assert_eq!(remembered(&world), 1);
        // Long ones count by their length.
        let long = CreateSandbox { lease_s: Some(31_536_000), ..keyed("k") };
        for expected in [None, None, Some(ErrorCode::QuotaExceeded)] {
            assert_eq!(refused(create_as(&fleet, long.clone(), None, &b).await), expected);
        }
    });
    world.must_be_right();
}

/// How many requests the record of `k` remembers.
fn remembered(world: &World) -> usize {
    let record = std::fs::read(world.place("k").record()).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    record["once"].as_array().unwrap().len()
}

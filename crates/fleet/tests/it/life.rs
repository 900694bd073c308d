//! One sandbox at a time: made, held, used, paused, stopped, woken, deleted.

use crate::world::*;
use belljar_api::State;
use belljar_fleet::*;
use belljar_spec::ErrorCode;
use belljar_spec::egress::Mode;
use belljar_spec::request::EnvValue;

#[test]
fn a_sandbox_is_made_and_told_of() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, keyed("k")).await.unwrap();
        assert!(made.created && made.lease.owner && made.notes == ["a note"]);
        assert_eq!(made.lease.until_ms - made.lease.since_ms, 3_600_000);
        let info = fleet.get(&name_of("k"), &owner()).await.unwrap();
        assert_eq!(info, made.sandbox);
        assert_eq!(
            (info.state, info.key.as_str(), info.owner.as_str(), info.persistent),
            (State::Live, "k", OWNER, true)
        );
        assert_eq!(info.id.as_deref(), world.process("k").as_deref().map(Process::id));
        assert_eq!((info.egress.as_str(), info.ends_ms, info.fault), (Mode::default().as_str(), None, None));
        assert_eq!(world.on_disk(), [name_of("k")]);
        let again = create(&fleet, keyed("k")).await.unwrap();
        assert!(!again.created && again.lease.id != made.lease.id);
        assert_eq!((again.sandbox.leases.len(), world.started().len()), (2, 1));
    });
    world.must_be_right();
}

#[test]
fn a_sandbox_without_leases_ends_after_its_grace() {
    for (request, left) in [(ephemeral("k"), None), (keyed("k"), Some(State::Stopped))] {
        let world = World::new();
        world.run(async |fleet| {
            let made = create(&fleet, request).await.unwrap();
            let name = &made.sandbox.name;
            seconds(1000).await;
            fleet.drop_lease(name, &made.lease.id, &owner()).await.unwrap();
            seconds(119).await;
            let info = fleet.get(name, &owner()).await.unwrap();
            assert_eq!(info.state, State::Live);
            assert_eq!(info.ends_ms, Some(world.now_ms() + 1000));
            seconds(2).await;
            assert_eq!(fleet.get(name, &owner()).await.ok().map(|info| info.state), left);
            assert_eq!((world.living(), world.on_disk().len()), (0, usize::from(left.is_some())));
            assert_eq!(
                refused(fleet.renew(name, &made.lease.id, None, &owner()).await),
                match left {
                    Some(_) => Some(ErrorCode::NameUnknown),
                    None => Some(ErrorCode::SandboxNotFound),
                }
            );
        });
        world.must_be_right();
    }
}

#[test]
fn leases_end_unless_they_are_renewed_or_used() {
    let world = World::new();
    world.run(async |fleet| {
        let mut request = ephemeral("k");
        (request.lease_s, request.idle_s) = (Some(100), Some(10));
        let made = create(&fleet, request.clone()).await.unwrap();
        let (name, lease) = (&made.sandbox.name, &made.lease.id);
        for _ in 0..3 {
            seconds(90).await;
            fleet.renew(name, lease, None, &owner()).await.unwrap();
        }
        for _ in 0..3 {
            seconds(90).await;
            drop(fleet.shim(name, &owner()).await.unwrap());
        }
        for _ in 0..3 {
            seconds(90).await;
            drop(fleet.shim(name, &Owner { lease: Some(lease.clone()) }).await.unwrap());
        }
        seconds(99).await;
        assert_eq!(fleet.get(name, &owner()).await.unwrap().leases.len(), 1);
        seconds(2).await;
        assert_eq!(fleet.get(name, &owner()).await.unwrap().leases.len(), 0);
        seconds(10).await;
        assert_eq!(refused(fleet.get(name, &owner()).await), Some(ErrorCode::SandboxNotFound));
        assert_eq!(world.on_disk().len(), 0);
    });
    world.must_be_right();
}

#[test]
fn a_command_or_a_request_keeps_it_alive_without_a_lease() {
    let world = World::new();
    world.run(async |fleet| {
        let mut request = ephemeral("k");
        request.idle_s = Some(0);
        let made = create(&fleet, request).await.unwrap();
        let name = &made.sandbox.name;
        world.process("k").unwrap().run_commands(1);
        fleet.drop_lease(name, &made.lease.id, &owner()).await.unwrap();
        seconds(5000).await;
        let info = fleet.get(name, &owner()).await.unwrap();
        assert_eq!((info.commands, info.leases.len(), info.state), (1, 0, State::Live));
        let in_use = fleet.shim(name, &owner()).await.unwrap();
        world.process("k").unwrap().run_commands(0);
        seconds(5000).await;
        assert!(world.process("k").is_some(), "a request is under way");
        drop(in_use);
        seconds(3).await;
        assert_eq!((world.living(), world.on_disk().len()), (0, 0));
    });
    world.must_be_right();
}

#[test]
fn a_request_between_the_look_and_the_end_counts() {
    let world = World::new();
    world.run(async |fleet| {
        let mut request = ephemeral("k");
        request.idle_s = Some(10);
        let made = create(&fleet, request).await.unwrap();
        let name = &made.sandbox.name;
        fleet.drop_lease(name, &made.lease.id, &owner()).await.unwrap();
        seconds(9).await;
        tokio::time::sleep(std::time::Duration::from_millis(1000)).await;
        // Just now, whatever the task is at.
        if let Ok(used) = fleet.shim(name, &owner()).await {
            world.process("k").expect("who is in use lives");
            seconds(100).await;
            world.process("k").expect("who is in use lives");
            drop(used);
        }
    });
    world.must_be_right();
}

#[test]
fn a_stopped_one_is_woken_into_a_new_life() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, keyed("k")).await.unwrap();
        let name = &made.sandbox.name;
        std::fs::create_dir(world.place("k").workspace()).unwrap();
        let stopped = fleet.stop(name, &owner()).await.unwrap();
        assert_eq!((stopped.state, stopped.leases.len(), stopped.started_ms), (State::Stopped, 0, None));
        assert_eq!((stopped.fault, world.living()), (None, 0));
        assert_eq!(fleet.stop(name, &owner()).await.unwrap().state, State::Stopped);
        assert_eq!(refused(fleet.shim(name, &owner()).await), Some(ErrorCode::SandboxNotAlive));
        assert_eq!(refused(fleet.pause(name, &owner()).await), Some(ErrorCode::SandboxNotAlive));
        assert_eq!(refused(create(&fleet, guest("k")).await), Some(ErrorCode::SandboxNotAlive));
        let woken = create(&fleet, keyed("k")).await.unwrap();
        assert!(!woken.created && woken.sandbox.state == State::Live);
        assert_ne!(woken.sandbox.id, made.sandbox.id);
        assert_eq!(woken.sandbox.created_ms, made.sandbox.created_ms);
        let [first, second] = &world.started()[..] else { panic!("two lives") };
        assert_eq!((&first.sandbox, &first.name), (&second.sandbox, &second.name));
        assert!(exists(&world.place("k").workspace()), "its files are there");
    });
    world.must_be_right();
}

#[test]
fn what_is_deleted_is_gone_and_stays_so() {
    let world = World::new();
    world.run(async |fleet| {
        for stop_first in [false, true] {
            let made = create(&fleet, keyed("k")).await.unwrap();
            let name = &made.sandbox.name;
            std::fs::create_dir_all(world.place("k").workspace().join("a/b")).unwrap();
            std::os::unix::fs::symlink("/etc", world.place("k").workspace().join("link")).unwrap();
            if stop_first {
                fleet.stop(name, &owner()).await.unwrap();
            }
            fleet.delete(name, &owner()).await.unwrap();
            assert_eq!((world.living(), world.on_disk().len()), (0, 0));
            for code in [
                refused(fleet.get(name, &owner()).await),
                refused(fleet.delete(name, &owner()).await),
                refused(fleet.shim(name, &owner()).await),
                refused(fleet.pause(name, &owner()).await),
                refused(fleet.stop(name, &owner()).await),
                refused(fleet.renew(name, &made.lease.id, None, &owner()).await),
                refused(fleet.drop_lease(name, &made.lease.id, &owner()).await),
            ] {
                assert_eq!(code, Some(ErrorCode::SandboxNotFound));
            }
        }
        assert!(exists("/etc/passwd".as_ref()), "links are not followed");
    });
    world.must_be_right();
}

#[test]
fn pausing_twice_is_no_mistake() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, ephemeral("k")).await.unwrap();
        let name = &made.sandbox.name;
        for _ in 0..2 {
            assert_eq!(fleet.pause(name, &owner()).await.unwrap().state, State::Paused);
        }
        assert!(world.process("k").unwrap().is_paused());
        fleet.shim(name, &owner()).await.expect("what it wrote can be read");
        assert_eq!(create(&fleet, ephemeral("k")).await.unwrap().sandbox.state, State::Paused);
        for _ in 0..2 {
            assert_eq!(fleet.resume(name, &owner()).await.unwrap().state, State::Live);
        }
        assert!(!world.process("k").unwrap().is_paused());
        fleet.shim(name, &owner()).await.unwrap();
        fleet.pause(name, &owner()).await.unwrap();
        fleet.delete(name, &owner()).await.unwrap();
        assert_eq!((world.living(), world.on_disk().len()), (0, 0));
    });
    world.must_be_right();
}

#[test]
fn a_shim_that_dies_is_noticed() {
    for (request, left) in [(ephemeral("k"), None), (keyed("k"), Some(State::Stopped))] {
        let world = World::new();
        world.run(async |fleet| {
            let made = create(&fleet, request.clone()).await.unwrap();
            let name = &made.sandbox.name;
            world.process("k").unwrap().die();
            seconds(1).await;
            let info = fleet.get(name, &owner()).await.ok();
            assert_eq!(info.as_ref().map(|info| info.state), left);
            assert_eq!(info.and_then(|info| info.fault).is_some(), left.is_some());
            let again = create(&fleet, request).await.unwrap();
            assert_eq!((again.sandbox.leases.len(), again.sandbox.fault), (1, None));
            assert_eq!(again.created, left.is_none());
        });
        world.must_be_right();
    }
}

#[test]
fn a_connection_that_breaks_is_no_death() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, ephemeral("k")).await.unwrap();
        let process = world.process("k").unwrap();
        for _ in 0..5 {
            process.lose();
            assert_eq!(fleet.shim(&made.sandbox.name, &owner()).await.unwrap().alive().id, process.id());
            seconds(1).await;
            assert_eq!(fleet.get(&made.sandbox.name, &owner()).await.unwrap().leases.len(), 1);
        }
        process.die();
        seconds(1).await;
        assert_eq!(world.on_disk().len(), 0);
    });
    world.must_be_right();
}

#[test]
fn a_shim_that_does_not_answer_is_left_alone_and_no_caller_hangs() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, ephemeral("k")).await.unwrap();
        let name = &made.sandbox.name;
        let process = world.process("k").unwrap();
        process.be_deaf(true);
        assert_eq!(refused(fleet.pause(name, &owner()).await), Some(ErrorCode::SandboxNotAlive));
        assert_eq!(refused(fleet.delete(name, &owner()).await), Some(ErrorCode::SandboxNotAlive));
        assert_eq!(refused(create(&fleet, ephemeral("k")).await), Some(ErrorCode::SandboxNotAlive));
        assert_eq!((process.lives(), world.on_disk().len()), (true, 1));
        assert!(fleet.get(name, &owner()).await.unwrap().fault.is_some());
        process.be_deaf(false);
        seconds(60).await;
        assert_eq!((world.living(), world.on_disk().len()), (0, 0), "it is tried again");
        assert!(create(&fleet, ephemeral("k")).await.unwrap().created);
    });
    world.must_be_right();
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let world = World::new();
    world.run(async |fleet| {
        world.set(|world| *world.fail_starts = 1);
        assert_eq!(refused(create(&fleet, keyed("k")).await), Some(ErrorCode::StartFailed));
        assert_eq!((world.living(), world.on_disk().len()), (0, 0));
        assert_eq!(fleet.list(&Filter::default(), &owner()).await.items.len(), 0);
        let made = create(&fleet, keyed("k")).await.unwrap();
        assert!(made.created);
        fleet.stop(&made.sandbox.name, &owner()).await.unwrap();
        world.set(|world| *world.fail_starts = 1);
        assert_eq!(refused(create(&fleet, keyed("k")).await), Some(ErrorCode::StartFailed));
        let info = fleet.get(&made.sandbox.name, &owner()).await.unwrap();
        assert_eq!((info.state, info.fault.as_deref()), (State::Stopped, Some("it was told to fail")));
        assert_eq!(world.on_disk().len(), 1, "files of an earlier life are kept");
        assert_eq!(create(&fleet, keyed("k")).await.unwrap().sandbox.fault, None);
    });
    world.must_be_right();
}

#[test]
fn what_is_there_is_taken_as_it_is_or_refused() {
    let world = World::new();
    world.run(async |fleet| {
        let mut request = keyed("k");
        request.sandbox.limits.memory = "1g".parse().ok();
        create(&fleet, request.clone()).await.unwrap();
        create(&fleet, keyed("k")).await.unwrap();
        create(&fleet, request.clone()).await.unwrap();
        request.sandbox.limits.memory = "2g".parse().ok();
        assert_eq!(refused(create(&fleet, request.clone()).await), Some(ErrorCode::SandboxDiffers));
        fleet.stop(&name_of("k"), &owner()).await.unwrap();
        assert_eq!(refused(create(&fleet, request.clone()).await), Some(ErrorCode::SandboxDiffers));
        assert_eq!(refused(create(&fleet, ephemeral("k")).await), Some(ErrorCode::SandboxDiffers));
        fleet.delete(&name_of("k"), &owner()).await.unwrap();
        create(&fleet, request).await.unwrap();
    });
    world.must_be_right();
}

#[test]
fn lists_come_in_parts() {
    let world = World::new();
    world.run(async |fleet| {
        for key in ["a", "b", "c", "d", "e"] {
            create(&fleet, keyed(key)).await.unwrap();
        }
        fleet.stop(&name_of("c"), &owner()).await.unwrap();
        let mut seen = Vec::new();
        let mut filter = Filter { limit: Some(2), ..Filter::default() };
        loop {
            let page = fleet.list(&filter, &owner()).await;
            assert!(page.items.len() <= 2);
            seen.extend(page.items.into_iter().map(|info| info.key));
            match page.next {
                Some(next) => filter.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
        let stopped = Filter { state: Some(State::Stopped), ..Filter::default() };
        assert_eq!(fleet.list(&stopped, &owner()).await.items.len(), 1);
        let keyed = Filter { key: Some("d".into()), limit: Some(1), ..Filter::default() };
        let page = fleet.list(&keyed, &owner()).await;
        assert_eq!((page.items.len(), page.next), (1, None));
    });
}

#[test]
fn on_a_disk_that_takes_no_record_what_lives_is_used_and_ended() {
    let world = World::new();
    world.run(async |fleet| {
        let made = create(&fleet, keyed("k")).await.unwrap();
        let name = &made.sandbox.name;
        // Nothing can be written under this name: as on a disk that is full.
        let draft = world.place("k").directory().join("record.json.new");
        std::fs::create_dir(&draft).unwrap();
        let joined = create(&fleet, keyed("k")).await.expect("who frees space has to get in");
        fleet.shim(name, &owner()).await.unwrap();
        fleet.renew(name, &joined.lease.id, Some(60), &owner()).await.unwrap();
        fleet.drop_lease(name, &made.lease.id, &owner()).await.unwrap();
        std::fs::remove_dir(&draft).unwrap();
        seconds(10).await;
        let record = std::fs::read_to_string(world.place("k").record()).unwrap();
        assert!(record.contains(&joined.lease.id) && !record.contains(&made.lease.id), "it is written later");
        std::fs::create_dir(&draft).unwrap();
        fleet.stop(name, &owner()).await.unwrap();
        fleet.delete(name, &owner()).await.unwrap();
        assert_eq!(world.on_disk().len(), 0);
    });
    world.must_be_right();
}

#[test]
fn what_is_told_of_egress_and_ports_is_what_is_inside() {
    let world = World::new();
    world.run(async |fleet| {
        let mut request = keyed("k");
        request.sandbox.env.insert("EGRESS_INSIDE".parse().unwrap(), EnvValue::Text("ask".into()));
        let made = create(&fleet, request).await.unwrap();
        assert_eq!((made.sandbox.egress.as_str(), made.sandbox.ports.as_slice()), ("ask", [3000].as_slice()));
    });
}

#[test]
fn a_life_has_the_environment_of_who_started_it() {
    let world = World::new();
    world.run(async |fleet| {
        let with = |path: &str| {
            let environment = [("PATH".to_string(), path.to_string())].into();
            belljar_api::CreateSandbox { environment, ..keyed("k") }
        };
        let made = create(&fleet, with("/one")).await.unwrap();
        create(&fleet, with("/two")).await.expect("who joins does not differ by its environment");
        fleet.stop(&made.sandbox.name, &owner()).await.unwrap();
        create(&fleet, with("/two")).await.unwrap();
        fleet.stop(&made.sandbox.name, &owner()).await.unwrap();
        create(&fleet, keyed("k")).await.unwrap();
        let paths: Vec<_> = world.started().iter().map(|plan| plan.environment["PATH"].clone()).collect();
        assert_eq!(paths, ["/one", "/two", "/two"]);
    });
}

//! What a sweep takes and what it leaves.

use crate::world::*;
use belljar_api::State;
use belljar_fleet::*;
use belljar_spec::ErrorCode;
use std::fs;

#[test]
fn a_sweep_for_show_changes_nothing() {
    let world = World::new();
    world.run(async |fleet| {
        create(&fleet, ephemeral("e")).await.unwrap();
        create(&fleet, keyed("p")).await.unwrap();
    });
    world.process("e").unwrap().die();
    world.process("p").unwrap().die();
    world.alone(async || {
        let before = world.on_disk();
        for dry_run in [true, true, false] {
            let swept = sweep_alone(&world.directory(), dry_run).await.unwrap();
            assert_eq!((swept.dry_run, swept.swept.len()), (dry_run, 2));
            assert!(!dry_run || world.on_disk() == before);
        }
        assert_eq!(world.on_disk(), [name_of("p")]);
        assert_eq!(sweep_alone(&world.directory(), false).await.unwrap().swept, []);
    });
}

#[test]
fn the_living_and_the_stopped_are_left_alone() {
    let world = World::new();
    world.run(async |fleet| {
        create(&fleet, ephemeral("e")).await.unwrap();
        let made = create(&fleet, keyed("p")).await.unwrap();
        fleet.stop(&made.sandbox.name, &owner()).await.unwrap();
        assert_eq!(fleet.sweep(false).await.unwrap().swept, []);
    });
    world.alone(async || assert_eq!(sweep_alone(&world.directory(), false).await.unwrap().swept, []));
    assert_eq!((world.living(), world.on_disk().len()), (1, 2));
}

#[test]
fn an_unreported_death_is_found() {
    for (request, action) in [(ephemeral("k"), "removed"), (keyed("k"), "stopped")] {
        let world = World::new();
        world.run(async |fleet| {
            create(&fleet, request).await.unwrap();
            world.process("k").unwrap().die_unnoticed();
            let dry = fleet.sweep(true).await.unwrap();
            assert_eq!((dry.swept.len(), world.on_disk().len()), (1, 1));
            let swept = fleet.sweep(false).await.unwrap().swept;
            assert_eq!(swept.iter().map(|swept| swept.action.as_str()).collect::<Vec<_>>(), [action]);
            assert_eq!(world.on_disk().len(), usize::from(action == "stopped"));
            assert_eq!(fleet.sweep(false).await.unwrap().swept, []);
        });
        world.must_be_right();
    }
}

#[test]
fn what_a_kill_left_in_the_middle_is_taken_and_what_is_not_ours_is_left() {
    let world = World::new();
    let sandboxes = world.directory().join("sandboxes");
    for name in [".new-bj-x-1", ".gone-bj-y-2/workspace/deep", "bj-nothing-in-it", "somebody-elses"] {
        fs::create_dir_all(sandboxes.join(name)).unwrap();
    }
    fs::create_dir_all(world.directory().join("volumes/v")).unwrap();
    let newer = sandboxes.join(name_of("newer"));
    fs::create_dir_all(&newer).unwrap();
    fs::write(newer.join("record.json"), "{\"version\":99}").unwrap();
    world.run(async |fleet| {
        let mut left = vec!["bj-nothing-in-it".to_string(), name_of("newer"), "somebody-elses".into()];
        left.sort();
        assert_eq!(world.on_disk(), left);
        assert_eq!(fleet.unknown().len(), 2);
        let error = create(&fleet, keyed("newer")).await.unwrap_err();
        assert_eq!((error.code, error.hint.is_some()), (ErrorCode::NotSupported, true));
        assert_eq!(refused(fleet.delete(&name_of("newer"), &owner()).await), Some(ErrorCode::NotSupported));
        let reported = fleet.list(&Filter::default(), &owner()).await.items;
        assert_eq!(reported.len(), 2);
        assert!(
            reported.iter().all(|info| info.state == State::Stopped && info.fault.is_some()),
            "{reported:?}"
        );
        assert_eq!(fleet.get(&name_of("newer"), &owner()).await.unwrap().name, name_of("newer"));
    });
    assert_eq!(fs::read_to_string(newer.join("record.json")).unwrap(), "{\"version\":99}");
    assert!(exists(&world.directory().join("volumes/v")));
}

#[test]
fn what_is_not_understood_is_told_of_and_goes_when_its_owner_insists() {
    for damage in ["{\"version\":99,\"key\":\"k\"}", "{\"vers"] {
        let world = World::new();
        let name = name_of("k");
        world.run(async |fleet| drop(create(&fleet, keyed("k")).await.unwrap()));
        fs::write(world.directory().join("sandboxes").join(&name).join("record.json"), damage).unwrap();
        world.run(async |fleet| {
            let reported = fleet.list(&Filter::default(), &owner()).await.items;
            assert_eq!(
                reported.iter().map(|info| (&info.name, info.state)).collect::<Vec<_>>(),
                [(&name, State::Live)]
            );
            assert!(reported[0].fault.is_some());
            let refused = refused(fleet.delete(&name, &owner()).await);
            assert!(matches!(refused, Some(ErrorCode::StateFailed | ErrorCode::NotSupported)), "{refused:?}");
            assert!(world.process("k").is_some());
            fleet.delete_anyway(&name, &owner()).await.unwrap();
            assert!(world.process("k").is_none());
            assert_eq!(fleet.list(&Filter::default(), &owner()).await.items, []);
            assert_eq!(world.on_disk().len(), 0);
            create(&fleet, keyed("k")).await.unwrap();
        });
    }
}

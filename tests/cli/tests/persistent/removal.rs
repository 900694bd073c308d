//! A sandbox is removed: no work in it is lost without a message, and everything can be removed.

use crate::persistent::home::Home;

fn layers(home: &Home) -> usize {
    home.json(&["layers", "--json"]).as_array().unwrap().len()
}

#[test]
fn changes_beside_a_folder_are_not_lost_unsaid() {
    for stopped in [true, false] {
        let home = Home::ready();
        let name = home.run(&["start", "--overlay"]).stdout.trim().to_string();
        assert_eq!(home.run(&["exec", "--", "sh", "-c", "echo work > w; echo more > m"]).code, 0);
        if stopped {
            assert_eq!(home.run(&["stop"]).code, 0);
        }
        let refused = home.run(&["rm", "."]);
        assert_eq!(refused.code, 126, "{}", refused.stderr);
        assert!(refused.stderr.contains("has 2 changes that are not in its folder"), "{}", refused.stderr);
        assert!(refused.stderr.contains("belljar rm --force"), "{}", refused.stderr);
        assert_eq!(layers(&home), 1);
        let forced = home.run(&["rm", "--force", "."]);
        assert_eq!(
            (forced.code, forced.stderr),
            (0, format!("belljar: {name} is gone, and with it 2 changes that are not in its folder\n"))
        );
        assert_eq!(layers(&home), 0, "stopped: {stopped}");
    }
}

#[test]
fn a_layer_without_changes_is_removed_with_its_sandbox() {
    let home = Home::ready();
    home.run(&["start", "--overlay"]);
    home.run(&["stop"]);
    let gone = home.run(&["rm", "."]);
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    assert_eq!(layers(&home), 0);
}

#[test]
fn what_is_not_understood_is_shown_and_can_be_removed() {
    for damage in ["{\"version\":99}", "{\"vers"] {
        let home = Home::ready();
        let name = home.run(&["start"]).stdout.trim().to_string();
        let place = home.path("state/belljar/fleet/sandboxes").join(&name);
        home.kill_daemon();
        std::fs::write(place.join("record.json"), damage).unwrap();
        let all = home.json(&["list", "--json"]);
        assert_eq!((&all[0]["name"], &all[0]["state"]), (&name.as_str().into(), &"live".into()));
        assert!(all[0]["fault"].as_str().is_some_and(|fault| fault.contains("record.json")), "{all}");
        let refused = home.run(&["stop", &name]);
        assert_ne!(refused.code, 0);
        assert!(refused.stderr.contains("belljar rm --force"), "{}", refused.stderr);
        assert_ne!(home.run(&["rm", &name]).code, 0);
        let gone = home.run(&["rm", "--force", &name]);
        assert_eq!(gone.code, 0, "{}", gone.stderr);
        assert!(!place.exists());
        assert_eq!(home.json(&["list", "--json"]), serde_json::json!([]));
        assert_eq!(home.run(&["start"]).code, 0);
    }
}

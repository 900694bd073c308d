//! What is kept.

use crate::machine::{Machine, inside, name};
use belljar_workspace::shelf::{self, Outcome, ShelfError};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn what_is_kept_is_listed_and_removed() {
    let machine = Machine::new();
    let made = machine.provision("work");
    let other = machine.provision("other/one");
    inside(&made).commit("mine", "", "mine");
    inside(&made).git(&["pack-refs", "--all"]);
    drop(other);
    let mut list = shelf::list(&machine.state()).unwrap();
    list.sort_by(|a, b| a.branch.cmp(&b.branch));
    let shown: Vec<_> = list.iter().map(|kept| (kept.branch.as_str(), kept.on_host, kept.in_use)).collect();
    assert_eq!(shown, [("other/one", true, false), ("work", false, true)]);
    let shelf = made.shelf.clone();
    drop(made);
    shelf::remove(&machine.state(), &shelf, Some(&name("work"))).unwrap();
    assert!(matches!(
        shelf::remove(&machine.state(), &shelf, Some(&name("work"))),
        Err(ShelfError::Unknown(_))
    ));
    let made = machine.provision("work");
    assert_eq!((made.outcome, inside(&made).git(&["log", "--format=%s"])), (Outcome::Made, "first".into()));
    drop(made);
    shelf::remove(&machine.state(), &shelf, None).unwrap();
    assert!(shelf::list(&machine.state()).unwrap().is_empty());
    assert!(matches!(shelf::remove(&machine.state(), "../host", None), Err(ShelfError::Unknown(_))));
}

#[test]
fn only_we_can_enter() {
    let machine = Machine::new();
    drop(machine.provision("work"));
    let mode = fs::metadata(machine.shelf()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

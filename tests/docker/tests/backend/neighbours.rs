//! Several users of one Docker: each belljar removes its own containers, and nothing else.

use belljar_tests_docker::{Dockerd, Work, busybox, eventually};

#[test]
fn a_sweep_takes_what_is_ours_and_nothing_of_a_neighbours() {
    let Some(daemon) = Dockerd::start() else { return };
    let (ours, theirs) = (Work::with(&daemon), Work::with(&daemon));
    busybox(&daemon.host(), "neighbour:1");
    daemon.docker(&[
        "run",
        "--detach",
        "--network",
        "none",
        "--name",
        "somebodys",
        "neighbour:1",
        "sleep",
        "1000",
    ]);

    // Of both, one that lives and one whose belljar was killed.
    let mut living = [ours.holds("docker"), theirs.holds("docker")];
    let of_the_living = daemon.containers();
    assert_eq!(of_the_living.len(), 3, "{of_the_living:?}");
    for work in [&ours, &theirs] {
        let mut dead = work.holds("docker");
        dead.kill().unwrap();
        dead.wait().unwrap();
    }
    let whose = |work: &Work<'_>| -> Vec<String> {
        let filter = format!("label=belljar.owner={}", work.owner());
        let names = daemon.docker(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]);
        names.lines().map(String::from).collect()
    };
    let before = whose(&theirs);

    ours.succeeds("docker", &["--", "true"]);
    assert!(eventually(|| whose(&ours).len() == 1), "ours: {:?}", whose(&ours));
    // A container ends by itself when its belljar is gone; what is left of it is not ours to take.
    assert!(whose(&theirs).iter().all(|one| before.contains(one)));
    for name in &of_the_living {
        let state = daemon.docker(&["inspect", "--format", "{{.State.Running}}", name]);
        assert_eq!(state, "true", "{name} was removed although it belongs to another user");
    }
    for one in &mut living {
        assert!(one.try_wait().unwrap().is_none(), "a sandbox that lived has ended");
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

#[test]
fn a_container_says_whose_it_is() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    let mut child = work.holds("docker");
    let name = daemon.containers().pop().unwrap();
    let label = |label: &str| {
        daemon.docker(&["inspect", "--format", &format!("{{{{index .Config.Labels \"{label}\"}}}}"), &name])
    };
    assert_eq!(name, format!("belljar-{}", label("belljar.sandbox")));
    assert_eq!(label("belljar.owner"), work.owner());
    child.kill().unwrap();
    child.wait().unwrap();
}

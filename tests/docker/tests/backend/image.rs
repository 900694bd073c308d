//! What an image says of itself counts for nothing: neither its name, nor its links, nor its volumes.

use belljar_tests_docker::{Dockerd, Registry, Work, busybox, eventually};
use belljar_tests_hosts::have;
use serde_json::Value;
use std::fs;

#[test]
fn links_of_an_image_do_not_lead_files_elsewhere() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    fs::write(work.folder().join("mine"), "kept").unwrap();
    busybox(&daemon.host(), "plain:1");
    for (tag, changes) in [
        ("tmp:1", "RUN rm -r /tmp && ln -s /workspace /tmp"),
        ("home:1", "RUN ln -s /workspace /home"),
        ("above:1", "RUN mkdir /elsewhere && ln -s /elsewhere /workspace"),
        // Process 1 would be a file of the workspace, or knock elsewhere.
        ("guest:1", "RUN mkdir -p /run/.belljar && ln -s /workspace/mine /run/.belljar/guest"),
        ("door:1", "RUN mkdir -p /run/.belljar && ln -s /workspace /run/.belljar/door"),
        ("run:1", "RUN ln -s /workspace /run"),
    ] {
        build(&daemon, &work, tag, &format!("FROM plain:1\n{changes}\n"));
        for backend in ["docker", "docker+runsc"] {
            let script = "echo x > /tmp/x; echo y > $HOME/y; ls /workspace; cat /workspace/mine";
            let output =
                work.run(backend, &["--json", "--image", tag, "--", "sh", "-c", script]).output().unwrap();
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(printed["error"]["code"], "image_refused", "{backend} {tag}: {output:?}");
        }
        let mut left: Vec<_> = fs::read_dir(work.folder()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.retain(|name| name != "mine");
        assert!(left.is_empty(), "{tag} left {left:?} in the folder");
    }
    assert_eq!(fs::read_to_string(work.folder().join("mine")).unwrap(), "kept");
    assert_eq!(work.succeeds("docker", &["--image", "plain:1", "--", "cat", "/etc/made-by"]), "the tests\n");
}

#[test]
fn volumes_of_an_image_are_private_and_none_of_dockers() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    busybox(&daemon.host(), "plain:1");
    build(&daemon, &work, "volume:1", "FROM plain:1\nVOLUME /data\n");
    for backend in ["docker", "docker+runsc"] {
        let script = "echo x > /data/x && cat /data/x";
        assert_eq!(work.succeeds(backend, &["--image", "volume:1", "--", "sh", "-c", script]), "x\n");
        assert_eq!(daemon.docker(&["volume", "ls", "--quiet"]), "", "{backend}");
    }
}

#[test]
fn a_strangers_image_is_not_taken_for_the_hosts_root() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    let requested = ["--", "sh", "-c", "test -e /planted && echo planted || echo own"];
    assert_eq!(work.succeeds("docker", &requested), "own\n");
    let name = daemon.docker(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "belljar/host-root"]);
    assert!(eventually(|| daemon.containers().is_empty()));
    daemon.docker(&["image", "rm", &name]);
    build(&daemon, &work, &name, "FROM scratch\nCOPY planted /planted\nVOLUME /data\n");
    assert_eq!(work.succeeds("docker", &requested), "own\n");
}

#[test]
fn an_image_that_is_not_here_is_pulled_and_that_is_said_once() {
    if !have(["docker-registry"]) {
        return;
    }
    let Some(daemon) = Dockerd::start() else { return };
    let (work, registry) = (Work::with(&daemon), Registry::new());
    let name = registry.name("plain:1");
    busybox(&daemon.host(), &name);
    daemon.docker(&["push", "--quiet", &name]);
    daemon.docker(&["image", "rm", &name]);
    for (backend, root) in [("docker", name.clone()), ("native", format!("oci:{name}"))] {
        let option = if backend == "docker" { "--image" } else { "--root" };
        let run = || work.run(backend, &[option, &root, "--", "cat", "/etc/made-by"]).output().unwrap();
        for is_reported in [true, false] {
            let output = run();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.stdout, b"the tests\n", "{backend}: {printed}");
            assert_eq!(
                printed.contains(&format!("the image {name} is not here yet")),
                is_reported,
                "{backend}: {printed}"
            );
            assert!(!printed.contains('\r'), "{backend} draws a progress bar without a terminal: {printed}");
        }
    }
    let nowhere = registry.name("nothing:1");
    for (backend, words) in
        [("docker", ["--image", &nowhere]), ("native", ["--root", &format!("oci:{nowhere}")])]
    {
        let output = work.run(backend, &[words[0], words[1], "--", "true"]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{backend}: {printed}");
        assert!(printed.contains(&nowhere) && printed.contains("hint:"), "{backend}: {printed}");
    }
}

fn build(daemon: &Dockerd, work: &Work<'_>, tag: &str, dockerfile: &str) {
    let folder = work.root().join("build");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("Dockerfile"), dockerfile).unwrap();
    fs::write(folder.join("planted"), "").unwrap();
    let words = ["build", "--quiet", "--network", "none", "--tag", tag, folder.to_str().unwrap()];
    let output = daemon.command(&words).env("DOCKER_BUILDKIT", "0").output().unwrap();
    assert!(output.status.success(), "{tag}: {output:?}");
}

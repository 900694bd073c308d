//! The image of a repository. Its base is this machine's busybox, which is enough to see what is made of it.

use crate::build::belljar::belljar;
use belljar_tests_docker::{Dockerd, busybox};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

#[test]
fn a_repository_without_a_dockerfile_uses_the_base_and_is_told_so() {
    let Some(docker) = Dockerd::start() else { return };
    let folder = TempDir::new().unwrap();
    let printed = belljar(&docker, folder.path(), &["build"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (0, "belljar-base:latest\n"));
    assert!(
        printed.stderr.contains("there is no .belljar/Dockerfile, so the base image is used"),
        "{}",
        printed.stderr
    );
    assert!(printed.stderr.contains("belljar images build-base --tag latest"), "{}", printed.stderr);
    let printed = belljar(&docker, folder.path(), &["build", "--base-tag", "v7", "--json"]).json();
    assert_eq!((&printed["outcome"], &printed["image"]), (&"base".into(), &"belljar-base:v7".into()));
    assert_eq!(printed["here"], false);
}

#[test]
fn a_repository_is_built_from_its_own_files_and_no_others() {
    let Some(docker) = Dockerd::start() else { return };
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "of the host").unwrap();
    let place = TempDir::new().unwrap();
    let folder = place.path().join("My Project");
    fs::create_dir_all(folder.join(".belljar")).unwrap();
    fs::create_dir_all(folder.join("data/keep")).unwrap();
    for (name, text) in [
        (
            ".belljar/Dockerfile",
            "ARG BASE_IMAGE_TAG=latest\nFROM belljar-base:${BASE_IMAGE_TAG}\nCOPY . /made\n",
        ),
        (".dockerignore", "data\n!data/keep\n*.key\n"),
        ("code", "of the folder"),
        ("private.key", "x"),
        ("data/huge", "x"),
        ("data/keep/it", "x"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    symlink(outside.path().join("secret"), folder.join("link")).unwrap();
    let build = |words: &[&str]| belljar(&docker, &folder, &[&["build"], words].concat());

    // No image of that name is looked for in a registry.
    let printed = build(&[]);
    assert_eq!(printed.code, 125);
    assert!(
        printed.stderr.contains("is not here")
            && printed.stderr.contains("belljar images build-base --tag latest"),
        "{}",
        printed.stderr
    );

    busybox(&docker.host(), "belljar-base:v3");
    let printed = build(&["--base-tag", "v3"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let image = printed.stdout.trim_end();
    assert!(image.starts_with("belljar-my-project-") && image.ends_with(":v3"), "{image}");
    assert!(printed.stderr.contains(&format!("rootfs = \"oci:{image}\"")), "{}", printed.stderr);
    let inside =
        |words: &[&str]| docker.docker(&[&["run", "--rm", "--network", "none", image], words].concat());
    assert_eq!(
        inside(&["sh", "-c", "cd /made; echo * data/*; cat code"]),
        "code data link data/keep\nof the folder"
    );
    let linked =
        docker.command(&["run", "--rm", "--network", "none", image, "cat", "/made/link"]).output().unwrap();
    assert!(!linked.status.success() && linked.stdout.is_empty(), "{linked:?}");

    // The same files are the same image; other ones are not.
    let again = build(&["--base-tag", "v3", "--json"]).json();
    assert_eq!(again["image"], image);
    assert_eq!(again["cached"].as_u64().unwrap() + 2, again["steps"].as_u64().unwrap());
    assert_eq!(build(&["--base-tag", "v3", "--no-cache", "--json"]).json()["cached"], 0);
    fs::write(folder.join("code"), "changed").unwrap();
    assert_ne!(build(&["--base-tag", "v3", "--json"]).json()["id"], again["id"]);
    assert_eq!(inside(&["cat", "/made/code"]), "changed");

    // What belljar does not follow is said, and no reason to refuse.
    let text = "FROM belljar-base:v3\nENTRYPOINT [\"/bin/sh\"]\nUSER 7\n";
    fs::write(folder.join(".belljar/Dockerfile"), text).unwrap();
    let printed = build(&["--base-tag", "v3", "--json"]).json();
    let warnings = printed["warnings"].to_string();
    assert!(
        warnings.contains("ENTRYPOINT") && warnings.contains("`7`") && warnings.contains("BASE_IMAGE_TAG"),
        "{warnings}"
    );

    fs::write(
        folder.join(".belljar/Dockerfile"),
        "FROM belljar-base:v3\nRUN echo before; echo why >&2; exit 3\n",
    )
    .unwrap();
    let printed = build(&["--base-tag", "v3"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (1, ""));
    for expected in ["before", "why", "step 2 of", "RUN echo before", "it ended with code 3"] {
        assert!(printed.stderr.contains(expected), "{expected}: {}", printed.stderr);
    }
    fs::write(folder.join(".belljar/Dockerfile"), "FORM x\n").unwrap();
    let printed = build(&["--base-tag", "v3"]);
    assert_eq!(printed.code, 1);
    assert!(
        printed.stderr.contains("nothing was built") && printed.stderr.contains("FORM"),
        "{}",
        printed.stderr
    );

    // A Dockerfile that is a link could be any other file.
    fs::remove_file(folder.join(".belljar/Dockerfile")).unwrap();
    symlink(outside.path().join("secret"), folder.join(".belljar/Dockerfile")).unwrap();
    let printed = build(&["--base-tag", "v3"]);
    assert_eq!(printed.code, 126, "{}", printed.stderr);
    assert!(printed.stderr.contains("links are not followed"), "{}", printed.stderr);
}

#[test]
fn init_writes_a_dockerfile_that_can_be_built_as_it_is() {
    let Some(docker) = Dockerd::start() else { return };
    busybox(&docker.host(), "belljar-base:latest");
    let folder = TempDir::new().unwrap();
    let printed = belljar(&docker, folder.path(), &["init", "--dockerfile"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let text = fs::read_to_string(folder.path().join(".belljar/Dockerfile")).unwrap();
    assert!(text.contains("\nARG BASE_IMAGE_TAG=latest\nFROM belljar-base:${BASE_IMAGE_TAG}\n"), "{text}");
    assert_eq!(belljar(&docker, folder.path(), &["build"]).code, 0);
    fs::write(folder.path().join(".belljar/Dockerfile"), "FROM mine").unwrap();
    let printed = belljar(&docker, folder.path(), &["init", "--dockerfile"]);
    assert!(printed.stderr.contains("was there, and stays"), "{}", printed.stderr);
    assert_eq!(fs::read_to_string(folder.path().join(".belljar/Dockerfile")).unwrap(), "FROM mine");
}

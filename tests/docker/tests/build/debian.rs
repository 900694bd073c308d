//! A real distribution as a root: Debian as debootstrap makes it from Debian's packages, built into a repository's image, imported into
//! belljar's own store, and used as a directory. `./dev test` makes it, in the folder that BELLJAR_TEST_DEBIAN names.

use belljar_tests_docker::{Dockerd, Work};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_debian_made_by_debootstrap_is_a_root_on_every_way() {
    let Some(debian) = debian() else { return };
    let Some(docker) = Dockerd::start() else { return };
    let work = Work::with(&docker);
    let folder = work.folder();
    let packed = Command::new("tar")
        .args(["--create", "--exclude=./var/cache/apt/archives/*.deb", "--directory"])
        .arg(&debian)
        .arg("--file")
        .args([folder.join("root.tar")])
        .arg(".")
        .status()
        .unwrap();
    assert!(packed.success());
    fs::create_dir(folder.join(".belljar")).unwrap();
    let dockerfile = "FROM scratch\nADD root.tar /\nRUN dpkg --audit && apt-get --version > /built\n";
    fs::write(folder.join(".belljar/Dockerfile"), dockerfile).unwrap();
    let belljar = |words: &[&str]| {
        let output = work.belljar().args(words).current_dir(&folder).output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {wrong}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };

    let image = belljar(&["images", "build"]);
    let image = image.trim_end();
    fs::remove_file(folder.join("root.tar")).unwrap();
    let saved = work.root().join("saved.tar");
    docker.docker(&["save", "--output", saved.to_str().unwrap(), image]);
    belljar(&["images", "import", saved.to_str().unwrap(), "debian:built"]);

    // What the real tools of that system say, inside. The user is the sandbox's on each way.
    let script = ". /etc/os-release; dpkg --audit; dpkg-query --show --showformat '${db:Status-Status}\\n' | sort -u; echo $ID; id -un";
    let directory = debian.to_str().unwrap();
    for words in [
        ["--backend", "docker", "--image", image],
        ["--backend", "native", "--image", "debian:built"],
        ["--backend", "native", "--root", directory],
    ] {
        let printed = belljar(&[&["run"], &words[..], &["--", "sh", "-c", script]].concat());
        assert_eq!(printed, "installed\ndebian\nagent\n", "{words:?}");
    }
    let built = belljar(&["run", "--image", "debian:built", "--", "cat", "/built"]);
    assert!(built.starts_with("apt "), "{built}");
}

/// The Debian, or nothing where `./dev test` could not make one.
#[expect(clippy::print_stderr, reason = "it is for the person who runs the tests")]
fn debian() -> Option<PathBuf> {
    let folder = std::env::var_os("BELLJAR_TEST_DEBIAN").map(PathBuf::from);
    let found = folder.filter(|folder| folder.join("etc/os-release").is_file());
    if found.is_none() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "BELLJAR_TEST_DEBIAN names no Debian");
        eprintln!("skipped: BELLJAR_TEST_DEBIAN names no Debian");
    }
    found
}

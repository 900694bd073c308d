//! `--build` and `--base-tag`: sandboxes of a folder that are made from its own image.

use belljar_tests_docker::{Dockerd, Work, busybox};
use serde_json::Value;
use std::fs;

/// belljar in the folder: code, standard output and standard error.
fn belljar(work: &Work<'_>, words: &[&str]) -> (i32, String, String) {
    let output = work.belljar().args(words).current_dir(work.folder()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn succeeds(work: &Work<'_>, words: &[&str]) -> String {
    let (code, stdout, stderr) = belljar(work, words);
    assert_eq!(code, 0, "{words:?}: {stdout} {stderr}");
    stdout
}

#[test]
fn sandboxes_of_a_folder_are_made_from_its_own_image() {
    let Some(docker) = Dockerd::start() else { return };
    let work = Work::with(&docker);
    let _daemon = Daemon(&work);
    let dockerfile = work.folder().join(".belljar/Dockerfile");
    fs::create_dir(work.folder().join(".belljar")).unwrap();
    fs::write(
        &dockerfile,
        "ARG BASE_IMAGE_TAG=latest\nFROM belljar-base:${BASE_IMAGE_TAG}\nRUN echo mine > /mark\n",
    )
    .unwrap();
    busybox(&docker.host(), "belljar-base:v3");

    // Nothing is taken that was not built.
    let (code, _, stderr) = belljar(&work, &["start", "--base-tag", "v3"]);
    assert_eq!(code, 125, "{stderr}");
    assert!(
        stderr.contains("is not built") && stderr.contains("belljar images build --base-tag v3"),
        "{stderr}"
    );

    let made: Value =
        serde_json::from_str(&succeeds(&work, &["sandbox", "init", "--build", "--base-tag", "v3", "--json"]))
            .unwrap();
    let image = made["image"].as_str().unwrap().to_string();
    assert!(image.starts_with("belljar-work-") && image.ends_with(":v3"), "{made}");

    // What was built is used without another build.
    let plan: Value =
        serde_json::from_str(&succeeds(&work, &["sandbox", "plan", "--base-tag", "v3"])).unwrap();
    assert_eq!(plan["backend"], "docker", "{plan}");
    let id = docker.docker(&["image", "inspect", "--format", "{{.Id}}", &image]);
    assert!(plan["program"].to_string().contains(id.trim_end()), "{id}: {}", plan["program"]);
    let script = work.root().join("script");
    fs::write(&script, "cat /mark\n").unwrap();
    let mut shell = work.belljar();
    shell
        .args(["shell", "--base-tag", "v3"])
        .current_dir(work.folder())
        .stdin(fs::File::open(&script).unwrap());
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\n", "{output:?}");

    let name = succeeds(&work, &["start", "--build", "--base-tag", "v3", "--volume", "cache:/data/cache"]);
    assert_eq!(succeeds(&work, &["exec", "--", "cat", "/mark"]), "mine\n");
    succeeds(&work, &["exec", "--", "sh", "-c", "echo kept > /data/cache/file"]);
    succeeds(&work, &["rm", "--force", "."]);
    // A volume outlives its sandbox.
    let again = succeeds(&work, &["start", "--base-tag", "v3", "--volume", "cache"]);
    assert_eq!(name, again);
    assert_eq!(succeeds(&work, &["exec", "--", "cat", "/volumes/cache/file"]), "kept\n");
    succeeds(&work, &["rm", "--force", "."]);

    // Without an image there is no sandbox.
    fs::write(&dockerfile, "FROM belljar-base:v3\nRUN exit 3\n").unwrap();
    let (code, stdout, stderr) = belljar(&work, &["start", "--build", "--base-tag", "v3"]);
    assert_eq!((code, &*stdout), (125, ""), "{stderr}");
    assert!(stderr.contains("it ended with code 3") && stderr.contains("was not built"), "{stderr}");
    let (code, _, stderr) = belljar(&work, &["start", "--build", "--image", "alpine:3.22"]);
    assert_eq!(code, 126, "{stderr}");
    assert!(stderr.contains("omit `--backend`"), "{stderr}");
}

/// Ends the daemon that `belljar start` started, also where the test fails.
struct Daemon<'w, 'd>(&'w Work<'d>);

impl Drop for Daemon<'_, '_> {
    fn drop(&mut self) {
        belljar(self.0, &["rm", "--force", "."]);
        belljar(self.0, &["daemon", "stop"]);
    }
}

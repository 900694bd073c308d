//! The image that others are made from.

use crate::build::belljar::{Said, belljar};
use crate::build::node;
use crate::build::npm::Npm;
use belljar_tests_docker::{Dockerd, Registry};
use belljar_tests_hosts::have;
use serde_json::json;
use tempfile::TempDir;

/// A Docker with an image of node, and a registry of packages.
struct Place {
    docker: Dockerd,
    npm: Npm,
    folder: TempDir,
}

impl Place {
    fn new() -> Option<Place> {
        if !have(node::NEEDED) {
            return None;
        }
        let place = Place { docker: Dockerd::start()?, npm: Npm::start(), folder: TempDir::new().unwrap() };
        node::image(&place.docker, "node-here:24");
        Some(place)
    }

    fn build(&self, words: &[&str]) -> Said {
        let registry = self.npm.address();
        let mut all = vec!["build-base", "--npm-registry", &registry, "--network", "host"];
        all.extend(words);
        belljar(&self.docker, self.folder.path(), &all)
    }

    /// What a command in the image says.
    fn inside(&self, image: &str, words: &[&str]) -> String {
        let mut all = vec!["run", "--rm", "--network", "none", image];
        all.extend(words);
        self.docker.docker(&all)
    }
}

/// One after the other with one Docker: what one has built, the next one finds.
#[test]
fn a_base_is_whole_and_is_built_once_for_the_same_versions() {
    let Some(place) = Place::new() else { return };
    floating_versions_are_settled_first_so_that_the_same_ones_are_not_built_again(&place);
    it_has_agents_and_a_user(&place);
    it_comes_from_a_mirror_or_from_the_daemon_itself_and_from_nowhere_else(&place);
    what_does_not_come_out_leaves_no_image(&place);
}

fn floating_versions_are_settled_first_so_that_the_same_ones_are_not_built_again(place: &Place) {
    let words = ["--base", "node-here:24", "--opencode-version", "^1.0", "--json"];

    let first = place.build(&words);
    assert_eq!(first.code, 0, "{} {}", first.stdout, first.stderr);
    let first = first.json();
    assert_eq!(first["outcome"], "built");
    assert_eq!(first["image"], "belljar-base:latest");
    let versions = json!({
        "ast-grep": "0.3.0", "claude-code": "2.0.1", "codex": "0.2.0", "git-delta": "distribution", "opencode": "1.4.0",
    });
    assert_eq!(first["versions"], versions);
    let fetched = place.npm.fetched().len();
    assert_eq!(fetched, 4);

    let second = place.build(&words).json();
    assert_eq!(second["id"], first["id"], "the same versions are the same image");
    assert_eq!(place.npm.fetched().len(), fetched, "nothing is installed again");
    // All but the two that nothing can be done about: an argument in front, and what it is made from.
    assert_eq!(second["cached"].as_u64().unwrap() + 2, second["steps"].as_u64().unwrap());

    place.npm.publish("@openai/codex", "0.3.0");
    let third = place.build(&words).json();
    assert_ne!(third["id"], first["id"]);
    assert_eq!(third["versions"]["codex"], "0.3.0");
    assert_eq!(
        place.npm.fetched()[fetched..],
        ["@openai/codex-0.3.0", "@anthropic-ai/claude-code-2.0.1"],
        "what comes before the new version is kept"
    );
    assert_eq!(place.inside("belljar-base:latest", &["codex"]), "codex 0.3.0");
}

fn it_has_agents_and_a_user(place: &Place) {
    let said = place.build(&["--base", "node-here:24", "--tag", "v1"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(said.stdout, "belljar-base:v1\n");
    assert!(said.stderr.contains("] RUN : Claude Code; "), "{}", said.stderr);
    assert!(!said.stderr.contains('\x1b'), "{}", said.stderr);

    let image = "belljar-base:v1";
    for (program, version) in [
        ("claude", "2.0.1"),
        ("codex", "0.3.0"),
        ("opencode", "2.0.0"),
        ("ast-grep", "0.3.0"),
        ("sg", "0.3.0"),
    ] {
        assert_eq!(place.inside(image, &[program]), format!("{program} {version}"));
    }
    assert_eq!(place.inside(image, &["id"]), "uid=1000(agent) gid=1000(agent) groups=1000(agent)");
    assert_eq!(place.inside(image, &["ls", "/home"]), "agent");
    let format = "{{json .Config.Entrypoint}} {{.Config.User}} {{.Config.WorkingDir}} {{index .Config.Labels \"belljar.image\"}}";
    let config = place.docker.docker(&["image", "inspect", "--format", format, image]);
    assert_eq!(
        config, "[\"/usr/bin/env\"] agent /workspace base",
        "the entry point is the one of what it is made from"
    );
}

/// Nor does it remove the one of that name that was there.
fn what_does_not_come_out_leaves_no_image(place: &Place) {
    let image = "belljar-base:v1";
    place.npm.publish("@anthropic-ai/claude-code", "6.6.6");
    place.npm.publish("@openai/codex", "13.0.0");
    for (words, why) in [
        (["--base", "node-here:24", "--tag", "v1", "--codex-version", "0.2.0"], "404"),
        (["--base", "node-here:24", "--tag", "v1", "--codex-version", "13"], "no native binary"),
    ] {
        let said = place.build(&words);
        assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{}", said.stderr);
        assert!(said.stderr.contains(why), "{}", said.stderr);
        assert!(
            said.stderr.contains("belljar: step ") && said.stderr.contains(" failed, and there is no image"),
            "{}",
            said.stderr
        );
        assert_eq!(place.inside(image, &["claude"]), "claude 2.0.1");
    }
    let failed =
        place.build(&["--base", "node-here:24", "--tag", "v2", "--codex-version", "13.0.0", "--json"]);
    assert_eq!(failed.code, 1);
    let failed = failed.json();
    assert_eq!(failed["outcome"], "failed");
    assert!(failed["failed"]["output"].as_str().unwrap().contains("no native binary"), "{failed:#}");
    assert!(failed["failed"]["instruction"].as_str().unwrap().contains("@openai/codex"), "{failed:#}");
    assert!(failed["failed"]["step"].as_u64().unwrap() > 5, "{failed:#}");
    assert_eq!(place.docker.docker(&["images", "--quiet", "belljar-base:v2"]), "");
    assert_eq!(place.docker.containers(), Vec::<String>::new(), "no step leaves a container");
}

fn it_comes_from_a_mirror_or_from_the_daemon_itself_and_from_nowhere_else(place: &Place) {
    if !have(["docker-registry"]) {
        return;
    }
    let registry = Registry::new();
    let there = registry.name("library/node-there:24");
    place.docker.docker(&["tag", "node-here:24", &there]);
    place.docker.docker(&["push", "--quiet", &there]);
    place.docker.docker(&["rmi", &there]);

    let mirror = there.split_once('/').unwrap().0;
    let said = place.build(&["--base", "node-there:24", "--pull-from", mirror, "--json"]);
    assert_eq!(said.code, 0, "{} {}", said.stdout, said.stderr);
    assert_eq!(said.json()["from"], there.as_str());
    drop(registry);
    // It is here now, and no registry is asked.
    assert_eq!(place.build(&["--base", &there]).code, 0);

    let said = place.build(&["--base", &there.replace("node-there", "node-nowhere")]);
    assert_eq!(said.code, 125);
    assert!(said.stderr.contains("could not pull") && said.stderr.contains("--pull-from"), "{}", said.stderr);

    let said = place.build(&["--base", "node-here:24", "--claude-code-version", "^9"]);
    assert_eq!(said.code, 126);
    assert!(said.stderr.contains("no version of `@anthropic-ai/claude-code` fits `^9`"), "{}", said.stderr);
}

//! The image that others are made from.

use crate::build::belljar::{Finished, belljar};
use crate::build::node;
use crate::build::npm::Npm;
use belljar_tests_docker::{Dockerd, Registry};
use belljar_tests_hosts::have;
use serde_json::json;
use tempfile::TempDir;

/// A Docker with an image of node, and a registry of packages.
struct Fixture {
    docker: Dockerd,
    npm: Npm,
    folder: TempDir,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        if !have(node::NEEDED) {
            return None;
        }
        let fixture =
            Fixture { docker: Dockerd::start()?, npm: Npm::start(), folder: TempDir::new().unwrap() };
        node::image(&fixture.docker, "node-here:24");
        Some(fixture)
    }

    fn build(&self, words: &[&str]) -> Finished {
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
    let Some(fixture) = Fixture::new() else { return };
    floating_versions_are_settled_first_so_that_the_same_ones_are_not_built_again(&fixture);
    it_has_agents_and_a_user(&fixture);
    it_comes_from_a_mirror_or_from_the_daemon_itself_and_from_nowhere_else(&fixture);
    what_does_not_come_out_leaves_no_image(&fixture);
}

fn floating_versions_are_settled_first_so_that_the_same_ones_are_not_built_again(fixture: &Fixture) {
    let words = ["--base", "node-here:24", "--opencode-version", "^1.0", "--json"];

    let first = fixture.build(&words);
    assert_eq!(first.code, 0, "{} {}", first.stdout, first.stderr);
    let first = first.json();
    assert_eq!(first["outcome"], "built");
    assert_eq!(first["image"], "belljar-base:latest");
    let versions = json!({
        "ast-grep": "0.3.0", "claude-code": "2.0.1", "codex": "0.2.0", "git-delta": "distribution", "opencode": "1.4.0",
    });
    assert_eq!(first["versions"], versions);
    let fetched = fixture.npm.fetched().len();
    assert_eq!(fetched, 4);

    let second = fixture.build(&words).json();
    assert_eq!(second["id"], first["id"], "the same versions are the same image");
    assert_eq!(fixture.npm.fetched().len(), fetched, "nothing is installed again");
    // All but the two that nothing can be done about: an argument in front, and what it is made from.
    assert_eq!(second["cached"].as_u64().unwrap() + 2, second["steps"].as_u64().unwrap());

    fixture.npm.publish("@openai/codex", "0.3.0");
    let third = fixture.build(&words).json();
    assert_ne!(third["id"], first["id"]);
    assert_eq!(third["versions"]["codex"], "0.3.0");
    assert_eq!(
        fixture.npm.fetched()[fetched..],
        ["@openai/codex-0.3.0", "@anthropic-ai/claude-code-2.0.1"],
        "what comes before the new version is kept"
    );
    assert_eq!(fixture.inside("belljar-base:latest", &["codex"]), "codex 0.3.0");
}

fn it_has_agents_and_a_user(fixture: &Fixture) {
    let printed = fixture.build(&["--base", "node-here:24", "--tag", "v1"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert_eq!(printed.stdout, "belljar-base:v1\n");
    assert!(printed.stderr.contains("] RUN : Claude Code; "), "{}", printed.stderr);
    assert!(!printed.stderr.contains('\x1b'), "{}", printed.stderr);

    let image = "belljar-base:v1";
    for (program, version) in [
        ("claude", "2.0.1"),
        ("codex", "0.3.0"),
        ("opencode", "2.0.0"),
        ("ast-grep", "0.3.0"),
        ("sg", "0.3.0"),
    ] {
        assert_eq!(fixture.inside(image, &[program]), format!("{program} {version}"));
    }
    assert_eq!(fixture.inside(image, &["id"]), "uid=1000(agent) gid=1000(agent) groups=1000(agent)");
    assert_eq!(fixture.inside(image, &["ls", "/home"]), "agent");
    let format = "{{json .Config.Entrypoint}} {{.Config.User}} {{.Config.WorkingDir}} {{index .Config.Labels \"belljar.image\"}}";
    let config = fixture.docker.docker(&["image", "inspect", "--format", format, image]);
    assert_eq!(
        config, "[\"/usr/bin/env\"] agent /workspace base",
        "the entry point is the one of what it is made from"
    );
}

/// Nor does it remove the one of that name that was there.
fn what_does_not_come_out_leaves_no_image(fixture: &Fixture) {
    let image = "belljar-base:v1";
    fixture.npm.publish("@anthropic-ai/claude-code", "6.6.6");
    fixture.npm.publish("@openai/codex", "13.0.0");
    for (words, why) in [
        (["--base", "node-here:24", "--tag", "v1", "--codex-version", "0.2.0"], "404"),
        (["--base", "node-here:24", "--tag", "v1", "--codex-version", "13"], "no native binary"),
    ] {
        let printed = fixture.build(&words);
        assert_eq!((printed.code, printed.stdout.as_str()), (1, ""), "{}", printed.stderr);
        assert!(printed.stderr.contains(why), "{}", printed.stderr);
        assert!(
            printed.stderr.contains("belljar: step ")
                && printed.stderr.contains(" failed, and there is no image"),
            "{}",
            printed.stderr
        );
        assert_eq!(fixture.inside(image, &["claude"]), "claude 2.0.1");
    }
    let failed =
        fixture.build(&["--base", "node-here:24", "--tag", "v2", "--codex-version", "13.0.0", "--json"]);
    assert_eq!(failed.code, 1);
    let failed = failed.json();
    assert_eq!(failed["outcome"], "failed");
    assert!(failed["failed"]["output"].as_str().unwrap().contains("no native binary"), "{failed:#}");
    assert!(failed["failed"]["instruction"].as_str().unwrap().contains("@openai/codex"), "{failed:#}");
    assert!(failed["failed"]["step"].as_u64().unwrap() > 5, "{failed:#}");
    assert_eq!(fixture.docker.docker(&["images", "--quiet", "belljar-base:v2"]), "");
    assert_eq!(fixture.docker.containers(), Vec::<String>::new(), "no step leaves a container");
}

fn it_comes_from_a_mirror_or_from_the_daemon_itself_and_from_nowhere_else(fixture: &Fixture) {
    if !have(["docker-registry"]) {
        return;
    }
    let registry = Registry::new();
    let there = registry.name("library/node-there:24");
    fixture.docker.docker(&["tag", "node-here:24", &there]);
    fixture.docker.docker(&["push", "--quiet", &there]);
    fixture.docker.docker(&["rmi", &there]);

    let mirror = there.split_once('/').unwrap().0;
    let printed = fixture.build(&["--base", "node-there:24", "--pull-from", mirror, "--json"]);
    assert_eq!(printed.code, 0, "{} {}", printed.stdout, printed.stderr);
    assert_eq!(printed.json()["from"], there.as_str());
    drop(registry);
    // It is here now, and no registry is asked.
    assert_eq!(fixture.build(&["--base", &there]).code, 0);

    let printed = fixture.build(&["--base", &there.replace("node-there", "node-nowhere")]);
    assert_eq!(printed.code, 125);
    assert!(
        printed.stderr.contains("could not pull") && printed.stderr.contains("--pull-from"),
        "{}",
        printed.stderr
    );

    let printed = fixture.build(&["--base", "node-here:24", "--claude-code-version", "^9"]);
    assert_eq!(printed.code, 126);
    assert!(
        printed.stderr.contains("no version of `@anthropic-ai/claude-code` fits `^9`"),
        "{}",
        printed.stderr
    );
}

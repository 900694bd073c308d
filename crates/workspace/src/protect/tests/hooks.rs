//! Files that hooks lead to.

use super::super::*;
use super::{Fixture, what};
use belljar_spec::ErrorCode;
use belljar_spec::workspace::Shielded::{Existing, MissingDirectory, Watched};
use std::fs;
use std::os::unix::fs::symlink;

fn with_hooks() -> Fixture {
    let fixture = Fixture::new();
    fixture.repository("w");
    for folder in ["w/scripts/lib", "w/.husky", "w/.githooks", "w/tools"] {
        fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    fs::create_dir_all(fixture.path("w/.git/hooks")).unwrap();
    fixture
}

#[test]
fn targets_of_links_are_held_and_so_are_other_names_of_a_hook() {
    let fixture = with_hooks();
    fixture.git(&["-C", "w", "config", "core.hooksPath", ".githooks"]);
    for name in ["a", "b", "c", "d", "twice"] {
        fs::write(fixture.path("w/scripts").join(name), "#!/bin/sh\n").unwrap();
    }
    symlink("../../scripts/a", fixture.path("w/.git/hooks/pre-commit")).unwrap();
    symlink(fixture.path("w/scripts/b"), fixture.path("w/.git/hooks/pre-push")).unwrap();
    symlink("../scripts/c", fixture.path("w/.husky/pre-commit")).unwrap();
    symlink("../scripts/d", fixture.path("w/.githooks/pre-commit")).unwrap();
    symlink("../../scripts/none-yet", fixture.path("w/.git/hooks/post-merge")).unwrap();
    symlink("/bin/true", fixture.path("w/.git/hooks/post-commit")).unwrap();
    fs::hard_link(fixture.path("w/scripts/twice"), fixture.path("w/.git/hooks/commit-msg")).unwrap();
    let shields = fixture.view("w").unwrap().shields;
    for name in ["a", "b", "c", "d", "twice"] {
        assert_eq!(what(&shields, &format!("scripts/{name}")), Some(Existing), "{name}");
    }
    assert_eq!(what(&shields, "scripts/none-yet"), Some(MissingDirectory));

    // A link that leads on through another could be led elsewhere.
    symlink("a", fixture.path("w/scripts/link")).unwrap();
    symlink("../../scripts/link", fixture.path("w/.git/hooks/pre-rebase")).unwrap();
    assert_eq!(fixture.view("w").unwrap_err().code, ErrorCode::PathRefused);
}

#[test]
fn scripts_that_a_hook_calls_are_held_and_files_that_it_names_are_watched() {
    let fixture = with_hooks();
    for name in [
        "scripts/check.sh",
        "scripts/lib/deep.sh",
        "scripts/top.sh",
        "scripts/sourced",
        "scripts/run.py",
        "scripts/by-variable",
        "scripts/by-pwd",
        "scripts/quoted",
        "scripts/lib/sourced.sh",
        "tools/here",
        "package.json",
        ".pre-commit-config.yaml",
        "conf",
    ] {
        fs::write(fixture.path("w").join(name), "true\n").unwrap();
    }
    fs::write(fixture.path("w/scripts/check.sh"), "#!/usr/bin/env bash\n\"$(dirname \"$0\")\"/lib/deep.sh\n")
        .unwrap();
    let hook = "#!/bin/sh\n# scripts/commented\nset -e\nTOP=$(git rev-parse --show-toplevel)\n\
        if git diff --cached -- package.json; then exec ./scripts/check.sh \"$@\"; fi\n\
        \"$(git rev-parse --show-toplevel)\"/scripts/top.sh && . scripts/sourced\npython3 -I scripts/run.py\n\
        sh \"$TOP\"/scripts/by-variable\n\
        DIR=\"$(cd \"$(dirname \"$0\")/../..\" 2>/dev/null && pwd)\"\nsh \"$DIR/scripts/by-pwd\"\n\
        sh -c 'scripts/quoted now'\n. scripts/lib/s*.sh\ncd tools && ./here\n\
        ARGS=(hook-impl --config=.pre-commit-config.yaml)\n[ -x ./local ] && ./local\ncat ./conf\n";
    fs::write(fixture.path("w/.git/hooks/pre-commit"), hook).unwrap();
    let shields = fixture.view("w").unwrap().shields;
    for path in [
        "scripts/check.sh",
        "scripts/lib/deep.sh",
        "scripts/top.sh",
        "scripts/sourced",
        "scripts/run.py",
        "scripts/by-variable",
        "scripts/by-pwd",
        "scripts/quoted",
        "scripts/lib/sourced.sh",
        "tools/here",
        ".pre-commit-config.yaml",
    ] {
        assert_eq!(what(&shields, path), Some(Existing), "{path}");
    }
    // Files that it reads, or runs if they exist, stay writable, and are reported.
    for path in ["package.json", "local", "conf"] {
        assert_eq!(what(&shields, path), Some(Watched), "{path}");
    }
    let before = Baseline::take(&fixture.view("w").unwrap());
    fs::write(fixture.path("w/local"), "evil").unwrap();
    let found = before.compare();
    assert_eq!(found.left, []);
    assert_eq!(found.executed.iter().map(|one| one.path.as_path()).collect::<Vec<_>>(), [Path::new("local")]);
}

#[test]
fn commands_of_config_are_read_in_many_spellings() {
    let fixture = with_hooks();
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    for name in names.iter().chain(&["read.md"]) {
        fs::write(fixture.path("w/tools").join(name), "").unwrap();
    }
    let config = "[filter \"x\"]\nclean = \"\\\"$(git rev-parse --show-toplevel)\\\"/tools/one\"\nsmudge = $PWD/tools/two\n\
        process = \"cd tools && ./three\"\n[diff \"x\"]\ncommand = \"${GIT_DIR:-.git}/../tools/four\"\n\
        textconv = \"python3 -c 'open(\\\"tools/five\\\")'\"\n[lfs \"customtransfer.x\"]\npath = tools/six\n[svn]\nauthorsProg = tools/seven\n\
        [alias]\ne = \"!cd .; ./too?s/[!a-d]ight tools/*.md\"\nn = \"!cat x | sh tools/nin*\"\n";
    fs::write(fixture.path("w/.git/config"), config).unwrap();
    let shields = fixture.view("w").unwrap().shields;
    for name in names {
        assert_eq!(what(&shields, &format!("tools/{name}")), Some(Existing), "{name}");
    }
    // Files that a command works on are not protected.
    assert_eq!(what(&shields, "tools/read.md"), None);
}

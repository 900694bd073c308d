//! Folders of the system and of a person that no sandbox writes to by accident, by every way in.

use belljar_tests_cli::Home;
use std::fs;
use std::os::unix::fs::symlink;

/// Every command that works on a folder, and the words with which it is told to.
const WAYS: [&[&str]; 5] = [
    &["run", "--workspace", "DIR", "--", "true"],
    &["run", "--json", "--workspace", "DIR", "--", "true"],
    &["run", "--backend", "host", "--workspace", "DIR", "--", "true"],
    &["shell", "--once", "--workspace", "DIR"],
    &["start", "--workspace", "DIR"],
];

#[test]
fn no_sandbox_works_in_a_folder_of_the_system_by_any_way_in() {
    let home = Home::new("");
    let link = home.path("work/link");
    symlink("/etc", &link).expect("the folder is ours");
    let link = link.to_str().expect("a plain path").to_string();
    for folder in ["/etc", "/etc/ssl", "/usr/share", "/var", "/boot", link.as_str()] {
        for way in WAYS {
            let words: Vec<&str> =
                way.iter().map(|word| if *word == "DIR" { folder } else { word }).collect();
            let run = home.run(&words);
            assert_ne!(run.code, 0, "{words:?}: {}", run.stderr);
            let printed = format!("{}{}", run.stdout, run.stderr);
            assert!(printed.contains("no sandbox w"), "{words:?}: {printed}");
        }
    }
    let named = home.run(&["run", "--rw", "/etc/ssl", "--", "true"]);
    assert_eq!(named.code, 126, "{}", named.stderr);
    assert!(named.stderr.contains("`--ro /etc/ssl` shows it read-only"), "{}", named.stderr);
    home.run(&["rm", "--force", "--all"]);
}

#[test]
fn what_a_person_keeps_keys_and_programs_in_is_not_written() {
    let home = Home::new("");
    for file in
        [".ssh/id_ed25519", ".config/app/settings", ".local/bin/tool", ".bashrc", "project/.config/file"]
    {
        home.write(file, "x\n");
    }
    let path = |name: &str| home.path(name).to_str().expect("a plain path").to_string();
    for (folder, code) in
        [(".ssh", 126), (".config/app", 126), (".local/bin", 126), (".local", 126), ("project/.config", 0)]
    {
        let run = home.run(&["run", "--workspace", &path(folder), "--", "touch", "new"]);
        assert_eq!(run.code, code, "{folder}: {}", run.stderr);
        assert_eq!(home.path(folder).join("new").exists(), code == 0, "{folder}");
    }
    let file = home.run(&["run", "--rw", &path(".bashrc"), "--", "true"]);
    assert_eq!(file.code, 126, "{}", file.stderr);
    // Programs may be worked on beside their folder; keys are not shown to an agent that way.
    let programs = home.run(&["run", "--overlay", "--workspace", &path(".local/bin"), "--", "touch", "new"]);
    assert_eq!(programs.code, 0, "{}", programs.stderr);
    assert!(!home.path(".local/bin/new").exists());
    let keys = home.run(&["run", "--overlay", "--workspace", &path(".ssh"), "--", "true"]);
    assert_eq!(keys.code, 126, "{}", keys.stderr);
    let read = home.run(&["run", "--ro", &path(".config/app"), "--", "cat", &path(".config/app/settings")]);
    assert_eq!((read.code, read.stdout.as_str()), (0, "x\n"), "{}", read.stderr);
}

#[test]
fn a_clone_without_commits_runs_nothing() {
    let home = Home::new("");
    let repository = home.path("repository");
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(&repository).status();
    assert!(made.expect("git starts").success());
    let repository = repository.to_str().expect("a plain path");
    let run = home.run(&["run", "--clone", repository, "--", "sh", "-c", "echo it ran"]);
    assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{}", run.stderr);
    assert!(run.stderr.contains("nothing to work on"), "{}", run.stderr);
    let left = fs::read_dir(home.path("state/belljar/clones"))
        .map_or(0, |entries| entries.flatten().filter(|entry| entry.path().is_dir()).count());
    assert_eq!(left, 0, "nothing of it stays");
}

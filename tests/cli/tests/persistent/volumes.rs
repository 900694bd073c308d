//! What outlives a folder's sandboxes.

use crate::persistent::home::Home;
use std::fs;

#[test]
fn volumes_outlive_sandboxes_and_are_the_folders_own() {
    let home = Home::new();
    insta::assert_snapshot!("volumes_none", home.transcript(&["volumes"]));
    insta::assert_snapshot!("shared_none", home.transcript(&["shared-volumes"]));
    assert_eq!(home.run(&["init"]).code, 0);
    let file = home.path("work/.belljar/config.toml");
    fs::write(&file, "[sandbox]\nports = [3000]\n[sandbox.env]\nMODE = \"dev\"\n[sandbox.volumes]\ncache = \"/volumes/cache\"\n").unwrap();
    assert_eq!(home.run(&["trust", "--yes"]).code, 0);
    let wrote = home.run(&[
        "exec",
        "--",
        "sh",
        "-c",
        "echo $MODE; for v in history config cache; do echo kept > /volumes/$v/file; done",
    ]);
    assert_eq!((wrote.code, wrote.stdout.as_str()), (0, "dev\n"), "{}", wrote.stderr);
    let names: Vec<String> = home
        .json(&["volumes", "--json"])
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["inside"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(names, ["/volumes/history", "/volumes/config", "/volumes/cache"]);
    assert_eq!(home.run(&["rm", "--force", "."]).code, 0);
    let read = home.run(&["exec", "--", "sh", "-c", "cat /volumes/*/file"]);
    assert_eq!(read.stdout, "kept\nkept\nkept\n", "{}", read.stderr);
    fs::create_dir(home.path("state/belljar/fleet/volumes/npm-cache")).unwrap();
    insta::assert_snapshot!("shared", home.transcript(&["shared-volumes"]));
}

#[test]
fn a_shell_that_a_sandbox_prepared_is_written_anew() {
    let home = Home::ready();
    let evil = "rm -r /volumes/config/shell; mkdir /volumes/config/shell; echo 'echo evil' > /volumes/config/shell/rc";
    assert_eq!(home.run(&["exec", "--", "sh", "-c", evil]).code, 0);
    let mut person = home.at_terminal(&["shell"]);
    person.sees("(belljar)").types("exit\r");
    assert_eq!(person.ends().0, 0);
    let away = "rm -r /volumes/config/shell; ln -s /tmp /volumes/config/shell";
    assert_eq!(home.run(&["exec", "--", "sh", "-c", away]).code, 0);
    assert_eq!(home.run(&["exec", "--", "test", "-f", "/volumes/config/shell/rc"]).code, 0);
    let blocked = "rm /volumes/config/shell/rc; mkdir /volumes/config/shell/rc";
    assert_eq!(home.run(&["exec", "--", "sh", "-c", blocked]).code, 0);
    insta::assert_snapshot!("shell_blocked", home.transcript(&["exec", "--", "true"]));
}

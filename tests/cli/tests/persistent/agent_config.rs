//! What agents find in every sandbox of a folder.

use crate::persistent::home::Home;
use std::fs;

#[test]
fn settings_are_written_once_and_found_inside() {
    let home = Home::ready();
    insta::assert_snapshot!("codex", home.transcript(&["codex-init-config"]));
    insta::assert_snapshot!("claude", home.transcript(&["claude-init-config"]));
    insta::assert_snapshot!("codex_again", home.transcript(&["codex-init-config"]));
    let script = "cat $CODEX_HOME/config.toml $CODEX_HOME/high.config.toml $CODEX_HOME/AGENTS.md $CODEX_HOME/profile.json; ls -A $CLAUDE_CONFIG_DIR";
    insta::assert_snapshot!("inside", home.run(&["exec", "--", "sh", "-c", script]).stdout);
    let change = "echo mine > $CODEX_HOME/config.toml";
    assert_eq!(home.run(&["exec", "--", "sh", "-c", change]).code, 0);
    home.run(&["codex-init-config"]);
    assert_eq!(home.run(&["exec", "--", "sh", "-c", "cat $CODEX_HOME/config.toml"]).stdout, "mine\n");
    let forced = home.json(&["codex-init-config", "--force", "--json"]);
    assert_eq!(
        forced["written"],
        serde_json::json!(["config.toml", "high.config.toml", "AGENTS.md", "profile.json"])
    );
    assert!(
        home.run(&["exec", "--", "sh", "-c", "cat $CODEX_HOME/config.toml"])
            .stdout
            .contains("codex --profile high")
    );
}

#[test]
fn a_login_is_copied_only_on_request_and_always_anew() {
    let home = Home::ready();
    insta::assert_snapshot!("auth_missing", home.transcript(&["codex-init-config", "--auth"]));
    for (folder, file, command) in
        [(".codex", "auth.json", "codex-init-config"), (".claude", ".credentials.json", "claude-init-config")]
    {
        fs::create_dir(home.path("home").join(folder)).unwrap();
        for secret in ["one", "two"] {
            fs::write(home.path("home").join(folder).join(file), secret).unwrap();
            let run = home.run(&[command, "--auth"]);
            assert!(run.code == 0 && run.stderr.contains("a real secret"), "{}", run.stderr);
            assert!(run.stderr.contains("belljar secrets set"), "{}", run.stderr);
            let name = folder.trim_start_matches('.');
            let path = format!("/volumes/config/{name}/{file}");
            assert_eq!(home.run(&["exec", "--", "cat", &path]).stdout, secret);
        }
    }
}

#[test]
fn a_link_that_a_sandbox_left_is_not_followed() {
    let home = Home::ready();
    let link = "rm -rf $CODEX_HOME; ln -s /etc $CODEX_HOME";
    assert_eq!(home.run(&["exec", "--", "sh", "-c", link]).code, 0);
    insta::assert_snapshot!("codex_link", home.transcript(&["codex-init-config", "--force"]));
}

#[test]
fn every_line_of_the_first_configuration_makes_sense() {
    let home = Home::ready();
    let file = home.path("work/.belljar/config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let is_key = |line: &str| {
        line.trim_start_matches("# ").split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
    };
    let opened: String =
        text.lines()
            .map(|line| {
                if is_key(line) {
                    format!("{}\n", line.trim_start_matches("# "))
                } else {
                    format!("{line}\n")
                }
            })
            .collect();
    assert!(opened.lines().any(|line| line == "ports = [3000]"), "{opened}");
    fs::write(&file, opened).unwrap();
    let checked = home.run(&["policy", "check", file.to_str().unwrap()]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
}

//! Help of the commands about sandboxes that are kept.

use belljar_tests_cli::run;
use std::path::Path;

#[test]
fn help_stays_as_it_is() {
    for name in [
        "init",
        "start",
        "exec",
        "shell",
        "list",
        "ps",
        "logs",
        "attach",
        "pause",
        "resume",
        "stop",
        "rm",
        "volumes",
        "shared-volumes",
        "admin",
        "codex-init-config",
        "claude-init-config",
    ] {
        let result = run(Path::new("/"), [name, "--help"]);
        assert_eq!(result.code, 0);
        insta::assert_snapshot!(format!("help_{name}"), result.stdout);
    }
}

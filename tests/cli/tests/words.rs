//! Help, version, completions, the manual page, the doctor.

use belljar_spec::BackendName;
use belljar_tests_cli::{Home, belljar, run};
use std::path::Path;

#[test]
fn help_stays_as_it_is() {
    for (name, args) in [
        ("help", &["--help"][..]),
        ("run", &["run", "--help"]),
        ("show_run", &["show-run", "--help"]),
        ("doctor", &["doctor", "--help"]),
        ("build_base", &["build-base", "--help"]),
        ("build", &["build", "--help"]),
        ("sandbox", &["sandbox", "--help"]),
        ("changes", &["changes", "--help"]),
        ("topics", &["help", "topics"]),
    ] {
        let result = run(Path::new("/"), args);
        assert_eq!(result.code, 0);
        insta::assert_snapshot!(format!("help_{name}"), result.stdout);
    }
}

#[test]
fn the_version_is_printed() {
    let result = run(Path::new("/"), ["--version"]);
    assert_eq!(result.stdout.trim(), concat!("belljar ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_manual_page_is_one() {
    let result = run(Path::new("/"), ["man"]);
    assert_eq!(result.code, 0);
    assert!(result.stdout.contains(".TH belljar 1") && result.stdout.contains("belljar\\-run(1)"));
    let build = run(Path::new("/"), ["man", "images", "build"]).stdout;
    assert!(build.contains(".TH belljar-images-build 1") && build.contains(".dockerignore"), "{build}");
}

#[test]
fn the_doctor_reports_every_backend() {
    let result = run(Path::new("/"), ["doctor", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("one JSON object");
    let backends: Vec<&str> = json["backends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|backend| backend["backend"].as_str().unwrap())
        .collect();
    assert_eq!(backends, BackendName::ALL.map(BackendName::as_str));
    for backend in json["backends"].as_array().unwrap() {
        assert!(
            backend["works"] == true || (backend["reason"].is_string() && backend["remedy"].is_string()),
            "{backend}"
        );
    }
    assert_eq!(json["inside"]["tools"]["ls"]["available"], true);
    assert_eq!(json["inside"]["tmp_writable"], true);
    assert_eq!(json["inside"]["network"], "every_port");
    assert_eq!(json["inside"]["folders"]["works"], true);
    let text = run(Path::new("/"), ["doctor"]).stdout;
    assert!(text.contains("Backends") && text.contains("native"), "{text}");
}

/// A folder that cannot be shown under another user is no reason to report that no backend works.
#[test]
fn the_doctor_does_not_take_a_filesystem_for_a_backend() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    // Mounts of ramfs cannot be shown under another user. An ordinary user needs none of that.
    let script = r#"mount -t ramfs ramfs "$1" && chmod 1777 "$1" && TMPDIR="$1" exec "$2" doctor $3"#;
    let doctor = |words: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", place]).arg(belljar()).arg(words);
        command.output().expect("util-linux is everywhere")
    };
    let output = doctor("--json");
    if String::from_utf8_lossy(&output.stderr).contains("unshare") {
        return; // Only root makes mounts.
    }
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["inside"]["tools"]["ls"]["available"], true, "{printed}");
    assert_eq!(json["inside"]["folders"]["works"], false);
    assert!(json["inside"]["folders"]["remedy"].as_str().unwrap().contains("owner of the folder"), "{json}");
    let text = String::from_utf8_lossy(&doctor("").stdout).into_owned();
    assert!(text.contains("cannot show its files under another user"), "{text}");
    assert!(!text.contains("No backend works"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for words in ["doctor", "doctor --json", "man", "config schema", "run --json -- true"] {
        let script = format!("{} {words} </dev/null | true", belljar().display());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!printed.contains("panicked") && !printed.contains("cannot write"), "{words}: {printed}");
    }
}

/// What was understood once is understood for ever, and says what the newer spelling says.
#[test]
fn an_older_spelling_does_the_same() {
    for (old, new) in [
        (&["layers", "--json"][..], &["changes", "list", "--json"][..]),
        (&["grants", "list"], &["daemon", "grants", "list"]),
        (&["help", "show-run"], &["sandbox", "plan", "--help"]),
        (&["ls", "--help"], &["list", "--help"]),
        (&["trust", "--help"], &["config", "trust", "--help"]),
    ] {
        let home = Home::new("");
        assert_eq!(home.transcript(old), home.transcript(new), "{old:?}");
    }
}

#[test]
fn help_has_pages_of_the_manual() {
    let page = run(Path::new("/"), ["help", "backends"]);
    assert!(
        page.code == 0 && page.stdout.starts_with("# ") && page.stdout.contains("AppArmor"),
        "{}",
        page.stdout
    );
    // A command of that name comes first, and its page is still there.
    assert!(run(Path::new("/"), ["help", "images"]).stdout.contains("Usage: belljar images"));
    assert!(run(Path::new("/"), ["help", "topics", "images"]).stdout.starts_with("# "));
    let unknown = run(Path::new("/"), ["help", "nonsense"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (126, ""));
    assert!(unknown.stderr.contains("belljar help topics"), "{}", unknown.stderr);
}

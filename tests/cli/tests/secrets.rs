//! `belljar secrets`: what a person sees of the vault, and what no user sees.

use belljar_sys::rustix::io::{read, write};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_sys::terminal::{Pair, open_pair};
use belljar_tests_cli::{Run, belljar};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A home with nothing in it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("the folder is there").join(name)
    }

    fn vault(&self, name: &str) -> PathBuf {
        self.path("state/belljar/vault").join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.started_by(belljar());
        command.arg("secrets").args(args);
        command
    }

    fn started_by(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOME", self.path(""))
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("BELLJAR_VAULT_KEY")
            .env_remove("BELLJAR_VAULT_KEY_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, mut command: Command, input: &str) -> Run {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("belljar starts");
        // A command that does not read is no error here.
        let _ = child.stdin.take().expect("stdin is a pipe").write_all(input.as_bytes());
        self.ended(child.wait_with_output().expect("belljar ends"))
    }

    fn ended(&self, Output { status, stdout, stderr }: Output) -> Run {
        let home = self.path("");
        let home = home.to_str().expect("a plain path").trim_end_matches('/');
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(home, "[home]");
        Run { code: status.code().unwrap_or(-1), stdout: text(&stdout), stderr: text(&stderr) }
    }

    fn set(&self, name: &str, value: &str) -> Run {
        self.run(self.command(&["set", name]), value)
    }

    /// What is said on both streams, and the exit code.
    fn transcript(&self, args: &[&str]) -> String {
        printed(&self.run(self.command(args), ""))
    }
}

fn printed(Run { code, stdout, stderr }: &Run) -> String {
    format!("{stdout}---\n{stderr}--- {code}\n")
}

/// The moment at which a secret was set is another one each time.
fn timeless(text: &str) -> String {
    text.chars().map(|character| if character.is_ascii_digit() { '0' } else { character }).collect()
}

#[test]
fn help_stays_as_it_is() {
    let home = Home::new();
    for (name, args) in [
        ("secrets", &["--help"][..]),
        ("secrets_set", &["set", "--help"]),
        ("secrets_rm", &["rm", "--help"]),
        ("secrets_check", &["check", "--help"]),
    ] {
        insta::assert_snapshot!(format!("help_{name}"), home.run(home.command(args), "").stdout);
    }
}

#[test]
fn a_secret_is_set_listed_checked_and_removed() {
    let home = Home::new();
    insta::assert_snapshot!("list_none", home.transcript(&["list"]));
    insta::assert_snapshot!("check_none", home.transcript(&["check"]));
    insta::assert_snapshot!("set_new", printed(&home.set("github", "hunter2\n")));
    insta::assert_snapshot!("set_anew", printed(&home.set("github", "hunter3")));
    home.set("app-key", "-----BEGIN KEY-----\nhunter2\n-----END KEY-----\n");
    insta::assert_snapshot!("list", timeless(&home.transcript(&["list"])));
    insta::assert_snapshot!("list_json", timeless(&home.transcript(&["list", "--json"])));
    insta::assert_snapshot!("check_fine", home.transcript(&["check"]));
    insta::assert_snapshot!("rm_unknown", home.transcript(&["rm", "github", "gitlab"]));
    insta::assert_snapshot!("rm", home.transcript(&["rm", "github", "app-key"]));
    insta::assert_snapshot!("rm_again", home.transcript(&["rm", "github"]));
}

#[test]
fn a_value_in_the_arguments_is_refused_and_not_repeated() {
    let home = Home::new();
    for (name, args) in [
        ("set_argument", &["set", "github", "hunter2-hunter2"][..]),
        ("set_assignment", &["set", "github=hunter2-hunter2"]),
        ("set_no_name", &["set", "hunter2/hunter2"]),
        ("set_two", &["set", "github", "hunter2", "hunter2"]),
    ] {
        let printed = home.transcript(args);
        assert!(!printed.contains("hunter2"), "{printed}");
        insta::assert_snapshot!(name, printed);
    }
    assert!(!home.vault("").exists(), "nothing was kept");
}

#[test]
fn a_value_is_something_and_not_a_document() {
    let home = Home::new();
    insta::assert_snapshot!("set_empty", printed(&home.set("github", "\n")));
    insta::assert_snapshot!("set_long", printed(&home.set("github", &"hunter2".repeat(10_000))));
}

#[test]
fn what_is_wrong_with_a_vault_is_said_with_what_to_do() {
    let home = Home::new();
    home.set("a", "hunter2");
    home.set("b", "hunter2");
    let file = home.vault("secrets.json");
    let whole = fs::read_to_string(&file).expect("there is a vault");
    let mode = |name: &str, mode: u32| {
        fs::set_permissions(home.vault(name), Permissions::from_mode(mode)).expect("it is ours")
    };
    fs::write(&file, whole.replace(r#""a""#, r#""c""#)).expect("it can be written");
    insta::assert_snapshot!("check_changed", home.transcript(&["check"]));
    fs::write(&file, &whole[..whole.len() / 2]).expect("it can be written");
    insta::assert_snapshot!("check_cut", home.transcript(&["check"]));
    insta::assert_snapshot!("list_cut", home.transcript(&["list"]));
    fs::write(&file, whole.replace(r#""format": 1"#, r#""format": 2"#)).expect("it can be written");
    insta::assert_snapshot!("list_newer", home.transcript(&["list"]));
    fs::write(&file, &whole).expect("it can be written");
    mode("key", 0o644);
    mode("", 0o755);
    insta::assert_snapshot!("check_open", home.transcript(&["check"]));
    insta::assert_snapshot!("set_open", printed(&home.set("c", "hunter2")));
    mode("key", 0o600);
    mode("", 0o700);
    fs::rename(home.vault("key"), home.path("key")).expect("it can be moved");
    insta::assert_snapshot!("check_no_key", home.transcript(&["check"]));
    let mut elsewhere = home.command(&["check"]);
    elsewhere.env("BELLJAR_VAULT_KEY_FILE", home.path("key"));
    assert_eq!(home.run(elsewhere, "").code, 0);
    let mut another = home.command(&["set", "c"]);
    another.env("BELLJAR_VAULT_KEY", "0".repeat(64));
    insta::assert_snapshot!("set_another_key", printed(&home.run(another, "hunter2")));
    let mut no_key = home.command(&["check"]);
    no_key.env("BELLJAR_VAULT_KEY", "hunter2");
    insta::assert_snapshot!("check_bad_key", printed(&home.run(no_key, "")));
}

#[test]
fn checks_and_lists_are_json_for_programs() {
    let home = Home::new();
    home.set("a", "hunter2");
    fs::set_permissions(home.vault("key"), Permissions::from_mode(0o640)).expect("it is ours");
    let Run { code, stdout, .. } = home.run(home.command(&["check", "--json"]), "");
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
    assert_eq!((code, &json["fine"]), (1, &serde_json::json!(false)));
    let key = &json["findings"][1];
    assert_eq!((&key["part"], &key["error"]["code"]), (&"key".into(), &"path_refused".into()));
    assert!(key["error"]["hint"].as_str().is_some_and(|hint| hint.contains("chmod 600")));
}

/// A person types at a terminal. What it showed in the end, and the exit code.
fn typed(home: &Home, keys: &[u8]) -> (i32, String) {
    let Pair { controller, terminal } = open_pair(24, 80).expect("there are terminals");
    let shared = terminal.try_clone().expect("it can be shared");
    let mut child =
        home.command(&["set", "github"]).stdin(terminal).stderr(shared).spawn().expect("belljar starts");
    let mut shown = Vec::new();
    let mut some = [0; 256];
    // In the end no process has the other side open, which is an error. The kernel may report it a moment before it hands out
    // what was written last.
    while let Ok(count) = read(&controller, &mut some).or_else(|_| read(&controller, &mut some)) {
        let requested = shown.ends_with(QUESTION);
        shown.extend_from_slice(&some[..count]);
        if !requested && shown.ends_with(QUESTION) {
            write(&controller, keys).expect("keys can be pressed");
        }
    }
    let code = child.wait().expect("belljar ends").code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&shown).into_owned())
}

const QUESTION: &[u8] = b"not shown: ";

#[test]
fn a_value_that_is_typed_is_not_shown() {
    let home = Home::new();
    let (code, shown) = typed(&home, b"wrong\x15hunter3\x7f2\r");
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("hunter") && shown.contains("`github` is set"), "{shown}");
    let (code, shown) = typed(&home, b"hunter2\x03");
    assert_eq!(code, 126, "{shown}");
    assert!(!shown.contains("hunter") && shown.contains("`github` is not set"), "{shown}");
    let (code, shown) = typed(&home, b"-----BEGIN KEY-----\rhunter2\r-----END KEY-----\r");
    assert_eq!(code, 126, "{shown}");
    assert!(!shown.contains("hunter") && shown.contains("more than one line"), "{shown}");
}

/// Killed at any moment: what was set before is there, and what said that it was set is, too.
#[test]
fn a_kill_loses_nothing() {
    let home = Home::new();
    assert_eq!(home.set("first", "hunter2").code, 0);
    let mut done = vec!["first".to_string()];
    let mut killed = 0;
    for number in 0..60u64 {
        let name = format!("s{number}");
        let mut child = home.command(&["set", &name]).stdin(Stdio::piped()).spawn().expect("belljar starts");
        child.stdin.take().expect("stdin is a pipe").write_all(b"hunter2").expect("it is open");
        sleep(Duration::from_micros(number * 150));
        let _ = kill_process(Pid::from_child(&child), Signal::KILL);
        if child.wait().expect("it ends").success() {
            done.push(name);
        } else {
            killed += 1;
        }
    }
    assert!(killed > 0, "no process was killed");
    assert_eq!(home.run(home.command(&["check"]), "").code, 0, "{}", home.transcript(&["check"]));
    let listed = home.run(home.command(&["list"]), "").stdout;
    for name in &done {
        assert!(listed.lines().any(|line| line.split(' ').next() == Some(name)), "{name}: {listed}");
    }
}

/// Every write fails, as on a disk without room.
#[test]
fn a_full_disk_loses_nothing() {
    let home = Home::new();
    home.set("first", "hunter2");
    let before = fs::read(home.vault("secrets.json")).expect("there is a vault");
    for name in ["first", "second"] {
        let mut command = home.started_by("sh");
        command.args(["-c", r#"trap '' XFSZ; ulimit -f 0; exec "$@""#, "sh"]).arg(belljar());
        command.args(["secrets", "set", name]);
        let run = home.run(command, "hunter3");
        assert_eq!(run.code, 125, "{}", run.stderr);
        assert!(
            run.stderr.contains("cannot write") && run.stderr.contains("nothing was changed"),
            "{}",
            run.stderr
        );
    }
    assert_eq!(fs::read(home.vault("secrets.json")).expect("there is a vault"), before);
    assert!(!home.vault("secrets.new").exists(), "nothing is left lying about");
}

#[test]
fn secrets_that_are_set_at_once_are_all_kept() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for number in 0..12 {
            let home = &home;
            scope.spawn(move || assert_eq!(home.set(&format!("s{number}"), "hunter2").code, 0));
        }
    });
    let listed = home.run(home.command(&["list"]), "").stdout;
    assert_eq!(listed.lines().count(), 13, "{listed}");
    assert_eq!(home.run(home.command(&["check"]), "").code, 0);
}

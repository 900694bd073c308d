//! belljar is killed while git on the host waits for a remote that never answers: no process of git's is left. `git-remote-http` may
//! hold a token, and git is not its parent's only child.

use belljar_tests_cli::Home;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A remote that takes connections and says nothing.
struct SilentRemote {
    listener: TcpListener,
    url: String,
}

impl SilentRemote {
    fn new() -> SilentRemote {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/repository", listener.local_addr().expect("it has one"));
        SilentRemote { listener, url }
    }

    /// Waits for a client, and returns its connection.
    fn accept(&self) -> TcpStream {
        self.listener.accept().expect("git connects").0
    }

    /// The names of all processes that were started with its address.
    fn askers(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").expect("there is /proc").flatten().map(|entry| entry.path());
        let asks = |process: &std::path::PathBuf| {
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&self.url)
        };
        let name = |process: std::path::PathBuf| fs::read_to_string(process.join("comm")).ok();
        let names = processes.filter(asks).filter_map(name);
        names.map(|name| name.trim_end().to_string()).collect()
    }

    /// The same when no process is left, or after a while.
    fn askers_left(&self) -> Vec<String> {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.askers().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.askers()
    }

    /// belljar is killed when `git-remote-http` waits for an answer.
    fn kill(&self, mut belljar: Child) {
        let _connection = self.accept();
        let askers = self.askers();
        assert!(askers.iter().any(|name| name.starts_with("git-remote-http")), "{askers:?}");
        belljar.kill().expect("it is ours");
        belljar.wait().expect("it is gone");
        assert_eq!(self.askers_left(), Vec::<String>::new());
    }
}

#[test]
fn no_helper_of_git_is_left_when_belljar_is_killed_during_a_clone() {
    let (home, remote) = (Home::new(""), SilentRemote::new());
    let belljar = home.belljar(&["run", "--clone", &remote.url, "--", "true"]).spawn().expect("it starts");
    remote.kill(belljar);
}

#[test]
fn a_shell_that_ignores_sigterm_changes_nothing_about_that() {
    let (home, remote) = (Home::new(""), SilentRemote::new());
    let expected = home.belljar(&["run", "--clone", &remote.url, "--", "true"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"trap "" TERM; exec "$@""#, "sh"])
        .arg(expected.get_program())
        .args(expected.get_args());
    shell.envs(expected.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(home.path("work")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    remote.kill(shell.spawn().expect("there is a shell"));
}

#[test]
fn no_helper_of_git_is_left_when_belljar_is_killed_during_a_push() {
    let (home, remote) = (Home::new(""), SilentRemote::new());
    let git = |line: &str| {
        let words = line.split(' ');
        let output =
            Command::new("git").args(words).current_dir(home.path("")).output().expect("there is git");
        assert!(output.status.success(), "git {line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git("init -q -b main source");
    git("-C source -c user.name=T -c user.email=t@example.org commit -q --allow-empty -m first");
    let source = home.path("source");
    let commit = "git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m inside";
    let source = source.to_str().expect("a plain path");
    let run = home.run(&["run", "--clone", source, "--branch", "fix", "--", "sh", "-c", commit]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    // Its remote moves to where no server answers.
    let clones = fs::read_dir(home.path("state/belljar/clones")).expect("clones are kept").flatten();
    let clone = clones.map(|entry| entry.path()).find(|path| path.join("clone.json").exists());
    let clone = clone.expect("there is one");
    let id = clone.file_name().and_then(|name| name.to_str()).expect("a plain name");
    let label = clone.join("clone.json");
    let text = fs::read_to_string(&label).expect("it is text");
    fs::write(label, text.replace(source, &remote.url)).expect("ours");
    let belljar = home.belljar(&["publish", id]).spawn().expect("it starts");
    remote.kill(belljar);
}

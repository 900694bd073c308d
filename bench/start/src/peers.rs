//! Who else is on this machine.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) struct Peers {
    /// Name, and the words that run `true` in it.
    pub(crate) cold: Vec<(String, Vec<String>)>,
    /// A container that is running, for `docker exec`.
    pub(crate) container: Option<Container>,
}

pub(crate) struct Container(pub(crate) String);

impl Peers {
    pub(crate) fn find() -> Result<Peers, Box<dyn Error>> {
        let belljar = belljar()?;
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let mut cold = vec![("fork+exec".to_string(), words("true"))];
        for (name, line) in [
            ("belljar --version", "--version"),
            ("belljar run", "run -- true"),
            ("belljar run --allow", "run --allow example.com -- true"),
        ] {
            let program = [belljar.display().to_string()];
            cold.push((name.to_string(), program.into_iter().chain(words(line)).collect()));
        }
        let candidates = [
            ("bwrap", "bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc true"),
            (
                "unshare",
                "unshare --user --map-root-user --mount --pid --fork --net --ipc --uts --cgroup true",
            ),
            ("firejail", "firejail --quiet --noprofile --net=none true"),
            ("docker run", "docker run --rm --network none busybox true"),
            ("runsc do", "runsc --network=none do true"),
        ];
        for (name, line) in candidates {
            if works(&words(line)) {
                cold.push((name.to_string(), words(line)));
            } else {
                println!("{name}: not here");
            }
        }
        Ok(Peers { cold, container: Container::start() })
    }
}

impl Container {
    fn start() -> Option<Container> {
        let name = format!("belljar-bench-{}", std::process::id());
        let line = [
            "docker",
            "run",
            "--detach",
            "--rm",
            "--network",
            "none",
            "--name",
            &name,
            "busybox",
            "sleep",
            "600",
        ];
        works(&line.map(str::to_string)).then_some(Container(name))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = works(&["docker".into(), "rm".into(), "--force".into(), self.0.clone()]);
    }
}

/// Runs it quietly; whether it succeeded.
pub(crate) fn works(words: &[String]) -> bool {
    let Some((program, args)) = words.split_first() else { return false };
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The binary that was built beside us.
pub(crate) fn belljar() -> Result<PathBuf, Box<dyn Error>> {
    let here = std::env::current_exe()?;
    let beside = here.with_file_name("belljar");
    if Path::new(&beside).exists() {
        return Ok(beside);
    }
    Err(format!("there is no {}: run `cargo build --release` first", beside.display()).into())
}

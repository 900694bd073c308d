//! A container that lives, to compare with.

use crate::Outcome;
use belljar_tests_daemon::{Address, Connection};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// A container, and the daemon that holds it, if that is ours. Both are gone with this.
pub(crate) struct Docker {
    socket: PathBuf,
    container: String,
    image: String,
    daemon: Option<(Child, TempDir)>,
}

impl Docker {
    /// Nothing where there is no Docker; why is said.
    pub(crate) fn find() -> Option<Docker> {
        match Docker::start() {
            Ok(docker) => Some(docker),
            Err(error) => {
                println!("docker: left out, {error}");
                None
            }
        }
    }

    fn start() -> Outcome<Docker> {
        let name = format!("belljar-bench-{}", std::process::id());
        let mut docker = Docker {
            socket: "/var/run/docker.sock".into(),
            container: name.clone(),
            image: format!("{name}:latest"),
            daemon: None,
        };
        if docker.words(&["version"]).is_err() {
            docker.start_daemon()?;
        }
        docker.import()?;
        docker.words(&[
            "run",
            "--detach",
            "--rm",
            "--network",
            "none",
            "--name",
            &name,
            &docker.image,
            "/bin/sleep",
            "3600",
        ])?;
        let (server, client) = ("{{.Server.Version}}", "{{.Client.Version}}");
        println!(
            "docker: server {}, command line {}",
            docker.words(&["version", "--format", server])?,
            docker.words(&["version", "--format", client])?
        );
        Ok(docker)
    }

    /// What it is told once is measured often.
    pub(crate) fn exec(&self) -> Command {
        let mut command = self.command();
        command.args(["exec", &self.container, "/bin/true"]);
        command
    }

    /// The same without its command line: over the socket of its daemon, as programs do it.
    pub(crate) fn exec_by_api(&self, kept: &mut Connection) -> Outcome<()> {
        let words = json!({ "Cmd": ["/bin/true"], "AttachStdout": true, "AttachStderr": true });
        let made = post(kept, &format!("/containers/{}/exec", self.container), &words)?;
        let id = made["Id"].as_str().ok_or("no exec was made")?;
        // Its output is the rest of a connection.
        let start = format!("/exec/{id}/start");
        post(&mut self.connect()?, &start, &json!({ "Detach": false, "Tty": false }))?;
        let state = kept.ask("GET", &format!("/exec/{id}/json"), &[], b"")?.json();
        match state["ExitCode"].as_i64() {
            Some(0) => Ok(()),
            _ => Err(format!("docker did not run it: {state}").into()),
        }
    }

    pub(crate) fn connect(&self) -> Outcome<Connection> {
        Ok(Connection::open(&Address::Unix(self.socket.clone()))?)
    }

    fn start_daemon(&mut self) -> Outcome<()> {
        // On a real disk, and where paths are short.
        let folder = tempfile::Builder::new().prefix("belljar-docker-").tempdir_in("/var/tmp")?;
        let path = |name: &str| folder.path().join(name);
        self.socket = path("docker.sock");
        let log = File::create(path("log"))?;
        let child = Command::new("dockerd")
            .arg("--data-root")
            .arg(path("data"))
            .arg("--exec-root")
            .arg(path("exec"))
            .arg("--pidfile")
            .arg(path("pid"))
            .args(["--host", &format!("unix://{}", self.socket.display())])
            // Nothing of the machine's network is touched.
            .args(["--bridge=none", "--iptables=false", "--ip-masq=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.daemon = Some((child, folder));
        for _ in 0..300 {
            if self.words(&["version"]).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err("its daemon does not answer".into())
    }

    /// An image of this machine's busybox, which needs no registry.
    fn import(&self) -> Outcome<()> {
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let busybox = busybox.ok_or("there is no busybox to make an image of")?;
        let folder = tempfile::tempdir()?;
        let bin = folder.path().join("root/bin");
        fs::create_dir_all(&bin)?;
        fs::copy(busybox, bin.join("busybox"))?;
        for name in ["true", "sleep", "sh"] {
            symlink("busybox", bin.join(name))?;
        }
        let archive = folder.path().join("image.tar");
        let packed = Command::new("tar")
            .arg("-C")
            .arg(folder.path().join("root"))
            .arg("-cf")
            .arg(&archive)
            .arg(".")
            .status()?;
        if !packed.success() {
            return Err("tar could not pack an image".into());
        }
        self.words(&["import", &archive.to_string_lossy(), &self.image]).map(|_| ())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", format!("unix://{}", self.socket.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What it says.
    fn words(&self, words: &[&str]) -> Outcome<String> {
        let output = self.command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string().into()),
        }
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let _ = self.words(&["rm", "--force", &self.container]);
        let _ = self.words(&["rmi", "--force", &self.image]);
        if let Some((mut child, _folder)) = self.daemon.take() {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

fn post(connection: &mut Connection, path: &str, body: &Value) -> Outcome<Value> {
    let headers = [("content-type".to_string(), "application/json".to_string())];
    let answer = connection.ask("POST", path, &headers, body.to_string().as_bytes())?;
    match answer.status {
        200..300 => Ok(serde_json::from_slice(&answer.body).unwrap_or_default()),
        _ => Err(format!("{path}: {}", answer.text()).into()),
    }
}

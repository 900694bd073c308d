//! Processes beside us: the server, and the peers that are installed. Each ends with its owner.

use crate::Outcome;
use crate::stage::{NAME, Ports, loopback};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A process that is ended when it is dropped.
pub(crate) struct Child(process::Child);

impl Child {
    fn start(words: &[String]) -> Outcome<Child> {
        // Where there is a way to say that it ends with us, however we end.
        let ends_with_us = ["setpriv", "--pdeathsig", "TERM", "--"].map(String::from);
        let words = if found("setpriv").is_some() { [&ends_with_us, words].concat() } else { words.to_vec() };
        let (program, args) = words.split_first().ok_or("nothing to start")?;
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Child(child))
    }

    /// Waits until a server listens there.
    fn until_listening(mut self, address: SocketAddr, name: &str) -> Outcome<Child> {
        let start = Instant::now();
        while start.elapsed() < WAIT_TIMEOUT {
            if TcpStream::connect(address).is_ok() {
                return Ok(self);
            }
            if let Some(status) = self.0.try_wait()? {
                return Err(format!("{name} ended before it listened: {status}").into());
            }
            thread::sleep(PAUSE);
        }
        Err(format!("{name} does not listen").into())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Asked to, because some have processes of their own to end.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

pub(crate) struct Server {
    pub(crate) ports: Ports,
    process: process::Child,
}

impl Server {
    pub(crate) fn start(directory: &Path) -> Outcome<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("server")
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().ok_or("the server says nothing")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Server { ports: line.parse()?, process })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// One worker that reads the name in a hello, and knows one server by it.
pub(crate) struct Nginx {
    pub(crate) plain: u16,
    pub(crate) secure: u16,
    _process: Child,
}

impl Nginx {
    pub(crate) fn start(directory: &Path, server: Ports) -> Outcome<Option<Nginx>> {
        let Some(program) = installed("nginx") else { return Ok(None) };
        let (plain, secure) = (free_port()?, free_port()?);
        // Debian has it as a file, others have it built in.
        let module = STREAM_MODULES.into_iter().find(|path| Path::new(path).exists());
        let module = module.map(|path| format!("load_module {path};")).unwrap_or_default();
        let block = |port: u16, to: u16| {
            format!(
                "map $ssl_preread_server_name $to_{to} {{ {NAME} at_{to}; }}\n\
                 upstream at_{to} {{ server 127.0.0.1:{to}; }}\n\
                 server {{ listen 127.0.0.1:{port}; ssl_preread on; proxy_pass $to_{to}; }}\n"
            )
        };
        let config = format!(
            "{module}\ndaemon off;\nworker_processes 1;\npid {0}/nginx.pid;\nerror_log {0}/nginx.log;\n\
             events {{ worker_connections 1024; }}\nstream {{\n{1}{2}}}\n",
            directory.display(),
            block(plain, server.plain),
            block(secure, server.secure),
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, config)?;
        let words = [program, "-e".into(), format!("{}/nginx.log", directory.display()), "-c".into()];
        let words = [&words[..], &[file.display().to_string()]].concat();
        match Child::start(&words)?.until_listening(loopback(plain), "nginx") {
            Ok(process) => Ok(Some(Nginx { plain, secure, _process: process })),
            Err(error) => {
                let log = fs::read_to_string(directory.join("nginx.log")).unwrap_or_default();
                println!("nginx: does not work here ({error}) {}", log.lines().next().unwrap_or_default());
                Ok(None)
            }
        }
    }
}

/// Passes what it is asked for by CONNECT, and opens nothing of it.
pub(crate) struct Mitmproxy {
    pub(crate) port: u16,
    _process: Child,
}

impl Mitmproxy {
    pub(crate) fn start(directory: &Path) -> Outcome<Option<Mitmproxy>> {
        let Some(program) = installed("mitmdump") else { return Ok(None) };
        let port = free_port()?;
        let home = format!("confdir={}/mitmproxy", directory.display());
        let words = [&program, "--quiet", "--listen-host", "127.0.0.1", "--listen-port", &port.to_string()];
        let options = ["--set", &home, "--ignore-hosts", ".*"];
        let words: Vec<String> = words.into_iter().chain(options).map(String::from).collect();
        let process = Child::start(&words)?.until_listening(loopback(port), "mitmproxy")?;
        Ok(Some(Mitmproxy { port, _process: process }))
    }
}

/// Knows one name.
pub(crate) struct Dnsmasq {
    pub(crate) port: u16,
    _process: Child,
}

impl Dnsmasq {
    pub(crate) fn start() -> Outcome<Option<Dnsmasq>> {
        let Some(program) = installed("dnsmasq") else { return Ok(None) };
        let port = free_port()?;
        let words = format!(
            "{program} --keep-in-foreground --conf-file=/dev/null --pid-file --no-resolv --no-hosts --user={} \
             --listen-address=127.0.0.1 --bind-interfaces --port={port} --address=/{NAME}/1.2.3.4",
            std::env::var("USER").unwrap_or("root".into())
        );
        let words: Vec<String> = words.split_whitespace().map(String::from).collect();
        let process = Child::start(&words)?.until_listening(loopback(port), "dnsmasq")?;
        Ok(Some(Dnsmasq { port, _process: process }))
    }
}

/// Where a program is, or a line that says that it is not.
pub(crate) fn installed(program: &str) -> Option<String> {
    let found = found(program);
    if found.is_none() {
        println!("{program}: not here");
    }
    found
}

fn found(program: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    // Servers are where only administrators look.
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file());
    found.map(|path| path.display().to_string())
}

/// Runs a program to its end, and returns what it printed.
pub(crate) fn output(words: &[String]) -> Outcome<String> {
    let (program, args) = words.split_first().ok_or("nothing to run")?;
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("`{}` failed: {why}", words.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A port that is free at the moment, for TCP and for UDP.
fn free_port() -> Outcome<u16> {
    loop {
        let port = TcpListener::bind(loopback(0))?.local_addr()?.port();
        if UdpSocket::bind(loopback(port)).is_ok() {
            return Ok(port);
        }
    }
}

const STREAM_MODULES: [&str; 2] =
    ["/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib64/nginx/modules/ngx_stream_module.so"];
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

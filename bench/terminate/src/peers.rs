//! The peers that are installed. Each ends with its owner.

use crate::{NAME, Outcome};
use belljar_tests_hosts::{Child, Leaf};
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A reverse proxy of one process, that verifies the server as we do, and keeps nothing on disk.
pub(crate) struct Nginx {
    pub(crate) port: u16,
    _process: Child,
}

impl Nginx {
    pub(crate) fn start(directory: &Path, leaf: &Leaf, server: u16) -> Outcome<Option<Nginx>> {
        let Some(program) = installed("nginx") else { return Ok(None) };
        let (port, home) = (free_port()?, directory.display());
        fs::write(directory.join("leaf.pem"), leaf.certificate_pem())?;
        fs::write(directory.join("leaf.key"), leaf.key_pem())?;
        let config = format!(
            "daemon off;\nmaster_process off;\npid {home}/nginx.pid;\nerror_log {home}/nginx.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n\
               access_log off; client_body_temp_path {home}/b; proxy_temp_path {home}/p;\n\
               fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;\n\
               upstream behind {{ server 127.0.0.1:{server}; keepalive 4; }}\n\
               server {{\n\
                 listen 127.0.0.1:{port} ssl; server_name {NAME};\n\
                 ssl_certificate {home}/leaf.pem; ssl_certificate_key {home}/leaf.key;\n\
                 client_max_body_size 0; client_body_buffer_size 64k; proxy_request_buffering off;\n\
                 location / {{\n\
                   proxy_pass https://behind; proxy_http_version 1.1; proxy_set_header connection '';\n\
                   proxy_set_header host {NAME};\n\
                   proxy_ssl_verify on; proxy_ssl_trusted_certificate {home}/ca.pem;\n\
                   proxy_ssl_name {NAME}; proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.2 TLSv1.3;\n\
                   proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;\n\
                   proxy_max_temp_file_size 0;\n\
                 }}\n\
               }}\n\
             }}\n"
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, config)?;
        let log = directory.join("nginx.log");
        let mut command = Command::new(program);
        command.arg("-e").arg(&log).arg("-c").arg(&file);
        let process = Child::start(quiet(&mut command));
        if !listens(port) {
            println!("nginx: does not work here {}", fs::read_to_string(log).unwrap_or_default());
            return Ok(None);
        }
        Ok(Some(Nginx { port, _process: process }))
    }
}

/// A reverse proxy too, which passes large bodies on as they come.
pub(crate) struct Mitmproxy {
    pub(crate) port: u16,
    _process: Child,
}

impl Mitmproxy {
    pub(crate) fn start(directory: &Path, server: u16) -> Outcome<Option<Mitmproxy>> {
        let Some(program) = installed("mitmdump") else { return Ok(None) };
        let port = free_port()?;
        let home = directory.display();
        let mut command = Command::new(program);
        command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &port.to_string()]);
        command.args(["--mode", &format!("reverse:https://127.0.0.1:{server}")]);
        command.args(["--set", &format!("confdir={home}/mitmproxy"), "--set", "stream_large_bodies=1m"]);
        command.args(["--set", &format!("ssl_verify_upstream_trusted_ca={home}/ca.pem")]);
        let process = Child::start(quiet(&mut command));
        if !listens(port) {
            println!("mitmproxy: does not work here");
            return Ok(None);
        }
        Ok(Some(Mitmproxy { port, _process: process }))
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Waits until a server listens there.
fn listens(port: u16) -> bool {
    let start = Instant::now();
    while start.elapsed() < WAIT_TIMEOUT {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

fn installed(program: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    // Servers are where only administrators look.
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file());
    if found.is_none() {
        println!("{program}: not here");
    }
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

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

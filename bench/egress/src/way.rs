//! A way to the server, and a client at its beginning.

use crate::Outcome;
use crate::children::output;
use crate::stage::{NAME, Ports, loopback};
use crate::target::Target;
use belljar_engine::Sandbox;
use belljar_spec::Command;
use std::net::SocketAddr;

pub(crate) struct Way<'s> {
    pub(crate) name: &'static str,
    pub(crate) whence: Whence<'s>,
    /// To the server without cryptography.
    pub(crate) plain: Target,
    /// To the one with it.
    pub(crate) secure: Target,
    /// The words that lead curl there, its URL among them but for the path.
    curl: Vec<String>,
}

/// Where a client runs.
#[derive(Clone, Copy)]
pub(crate) enum Whence<'s> {
    Host,
    Inside(&'s Sandbox),
}

impl<'s> Way<'s> {
    /// Clients dial these addresses.
    pub(crate) fn at(name: &'static str, plain: SocketAddr, secure: SocketAddr) -> Way<'s> {
        let port = secure.port();
        let to = [format!("{NAME}:{port}:127.0.0.1"), format!("https://{NAME}:{port}")];
        // Whatever proxy this machine has is not on the way.
        let curl = ["--noproxy".into(), "*".into(), "--resolve".into()].into_iter().chain(to).collect();
        Way { name, whence: Whence::Host, plain: Target::At(plain), secure: Target::At(secure), curl }
    }

    /// Clients ask a proxy.
    pub(crate) fn through(name: &'static str, proxy: SocketAddr, ports: Ports) -> Way<'s> {
        let to = |port: u16| Target::Through { proxy, address: loopback(port) };
        let url = format!("https://{}", loopback(ports.secure));
        // Loopback is often excepted from proxies.
        let curl = vec!["--noproxy".into(), String::new(), "--proxy".into(), format!("http://{proxy}"), url];
        Way { name, whence: Whence::Host, plain: to(ports.plain), secure: to(ports.secure), curl }
    }

    /// Clients know the server's name.
    pub(crate) fn named(name: &'static str, whence: Whence<'s>, ports: Ports) -> Way<'s> {
        let to = |port: u16| Target::Once(NAME.into(), port);
        let curl = vec![format!("https://{NAME}:{}", ports.secure)];
        Way { name, whence, plain: to(ports.plain), secure: to(ports.secure), curl }
    }

    /// Megabytes per second of one download by curl.
    pub(crate) async fn download(&self, certificate: &str, bytes: u64) -> Outcome<f64> {
        let format = "%{http_code} %{size_download} %{time_total} %{time_pretransfer}";
        let words = [
            "curl",
            "--silent",
            "--show-error",
            "--output",
            "/dev/null",
            "--write-out",
            format,
            "--cacert",
            certificate,
        ];
        let mut words: Vec<String> = words.into_iter().map(String::from).chain(self.curl.clone()).collect();
        if let Some(url) = words.last_mut() {
            url.push_str(&format!("/{bytes}"));
        }
        match self.whence.figures(&words).await?.as_slice() {
            &[200.0, size, total, before] if size == bytes as f64 => Ok(size / 1e6 / (total - before)),
            other => Err(format!("curl did not download what it should: {other:?}").into()),
        }
    }
}

impl Whence<'_> {
    /// Runs this executable in a role, and reads the figures that it prints.
    pub(crate) async fn measure(&self, words: &[&str]) -> Outcome<Vec<f64>> {
        let me = std::env::current_exe()?.display().to_string();
        let words: Vec<String> =
            std::iter::once(me.as_str()).chain(words.iter().copied()).map(String::from).collect();
        self.figures(&words).await
    }

    async fn figures(&self, words: &[String]) -> Outcome<Vec<f64>> {
        let printed = match self {
            Whence::Host => output(words)?,
            Whence::Inside(sandbox) => {
                let result = sandbox.exec(&Command::new(words)?).await?;
                if result.exit_code != Some(0) {
                    let why = String::from_utf8_lossy(&result.stderr).into_owned();
                    return Err(format!("`{}` failed inside: {why}", words.join(" ")).into());
                }
                String::from_utf8(result.stdout)?
            }
        };
        Ok(printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
    }
}

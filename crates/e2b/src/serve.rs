//! The server's run: its state, its address, its tasks.

use crate::book::Book;
use crate::facts::FactsDir;
use crate::listen::{Ways, listen};
use crate::server::{Domain, E2b, Kept};
use crate::template::build;
use crate::template::record::Templates;
use crate::template::uploads::Uploads;
use crate::token::TokenKey;
use crate::{api, expiry, tls};
use belljar_api::client::Client;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::{Survives, write_atomic};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;

/// How it is to run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    /// Whether plain HTTP is served there; TLS is, where there is a domain.
    pub plain: bool,
    /// The domain below which every sandbox has names.
    pub domain: Option<String>,
    /// The domain's certificate; without it, our own CA makes one.
    pub certificate: Option<tls::Certificate>,
    /// Where its state is kept: `<state>/e2b`.
    pub directory: PathBuf,
}

/// A server that has its address.
pub struct Bound {
    listener: TcpListener,
    ways: Ways,
    settings: Settings,
}

impl Bound {
    /// Takes the address, so that a wrong setting ends the daemon before anything is served.
    pub async fn new(settings: Settings) -> Result<Bound, SandboxError> {
        belljar_state::create_private(&settings.directory).map_err(|error| unkept(&settings, error))?;
        let tls = match &settings.domain {
            Some(domain) => Some(tls::acceptor(&settings.directory, domain, settings.certificate.as_ref())?),
            None => None,
        };
        let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
            ErrorCode::Internal
                .error(format!("cannot listen at {}: {error}", settings.listen))
                .hint(hint!("name another address with {}", CommandLine::ServeE2b))
                .caused_by(error)
        })?;
        Ok(Bound { listener, ways: Ways { tls, plain: settings.plain }, settings })
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until it is dropped. `daemon` is asked as the owner of the machine, and listens by now.
    pub async fn serve(self, daemon: Client) -> Result<(), SandboxError> {
        let Bound { listener, ways, settings } = self;
        let kept = kept(&settings.directory).map_err(|error| unkept(&settings, error))?;
        let machine = daemon.capabilities().await.map_err(|error| error.code().error(error.to_string()))?;
        let port = listener.local_addr().map_or(settings.listen.port(), |address| address.port());
        let domain = settings.domain.clone().map(|name| {
            let told = if port == 443 { name.clone() } else { format!("{name}:{port}") };
            Domain { name, told }
        });
        let serving = Serving {
            url: format!("http://{}", SocketAddr::new(settings.listen.ip(), port)),
            plain: settings.plain,
            domain: domain.as_ref().map(|domain| domain.told.clone()),
            authority: match (&domain, &settings.certificate) {
                (Some(_), None) => Some(tls::certificate_authority(&settings.directory)?),
                _ => None,
            },
        };
        serving.write(&settings.directory).map_err(|error| unkept(&settings, error))?;
        let e2b = Arc::new(E2b::new(daemon, kept, domain, machine));
        api::snapshots::sweep(&e2b).await;
        build::sweep(&e2b).await;
        tokio::join!(expiry::watch(Arc::clone(&e2b)), listen(listener, ways, e2b));
        Ok(())
    }
}

fn kept(directory: &Path) -> io::Result<Kept> {
    let (files, found) = FactsDir::open(&directory.join("sandboxes"))?;
    Ok(Kept {
        book: Book::new(files, found),
        tokens: TokenKey::open(directory)?,
        templates: Templates::open(&directory.join("templates"))?,
        uploads: Uploads::open(&directory.join("uploads"))?,
    })
}

fn unkept(settings: &Settings, error: io::Error) -> SandboxError {
    let message = format!("cannot use {}: {error}", settings.directory.display());
    ErrorCode::StateFailed.error(message).caused_by(error)
}

/// How a server is reached, for programs of its user that are to be its clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Of plain HTTP.
    pub url: String,
    pub plain: bool,
    /// With its port.
    pub domain: Option<String>,
    /// The CA of our own that signed for the domain.
    pub authority: Option<PathBuf>,
}

impl Serving {
    /// How the last one of this directory is reached.
    pub fn find(directory: &Path) -> Option<Serving> {
        serde_json::from_slice(&fs::read(directory.join(SERVING)).ok()?).ok()
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("plain data can be written as JSON");
        write_atomic(&directory.join(SERVING), &text, Survives::Kill)
    }
}

const SERVING: &str = "serving.json";

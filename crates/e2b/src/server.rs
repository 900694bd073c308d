//! What every request can use, and who it is from. A sandbox is always used in the name of the grant that made it, so that the daemon
//! judges each call by that grant: a grant that is revoked opens nothing any more.

use crate::book::{Book, Entry};
use crate::connections::UnderWay;
use crate::facts::Facts;
use crate::fault::Fault;
use crate::http::header;
use crate::key::Key;
use crate::ports::PortSlots;
use crate::template::log::Builds;
use crate::template::record::Templates;
use crate::template::uploads::Uploads;
use crate::token::{TokenKey, same};
use belljar_api::client::{Client, ClientError, Sandbox, SandboxFilter};
use belljar_api::{Capabilities, GrantRules};
use hyper::Request;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The server.
pub(crate) struct E2b {
    /// As the owner of the machine.
    pub(crate) owner: Client,
    pub(crate) book: Book,
    pub(crate) tokens: TokenKey,
    pub(crate) templates: Templates,
    pub(crate) uploads: Uploads,
    pub(crate) builds: Builds,
    /// The domain that is served, and at which port, as clients are told of it.
    pub(crate) domain: Option<Domain>,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) machine: Capabilities,
    pub(crate) port_slots: Arc<PortSlots>,
    /// Held while one that was stopped is started again.
    pub(crate) waking: tokio::sync::Mutex<()>,
    /// By grant: when it was last asked about, and counted.
    counted: Mutex<HashMap<String, Instant>>,
    /// By grant: a connection is one grant's, so that it can end with it.
    clients: Mutex<HashMap<String, Client>>,
}

/// What is kept on disk.
pub(crate) struct Kept {
    pub(crate) book: Book,
    pub(crate) tokens: TokenKey,
    pub(crate) templates: Templates,
    pub(crate) uploads: Uploads,
}

/// The domain below which every sandbox has names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Domain {
    pub(crate) name: String,
    /// With the port, where that is not the usual one.
    pub(crate) told: String,
}

/// Who calls the control API.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) grant: String,
}

impl E2b {
    pub(crate) fn new(owner: Client, kept: Kept, domain: Option<Domain>, machine: Capabilities) -> E2b {
        let Kept { book, tokens, templates, uploads } = kept;
        let (under_way, builds) = (Arc::default(), Builds::new());
        E2b {
            owner,
            book,
            tokens,
            templates,
            uploads,
            builds,
            domain,
            under_way,
            machine,
            port_slots: Arc::default(),
            waking: tokio::sync::Mutex::default(),
            counted: Mutex::default(),
            clients: Mutex::default(),
        }
    }

    /// The caller of the control API. Every key that does not count gets the same answer.
    pub(crate) async fn caller<B>(&self, request: &Request<B>) -> Result<Caller, Fault> {
        let unknown =
            || Fault::unauthorized("the API key is missing, was never made, was revoked, or has expired");
        let key = header(request, API_KEY).and_then(Key::parse).ok_or_else(unknown)?;
        // The daemon knows whether the secret is right.
        let shown = self.owner.clone().with_token(&key.token);
        match shown.sandboxes_page(&SandboxFilter::default(), 1, None).await {
            Ok(_) => Ok(Caller { grant: key.grant }),
            Err(error) if error.status() == Some(401) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// The daemon, asked in the place of a grant.
    pub(crate) fn client(&self, grant: &str) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || self.owner.clone().for_grant(grant);
        clients.entry(grant.to_string()).or_insert_with(new).clone()
    }

    /// An error where the grant of a sandbox does not count any more. What the daemon said is remembered for a moment.
    pub(crate) async fn must_count(&self, facts: &Facts) -> Result<(), ClientError> {
        let asked = Instant::now();
        let known = self.counted.lock().unwrap_or_else(PoisonError::into_inner).get(&facts.grant).copied();
        if known.is_some_and(|known| asked.duration_since(known) < GRANT_COUNTS_TIME) {
            return Ok(());
        }
        let told = self.client(&facts.grant).sandbox(&facts.name).info().await;
        match told {
            Ok(_) => {}
            // Too much is asked in its name, for now. The daemon says so only of a grant that counts.
            Err(error) if error.status() == Some(429) => {}
            Err(error) => return Err(error),
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MAX_COUNTED_GRANTS {
            counted.clear();
        }
        counted.insert(facts.grant.clone(), asked);
        Ok(())
    }

    /// What a grant allows.
    pub(crate) async fn rules(&self, grant: &str) -> Result<Option<GrantRules>, Fault> {
        let all = self.owner.grants().await?;
        Ok(all.into_iter().find(|known| known.id == grant).map(|known| known.rules))
    }

    /// The sandbox itself.
    pub(crate) fn sandbox(&self, facts: &Facts) -> Sandbox {
        self.client(&facts.grant).sandbox(&facts.name).holding(&facts.lease)
    }

    /// One of the caller's sandboxes. Another's is none.
    pub(crate) fn own(&self, caller: &Caller, id: &str) -> Result<Arc<Entry>, Fault> {
        let entry = self.book.get(id).filter(|entry| entry.facts().grant == caller.grant);
        entry.ok_or_else(|| Fault::not_found(format!("sandbox {id} was not found")))
    }

    /// Whether a path of the data plane is the server's own business, and no client's.
    pub(crate) fn is_internal(&self, path: &str) -> bool {
        ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw"].contains(&path)
    }

    /// Whether this is the access token of a sandbox.
    pub(crate) fn opens(&self, facts: &Facts, token: &str) -> bool {
        same(&self.tokens.access(&facts.bearer()), token)
    }
}

/// So long the ports of a sandbox may stay open when its grant was revoked.
const GRANT_COUNTS_TIME: Duration = Duration::from_secs(2);
/// Past this, all are asked about again.
const MAX_COUNTED_GRANTS: usize = 1024;
pub(crate) const API_KEY: &str = "x-api-key";
pub(crate) const ACCESS_TOKEN: &str = "x-access-token";

//! A model that plays a script: the same request gets the same bytes, in Anthropic's words, OpenAI's (both) or Google's,
//! whole or event by event.
//!
//! What it does is a scenario, a list of [`Step`]s. A prompt picks one with `[[mock:NAME]]`, or `[[mock:NAME#TAG]]` where
//! tests side by side want failures counted apart; a prompt that names none gets the default. Which step it is follows from
//! the request alone (tools called since the last prompt), so any number of agents can ask at once.
//!
//! It keeps every request with what it made of it ([`ModelCall`]), and can be held, so that a test decides when the next event
//! of a stream leaves.

mod anthropic;
mod api;
mod call;
mod chat;
mod conversation;
mod decide;
mod deliver;
mod example;
mod gemini;
mod openai;
mod reply;
mod responses;
mod scenario;
mod step;
mod tools;
mod usage;

pub use api::Api;
pub use call::ModelCall;
pub use scenario::SCENARIOS;
pub use step::{Delivery, Step, Stop};
pub use usage::Usage;

use crate::http::{Both, read};
use crate::{Leaf, Request, Response, Server, TlsServer};
use deliver::Gate;
use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A server with a model.
pub struct Model {
    server: Kind,
    shared: Arc<Shared>,
}

enum Kind {
    Plain(Server),
    Tls(TlsServer),
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<ModelCall>>,
    settings: Mutex<Settings>,
    gate: Gate,
}

/// What a test can change.
#[derive(Default)]
struct Settings {
    /// For prompts that name no scenario; `hello` until it is set.
    default: Option<(String, Vec<Step>)>,
    /// Requests without it get a 401.
    key: Option<String>,
    instead: Option<Instead>,
    /// How often a step of a scenario, by its tag, has failed.
    failed: HashMap<(String, String, usize), usize>,
}

/// Answers instead of the model.
type Instead = Arc<dyn Fn(&Request) -> Option<Response> + Send + Sync>;

impl Model {
    /// At a free port of this address, in the clear.
    pub fn start(at: impl Into<IpAddr>) -> Model {
        Model::at(SocketAddr::new(at.into(), 0))
    }

    /// At this very address.
    pub fn at(at: SocketAddr) -> Model {
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let server = Server::at(at, move |mut stream| {
            let _ = stream.set_nodelay(true);
            known.serve(&mut stream);
            let _ = stream.shutdown(Shutdown::Write);
        });
        Model { server: Kind::Plain(server), shared }
    }

    /// At a free port of this address, over TLS.
    pub fn start_tls(at: impl Into<IpAddr>, leaf: &Leaf) -> Model {
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let server = TlsServer::start(at, leaf, move |stream| known.serve(stream));
        Model { server: Kind::Tls(server), shared }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        let base: &Server = match &self.server {
            Kind::Plain(server) => server,
            Kind::Tls(server) => server,
        };
        base.address()
    }

    /// Where it is, without a scheme.
    pub fn authority(&self) -> String {
        self.address().to_string()
    }

    /// Where it is, for a client.
    pub fn url(&self) -> String {
        let scheme = match &self.server {
            Kind::Plain(_) => "http",
            Kind::Tls(_) => "https",
        };
        format!("{scheme}://{}", self.authority())
    }

    /// What it plays for a prompt that names nothing: one of [`SCENARIOS`].
    pub fn scenario(&self, name: &str) {
        let steps = scenario::steps(name).unwrap_or_else(|| panic!("there is no scenario `{name}`"));
        lock(&self.shared.settings).default = Some((name.into(), steps));
    }

    /// The same, in steps of the test's own; the last one is played again and again.
    pub fn script(&self, steps: impl Into<Vec<Step>>) {
        let steps = steps.into();
        assert!(!steps.is_empty(), "a script has a step");
        lock(&self.shared.settings).default = Some(("script".into(), steps));
    }

    /// Answers 401 to a client that has another key, or none.
    pub fn expect_key(&self, key: &str) {
        lock(&self.shared.settings).key = Some(key.into());
    }

    /// Says something else where this has an answer.
    pub fn instead(&self, answer: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static) {
        lock(&self.shared.settings).instead = Some(Arc::new(answer));
    }

    /// Lets no event of a stream leave until it is released.
    pub fn hold(&self) {
        self.shared.gate.hold();
    }

    /// Lets so many more leave.
    pub fn release(&self, events: usize) {
        self.shared.gate.release(events);
    }

    /// Every request so far, and what was made of it.
    pub fn calls(&self) -> Vec<ModelCall> {
        lock(&self.shared.calls).clone()
    }

    /// Every request so far, as it arrived.
    pub fn requests(&self) -> Vec<Request> {
        self.calls().into_iter().map(|call| call.request).collect()
    }

    /// What it said that it used, all in all.
    pub fn used(&self) -> Usage {
        lock(&self.shared.calls).iter().filter_map(|call| call.usage).sum()
    }
}

impl Shared {
    /// The requests of one connection.
    fn serve(&self, stream: &mut (impl Read + Write)) {
        let mut stream = BufReader::new(Both(stream));
        while let Ok(Some(request)) = read(&mut stream) {
            let instead = lock(&self.settings).instead.clone();
            let (call, answer) = match instead.and_then(|answer| answer(&request)) {
                Some(response) => decide::instead(&request, response),
                None => decide::decide(&request, &mut lock(&self.settings)),
            };
            lock(&self.calls).push(call);
            let delivered = deliver::deliver(stream.get_mut().0, &request, answer, &self.gate);
            let is_last =
                request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
            if is_last || !matches!(delivered, Ok(deliver::After::Next)) {
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! TLS that the gateway ends: where rules are about requests, or a credential belongs.
//!
//! ```text
//! client hello (judged) ─> dial ─> TLS with the server, verified ─> TLS with the client, by the sandbox's authority
//!                                        └── speaks what the server chose ──┘          └─> http: every request
//! ```
//!
//! The server is asked first, with what the client offers, and the client gets exactly what the server chose: both
//! sides speak the same version of HTTP, and nothing is translated (docs/decisions/0010). Whatever is refused on the way
//! is answered in HTTP, since a client shows that and not an alert.

mod alpn;
mod client;
mod server;

pub(crate) use alpn::Alpn;
pub(crate) use client::{Reached, reach};

use crate::connection::alert;
use crate::credentials::Origin;
use crate::hello::{self, Hello};
use crate::http::{Route, Start};
use crate::serving::{Alive, Serving};
use alpn::Offer;
use belljar_audit::Ending;
use belljar_spec::egress::{HostName, Protocol, Reason, Refusal};
use std::sync::Arc;
use tokio::net::TcpStream;
use tracing::debug;

/// Serves a connection that began with a hello for this name, which `ahead` holds.
pub(crate) async fn serve(
    inside: TcpStream,
    ahead: Vec<u8>,
    name: HostName,
    port: u16,
    serving: Arc<Serving>,
    alive: Alive,
) {
    let refusal = |reason| Refusal::new(&name, Some(port), reason).protocol(Protocol::Tls);
    let offer = match hello::read(&ahead) {
        Hello::Complete(hello) => Offer::of(&hello),
        Hello::Incomplete | Hello::Malformed(_) => None,
    };
    let (Some(offer), Some(authority)) = (offer, &serving.authority) else {
        let detail = "what is looked into has to be HTTP";
        serving.recorder.connection_refused(&refusal(Reason::ProtocolNotAllowed).detail(detail));
        return alert(&inside);
    };
    let to = Origin { name: name.clone(), port, secure: true };
    let mut reached = reach(&serving, &to, offer.protocols()).await;
    if let Ok(connection) = &mut reached
        && let Err(why) = offer.fits(connection.alpn)
    {
        connection.record.ending = Ending::Refused;
        reached = Err(refusal(Reason::DialFailed).detail(why));
    }
    let alpn = match &reached {
        Ok(connection) => connection.alpn,
        Err(_) => Some(offer.simplest()),
    };
    let accepted = match authority.server(&name, alpn) {
        Ok(config) => server::accept(inside, ahead, config).await,
        Err(error) => Err(Some((Reason::DialFailed, error.to_string()))),
    };
    let stream = match accepted {
        Ok(stream) => stream,
        Err(why) => {
            if let Ok(connection) = &mut reached {
                connection.record.ending = if why.is_some() { Ending::Refused } else { Ending::ResetInside };
            }
            // A client that was never let out has nothing to distrust.
            if let Some((reason, detail)) = why.filter(|_| reached.is_ok()) {
                serving.recorder.connection_refused(&refusal(reason).detail(&detail));
            }
            if let Err(refusal) = &reached {
                serving.recorder.connection_refused(refusal);
            }
            return;
        }
    };
    debug!(tls.alpn = ?alpn, tls.reached = reached.is_ok(), "opened");
    let route = Route::new(to, serving, alive, Start::Reached(reached.map(Box::new)));
    match alpn {
        Some(Alpn::Http2) => route.serve_http2(stream).await,
        Some(Alpn::Http1) | None => route.serve_http1(stream).await,
    }
}

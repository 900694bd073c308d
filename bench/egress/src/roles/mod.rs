//! What the executable is when it is started by the conductor. Clients print figures, separated by spaces.

pub(crate) mod client;
pub(crate) mod dns_client;
pub(crate) mod held;
pub(crate) mod hold;
mod plain;
pub(crate) mod server;
pub(crate) mod tls_client;
mod tls_server;

pub(crate) use tls_server::{CERTIFICATE, KEY};

use crate::Outcome;
use belljar_sys::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::time::Duration;

/// Room for thousands of connections.
fn make_room() -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

fn seconds(word: &str) -> Outcome<Duration> {
    Ok(Duration::try_from_secs_f64(word.parse()?)?)
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn usage<T>(role: &str) -> Outcome<T> {
    Err(format!("these are no words for a {role}: the conductor knows them").into())
}

/// Connections at a time, where many are.
const AT_A_TIME: usize = 32;

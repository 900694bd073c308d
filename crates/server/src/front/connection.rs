//! Who is at the other end of a connection, and whether it may continue.

use belljar_sys::rustix::process::geteuid;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UnixStream;
use tokio::sync::watch;

/// A connection to the daemon.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) peer: Peer,
    /// Ours, where it came over the network.
    pub(super) address: Option<IpAddr>,
    closed: watch::Sender<bool>,
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// The user that the daemon runs as, or root, as the kernel says.
    Owner,
    /// Any other client, which needs a token.
    Stranger,
}

impl Connection {
    pub(super) fn unix(stream: &UnixStream) -> Arc<Connection> {
        let is_ours = |uid: u32| uid == geteuid().as_raw() || uid == 0;
        let peer = match stream.peer_cred() {
            Ok(peer) if is_ours(peer.uid()) => Peer::Owner,
            _ => Peer::Stranger,
        };
        Arc::new(Connection { peer, address: None, closed: watch::Sender::new(false) })
    }

    pub(super) fn tcp(address: IpAddr) -> Arc<Connection> {
        Arc::new(Connection {
            peer: Peer::Stranger,
            address: Some(address),
            closed: watch::Sender::new(false),
        })
    }

    /// Ends it, with all that was begun on it.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Ready when it is to end.
    pub(crate) async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // The sender is ours.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

/// Which connections a grant was used on: what streams over them ends with the grant.
#[derive(Debug, Default)]
pub(super) struct Used(Mutex<HashMap<String, Vec<Weak<Connection>>>>);

impl Used {
    /// A grant was used on a connection, which ends when the grant does. `false` where it has too many.
    #[must_use]
    pub(super) fn note(&self, grant: &str, expires_ms: Option<i64>, connection: &Arc<Connection>) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = used.entry(grant.to_string()).or_default();
        if known.iter().any(|one| std::ptr::eq(one.as_ptr(), Arc::as_ptr(connection))) {
            return true;
        }
        known.retain(|one| one.strong_count() > 0);
        if known.len() >= MAX_CONNECTIONS_OF_PEER {
            return false;
        }
        known.push(Arc::downgrade(connection));
        if let Some(expires_ms) = expires_ms {
            close_at(Arc::downgrade(connection), expires_ms);
        }
        true
    }

    /// The grant counts no more.
    pub(super) fn close(&self, grant: &str) {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(grant);
        for connection in used.into_iter().flatten().filter_map(|one| one.upgrade()) {
            connection.close();
        }
    }
}

/// Connections of one grant at the same time: others want places too.
const MAX_CONNECTIONS_OF_PEER: usize = 512;

fn close_at(connection: Weak<Connection>, expires_ms: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_millis(u64::try_from(expires_ms).unwrap_or(0)).saturating_sub(now);
    tokio::spawn(async move {
        tokio::time::sleep(left).await;
        if let Some(connection) = connection.upgrade() {
            connection.close();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_grant_does_not_take_every_place() {
        let used = Used::default();
        let mut open: Vec<Arc<Connection>> =
            (0..MAX_CONNECTIONS_OF_PEER).map(|_| Connection::tcp(Ipv4Addr::LOCALHOST.into())).collect();
        assert!(open.iter().all(|one| used.note("a", None, one)));
        let more = Connection::tcp(Ipv4Addr::LOCALHOST.into());
        assert!(!used.note("a", None, &more), "it has enough");
        assert!(used.note("a", None, &open[0]), "what is open is");
        assert!(used.note("b", None, &more), "others have places of their own");
        open.pop();
        assert!(used.note("a", None, &more), "one that was closed is given back");
    }
}

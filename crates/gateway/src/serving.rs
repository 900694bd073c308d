//! One sandbox as a connection knows it: one version of its policy, and what all connections share: its names, and what it has used.

use crate::connection_limits::{Arrival, Crowd, DescriptorBudget, Seat, Table};
use crate::credentials::Credentials;
use crate::decide::{self, Allowed, Permit};
use crate::gateway::Terms;
use crate::live::PolicyVersion;
use crate::names::{Addresses, Names};
use crate::pushes::Pushes;
use crate::record::Recorder;
use crate::resolve::Resolver;
use crate::sandbox_ca::Authority;
use crate::trust::{self, TrustError};
use crate::unresolved::{MAX_UNRESOLVED_NAMES, UnresolvedNames};
use crate::upstream_proxy::Proxy;
use belljar_spec::egress::{HostName, Protocol, ProxyResolve, Reason, Refusal, Rule, is_this_machine};
use belljar_sys::rustix::net::sockopt;
use rustls::ClientConfig;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::net::TcpStream;

#[derive(Clone)]
pub(crate) struct Serving {
    /// Of one connection, or of the next one: it never changes.
    pub(crate) policy: Arc<PolicyVersion>,
    /// Whether a later version ended this connection.
    pub(crate) revoked: Arc<AtomicBool>,
    pub(crate) names: Arc<Names>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) pushes: Option<Arc<Pushes>>,
    pub(crate) proxy: Option<Arc<Proxy>>,
    // Of a part of the policy that no change touches.
    resolver: Arc<OnceLock<Resolver>>,
    unresolved: Arc<UnresolvedNames>,
    trust: Arc<OnceLock<Result<ClientConfig, TrustError>>>,
    table: Arc<Table>,
}

impl Serving {
    pub(crate) fn new(
        places: &Arc<DescriptorBudget>,
        terms: Terms,
        addresses: Addresses,
        arrival: Arrival,
    ) -> Serving {
        let Terms { policy, recorder, credentials, authority, pushes, proxy, llm: _, rules: _, ports: _ } =
            terms;
        credentials.record_in(&recorder);
        Serving {
            table: places.table(policy.limits.connections, arrival),
            meter: Arc::new(Meter::new(policy.limits.bytes.map(|bytes| bytes.as_u64()))),
            unresolved: Arc::new(UnresolvedNames::new(policy.mode)),
            policy: Arc::new(PolicyVersion::new(policy, 0)),
            revoked: Arc::default(),
            names: Arc::new(Names::new(addresses)),
            recorder,
            credentials,
            authority,
            pushes: pushes.map(Arc::new),
            proxy,
            trust: Arc::default(),
            resolver: Arc::default(),
        }
    }

    /// The same sandbox under another version of its policy.
    pub(crate) fn under(&self, policy: Arc<PolicyVersion>, revoked: Arc<AtomicBool>) -> Serving {
        Serving { policy, revoked, ..self.clone() }
    }

    /// Whether a rule or a credential is about some requests to this host and port, and not about others.
    pub(crate) fn limits_requests(&self, name: &HostName, port: u16) -> bool {
        let limits = |rule: &Rule| {
            rule.requests.as_ref().is_some_and(|filter| !filter.is_any()) && rule.matches(name, Some(port))
        };
        self.policy.allow.iter().any(limits) || self.credentials.limits_requests(name, port)
    }

    /// Resolves a name and judges every address: what may be dialled now. A question for a name leaves the host, and says
    /// what the sandbox wants it to say: so it is not asked where it could not be recorded, nor for any number of names that
    /// do not exist.
    pub(crate) async fn permit(&self, allowed: Allowed, protocol: Protocol) -> Result<Permit, Refusal> {
        let (name, port) = (allowed.name(), allowed.port());
        let refused = |reason| Refusal::new(name, Some(port), reason).protocol(protocol);
        if !self.recorder.takes_refusals() {
            return Err(refused(Reason::NotRecorded).detail("the audit log takes no more lines"));
        }
        let resolver = self.resolver.get_or_init(|| Resolver::new(&self.policy.resolvers));
        let aliases = resolver.aliases(name);
        let at = Some((port, protocol));
        if let Some(alias) = aliases.iter().find(|alias| decide::is_forbidden(&self.policy, alias, at)) {
            let detail = format!("/etc/hosts has it as another name of {alias}");
            return Err(refused(Reason::NameDenied).detail(&detail));
        }
        let looks_up =
            |proxy: &Arc<Proxy>| proxy.terms().resolve == ProxyResolve::Proxy && proxy.terms().leads_to(name);
        if self.proxy.as_ref().is_some_and(looks_up) && !is_this_machine(name) {
            return decide::by_proxy(&self.policy, allowed, protocol);
        }
        if !self.unresolved.has_room_for(name, Instant::now()) {
            let detail = format!("{MAX_UNRESOLVED_NAMES} names without an address were asked for");
            return Err(refused(Reason::TooManyNames).detail(&detail));
        }
        match resolver.addresses(name).await {
            Ok(addresses) => {
                self.unresolved.forget(name);
                decide::addresses(&self.policy, allowed, protocol, &addresses)
            }
            Err(why) => {
                self.unresolved.remember(name, &why, Instant::now());
                Err(refused(Reason::NotResolved).detail(&why.to_string()))
            }
        }
    }

    /// Whether the gateway has to inspect TLS there: everywhere, or rules are about requests, or a secret belongs to the
    /// place.
    pub(crate) fn looks_into(&self, allowed: &Allowed) -> bool {
        self.policy.inspect
            || allowed.is_inspected(Protocol::Tls)
            || self.credentials.covers(allowed.name(), allowed.port())
    }

    /// The CAs that the gateway itself trusts, where it speaks TLS to servers for this sandbox.
    pub(crate) fn trust(&self) -> Result<&ClientConfig, TrustError> {
        let trust = self.trust.get_or_init(|| trust::client(&self.policy.authorities));
        trust.as_ref().map_err(Clone::clone)
    }

    /// A place for one more connection, if there is one.
    pub(crate) fn take_seat(&self) -> Option<Seat> {
        self.table.take()
    }

    /// Lets no more wait at a connection's socket than there is room for, with so many of them.
    pub(crate) fn fit(&self, stream: &TcpStream) {
        if let Some(size) = self.table.buffer() {
            let _ = sockopt::set_socket_recv_buffer_size(stream, size);
            let _ = sockopt::set_socket_send_buffer_size(stream, size);
        }
    }

    /// Whether there are so many connections that each has to do with less.
    pub(crate) fn crowd(&self) -> Crowd {
        self.table.crowd()
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> u32 {
        self.table.taken()
    }
}

/// Held by everything that may still write into the record; the last one dropped says that all is written.
pub(crate) type Alive = Sender<()>;

/// The bytes that a sandbox may still move, both ways together.
pub(crate) struct Meter(Option<AtomicU64>);

impl Meter {
    pub(crate) fn new(limit: Option<u64>) -> Meter {
        Meter(limit.map(AtomicU64::new))
    }

    /// Takes some of what is left, all of it or nothing.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), Reason> {
        let Some(left) = &self.0 else { return Ok(()) };
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .map(drop)
            .map_err(|_| Reason::ByteLimit)
    }

    /// Puts back what was taken and not used.
    pub(crate) fn give_back(&self, bytes: u64) {
        if let Some(left) = &self.0 {
            left.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spent_until_none_are_left() {
        let meter = Meter::new(Some(10));
        assert_eq!(meter.spend(7), Ok(()));
        assert_eq!(meter.spend(4), Err(Reason::ByteLimit));
        assert_eq!(meter.spend(3), Ok(()));
        assert_eq!(meter.spend(1), Err(Reason::ByteLimit));
        meter.give_back(2);
        assert_eq!(meter.spend(2), Ok(()));
        assert_eq!(Meter::new(None).spend(u64::MAX), Ok(()));
    }
}

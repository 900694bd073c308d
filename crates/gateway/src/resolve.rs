//! Names become addresses here, on the host, at the moment of a connection and only for names that policy allows.
//!
//! What was judged is what is asked: a name of a sandbox is absolute, and the host's DNS search list makes no other name of it.
//! Only servers that the host's own configuration names (the model) are looked for in that list.

use crate::decide;
use crate::hosts::Hosts;
use belljar_spec::egress::{EgressPolicy, HostName, is_this_machine};
use hickory_resolver::config::ResolveHosts;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Every address of a name, as a connection by this policy would find it now.
pub async fn resolve(policy: &EgressPolicy, name: &HostName) -> Result<Vec<IpAddr>, String> {
    let resolver = Resolver::new(&policy.resolvers);
    if let Some(alias) = resolver.aliases(name).iter().find(|alias| decide::is_forbidden(policy, alias, None))
    {
        return Err(format!("/etc/hosts has it as another name of {alias}, which a rule forbids"));
    }
    resolver.addresses(name).await.map_err(|why| why.to_string())
}

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAddress {
    #[error("there is no such name")]
    NoSuchName,
    #[error("the name has no address")]
    NoRecord,
    /// No resolver said anything about it.
    #[error("{0}")]
    Unanswered(String),
}

/// What a name without any dot means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShortNames {
    /// Itself, and nothing else.
    Absolute,
    /// The first name below one of the host's search list that there is.
    Searched,
}

/// Asks the host's resolvers, or those that policy names.
pub(crate) struct Resolver {
    hosts: Hosts,
    servers: Option<TokioResolver>,
    answers: Answers,
    short_names: ShortNames,
}

impl Resolver {
    /// For the names of a sandbox. Must be called in the event loop that will use it.
    pub(crate) fn new(servers: &[SocketAddr]) -> Resolver {
        Resolver::with(servers, ShortNames::Absolute)
    }

    /// For names that the host's own configuration has. Must be called in the event loop that will use it.
    pub(crate) fn of_the_host() -> Resolver {
        Resolver::with(&[], ShortNames::Searched)
    }

    fn with(servers: &[SocketAddr], short_names: ShortNames) -> Resolver {
        let builder = if servers.is_empty() {
            // Without a resolv.conf there is still /etc/hosts.
            TokioResolver::builder_tokio().ok()
        } else {
            Some(asking(servers))
        };
        let servers = builder.and_then(|mut builder| {
            let options: &mut ResolverOpts = builder.options_mut();
            options.timeout = TIMEOUT;
            options.attempts = ATTEMPTS;
            // Read by ourselves.
            options.use_hosts_file = ResolveHosts::Never;
            builder.build().ok()
        });
        Resolver { hosts: Hosts::of_this_machine(), servers, answers: Answers::default(), short_names }
    }

    /// Other names that /etc/hosts gives to the addresses of this one.
    pub(crate) fn aliases(&self, name: &HostName) -> Vec<HostName> {
        self.hosts.aliases(name)
    }

    /// Every address of a name, or why there is none. /etc/hosts alone answers where it knows the name, as elsewhere
    /// on this machine.
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, NoAddress> {
        if is_this_machine(name) {
            // Whatever a server would say of it. Which ports may be dialled there is decided by policy.
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        if let Some(known) = self.answers.known(name, Instant::now()) {
            return Ok(known);
        }
        let known = self.hosts.addresses(name);
        if !known.is_empty() {
            return Ok(known);
        }
        let unanswered = |why: String| NoAddress::Unanswered(why);
        let question = self.question(name).map_err(|error| unanswered(error.to_string()))?;
        let Some(servers) = &self.servers else {
            return Err(unanswered("this machine has no resolver".into()));
        };
        match servers.lookup_ip(question).await {
            Ok(found) => {
                let addresses: Vec<IpAddr> = found.iter().collect();
                self.answers.keep(name, &addresses, found.valid_until());
                Ok(addresses)
            }
            Err(error) if error.is_nx_domain() => Err(NoAddress::NoSuchName),
            Err(error) if error.is_no_records_found() => Err(NoAddress::NoRecord),
            Err(error) => Err(unanswered(error.to_string())),
        }
    }

    /// With its last dot, so that no search list makes another name of it.
    fn question(&self, name: &HostName) -> Result<Name, hickory_resolver::proto::ProtoError> {
        let is_searched = self.short_names == ShortNames::Searched && !name.as_str().contains('.');
        Name::from_str(&if is_searched { name.to_string() } else { format!("{name}.") })
    }
}

/// What servers answered, for as long as they said that it holds. The library remembers it too, but a connection that asks
/// it takes longer for that than for all else that is decided about it.
#[derive(Default)]
struct Answers(Mutex<HashMap<HostName, Answer>>);

struct Answer {
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl Answers {
    fn known(&self, name: &HostName, now: Instant) -> Option<Vec<IpAddr>> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(name).filter(|answer| now < answer.until).map(|answer| answer.addresses.clone())
    }

    fn keep(&self, name: &HostName, addresses: &[IpAddr], until: Instant) {
        if addresses.len() > MAX_ADDRESSES {
            return;
        }
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MAX_ANSWERS {
            // A rule for every name below one lets a program inside have any number of them asked.
            answers.clear();
        }
        answers.insert(name.clone(), Answer { addresses: addresses.to_vec(), until });
    }
}

fn asking(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let server = |address: &SocketAddr| {
        let mut server = NameServerConfig::udp_and_tcp(address.ip());
        for connection in &mut server.connections {
            let connection: &mut ConnectionConfig = connection;
            connection.port = address.port();
        }
        server
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}

/// For one question to one server.
const TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 2;
/// Names whose answers are kept, and the addresses of each: a name's DNS server decides how many there are.
const MAX_ANSWERS: usize = 256;
const MAX_ADDRESSES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_until_its_time_is_over() {
        let (answers, now) = (Answers::default(), Instant::now());
        let name: HostName = "api.example.com".parse().expect("a name");
        let found = [IpAddr::from([203, 0, 113, 7])];
        answers.keep(&name, &found, now + Duration::from_secs(5));
        assert_eq!(answers.known(&name, now + Duration::from_secs(4)), Some(found.to_vec()));
        assert_eq!(answers.known(&name, now + Duration::from_secs(5)), None);
        assert_eq!(answers.known(&"example.com".parse().expect("a name"), now), None);
    }

    #[tokio::test]
    async fn a_search_list_makes_no_other_name_of_what_a_sandbox_asked_for() {
        let sandbox = Resolver::new(&["127.0.0.1:9".parse().expect("an address")]);
        let host = Resolver::of_the_host();
        for (name, searched) in [("secret", true), ("secret.good.example", false)] {
            let name: HostName = name.parse().expect("a name");
            assert!(sandbox.question(&name).expect("a question").is_fqdn(), "{name}");
            assert_eq!(!host.question(&name).expect("a question").is_fqdn(), searched, "{name}");
        }
    }

    #[test]
    fn any_number_of_names_takes_no_more_room_than_some() {
        let (answers, now) = (Answers::default(), Instant::now());
        for number in 0..10 * MAX_ANSWERS {
            let name: HostName = format!("n{number}.example.com").parse().expect("a name");
            answers.keep(&name, &[], now + Duration::from_secs(5));
            assert!(answers.known(&name, now).is_some(), "the last one always");
        }
        assert!(answers.0.into_inner().expect("no thread panicked").len() <= MAX_ANSWERS);
    }
}

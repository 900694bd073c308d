//! Names become addresses here, on the host, at the moment of a connection and only for names that policy allows.

use belljar_spec::egress::{EgressPolicy, HostName};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, ResolverBuilder, TokioResolver};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Every address of a name, as a connection by this policy would find it now.
pub fn resolve(policy: &EgressPolicy, name: &HostName) -> Result<Vec<IpAddr>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async { Resolver::new(&policy.resolvers).addresses(name).await })
}

/// Asks the host's resolvers, or those that policy names.
pub(crate) struct Resolver {
    hosts: Hosts,
    servers: Option<TokioResolver>,
    answers: Answers,
}

impl Resolver {
    /// Must be called in the event loop that will use it.
    pub(crate) fn new(servers: &[SocketAddr]) -> Resolver {
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
            builder.build().ok()
        });
        let hosts = Hosts::from_system().unwrap_or_default();
        Resolver { hosts, servers, answers: Answers::default() }
    }

    /// Every address of a name, or why there is none. /etc/hosts alone answers where it knows the name, as elsewhere
    /// on this machine.
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, String> {
        if let Some(known) = self.answers.known(name, Instant::now()) {
            return Ok(known);
        }
        // With its last dot, so that no search list makes another name of it; one without any dot is meant for one.
        let absolute = name.as_str().contains('.');
        let text = if absolute { format!("{name}.") } else { name.to_string() };
        let question = Name::from_str(&text).map_err(|error| error.to_string())?;
        let known = self.in_hosts(&question);
        if !known.is_empty() {
            return Ok(known);
        }
        let Some(servers) = &self.servers else { return Err("this machine has no resolver".into()) };
        match servers.lookup_ip(question).await {
            Ok(found) => {
                let addresses: Vec<IpAddr> = found.iter().collect();
                self.answers.keep(name, &addresses, found.valid_until());
                Ok(addresses)
            }
            Err(error) if error.is_nx_domain() => Err("there is no such name".into()),
            Err(error) if error.is_no_records_found() => Err("the name has no address".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn in_hosts(&self, name: &Name) -> Vec<IpAddr> {
        [RecordType::A, RecordType::AAAA]
            .into_iter()
            .filter_map(|kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind)))
            .flat_map(|found| {
                found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            })
            .collect()
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
        if addresses.len() > MOST_ADDRESSES {
            return;
        }
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST_ANSWERS {
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
/// Names whose answers are kept, and the addresses of each: whoever answers says how many there are.
const MOST_ANSWERS: usize = 256;
const MOST_ADDRESSES: usize = 64;

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

    #[test]
    fn any_number_of_names_takes_no_more_room_than_some() {
        let (answers, now) = (Answers::default(), Instant::now());
        for number in 0..10 * MOST_ANSWERS {
            let name: HostName = format!("n{number}.example.com").parse().expect("a name");
            answers.keep(&name, &[], now + Duration::from_secs(5));
            assert!(answers.known(&name, now).is_some(), "the last one always");
        }
        assert!(answers.0.into_inner().expect("nobody holds it").len() <= MOST_ANSWERS);
    }
}

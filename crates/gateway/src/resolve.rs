//! Names become addresses here, on the host, at the moment of a connection and only for names that policy allows.

use belljar_spec::egress::{EgressPolicy, HostName};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, ResolverBuilder, TokioResolver};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

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
        Resolver { hosts: Hosts::from_system().unwrap_or_default(), servers }
    }

    /// Every address of a name, or why there is none. /etc/hosts alone answers where it knows the name, as elsewhere
    /// on this machine.
    pub(crate) async fn addresses(&self, name: &HostName) -> Result<Vec<IpAddr>, String> {
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
            Ok(found) => Ok(found.iter().collect()),
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

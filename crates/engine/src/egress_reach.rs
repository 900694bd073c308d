//! A sandbox's egress, and what serves it.

use belljar_backend::Guest;
use belljar_gateway::{self as gateway, Authority, EgressSockets, Gateway, Served, Terms};
use belljar_spec::egress::{EgressPolicy, Mode};
use belljar_spec::llm::LlmRoute;
use belljar_spec::{ErrorCode, SandboxError, SandboxId, SandboxSpec};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use belljar_wire::message::{self, Caught, Families};
use serde::Serialize;
use std::sync::{Arc, OnceLock};

/// What the guest opens for a policy, a route to a model, and one to the host's repository at the port `relay`; `None`
/// where there is none of them.
pub(crate) fn plan(
    policy: &EgressPolicy,
    llm: Option<&LlmRoute>,
    relay: Option<u16>,
) -> Option<belljar_backend::EgressSockets> {
    // In this order: `serve` tells them apart by it.
    let routes: Vec<u16> = llm.map(|llm| llm.port).into_iter().chain(relay).collect();
    let catch = (policy.mode != Mode::None).then(|| message::Catch {
        ipv4: gateway::IPV4.octets(),
        ipv6: gateway::IPV6.octets(),
        port: gateway::PORT,
        // Both could not have it.
        ports_without_netfilter: gateway::ports(policy)
            .into_iter()
            .filter(|port| !routes.contains(port))
            .collect(),
    });
    if catch.is_none() && routes.is_empty() {
        return None;
    }
    let resolver = catch.is_some().then(|| gateway::DNS_ADDRESS.into());
    Some(belljar_backend::EgressSockets { egress: message::EgressSetup { catch, routes }, resolver })
}

/// The CA of a sandbox; `None` where the gateway need not intercept TLS.
pub(crate) fn authority(
    id: SandboxId,
    spec: &SandboxSpec,
    policy: &EgressPolicy,
) -> Result<Option<Arc<Authority>>, SandboxError> {
    if !gateway::decide::needs_authority(policy, &spec.credentials) {
        return Ok(None);
    }
    let made = Authority::new(id).map_err(|error| {
        ErrorCode::StartFailed.error(format!("the sandbox has no authority: {error}")).caused_by(error)
    })?;
    Ok(Some(Arc::new(made)))
}

/// How a sandbox's connections reach the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressReach {
    /// Not at all.
    Absent,
    /// Whatever is dialled.
    EveryPort,
    /// At the ports that rules name; the kernel cannot do better.
    SomePorts,
}

/// What a person should know of egress that cannot reach everything that its policy allows.
pub(crate) fn warning(egress_reach: EgressReach, policy: &EgressPolicy) -> Option<String> {
    if egress_reach != EgressReach::SomePorts {
        return None;
    }
    if policy.mode == Mode::Open {
        let ports = gateway::ports(policy).iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        return Some(format!(
            "the sandbox's kernel has no nf_tables: of all ports, only these are open: {ports}"
        ));
    }
    let left_out = gateway::left_out(policy);
    if left_out.is_empty() {
        return None;
    }
    let ports = left_out.iter().map(|range| range.to_string()).collect::<Vec<_>>().join(", ");
    Some(format!(
        "the sandbox's kernel has no nf_tables, and rules name more ports than it has room for: not reachable are {ports}"
    ))
}

/// What serves a sandbox's sockets.
pub(crate) struct Open {
    /// The gateway's part; `None` where it has none.
    pub(crate) served: Option<Served>,
    pub(crate) egress_reach: EgressReach,
    /// Listeners of the route to the host's repository, which the git relay serves; they do not block.
    pub(crate) relay: Vec<OwnedFd>,
}

impl Open {
    /// No sockets at all.
    pub(crate) const NOTHING: Open =
        Open { served: None, egress_reach: EgressReach::Absent, relay: Vec::new() };
}

/// Serves the sockets that a guest handed over.
pub(crate) fn serve(
    gateway: &OnceLock<Gateway>,
    guest: &mut Guest,
    mut terms: Terms,
) -> Result<Open, SandboxError> {
    let Some((report, mut listeners)) = guest.take_egress() else { return Ok(Open::NOTHING) };
    let failed = |error: std::io::Error| {
        ErrorCode::Internal.error(format!("the gateway cannot serve the sandbox: {error}")).caused_by(error)
    };
    let mut resolvers = listeners.split_off(usize::from(report.listeners).min(listeners.len()));
    let all: usize = report.routes.iter().copied().map(usize::from).sum();
    let mut routes = resolvers.split_off(resolvers.len().saturating_sub(all));
    let of_the_model = terms.llm.as_ref().and(report.routes.first()).copied().unwrap_or(0);
    let relay = routes.split_off(usize::from(of_the_model).min(routes.len()));
    if report.caught == Caught::Nothing && terms.llm.is_none() {
        return Ok(Open { relay, ..Open::NOTHING });
    }
    let sockets = EgressSockets { listeners, resolvers, routes, has_ipv6: report.families == Families::Both };
    let serving = start(gateway).map_err(failed)?;
    let egress_reach = match report.caught {
        Caught::EveryPort => EgressReach::EveryPort,
        Caught::SomePorts => EgressReach::SomePorts,
        Caught::Nothing => EgressReach::Absent,
    };
    if egress_reach == EgressReach::SomePorts {
        terms.ports = Some(gateway::ports(&terms.policy));
    }
    let served = serving.serve(sockets, terms).map_err(failed)?;
    Ok(Open { served: Some(served), egress_reach, relay })
}

/// Starts the gateway, if it does not run yet.
pub(crate) fn start(gateway: &OnceLock<Gateway>) -> std::io::Result<&Gateway> {
    if let Some(running) = gateway.get() {
        return Ok(running);
    }
    make_room();
    let started = Gateway::start()?;
    Ok(gateway.get_or_init(|| started))
}

/// Connections are open files, and most systems begin with few. Commands have a limit of their own.
fn make_room() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_and_gateway_mean_the_same_addresses() {
        let first: std::net::Ipv4Addr = belljar_wire::purpose::FIRST_NAME;
        assert!(first < gateway::LOOPBACK && gateway::LOOPBACK.to_bits() - first.to_bits() < 256);
    }

    #[test]
    fn the_relay_alone_is_reason_enough_for_egress() {
        let none = EgressPolicy { mode: Mode::None, ..EgressPolicy::strict() };
        assert!(plan(&none, None, None).is_none());
        let relay = plan(&none, None, Some(9418)).expect("egress");
        assert_eq!(relay.egress, message::EgressSetup { catch: None, routes: vec![9418] });
        assert_eq!(relay.resolver, None, "names are still asked nowhere");
    }

    #[test]
    fn ports_that_are_lost_are_told() {
        let wide = EgressPolicy::strict().allow("a.test:1-100/tcp".parse().expect("a rule"));
        assert_eq!(warning(EgressReach::EveryPort, &wide), None);
        let text = warning(EgressReach::SomePorts, &wide).expect("a warning");
        assert!(text.ends_with("not reachable are 60-79, 81-100"), "{text}");
        let few = EgressPolicy::strict().allow("a.test".parse().expect("a rule"));
        assert_eq!(warning(EgressReach::SomePorts, &few), None);
        let text = warning(EgressReach::SomePorts, &EgressPolicy::open()).expect("a warning");
        assert!(text.ends_with("only these are open: 22, 53, 80, 443"), "{text}");
    }
}

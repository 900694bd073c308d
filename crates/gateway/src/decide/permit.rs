//! The permit to dial, and the last question before it: where does the name lead?

use super::reserved;
use super::rules::{Allowed, opening};
use belljar_spec::egress::{
    EgressPolicy, HostName, Protocol, ProxyResolve, Reason, Refusal, RuleLabel, RuleSource, UpstreamProxy,
    is_this_machine,
};
use std::net::{IpAddr, SocketAddr};

/// Leave to dial these addresses, and the rule that gives it. Nothing but this module makes one, and dialling takes
/// nothing else: what was judged is what is dialled, however the name resolves a moment later.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    name: HostName,
    port: u16,
    protocol: Protocol,
    rule: RuleLabel,
    /// None where a proxy looks the name up.
    addresses: Vec<SocketAddr>,
}

impl Permit {
    /// The host's name.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Speaking what.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// By which rule.
    pub fn rule(&self) -> &RuleLabel {
        &self.rule
    }

    /// At which addresses, in the order in which they were found. There is none only by [`by_proxy`].
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Everything about a connection that policy asks for.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub name: &'a HostName,
    pub port: u16,
    pub protocol: Protocol,
    pub addresses: &'a [IpAddr],
}

/// All questions at once.
pub fn decide(policy: &EgressPolicy, attempt: &Attempt<'_>) -> Result<Permit, Refusal> {
    let allowed = opening(policy, attempt.name, attempt.port).map_err(|reason| {
        Refusal::new(attempt.name, Some(attempt.port), reason).protocol(attempt.protocol)
    })?;
    addresses(policy, allowed, attempt.protocol, attempt.addresses)
}

/// May the name, of which the port is open, be dialled at the addresses it has? All of them must be fine: a DNS server that
/// answers with a public and a private one is waiting for us to try the second.
pub fn addresses(
    policy: &EgressPolicy,
    allowed: Allowed,
    protocol: Protocol,
    addresses: &[IpAddr],
) -> Result<Permit, Refusal> {
    let (name, port) = (allowed.name(), allowed.port());
    let refuse = |reason| Refusal::new(name, Some(port), reason).protocol(protocol);
    let Some(rule) = allowed.rule(protocol) else {
        let detail = format!("{protocol}; allowed here: {}", allowed.protocols());
        return Err(refuse(Reason::ProtocolNotAllowed).detail(&detail));
    };
    if addresses.is_empty() {
        return Err(refuse(Reason::NotResolved));
    }
    if addresses.len() > MAX_ADDRESSES {
        let detail = format!("{}; at most {MAX_ADDRESSES}", addresses.len());
        return Err(refuse(Reason::TooManyAddresses).detail(&detail));
    }
    // Only a port that was opened comes as far as this, see `opening`: the loopback address is what was meant, and nothing else is.
    let is_meant = |address: &IpAddr| is_this_machine(name) && address.is_loopback();
    for address in addresses.iter().filter(|address| !is_meant(address)) {
        if is_this_machine(name) {
            return Err(refuse(Reason::PrivateAddress).detail(&format!("{address}: not this machine")));
        }
        if let Err(below) = reserved::judge(*address, &policy.private) {
            let refusal = refuse(Reason::PrivateAddress).detail(&format!("{address}: {}", below.name));
            return Err(Refusal { lift: below.lift, ..refusal });
        }
    }
    Ok(Permit {
        name: name.clone(),
        port,
        protocol,
        rule: rule.clone(),
        addresses: addresses.iter().map(|address| SocketAddr::new(*address, port)).collect(),
    })
}

/// May the name, of which the port is open, be dialled by a proxy that looks it up itself? Which addresses that are is the proxy's to judge, as
/// the person who named it decided. What open mode alone allows is not: of any name at all, the addresses must be judged here.
pub fn by_proxy(policy: &EgressPolicy, allowed: Allowed, protocol: Protocol) -> Result<Permit, Refusal> {
    let (name, port) = (allowed.name(), allowed.port());
    let refuse = |reason| Refusal::new(name, Some(port), reason).protocol(protocol);
    let Some(rule) = allowed.rule(protocol) else {
        let detail = format!("{protocol}; allowed here: {}", allowed.protocols());
        return Err(refuse(Reason::ProtocolNotAllowed).detail(&detail));
    };
    let looks_up = |proxy: &UpstreamProxy| proxy.resolve == ProxyResolve::Proxy && proxy.leads_to(name);
    let is_judged_here = is_this_machine(name)
        || crate::dns::is_localhost(name)
        || *rule.source() == RuleSource::Mode
        || !policy.proxy.as_ref().is_some_and(looks_up);
    if is_judged_here {
        let detail = "its addresses would be looked up by the proxy, and no rule names it";
        return Err(refuse(Reason::PrivateAddress).detail(detail));
    }
    Ok(Permit { name: name.clone(), port, protocol, rule: rule.clone(), addresses: Vec::new() })
}

/// Many times what any service has. Each is judged for every connection, and the name's DNS server decides how many there
/// are: an answer of 64 KiB has thousands.
const MAX_ADDRESSES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(policy: &EgressPolicy, port: u16, protocol: Protocol, found: &[&str]) -> Result<String, String> {
        let name = "x.com".parse().expect("a name");
        let addresses: Vec<IpAddr> = found.iter().map(|text| text.parse().expect("an address")).collect();
        let attempt = Attempt { name: &name, port, protocol, addresses: &addresses };
        let say = |refusal: Refusal| match refusal.remedy() {
            Some(remedy) => format!("{refusal}; {remedy}"),
            None => refusal.to_string(),
        };
        decide(policy, &attempt)
            .map(|permit| format!("{:?} by {}", permit.addresses(), permit.rule()))
            .map_err(say)
    }

    #[test]
    fn a_permit_has_the_judged_addresses_and_a_refusal_what_helps() {
        let policy = EgressPolicy::strict().allow("x.com".parse().expect("a rule"));
        let ok = |text: &str| Ok(text.to_string());
        let no = |text: &str| Err(text.to_string());
        let judge = |port, protocol, found: &[&str]| judge(&policy, port, protocol, found);
        assert_eq!(
            judge(443, Protocol::Tls, &["93.184.216.34", "2606:2800::1"]),
            ok("[93.184.216.34:443, [2606:2800::1]:443] by `x.com` (program)")
        );
        assert_eq!(judge(443, Protocol::Tls, &[]), no("x.com:443: the name has no address"));
        assert_eq!(
            judge(443, Protocol::Ssh, &["93.184.216.34"]),
            no(
                "x.com:443: this protocol is not allowed at this port (ssh; allowed here: tls); --allow x.com:443/ssh"
            )
        );
        assert_eq!(
            judge(25, Protocol::Tcp, &["93.184.216.34"]),
            no("x.com:25: the name is allowed, but not at this port; --allow x.com:25/tcp")
        );
        assert_eq!(
            judge(443, Protocol::Tls, &["93.184.216.34", "10.0.0.5"]),
            no("x.com:443: the name leads to an address that is not public (10.0.0.5: Private-Use); \
                private = [\"10.0.0.5/32\"] under [egress] in your belljar.toml")
        );
        assert_eq!(
            judge(80, Protocol::Http, &["169.254.169.254"]),
            no("x.com:80: the name leads to an address that is not public (169.254.169.254: Cloud metadata)")
        );
    }

    #[test]
    fn an_operators_range_lifts_what_it_names() {
        let mut policy = EgressPolicy::strict().allow("x.com".parse().expect("a rule"));
        policy.private = vec!["10.0.0.0/24".parse().expect("a range")];
        assert!(judge(&policy, 443, Protocol::Tls, &["10.0.0.5"]).is_ok());
        for found in ["10.0.1.5", "::ffff:10.0.0.5", "64:ff9b::10.0.0.5", "2002:a00:5::", "127.0.0.1"] {
            assert!(judge(&policy, 443, Protocol::Tls, &["10.0.0.5", found]).is_err(), "{found}");
        }
    }

    #[test]
    fn a_name_with_too_many_addresses_is_refused_and_all_of_many_are_judged() {
        let policy = EgressPolicy::open();
        let mut found = vec!["93.184.216.34"; MAX_ADDRESSES];
        assert!(judge(&policy, 443, Protocol::Tls, &found).is_ok());
        found[MAX_ADDRESSES - 1] = "10.0.0.5";
        let refused = judge(&policy, 443, Protocol::Tls, &found).expect_err("the last one is private");
        assert!(refused.contains("10.0.0.5: Private-Use"), "{refused}");
        found = vec!["93.184.216.34"; MAX_ADDRESSES + 1];
        assert_eq!(
            judge(&policy, 443, Protocol::Tls, &found),
            Err("x.com:443: the name has too many addresses (257; at most 256)".into())
        );
    }
}

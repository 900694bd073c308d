//! The decision: whatever rules, names and addresses there are, it is made, and no address in the reserved ranges is permitted that
//! the operator did not name.
#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use belljar_gateway::decide::reserved::{is_metadata, special_purpose};
use belljar_gateway::decide::{Attempt, decide, name, opening};
use belljar_spec::egress::{EgressPolicy, HostName, Mode, Protocol, Rule, RuleSource};
use libfuzzer_sys::fuzz_target;

/// Rules that allow, rules that forbid, ranges of the operator, and the mode.
type Written<'a> = (Vec<&'a str>, Vec<&'a str>, Vec<([u8; 16], u8)>, u8);
/// A name, a port, a protocol, and where the name leads.
type Tried<'a> = (&'a str, u16, u8, Vec<[u8; 16]>);

fuzz_target!(|input: (Written, Tried)| {
    let ((allow, deny, private, mode), (host, port, protocol, found)) = input;
    let mut policy =
        EgressPolicy { mode: Mode::ALL[usize::from(mode) % Mode::ALL.len()], ..EgressPolicy::default() };
    policy.allow = allow.iter().filter_map(|text| Rule::allow(text, RuleSource::Flag).ok()).collect();
    policy.deny = deny.iter().filter_map(|text| Rule::deny(text, RuleSource::Flag).ok()).collect();
    for (bits, length) in private {
        if let Ok(range) = format!("{}/{length}", address(bits)).parse() {
            policy.private.push(range);
        }
    }
    let Ok(host) = host.parse::<HostName>() else { return };
    let protocol = Protocol::ALL[usize::from(protocol) % Protocol::ALL.len()];
    let addresses: Vec<IpAddr> = found.into_iter().map(address).collect();
    let attempt = Attempt { name: &host, port, protocol, addresses: &addresses };
    let Ok(permit) = decide(&policy, &attempt) else { return };
    assert!(
        policy.mode != Mode::None && name(&policy, &host).is_ok() && opening(&policy, &host, port).is_ok()
    );
    assert!(permit.addresses().iter().map(|address| address.ip()).eq(addresses.iter().copied()));
    assert!(permit.addresses().iter().all(|address| address.port() == port));
    let forbids = |rule: &Rule| rule.host.matches(&host) && rule.protocols_at(port).contains(protocol);
    assert!(!policy.deny.iter().any(forbids));
    for address in addresses {
        let ranges = || policy.private.iter().filter(|range| range.contains(&address));
        assert!(special_purpose(address).is_none() || ranges().next().is_some(), "{address}");
        // A wide range does not permit these.
        let whole = if address.is_ipv4() { 32 } else { 128 };
        assert!(!is_metadata(address) || ranges().any(|range| range.prefix_len() == whole), "{address}");
        if let IpAddr::V6(six) = address
            && let Some(four) = six.to_ipv4_mapped()
        {
            assert!(special_purpose(four.into()).is_none(), "{address}");
        }
    }
});

/// Half of what a fuzzer thinks of is IPv4.
fn address(bits: [u8; 16]) -> IpAddr {
    match bits {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, four @ ..] => IpAddr::from(four),
        _ if bits[15].is_multiple_of(2) => IpAddr::from([bits[0], bits[1], bits[2], bits[3]]),
        _ => IpAddr::V6(Ipv6Addr::from(bits)),
    }
}

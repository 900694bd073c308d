//! What holds for every policy and every attempt.

use super::{Attempt, Permit, decide, name, opening, reserved};
use belljar_spec::egress::{EgressPolicy, HostName, Mode, PortRange, Protocol, Refusal, Rule, RuleSource};
use ipnet::IpNet;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

// Few names and ports, so that rules meet attempts and each other.
fn host() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "x.com",
        "a.x.com",
        "b.a.x.com",
        "y.com",
        "evilx.com",
        "x.com.evil",
        "com",
        "db",
    ])
    .prop_map(str::to_string)
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 1u16..12, 1 => Just(443), 1 => Just(80), 1 => Just(65_535), 1 => any::<u16>()]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop::sample::select(Protocol::ALL.to_vec())
}

fn line() -> impl Strategy<Value = String> {
    let ports =
        prop::option::of((1u16..12, 0u16..4).prop_map(|(first, more)| format!("{first}-{}", first + more)));
    (any::<bool>(), host(), ports, prop::option::of(protocol())).prop_map(|(exact, host, ports, protocol)| {
        let exact = if exact { "=" } else { "" };
        let ports = ports.map_or(String::new(), |ports| format!(":{ports}"));
        let protocol = protocol.map_or(String::new(), |protocol| format!("/{protocol}"));
        format!("{exact}{host}{ports}{protocol}")
    })
}

fn rules(make: fn(&str, RuleSource) -> Option<Rule>) -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(line().prop_filter_map("a rule", move |line| make(&line, RuleSource::Flag)), 0..6)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(Mode::ALL.to_vec())
}

fn policy() -> impl Strategy<Value = EgressPolicy> {
    let allow = rules(|line, source| Rule::allow(line, source).ok());
    let deny = rules(|line, source| Rule::deny(line, source).ok());
    (mode(), allow, deny).prop_map(|(mode, allow, deny)| EgressPolicy {
        mode,
        allow,
        deny,
        ..EgressPolicy::default()
    })
}

/// Public for certain: half of them IPv4, half IPv6.
fn public() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([8, a, b, c]));
    let v6 = any::<u64>()
        .prop_map(|bits| IpAddr::from(Ipv6Addr::from((0x2606_4700_u128 << 96) | u128::from(bits >> 32))));
    prop_oneof![v4, v6]
}

/// Not public by what the standard library knows, which is none of our tables.
fn special_v4() -> impl Strategy<Value = Ipv4Addr> {
    let bits = any::<u32>();
    prop_oneof![
        bits.prop_map(|bits| (10 << 24) | bits >> 8),
        bits.prop_map(|bits| (127 << 24) | bits >> 8),
        bits.prop_map(|bits| bits >> 8),
        bits.prop_map(|bits| 0xac10_0000 | bits >> 12),
        bits.prop_map(|bits| 0xc0a8_0000 | bits >> 16),
        bits.prop_map(|bits| 0xa9fe_0000 | bits >> 16),
        bits.prop_map(|bits| 0x6440_0000 | bits >> 10),
        bits.prop_map(|bits| 0xe000_0000 | bits >> 3),
        Just(0xa9fe_a9fe),
    ]
    .prop_map(Ipv4Addr::from)
}

/// Every way in which an IPv6 address carries an IPv4 one; `noise` fills the bits that do not matter.
fn spellings(inner: Ipv4Addr, noise: u64) -> Vec<IpAddr> {
    let bits = u128::from(u32::from(inner));
    let noise = u128::from(noise);
    let compatible = if bits > 1 { bits } else { bits | (0xffff << 32) };
    let v6 = [
        (0xffff << 32) | bits,
        compatible,
        (0xffff << 48) | bits,
        (0x64_ff9b << 96) | bits,
        (0x64_ff9b_0001 << 80) | bits,
        (0x64_ff9b_0001 << 80)
            | ((bits >> 16) << 64)
            | ((bits & 0xffff) << 40)
            | (noise >> 24 & 0xff_ffff_ffff),
        (0x2002 << 112) | (bits << 80) | noise,
        (0x2001_0000 << 96) | (bits << 64) | noise,
        (0x2001_0000 << 96) | ((noise >> 32) << 64) | (!bits & 0xffff_ffff),
        // Below a prefix that is public itself.
        (0x2606_4700 << 96) | ((noise >> 32) << 64) | (0x5efe << 32) | bits,
        (0x2606_4700 << 96) | ((noise >> 32) << 64) | (0x0200_5efe << 32) | bits,
    ];
    v6.map(|bits| IpAddr::from(Ipv6Addr::from(bits))).to_vec()
}

fn judge(
    policy: &EgressPolicy,
    host: &HostName,
    port: u16,
    protocol: Protocol,
    found: &[IpAddr],
) -> Result<Permit, Refusal> {
    decide(policy, &Attempt { name: host, port, protocol, addresses: found })
}

fn parsed(host: &str) -> HostName {
    host.parse().expect("a name")
}

proptest! {
    #[test]
    fn no_spelling_of_a_special_purpose_address_is_permitted(
        mode in mode(), inner in special_v4(), noise: u64, good in public(), range in 0u8..=32, lifted in special_v4(),
    ) {
        let lifted = IpNet::new(IpAddr::V4(lifted), range).expect("a range");
        let everything: IpNet = "0.0.0.0/0".parse().expect("a range");
        let everything_v6: IpNet = "::/0".parse().expect("a range");
        for private in [vec![], vec![lifted], vec![everything, everything_v6]] {
            let mut policy = EgressPolicy { mode, private, ..EgressPolicy::default() };
            policy.allow = vec!["x.com:1-65535/tcp".parse().expect("a rule")];
            for spelling in spellings(inner, noise) {
                prop_assert!(reserved::special_purpose(spelling).is_some(), "{}", spelling);
                prop_assert!(judge(&policy, &parsed("x.com"), 7, Protocol::Tcp, &[spelling]).is_err(), "{}", spelling);
                prop_assert!(judge(&policy, &parsed("x.com"), 7, Protocol::Tcp, &[good, spelling]).is_err(), "{}", spelling);
            }
        }
        let policy = EgressPolicy { mode, ..EgressPolicy::default() }.allow("x.com:1-65535/tcp".parse().expect("a rule"));
        prop_assert!(judge(&policy, &parsed("x.com"), 7, Protocol::Tcp, &[inner.into()]).is_err());
    }

    #[test]
    fn what_the_standard_library_knows_as_special_is_reserved(bits: u32, wide: u128) {
        let v4 = Ipv4Addr::from(bits);
        let known = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_broadcast()
            || v4.is_documentation() || v4.is_multicast() || v4.is_unspecified();
        prop_assert!(!known || reserved::special_purpose(v4.into()).is_some(), "{}", v4);
        let v6 = Ipv6Addr::from(wide);
        // Only 2000::/3 has ever been allocated (RFC 4291, IANA).
        let global = v6.segments()[0] & 0xe000 == 0x2000;
        prop_assert!(global || reserved::special_purpose(v6.into()).is_some(), "{}", v6);
    }

    #[test]
    fn one_bad_address_of_two_hundred_refuses(
        good in prop::collection::vec(public(), 199), bad in special_v4(), place in 0usize..200,
    ) {
        let policy = EgressPolicy::open();
        let mut found = good;
        prop_assert!(judge(&policy, &parsed("x.com"), 443, Protocol::Tls, &found).is_ok());
        found.insert(place, bad.into());
        let refusal = judge(&policy, &parsed("x.com"), 443, Protocol::Tls, &found).expect_err("one is bad");
        let names_it = refusal.detail.is_some_and(|detail| detail.as_str().starts_with(&format!("{bad}:")));
        prop_assert!(names_it);
    }

    #[test]
    fn a_permit_has_exactly_the_judged_addresses(
        policy in policy(), host in host(), port in port(), protocol in protocol(),
        found in prop::collection::vec(public(), 0..5),
    ) {
        if let Ok(permit) = judge(&policy, &parsed(&host), port, protocol, &found) {
            let dialled: Vec<IpAddr> = permit.addresses().iter().map(|address| address.ip()).collect();
            prop_assert_eq!(dialled, found);
            prop_assert!(permit.addresses().iter().all(|address| address.port() == port));
            prop_assert_eq!((permit.name().as_str(), permit.port(), permit.protocol()), (host.as_str(), port, protocol));
            prop_assert!(!permit.addresses().is_empty());
        }
    }

    #[test]
    fn deny_wins(policy in policy(), host in host(), port in port(), protocol in protocol(), good in public()) {
        let host = parsed(&host);
        let denied = policy.deny.iter().any(|rule| rule.matches(&host, None) && rule.protocols_at(port).contains(protocol));
        if denied {
            prop_assert!(judge(&policy, &host, port, protocol, &[good]).is_err());
        }
    }

    #[test]
    fn one_more_denial_permits_nothing_more(
        policy in policy(), line in line(), host in host(), port in port(), protocol in protocol(), good in public(),
    ) {
        let denied = policy.clone().deny(Rule::deny(&line, RuleSource::Flag).expect("a rule"));
        if judge(&denied, &parsed(&host), port, protocol, &[good]).is_ok() {
            prop_assert!(judge(&policy, &parsed(&host), port, protocol, &[good]).is_ok());
        }
    }

    #[test]
    fn strict_permits_only_what_a_rule_names(
        policy in policy(), host in host(), port in port(), protocol in protocol(), good in public(),
    ) {
        let policy = EgressPolicy { mode: Mode::Strict, ..policy };
        let host = parsed(&host);
        if let Ok(permit) = judge(&policy, &host, port, protocol, &[good]) {
            let named = policy.allow.iter().any(|rule| {
                rule.label == *permit.rule() && rule.host.matches(&host) && rule.protocols_at(port).contains(protocol)
            });
            prop_assert!(named, "{:?}", permit);
        }
    }

    #[test]
    fn a_wider_mode_permits_at_least_as_much(
        policy in policy(), host in host(), port in port(), protocol in protocol(), good in public(),
    ) {
        let permits = |mode| {
            let policy = EgressPolicy { mode, ..policy.clone() };
            judge(&policy, &parsed(&host), port, protocol, &[good]).is_ok()
        };
        prop_assert!(!permits(Mode::None));
        prop_assert!(!permits(Mode::Strict) || permits(Mode::Open));
    }

    #[test]
    fn a_name_is_answered_exactly_if_some_port_of_it_is_open(policy in policy(), host in host()) {
        let host = parsed(&host);
        // All edges of the rules above, and what lies beyond them.
        let some = (0..20).chain([22, 80, 443, 5432, 65_535]).any(|port| opening(&policy, &host, port).is_ok());
        prop_assert_eq!(name(&policy, &host).is_ok(), some);
    }

    #[test]
    fn the_remedy_of_a_refusal_permits(
        policy in policy(), host in host(), port in port(), protocol in protocol(), good in public(),
    ) {
        let policy = EgressPolicy { deny: vec![], mode: Mode::Strict, ..policy };
        let host = parsed(&host);
        if let Err(refusal) = judge(&policy, &host, port, protocol, &[good]) && ![0, PortRange::DNS].contains(&port) {
            let Some(remedy) = refusal.remedy() else {
                // A port that is usual for something that can be checked is not offered for anything at all.
                prop_assert!(protocol == Protocol::Tcp && Protocol::usual_at(port).is_some());
                return Ok(());
            };
            let rule = remedy.strip_prefix("--allow ").expect("a flag").parse().expect("a rule");
            prop_assert!(judge(&policy.allow(rule), &host, port, protocol, &[good]).is_ok(), "{}", remedy);
        }
    }
}

//! The reserved ranges: addresses that are not public, in every mode and in every spelling. The ranges are in
//! `reserved.table`.
//!
//! An IPv6 address that carries an IPv4 one is judged by both: a translator, a tunnel or the kernel itself would
//! take the packet to the one inside. The prefix of NAT64 (64:ff9b::/96) says nothing but that: there the one inside is all that is
//! judged, since on a network of IPv6 alone every name of IPv4 leads there.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// An address in a reserved range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Below {
    /// What the registry calls its range.
    pub name: &'static str,
    /// The range that an operator may be told to name.
    pub lift: Option<IpNet>,
}

/// The registry's name of the range, if the address is in one; that of the address it carries, if only that is.
pub fn special_purpose(address: IpAddr) -> Option<&'static str> {
    let own = row(address).filter(|row| row.lift != Lift::Carried);
    own.or_else(|| carried_row(address)).map(|row| row.name)
}

/// The address that a translator makes of this one, if its prefix is that of translation.
pub(crate) fn translated(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(v6) if row(address).is_some_and(|row| row.lift == Lift::Carried) => carried(v6)[0],
        IpAddr::V6(_) | IpAddr::V4(_) => None,
    }
}

/// Whether a cloud keeps credentials there.
pub fn is_metadata(address: IpAddr) -> bool {
    let is_itself = |row: &Row| row.lift == Lift::Itself;
    row(address).is_some_and(is_itself) || carried_row(address).is_some_and(is_itself)
}

/// Whether a user may open a range for sandboxes of their own: networks that have private addresses. The loopback device, metadata services and
/// whatever no network has are the operator's.
pub fn is_users_to_open(range: IpNet) -> bool {
    let holds = |row: &&Row| row.range.contains(&range);
    let row = ROWS.iter().filter(holds).max_by_key(|row| row.range.prefix_len());
    row.is_some_and(|row| row.lift == Lift::Suggest && !range.addr().is_loopback())
}

/// May it be dialled, given the ranges that the operator named? They lift what they hold as it is written; an address
/// that is carried inside another is lifted by nothing.
pub fn judge(address: IpAddr, private: &[IpNet]) -> Result<(), Below> {
    if let Some(carried) = carried_row(address) {
        return Err(Below { name: row(address).unwrap_or(carried).name, lift: None });
    }
    let Some(row) = row(address) else {
        return Ok(());
    };
    let lifts = |range: &IpNet| match row.lift {
        Lift::Suggest | Lift::Silent => range.contains(&address),
        Lift::Itself => row.range.contains(range),
        Lift::Carried => false,
    };
    if row.lift == Lift::Carried {
        return Ok(());
    }
    if private.iter().any(lifts) {
        return Ok(());
    }
    let lift = (row.lift == Lift::Suggest).then(|| IpNet::from(address));
    Err(Below { name: row.name, lift })
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    range: IpNet,
    lift: Lift,
    name: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lift {
    Suggest,
    Silent,
    Itself,
    Carried,
}

/// The narrowest row that holds it.
fn row(address: IpAddr) -> Option<&'static Row> {
    ROWS.iter().filter(|row| row.range.contains(&address)).max_by_key(|row| row.range.prefix_len())
}

/// The row of an address that this one carries.
fn carried_row(address: IpAddr) -> Option<&'static Row> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => {
            carried(address).into_iter().flatten().find_map(|inner| row(IpAddr::V4(inner)))
        }
    }
}

/// The IPv4 addresses inside an IPv6 address: at most two.
fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let pair = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // Unspecified and loopback carry nothing (RFC 4291 §2.5.2, §2.5.3).
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        // IPv4-compatible (RFC 4291 §2.5.5.1), mapped (§2.5.5.2), translated (RFC 2765).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            [pair(high, low), None]
        }
        // NAT64 by its own prefix (RFC 6052 §2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [pair(high, low), None],
        // NAT64 by a local prefix (RFC 8215): of 96 bits or of 48 (RFC 6052 §2.2), which only the translator knows.
        [0x64, 0xff9b, 1, high, middle, low, seventh, eighth] => {
            [pair(high, middle << 8 | low >> 8), pair(seventh, eighth)]
        }
        // 6to4 (RFC 3056 §2).
        [0x2002, high, low, ..] => [pair(high, low), None],
        // Teredo: the server, and the client with its bits turned (RFC 4380 §4).
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            [pair(high, low), pair(!client_high, !client_low)]
        }
        // ISATAP below any prefix, with or without the universal bit (RFC 5214 §6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => [pair(high, low), None],
        _ => [None, None],
    }
}

fn read(table: &'static str) -> Result<Vec<Row>, String> {
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [range, lift, name, _document] = columns[..] else {
            return Err(format!("not four columns: {line}"));
        };
        let lift = match lift {
            "suggest" => Lift::Suggest,
            "silent" => Lift::Silent,
            "itself" => Lift::Itself,
            "carried" => Lift::Carried,
            _ => return Err(format!("not a way of lifting: {line}")),
        };
        let range = range.parse().map_err(|error| format!("{error}: {line}"))?;
        Ok(Row { range, lift, name })
    })
    .collect()
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    read(TABLE).expect("a test reads every row of reserved.table, which is part of the program")
});

const TABLE: &str = include_str!("reserved.table");

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn addresses_have_the_name_of_their_range() {
        for (text, expected) in [
            ("0.0.0.0", Some("\"This host on this network\"")),
            ("0.1.2.3", Some("\"This network\"")),
            ("10.255.255.255", Some("Private-Use")),
            ("11.0.0.0", None),
            ("100.64.0.0", Some("Shared Address Space")),
            ("100.63.255.255", None),
            ("100.128.0.0", None),
            ("100.100.100.200", Some("Cloud metadata")),
            ("126.255.255.255", None),
            ("127.8.9.1", Some("Loopback")),
            ("168.63.129.16", Some("Cloud metadata")),
            ("168.63.129.15", None),
            ("169.254.169.254", Some("Cloud metadata")),
            ("169.254.1.1", Some("Link Local")),
            ("172.15.255.255", None),
            ("172.31.0.1", Some("Private-Use")),
            ("172.32.0.0", None),
            ("192.0.0.9", Some("Port Control Protocol Anycast")),
            ("192.0.2.1", Some("Documentation (TEST-NET-1)")),
            ("192.88.99.2", Some("6a44-relay anycast address")),
            ("198.19.255.255", Some("Benchmarking")),
            ("223.255.255.255", None),
            ("224.0.0.1", Some("Multicast")),
            ("250.0.0.1", Some("Reserved")),
            ("255.255.255.255", Some("Limited Broadcast")),
            ("8.8.8.8", None),
            ("::", Some("Unspecified Address")),
            ("::1", Some("Loopback Address")),
            ("::8.8.8.8", Some("IPv4-compatible Address")),
            ("::ffff:8.8.8.8", Some("IPv4-mapped Address")),
            ("64:ff9b::8.8.8.8", None),
            ("64:ff9b::10.0.0.5", Some("Private-Use")),
            ("64:ff9b::169.254.169.254", Some("Cloud metadata")),
            ("64:ff9b:1::8.8.8.8", Some("IPv4-IPv6 Translation")),
            ("64:ff9b:0:1::8.8.8.8", Some("Reserved by IETF")),
            ("2001::1", Some("TEREDO")),
            ("2001:db8::1", Some("Documentation")),
            ("2002:808:808::1", Some("6to4")),
            ("fd00:ec2::254", Some("Cloud metadata")),
            ("fe80::1", Some("Link-Local Unicast")),
            ("fec0::1", Some("Site-Local Unicast")),
            ("ff02::1", Some("Multicast")),
            ("2606:4700::1111", None),
            ("2a00:1450::5efe:808:808", None),
            ("2a00:1450::5efe:a00:1", Some("Private-Use")),
            ("2a00:1450::200:5efe:7f00:1", Some("Loopback")),
        ] {
            assert_eq!(special_purpose(address(text)), expected, "{text}");
        }
    }

    #[test]
    fn every_row_holds_from_its_first_address_to_its_last() {
        let mut ranges: Vec<IpNet> = ROWS.iter().map(|row| row.range).collect();
        assert!(ranges.iter().all(|range| range.trunc() == *range), "no bits beyond the prefix");
        for range in &ranges {
            assert!(special_purpose(range.network()).is_some(), "{range}");
            assert!(special_purpose(range.broadcast()).is_some(), "{range}");
        }
        let count = ranges.len();
        ranges.sort();
        ranges.dedup();
        assert_eq!(ranges.len(), count, "no range twice");
    }

    #[test]
    fn a_range_lifts_what_it_holds_and_nothing_else() {
        for (text, private, expected) in [
            ("10.0.0.5", "10.0.0.0/8", true),
            ("10.0.0.5", "10.0.0.5/32", true),
            ("10.0.0.5", "10.0.1.0/24", false),
            ("127.0.0.1", "127.0.0.0/8", true),
            ("::1", "::1/128", true),
            ("::1", "127.0.0.0/8", false),
            ("fd12::1", "fd00::/8", true),
            ("100.64.0.1", "100.64.0.0/10", true),
            ("100.100.100.200", "100.64.0.0/10", false),
            ("100.100.100.200", "100.100.100.200/32", true),
            ("169.254.169.254", "0.0.0.0/0", false),
            ("169.254.169.254", "169.254.169.254/32", true),
            ("fd00:ec2::254", "fd00::/8", false),
            ("fd00:c1::a9fe:a9fe", "fd00::/8", false),
            ("fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fe/128", true),
            ("fd00:100::100:200", "fd00::/8", false),
            ("fd00:100::100:200", "fd00:100::/32", false),
            ("fd00:a9fe:a9fe::1", "fc00::/7", false),
            ("fd00:a9fe:a9fe::2", "fc00::/7", true),
            ("fe80::a9fe:a9fe", "fe80::/10", false),
            ("fe80::a9fe:a9ff", "fe80::/10", true),
            ("::ffff:10.0.0.5", "10.0.0.0/8", false),
            ("::ffff:10.0.0.5", "::ffff:0:0/96", false),
            ("::ffff:10.0.0.5", "::/0", false),
            ("64:ff9b::10.0.0.5", "64:ff9b::/96", false),
            ("64:ff9b::10.0.0.5", "10.0.0.0/8", false),
            // What a network of IPv6 alone needs to reach the rest.
            ("64:ff9b::8.8.8.8", "10.0.0.0/8", true),
            // Where in a local prefix the address stands only the translator knows.
            ("64:ff9b:1::8.8.8.8", "10.0.0.0/8", false),
            ("2002:a00:5::1", "2002::/16", false),
            ("fd12::5efe:a00:5", "fd00::/8", false),
            ("8.8.8.8", "10.0.0.0/8", true),
        ] {
            let private: IpNet = private.parse().expect(private);
            assert_eq!(judge(address(text), &[private]).is_ok(), expected, "{text} by {private}");
        }
    }

    #[test]
    fn a_user_opens_private_networks_and_nothing_else() {
        for (range, expected) in [
            ("10.0.0.0/8", true),
            ("10.1.2.0/24", true),
            ("172.16.0.0/12", true),
            ("192.168.1.7/32", true),
            ("100.64.0.0/10", true),
            ("fd12:3456::/32", true),
            ("172.16.0.0/11", false),
            ("127.0.0.0/8", false),
            ("127.0.0.1/32", false),
            ("::1/128", false),
            ("0.0.0.0/8", false),
            ("100.100.100.200/32", false),
            ("169.254.0.0/16", false),
            ("169.254.169.254/32", false),
            ("fd00:ec2::254/128", false),
            ("fe80::/10", false),
            ("::ffff:10.0.0.0/104", false),
            ("64:ff9b::/96", false),
            ("2002:a00::/24", false),
            ("8.8.8.8/32", false),
            ("0.0.0.0/0", false),
        ] {
            assert_eq!(is_users_to_open(range.parse().expect(range)), expected, "{range}");
        }
    }

    #[test]
    fn an_operator_is_told_of_private_ranges_and_not_of_metadata() {
        for (text, expected) in [
            ("10.0.0.5", Some("10.0.0.5/32")),
            ("fd12::1", Some("fd12::1/128")),
            ("127.0.0.1", Some("127.0.0.1/32")),
            ("169.254.169.254", None),
            ("168.63.129.16", None),
            ("fd00:ec2::254", None),
            ("fd00:c1::a9fe:a9fe", None),
            ("fe80::a9fe:a9fe", None),
            ("224.0.0.1", None),
            ("::ffff:10.0.0.5", None),
        ] {
            let below = judge(address(text), &[]).expect_err(text);
            assert_eq!(below.lift.map(|range| range.to_string()).as_deref(), expected, "{text}");
        }
    }
}

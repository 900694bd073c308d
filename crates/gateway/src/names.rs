//! Fake addresses: one for each name that policy allows, the same for as long as the sandbox lives, never given to
//! another name. They say which name a connection is meant for.

use crate::egress_sockets::{IPV4, IPV6, LOOPBACK};
use belljar_spec::egress::HostName;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// Which addresses the sandbox's network has for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    Ipv4,
    Both,
    /// Those of the loopback device, and IPv4 alone.
    Loopback,
}

/// The names of one sandbox.
#[derive(Debug)]
pub(crate) struct Names {
    table: Mutex<Table>,
    addresses: Addresses,
}

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<HostName, u32>,
    names: Vec<HostName>,
}

/// A name's fake addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fake {
    number: u32,
    addresses: Addresses,
}

impl Names {
    /// No names yet.
    pub(crate) fn new(addresses: Addresses) -> Names {
        Names { table: Mutex::default(), addresses }
    }

    fn numbered(&self, number: u32) -> Fake {
        Fake { number, addresses: self.addresses }
    }

    /// The name's addresses; `None` when this sandbox has as many names as it may.
    pub(crate) fn fake(&self, name: &HostName) -> Option<Fake> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = table.numbers.get(name) {
            return Some(self.numbered(*number));
        }
        let number = u32::try_from(table.names.len()).ok().filter(|number| *number < MAX_NAMES)?;
        table.names.push(name.clone());
        table.numbers.insert(name.clone(), number);
        Some(self.numbered(number))
    }

    /// Which name has this address.
    pub(crate) fn at(&self, address: IpAddr) -> Option<HostName> {
        let number = self.addresses.number(address)?;
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.names.get(number as usize).cloned()
    }
}

impl Fake {
    pub(crate) fn ipv4(self) -> Ipv4Addr {
        Ipv4Addr::from(self.addresses.own().to_bits() - 1 + FIRST + self.number)
    }

    /// `None` where there is no IPv6.
    pub(crate) fn ipv6(self) -> Option<Ipv6Addr> {
        let address = || Ipv6Addr::from(IPV6.to_bits() - 1 + u128::from(FIRST + self.number));
        (self.addresses == Addresses::Both).then(address)
    }
}

impl Addresses {
    fn own(self) -> Ipv4Addr {
        match self {
            Addresses::Ipv4 | Addresses::Both => IPV4,
            Addresses::Loopback => LOOPBACK,
        }
    }

    fn number(self, address: IpAddr) -> Option<u32> {
        let offset = match address {
            IpAddr::V4(address) => address.to_bits().checked_sub(self.own().to_bits() - 1)?,
            IpAddr::V6(address) => u32::try_from(address.to_bits().checked_sub(IPV6.to_bits() - 1)?).ok()?,
        };
        offset.checked_sub(FIRST).filter(|number| *number < MAX_NAMES)
    }
}

/// Below this are addresses of our own.
const FIRST: u32 = 256;
/// The range 198.18.0.0/15 has twice as many; a program that asks for more than this is not looking for names.
const MAX_NAMES: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().expect("a name")
    }

    #[test]
    fn a_name_keeps_its_addresses_and_shares_them_with_no_other() {
        let names = Names::new(Addresses::Both);
        let first = names.fake(&name("a.example")).expect("room");
        let second = names.fake(&name("b.example")).expect("room");
        assert_ne!(first, second);
        assert_eq!(names.fake(&name("a.example")), Some(first));
        assert_eq!(first.ipv4(), Ipv4Addr::new(198, 18, 1, 0));
        assert_eq!(names.at(first.ipv4().into()), Some(name("a.example")));
        assert_eq!(names.at(second.ipv6().expect("it has both").into()), Some(name("b.example")));
    }

    #[test]
    fn where_only_loopback_is_local_names_have_its_addresses() {
        let names = Names::new(Addresses::Loopback);
        let fake = names.fake(&name("a.example")).expect("room");
        assert_eq!((fake.ipv4(), fake.ipv6()), (Ipv4Addr::new(127, 128, 1, 0), None));
        assert_eq!(names.at(fake.ipv4().into()), Some(name("a.example")));
        for address in ["127.0.0.1", "127.128.0.1", "127.128.1.1", "198.18.1.0"] {
            assert_eq!(names.at(address.parse().expect("an address")), None, "{address}");
        }
    }

    #[test]
    fn an_address_that_was_not_given_out_has_no_name() {
        let names = Names::new(Addresses::Both);
        names.fake(&name("a.example"));
        for address in
            ["198.18.0.1", "198.18.1.1", "198.17.255.255", "0.0.0.0", "255.255.255.255", "::", "::1"]
        {
            assert_eq!(names.at(address.parse().expect("an address")), None, "{address}");
        }
    }

    #[test]
    fn a_sandbox_has_only_so_many_names() {
        let names = Names::new(Addresses::Both);
        for number in 0..MAX_NAMES {
            assert!(names.fake(&name(&format!("n{number}.example"))).is_some());
        }
        assert_eq!(names.fake(&name("one.more.example")), None);
        let last = names.fake(&name(&format!("n{}.example", MAX_NAMES - 1))).expect("it has one");
        assert_eq!(last.ipv4(), Ipv4Addr::new(198, 19, 0, 255));
    }
}

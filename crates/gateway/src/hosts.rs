//! The host's `/etc/hosts`. Read here and not by the resolver's library, because it may give one address several names, on one line
//! or on several, and a rule that forbids one of them forbids the address under the others too.

use belljar_spec::egress::HostName;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The lines that hold an address and at least one name.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Vec<(IpAddr, Vec<HostName>)>);

impl Hosts {
    pub(crate) fn of_this_machine() -> Hosts {
        std::fs::read(FILE).map(|bytes| Hosts::read(&String::from_utf8_lossy(&bytes))).unwrap_or_default()
    }

    /// What is no address, or no host name, can be asked for by no sandbox.
    fn read(text: &str) -> Hosts {
        let line = |line: &str| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let address = words.next()?.parse().ok()?;
            let names: Vec<HostName> = words.filter_map(|name| name.parse().ok()).collect();
            (!names.is_empty()).then_some((address, names))
        };
        Hosts(text.lines().filter_map(line).collect())
    }

    /// The addresses of a name: those of IPv4 first.
    pub(crate) fn addresses(&self, name: &HostName) -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = self.lines_of(name).map(|(address, _)| *address).collect();
        found.sort_by_key(IpAddr::is_ipv6);
        found
    }

    /// Other names that any line gives to an address of this one.
    pub(crate) fn aliases(&self, name: &HostName) -> Vec<HostName> {
        let addresses = self.addresses(name);
        let lines = self.0.iter().filter(|(address, _)| addresses.contains(address));
        let names = lines.flat_map(|(_, names)| names).filter(|alias| *alias != name);
        names.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    fn lines_of(&self, name: &HostName) -> impl Iterator<Item = &(IpAddr, Vec<HostName>)> {
        self.0.iter().filter(move |(_, names)| names.contains(name))
    }
}

const FILE: &str = "/etc/hosts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_its_address_all_of_its_names() {
        let hosts = Hosts::read(
            "# 1.1.1.1 comment.example\n127.0.0.1\tlocalhost\nfd00::5 Secret.Good.example\n\
             10.0.0.5  secret.good.example  secret # x.example\nnot an address\n10.0.0.5 third.example\n",
        );
        let name = |text: &str| text.parse::<HostName>().expect("a name");
        let addresses: Vec<IpAddr> =
            ["10.0.0.5", "fd00::5"].iter().map(|text| text.parse().expect("an address")).collect();
        assert_eq!(hosts.addresses(&name("secret.good.example")), addresses);
        assert_eq!(hosts.addresses(&name("secret")), addresses[..1]);
        assert_eq!(hosts.aliases(&name("secret")), [name("secret.good.example"), name("third.example")]);
        // Of another line, also over an address of the other family.
        let all = [name("secret"), name("third.example")];
        assert_eq!(hosts.aliases(&name("secret.good.example")), all);
        assert_eq!(hosts.aliases(&name("third.example")), [name("secret"), name("secret.good.example")]);
        assert!(hosts.aliases(&name("localhost")).is_empty());
        assert!(hosts.addresses(&name("x.example")).is_empty());
        assert!(hosts.addresses(&name("comment.example")).is_empty());
    }
}

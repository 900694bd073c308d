//! The sandbox's sockets, which the host serves.

use serde::{Deserialize, Serialize};

/// The sandbox's egress sockets, which the host serves. They go to the host through the control socket, before the answer
/// to the setup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressSetup {
    /// What is dialled by name, if anything may be.
    pub catch: Option<Catch>,
    /// The ports of the loopback addresses where programs find what the host serves to them: a model, its repository.
    pub routes: Vec<u16>,
}

/// How whatever is dialled arrives at the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catch {
    /// The sandbox's own addresses. Every other address is local too.
    pub ipv4: [u8; 4],
    pub ipv6: [u8; 16],
    /// Every TCP port leads to this one, which no command can bind.
    pub port: u16,
    /// Where the kernel cannot do that: only these have a listener.
    pub ports_without_netfilter: Vec<u16>,
}

/// How far opening the egress sockets went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressReport {
    pub families: Families,
    pub caught: Caught,
    /// So many of the descriptors are TCP listeners; behind them are UDP sockets that names are asked at.
    pub listeners: u16,
    /// At the end are the TCP listeners of the routes: so many for each port, in the order in which they were asked for.
    pub routes: Vec<u16>,
}

/// Which addresses the sandbox's network has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Families {
    /// IPv4 only: the kernel has IPv6 switched off.
    Ipv4,
    /// IPv4 and IPv6.
    Both,
}

/// Which connections arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caught {
    /// All of them, with the destination to be read from the socket (SO_ORIGINAL_DST).
    EveryPort,
    /// Those to some ports; the socket's own address is the destination.
    SomePorts,
    /// None: only routes are open.
    Nothing,
}

//! What a program without namespaces around it means by a system call: whatever numbers it passes and whatever lies in its memory, it gets
//! only sockets that are harmless, and no connection leads anywhere but to the gateway, to a route, or to the sandbox itself.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use belljar_backend::supervised::{
    Address, Call, Dialled, Network, NewSocket, may_own, own_descriptor, sockaddr,
};
use belljar_sys::notify::Waiting;
use libfuzzer_sys::fuzz_target;

/// A call's number and arguments, the bytes of an address, ports of routes, whether there are names, and a path.
type Input<'a> = (i32, [u64; 6], &'a [u8], Vec<u16>, bool, &'a [u8]);

fuzz_target!(|input: Input| {
    let (number, arguments, bytes, routes, has_names, path) = input;
    let call = Call::of(&Waiting { id: 1, thread: 2, number, arguments });
    if let Call::Socket(Ok(made), _) = call {
        let (family, protocol) = (arguments[0] as u32, arguments[2] as u32);
        match made {
            NewSocket::Tcp { ipv6 } | NewSocket::Udp { ipv6 } => {
                assert!(family == if ipv6 { 10 } else { 2 } && matches!(protocol, 0 | 6 | 17));
            }
            NewSocket::Unix { .. } => assert!(family == 1 && protocol <= 1),
        }
    }
    let own = Ipv4Addr::new(127, 9, 8, 7);
    let network = Network { own, routes: routes.clone(), has_names };
    if let Ok(Address::Inet(address)) = Address::parse(bytes) {
        dial(&network, address);
        for ipv6 in [false, true] {
            if ipv6 || address.is_ipv4() {
                assert_eq!(Address::parse(&sockaddr(address, ipv6)), Ok(Address::Inet(address)));
            }
        }
    }
    if let Ok(Address::Path(path)) = Address::parse(bytes) {
        assert!(!path.contains(&0) && path.len() <= 108);
    }
    if let Some(number) = own_descriptor(path) {
        assert!(number >= 0);
    }
    let requested = (arguments[0] as u32, arguments[1] as u32);
    if may_own((1000, 1000), requested, 1001) {
        assert!(matches!(requested.0, 1000 | u32::MAX) && matches!(requested.1, 1000 | 1001 | u32::MAX));
    }
});

fn dial(network: &Network, address: SocketAddr) {
    match network.dial(address) {
        Dialled::Gateway(dialled) => assert!(network.has_names && dialled.port() != 0),
        Dialled::Route(port) => assert!(network.routes.contains(&port)),
        Dialled::Own(port) => {
            assert!(port == address.port() && !network.routes.contains(&port));
            assert!(address.ip().is_loopback() || address.ip().is_unspecified());
        }
        Dialled::Refused(_) => {}
    }
    if let Ok(port) = network.bind(address) {
        let ip = address.ip();
        assert!(ip.is_loopback() || ip.is_unspecified(), "{address}");
        assert!(port == 0 || !network.routes.contains(&port));
        assert!(ip != IpAddr::V4(Ipv4Addr::new(127, 128, 0, 0)));
    }
}

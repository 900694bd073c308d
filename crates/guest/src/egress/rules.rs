//! What the kernel is told: every address is ours, every TCP port leads to one, names may be asked, everything else is refused.
//!
//! As nft(8) would say it:
//!
//! ```text
//! table inet belljar {
//!     chain begun { type filter hook prerouting priority -150;
//!         tcp flags & (syn | ack) == syn tcp dport 53 tproxy to :PORT
//!         ip daddr 127.0.0.0/8 accept
//!         ip6 daddr ::1 accept
//!         tcp flags & (syn | ack) == syn tproxy to :PORT }
//!     chain in { type filter hook input priority 0;
//!         ip daddr 127.0.0.0/8 accept
//!         ip6 daddr ::1 accept
//!         meta l4proto tcp accept
//!         udp dport 53 accept
//!         udp sport 53 accept
//!         icmp type destination-unreachable accept
//!         icmpv6 type destination-unreachable accept
//!         reject with icmpx port-unreachable }
//! }
//! ```
//!
//! A new connection is given to the listener, whose new socket then has the very address that was dialled: the kernel finds
//! it by that address like any other socket, and no connection tracking is needed. The refusal is in the input chain: in
//! the output chain a program would see "operation not permitted" instead of a refused connection. A refusal is a packet
//! too, and let through: else the program would wait. The DNS socket has port 53 at every address, so no program inside can
//! send from that port.
//!
//! Nothing here uses connection tracking (`ct`, `nat`): the kernel would keep an entry for every pair of addresses that a
//! program makes up, for half a minute each, in memory that is accounted to no process.

use super::netlink::{ACK, APPEND, Batch, CREATE, Nest};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::netlink;
use belljar_wire::message::{Catch, Families};

/// Gives the loopback device an address of each family and makes every other one local too. Without an address of
/// its own a family does not exist for programs that ask only for what the machine has (AI_ADDRCONFIG).
pub(super) fn make_everything_local(catch: &Catch) -> Result<Families, Errno> {
    let mut batch = Batch::default();
    address(&mut batch, AF_INET, &catch.ipv4, 0);
    route(&mut batch, AF_INET, &catch.ipv4, SCOPE_HOST, ACK);
    batch.send(None)?;
    let mut batch = Batch::default();
    address(&mut batch, AF_INET6, &catch.ipv6, NO_DUPLICATES_CHECK);
    route(&mut batch, AF_INET6, &catch.ipv6, SCOPE_UNIVERSE, ACK);
    match batch.send(None) {
        Ok(()) => Ok(Families::Both),
        // Switched off in this kernel, or in this namespace by the host's own default.
        Err(Errno::AFNOSUPPORT | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NODEV) => Ok(Families::Ipv4),
        Err(errno) => Err(errno),
    }
}

/// Leads every TCP port to `port`, and refuses what is neither TCP nor a question for a name.
pub(super) fn lead_to(port: u16) -> Result<(), Errno> {
    let mut batch = Batch::default();
    batch.message(BATCH_BEGIN, 0, &SUBSYSTEM, |_| {});
    batch.message(NEW_TABLE, CREATE, &INET, |table| {
        table.text(TABLE_NAME, TABLE);
    });
    chain(&mut batch, "begun", "filter", HOOK_PREROUTING, -150);
    chain(&mut batch, "in", "filter", HOOK_INPUT, 0);
    rule(&mut batch, "begun", 0, |rule| {
        begins(rule);
        to_port(rule, DNS);
        give_to(rule, port);
    });
    to_self(&mut batch, "begun");
    rule(&mut batch, "begun", 0, |rule| {
        begins(rule);
        give_to(rule, port);
    });
    to_self(&mut batch, "in");
    rule(&mut batch, "in", 0, |rule| {
        protocol_is(rule, TCP);
        accept(rule);
    });
    rule(&mut batch, "in", 0, |rule| {
        protocol_is(rule, UDP);
        to_port(rule, DNS);
        accept(rule);
    });
    rule(&mut batch, "in", 0, |rule| {
        protocol_is(rule, UDP);
        from_port(rule, DNS);
        accept(rule);
    });
    for (protocol, unreachable) in [(ICMP, ICMP_UNREACHABLE), (ICMPV6, ICMPV6_UNREACHABLE)] {
        rule(&mut batch, "in", 0, |rule| {
            protocol_is(rule, protocol);
            header_is(rule, TRANSPORT_HEADER, 0, &[unreachable]);
            accept(rule);
        });
    }
    rule(&mut batch, "in", 0, |rule| {
        expression(rule, "reject", |reject| {
            reject.number(REJECT_TYPE, REJECT_ICMPX).bytes(REJECT_CODE, &[ICMPX_PORT_UNREACHABLE]);
        });
    });
    batch.message(BATCH_END, ACK, &SUBSYSTEM, |_| {});
    batch.send(Some(netlink::NETFILTER))
}

fn address(batch: &mut Batch, family: u8, address: &[u8], flags: u8) {
    let prefix = (address.len() * 8) as u8;
    let [index, ..] = LOOPBACK.to_ne_bytes();
    batch.message(
        NEW_ADDRESS,
        CREATE,
        &[family, prefix, flags, SCOPE_UNIVERSE, index, 0, 0, 0],
        |attributes| {
            attributes.bytes(ADDRESS_LOCAL, address).bytes(ADDRESS_ADDRESS, address);
        },
    );
}

/// `ip route add local default dev lo src ADDRESS`
fn route(batch: &mut Batch, family: u8, source: &[u8], scope: u8, flags: u16) {
    let fixed = [family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, scope, TYPE_LOCAL, 0, 0, 0, 0];
    batch.message(NEW_ROUTE, CREATE | flags, &fixed, |attributes| {
        attributes.bytes(ROUTE_DEVICE, &LOOPBACK.to_ne_bytes()).bytes(ROUTE_SOURCE, source);
    });
}

fn chain(batch: &mut Batch, name: &str, kind: &str, hook: u32, priority: i32) {
    batch.message(NEW_CHAIN, CREATE, &INET, |chain| {
        chain.text(CHAIN_TABLE, TABLE).text(CHAIN_NAME, name).text(CHAIN_TYPE, kind);
        chain.nest(CHAIN_HOOK, |at| {
            at.number(HOOK_NUMBER, hook).number(HOOK_PRIORITY, priority as u32);
        });
    });
}

fn rule(batch: &mut Batch, chain: &str, flags: u16, expressions: impl FnOnce(&mut Nest<'_>)) {
    batch.message(NEW_RULE, CREATE | APPEND | flags, &INET, |rule| {
        rule.text(RULE_TABLE, TABLE).text(RULE_CHAIN, chain).nest(RULE_EXPRESSIONS, |list| expressions(list));
    });
}

fn expression(rule: &mut Nest<'_>, name: &str, data: impl FnOnce(&mut Nest<'_>)) {
    rule.nest(LIST_ELEMENT, |element| {
        element.text(EXPRESSION_NAME, name).nest(EXPRESSION_DATA, |inner| data(inner));
    });
}

/// Two rules: what goes to the loopback addresses is the sandbox's own business.
fn to_self(batch: &mut Batch, chain: &str) {
    rule(batch, chain, 0, |rule| {
        family_is(rule, AF_INET);
        // The first byte of the destination: 127.0.0.0/8.
        header_is(rule, NETWORK_HEADER, 16, &[127]);
        accept(rule);
    });
    rule(batch, chain, 0, |rule| {
        family_is(rule, AF_INET6);
        header_is(rule, NETWORK_HEADER, 24, &std::net::Ipv6Addr::LOCALHOST.octets());
        accept(rule);
    });
}

fn protocol_is(rule: &mut Nest<'_>, protocol: u8) {
    meta_is(rule, META_L4PROTO, protocol);
}

fn to_port(rule: &mut Nest<'_>, port: u16) {
    header_is(rule, TRANSPORT_HEADER, 2, &port.to_be_bytes());
}

fn from_port(rule: &mut Nest<'_>, port: u16) {
    header_is(rule, TRANSPORT_HEADER, 0, &port.to_be_bytes());
}

/// The first packet of a connection (RFC 9293, 3.1: the flags are in byte 13).
fn begins(rule: &mut Nest<'_>) {
    protocol_is(rule, TCP);
    load(rule, TRANSPORT_HEADER, 13, 1);
    mask(rule, &[SYN | ACKNOWLEDGES]);
    compare(rule, &[SYN]);
}

fn family_is(rule: &mut Nest<'_>, family: u8) {
    meta_is(rule, META_NFPROTO, family);
}

fn meta_is(rule: &mut Nest<'_>, key: u32, value: u8) {
    expression(rule, "meta", |meta| {
        meta.number(META_KEY, key).number(META_DREG, REGISTER);
    });
    compare(rule, &[value]);
}

fn header_is(rule: &mut Nest<'_>, base: u32, offset: u32, value: &[u8]) {
    load(rule, base, offset, value.len() as u32);
    compare(rule, value);
}

fn load(rule: &mut Nest<'_>, base: u32, offset: u32, length: u32) {
    expression(rule, "payload", |payload| {
        payload.number(PAYLOAD_DREG, REGISTER).number(PAYLOAD_BASE, base);
        payload.number(PAYLOAD_OFFSET, offset).number(PAYLOAD_LENGTH, length);
    });
}

fn mask(rule: &mut Nest<'_>, bits: &[u8]) {
    expression(rule, "bitwise", |bitwise| {
        bitwise.number(BITWISE_SREG, REGISTER).number(BITWISE_DREG, REGISTER);
        bitwise.number(BITWISE_LENGTH, bits.len() as u32);
        bitwise.nest(BITWISE_MASK, |mask| {
            mask.bytes(DATA_VALUE, bits);
        });
        bitwise.nest(BITWISE_XOR, |xor| {
            xor.bytes(DATA_VALUE, &vec![0; bits.len()]);
        });
    });
}

fn compare(rule: &mut Nest<'_>, value: &[u8]) {
    expression(rule, "cmp", |cmp| {
        cmp.number(CMP_SREG, REGISTER).number(CMP_OPERATION, CMP_EQUAL).nest(CMP_DATA, |data| {
            data.bytes(DATA_VALUE, value);
        });
    });
}

fn give_to(rule: &mut Nest<'_>, port: u16) {
    port_in_register(rule, port);
    expression(rule, "tproxy", |tproxy| {
        tproxy.number(TPROXY_FAMILY, ANY_FAMILY).number(TPROXY_PORT, REGISTER);
    });
}

fn port_in_register(rule: &mut Nest<'_>, port: u16) {
    expression(rule, "immediate", |immediate| {
        immediate.number(IMMEDIATE_DREG, REGISTER).nest(IMMEDIATE_DATA, |data| {
            data.bytes(DATA_VALUE, &port.to_be_bytes());
        });
    });
}

fn accept(rule: &mut Nest<'_>) {
    expression(rule, "immediate", |immediate| {
        immediate.number(IMMEDIATE_DREG, VERDICT).nest(IMMEDIATE_DATA, |data| {
            data.nest(DATA_VERDICT, |verdict| {
                verdict.number(VERDICT_CODE, NF_ACCEPT);
            });
        });
    });
}

const TABLE: &str = "belljar";
const DNS: u16 = 53;

// linux/in.h, linux/socket.h, linux/icmp.h, linux/icmpv6.h
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ICMP_UNREACHABLE: u8 = 3;
const ICMPV6_UNREACHABLE: u8 = 1;
const SYN: u8 = 0x02;
const ACKNOWLEDGES: u8 = 0x10;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

// linux/rtnetlink.h, linux/if_addr.h; the loopback device is every namespace's first.
const LOOPBACK: u32 = 1;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const ADDRESS_ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const NO_DUPLICATES_CHECK: u8 = 0x02;
const ROUTE_DEVICE: u16 = 4;
const ROUTE_SOURCE: u16 = 7;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_HOST: u8 = 254;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_BOOT: u8 = 3;
const TYPE_LOCAL: u8 = 2;

// linux/netfilter/nfnetlink.h: the subsystem is the upper byte of a message's kind; nfgenmsg is family, version,
// and a number in network order.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const SUBSYSTEM: [u8; 4] = [0, 0, 0, 10];
/// NFPROTO_INET: both families in one table.
const INET: [u8; 4] = [1, 0, 0, 0];

// linux/netfilter/nf_tables.h
const NEW_TABLE: u16 = 10 << 8;
const NEW_CHAIN: u16 = (10 << 8) | 3;
const NEW_RULE: u16 = (10 << 8) | 6;
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const META_DREG: u16 = 1;
const META_KEY: u16 = 2;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const PAYLOAD_DREG: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const BITWISE_SREG: u16 = 1;
const BITWISE_DREG: u16 = 2;
const BITWISE_LENGTH: u16 = 3;
const BITWISE_MASK: u16 = 4;
const BITWISE_XOR: u16 = 5;
const CMP_SREG: u16 = 1;
const CMP_OPERATION: u16 = 2;
const CMP_DATA: u16 = 3;
const CMP_EQUAL: u32 = 0;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const NF_ACCEPT: u32 = 1;
const IMMEDIATE_DREG: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
const TPROXY_FAMILY: u16 = 1;
const TPROXY_PORT: u16 = 3;
const ANY_FAMILY: u32 = 0;
const REJECT_TYPE: u16 = 1;
const REJECT_CODE: u16 = 2;
const REJECT_ICMPX: u32 = 2;
const ICMPX_PORT_UNREACHABLE: u8 = 1;
/// Where a verdict goes, and the one register that is needed.
const VERDICT: u32 = 0;
const REGISTER: u32 = 1;

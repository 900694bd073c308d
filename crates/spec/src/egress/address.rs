//! Every way to write an address that some resolver accepts.
//!
//! A name is decided by its letters; an address in disguise would pass as a name and be dialled as a number. So whatever
//! `inet_aton`, `inet_pton` or a browser reads as an address is found here, and is never a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address that this text spells: `1.2.3.4`, `0x7f.1`, `0177.0.0.1`, `2130706433`, `::1`, `[::1]`, `fe80::1%eth0`,
/// each with or without the final dot.
pub fn spelled_address(text: &str) -> Option<IpAddr> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.contains(':') {
        let inner = text.strip_prefix('[').map_or(text, |rest| rest.strip_suffix(']').unwrap_or(rest));
        // The zone says by which interface (RFC 4007 §11); it does not change what is meant.
        let inner = inner.split_once('%').map_or(inner, |(address, _zone)| address);
        return inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    aton(text).map(IpAddr::V4)
}

/// As inet_aton(3): one to four numbers in decimal, octal or hexadecimal, of which the last fills what remains.
fn aton(text: &str) -> Option<Ipv4Addr> {
    let mut parts = [0u32; 4];
    let mut count = 0;
    for part in text.split('.') {
        *parts.get_mut(count)? = number(part)?;
        count += 1;
    }
    let (last, leading) = parts[..count].split_last()?;
    let mut address: u32 = 0;
    for (index, part) in leading.iter().enumerate() {
        address |= u32::from(u8::try_from(*part).ok()?) << (24 - 8 * index);
    }
    let room = 32 - 8 * leading.len();
    if room < 32 && *last >> room != 0 {
        return None;
    }
    Some(Ipv4Addr::from(address | last))
}

/// As strtoul(3) with base 0, without signs and blanks. `0x` alone is 0, as browsers have it.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X'] => return Some(0),
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // from_str_radix takes a sign; no address has one.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_found() {
        for (text, expected) in [
            ("1.2.3.4", Some("1.2.3.4")),
            ("127.0.0.1.", Some("127.0.0.1")),
            ("127.1", Some("127.0.0.1")),
            ("127.0.1", Some("127.0.0.1")),
            ("127.65535", Some("127.0.255.255")),
            ("2130706433", Some("127.0.0.1")),
            ("0x7f000001", Some("127.0.0.1")),
            ("0X7F.1", Some("127.0.0.1")),
            ("0x7f.0x0.0x0.0x1", Some("127.0.0.1")),
            ("0177.0.0.1", Some("127.0.0.1")),
            ("017700000001", Some("127.0.0.1")),
            ("00000177.0.0.01", Some("127.0.0.1")),
            ("0xa9fea9fe", Some("169.254.169.254")),
            ("0", Some("0.0.0.0")),
            ("0x", Some("0.0.0.0")),
            ("4294967295", Some("255.255.255.255")),
            ("::1", Some("::1")),
            ("[::1]", Some("::1")),
            ("[::ffff:127.0.0.1]", Some("::ffff:127.0.0.1")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("[fe80::1%25eth0]", Some("fe80::1")),
            ("::ffff:7f00:1.", Some("::ffff:127.0.0.1")),
            ("4294967296", None),
            ("256.0.0.1", None),
            ("1.2.3.256", None),
            ("1.2.65536", None),
            ("1.2.3.4.5", None),
            ("1..2", None),
            ("08.0.0.1", None),
            ("+1.2.3.4", None),
            ("0x+1", None),
            ("", None),
            ("db", None),
            ("face", None),
            ("1.example", None),
            ("example:443", None),
        ] {
            let expected = expected.map(|address| address.parse::<IpAddr>().expect("an address"));
            assert_eq!(spelled_address(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_ipv4_address_is_found_in_every_spelling(bits: u32, form in 0usize..8) {
            let address = Ipv4Addr::from(bits);
            let [a, b, c, d] = address.octets();
            let text = match form {
                0 => address.to_string(),
                1 => bits.to_string(),
                2 => format!("{bits:#x}"),
                3 => format!("0{bits:o}"),
                4 => format!("{a}.{}", bits & 0x00ff_ffff),
                5 => format!("{a}.{b}.{}", bits & 0xffff),
                6 => format!("{a:#X}.0{b:o}.{c}.{d:#x}."),
                _ => format!("0{a:o}.{b:#x}.{}", bits & 0xffff),
            };
            proptest::prop_assert_eq!(spelled_address(&text), Some(IpAddr::V4(address)), "{}", text);
        }

        #[test]
        fn any_text_is_refused_or_understood(text in ".{0,40}") {
            let _ = spelled_address(&text);
        }
    }
}

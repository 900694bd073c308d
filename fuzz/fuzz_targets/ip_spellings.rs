//! Addresses in every spelling: what is one is never a name, and every one is judged.
#![no_main]

use std::net::IpAddr;

use belljar_gateway::decide::reserved::special_purpose;
use belljar_spec::egress::{HostName, HostNameError, spelled_address};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, [u8; 16])| {
    let (text, bits) = input;
    let spelled = spelled_address(text);
    // The strict spellings are among ours.
    if let Ok(address) = text.parse::<IpAddr>() {
        assert_eq!(spelled, Some(address));
    }
    if let Some(address) = spelled {
        assert_eq!(text.parse::<HostName>(), Err(HostNameError::Address(address)));
    }
    // An address inside of another is judged like itself.
    let IpAddr::V6(six) = IpAddr::from(bits) else { return };
    if let Some(four) = six.to_ipv4_mapped() {
        assert!(special_purpose(four.into()).is_none() || special_purpose(six.into()).is_some());
    }
    special_purpose(six.into());
});

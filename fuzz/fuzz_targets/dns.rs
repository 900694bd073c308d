//! Questions of a sandbox: what is understood is answered under the same number and with the same question.
#![no_main]

use std::net::IpAddr;

use belljar_gateway::dns::message::{Answer, Transport, answer, question};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| match question(message) {
    Ok(question) => {
        let addresses = [IpAddr::from([198, 18, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])];
        for reply_data in [
            Answer::Addresses(&addresses, 60),
            Answer::Pointer("example.com", 60),
            Answer::Empty,
            Answer::NoSuchName,
            Answer::Refused,
            Answer::Failed,
            Answer::NotImplemented,
        ] {
            let reply = answer(&question, reply_data, Transport::Udp);
            assert!(reply.len() <= 1232);
            assert_eq!(reply[..2], message[..2]);
            assert_eq!(reply[2] & 0xf8, 0x80);
            let length = message[12..].split(|byte| *byte == 0).next().map_or(0, <[u8]>::len);
            assert_eq!(reply[12..12 + length], message[12..12 + length]);
        }
        assert!(question.name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    Err(unanswerable) => {
        let answers_an_answer =
            message.get(2).is_some_and(|flags| flags & 0x80 != 0) && unanswerable.reply.is_some();
        assert!(!answers_an_answer);
        assert!(unanswerable.reply.is_none_or(|reply| reply.len() <= message.len()));
    }
});

//! An agent that chooses names which look like records.

use super::{sandbox, verify};
use belljar_audit::{Event, Log, Reader};
use belljar_spec::egress::{Destination, Reason, Refusal};
use proptest::prelude::*;

const HOSTILE: &[&[u8]] = &[
    b"x\",\"reason\":\"none\",\"x\":\"",
    b"x\"}}\n{\"seq\":1,\"time\":\"2026-01-01T00:00:00.000000Z\",\"event\":{\"kind\":\"sandbox_ended\"}}\n",
    b"a\nb\rc\x00d\x1b[2Je\x7f\x85",
    b"\xff\xfe\xc3\x28",
    b"\\\"\\n\\u0022",
    "a\u{2028}b\u{2029}c\u{202e}d\u{85}e".as_bytes(),
    b"\xed\xa0\x80",
];

/// Writes events with these bytes, and reads them back: one line each, every field in its place.
fn survives(hostile: &[&[u8]]) {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(folder.path(), sandbox(1)).unwrap();
    for bytes in hostile {
        let destination = Destination::understand(bytes);
        let detail = String::from_utf8_lossy(bytes);
        let refusal = Refusal::new(destination.clone(), Some(1), Reason::DirectAddress).detail(&detail);
        log.append(&Event::refused(&refusal, 1)).unwrap();
        let record_type = belljar_spec::egress::Printable::new(bytes);
        log.append(&Event::NameRefused {
            name: destination,
            record_type,
            reason: Reason::NameMalformed,
            times: 1,
        })
        .unwrap();
        // Text from the user is not sanitized; JSON escaping has to be enough.
        log.append(&Event::SandboxStarted {
            backend: belljar_spec::BackendName::Native,
            mode: belljar_spec::egress::Mode::Strict,
            rules: vec![detail.to_string()],
            inspect: false,
            loosened: vec![],
            policy: None,
            folder: None,
            name: None,
            uid: None,
            belljar: "0".into(),
        })
        .unwrap();
    }
    log.end(&Event::SandboxEnded {}).unwrap();
    assert_eq!(verify(folder.path()).findings, []);
    let bytes = std::fs::read(log.path()).unwrap();
    assert!(bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')), "something else than plain ASCII");
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), hostile.len() * 3 + 1);
    let mut reader = Reader::open(log.path()).unwrap();
    for bytes in hostile {
        let mut next = || reader.next_record().unwrap().unwrap().written();
        let keys = |event: &serde_json::Value| event.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let refused = next();
        assert_eq!(
            keys(&refused),
            ["destination", "detail", "kind", "port", "protocol", "reason", "remedy", "times"]
        );
        assert_eq!((&refused["reason"], &refused["port"]), (&"direct_address".into(), &1.into()));
        assert_eq!(refused["destination"], Destination::understand(bytes).to_string());
        let name = next();
        assert_eq!(keys(&name), ["kind", "name", "reason", "record_type", "times"]);
        assert_eq!(name["reason"], "name_malformed");
        let started = next();
        assert_eq!(keys(&started), ["backend", "belljar", "kind", "loosened", "mode", "rules"]);
        assert_eq!(started["rules"][0], String::from_utf8_lossy(bytes).as_ref());
    }
    assert!(reader.next_record().unwrap().unwrap().event.is_end());
    assert!(reader.next_record().unwrap().is_none());
}

#[test]
fn names_cannot_forge_a_field_or_a_line() {
    survives(HOSTILE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_can_forge_a_field_or_a_line(names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..8)) {
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        survives(&names);
    }
}

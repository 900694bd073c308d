//! The answer of receive-pack: whether the objects arrived, and the result of each ref (gitprotocol-pack(5), "Report Status").

use crate::push::{Push, Update};
use crate::{PushRefusal, RefName, pkt};

/// The result of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub name: RefName,
    pub result: Result<Arrived, PushRefusal>,
}

/// Where an update landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    AsRequested,
    /// At another ref, which is reported to a client that supports it (`report-status-v2`).
    Elsewhere(Update),
}

/// An answer to a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// `Err` with the reason if the pack was not taken at all.
    pub unpack: Result<(), String>,
    pub outcomes: Vec<Outcome>,
    /// The lines that the client prints after `remote: `.
    pub progress: String,
}

impl Report {
    /// A report with all refs refused, each for its own reason or because of the others.
    pub fn refused(push: &Push, verdicts: &[Result<(), PushRefusal>]) -> Report {
        let outcomes = push.updates.iter().zip(verdicts).map(|(update, verdict)| {
            let refusal = verdict.clone().err().unwrap_or(PushRefusal::Together);
            Outcome { name: update.name.clone(), result: Err(refusal) }
        });
        Report { unpack: Ok(()), outcomes: outcomes.collect(), progress: String::new() }
    }

    /// In the format that the client asked for; empty if it did not ask (`report-status`).
    pub fn bytes(&self, push: &Push) -> Vec<u8> {
        let can = |name: &str| push.capabilities.has(name);
        let status = match can("report-status") || can("report-status-v2") {
            true => self.status(can("report-status-v2")),
            false => Vec::new(),
        };
        if !can("side-band-64k") {
            return status;
        }
        let mut bytes = Vec::new();
        side_band(&mut bytes, Band::Progress, self.progress.as_bytes());
        side_band(&mut bytes, Band::Data, &status);
        bytes.extend_from_slice(pkt::FLUSH);
        bytes
    }

    fn status(&self, with_options: bool) -> Vec<u8> {
        let mut status = Vec::new();
        let unpack = self.unpack.as_ref().map_or_else(|error| one_line(error), |()| "ok".to_string());
        pkt::append(&mut status, format!("unpack {unpack}\n").as_bytes());
        for Outcome { name, result } in &self.outcomes {
            let line = match result {
                Ok(_) => format!("ok {name}\n"),
                Err(refusal) => format!("ng {name} {refusal}\n"),
            };
            pkt::append(&mut status, line.as_bytes());
            if let (Ok(Arrived::Elsewhere(Update { old, new, name })), true) = (result, with_options) {
                for option in [format!("refname {name}"), format!("old-oid {old}"), format!("new-oid {new}")]
                {
                    pkt::append(&mut status, format!("option {option}\n").as_bytes());
                }
            }
        }
        status.extend_from_slice(pkt::FLUSH);
        status
    }
}

/// The content of a `side-band-64k` packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    Data = 1,
    Progress = 2,
    Fatal = 3,
}

/// Data in packets of a band; no packet for no data.
pub fn side_band(to: &mut Vec<u8>, band: Band, data: &[u8]) {
    for part in data.chunks(pkt::MAX_DATA_BYTES - 1) {
        let mut packet = vec![band as u8];
        packet.extend_from_slice(part);
        pkt::append(to, &packet);
    }
}

fn one_line(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

const MAX_TEXT_CHARS: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, ObjectFormat, ObjectId};

    fn push(capabilities: &[&str]) -> Push {
        let update = |name: &str| Update {
            old: ObjectId::zero(ObjectFormat::Sha1),
            new: "a".repeat(40).parse().unwrap(),
            name: RefName::parse(name.as_bytes()).unwrap(),
        };
        Push {
            updates: vec![update("refs/heads/x"), update("refs/tags/v1")],
            capabilities: capabilities.iter().copied().collect::<Capabilities>(),
            ..Push::default()
        }
    }

    #[test]
    fn one_refused_ref_refuses_all() {
        let push = push(&["report-status"]);
        let report = Report::refused(&push, &[Ok(()), Err(PushRefusal::Tag)]);
        assert_eq!(
            String::from_utf8(report.bytes(&push)).unwrap(),
            "000eunpack ok\n\
             003eng refs/heads/x refused with another ref of the same push\n\
             0057ng refs/tags/v1 tags may not be pushed from a sandbox ([git] tags in belljar.toml)\n\
             0000"
        );
    }

    #[test]
    fn in_a_band_if_the_client_wants_it() {
        let push = push(&["report-status-v2", "side-band-64k"]);
        let report = Report { unpack: Ok(()), outcomes: Vec::new(), progress: "hello\n".to_string() };
        assert_eq!(report.bytes(&push), b"000b\x02hello\n0017\x01000eunpack ok\n00000000");
        let push = super::tests::push(&["side-band-64k"]);
        assert_eq!(report.bytes(&push), b"000b\x02hello\n0000");
        let push = super::tests::push(&[]);
        assert_eq!(report.bytes(&push), b"");
    }

    #[test]
    fn a_ref_that_landed_elsewhere_is_named_to_those_who_understand() {
        let name = RefName::parse(b"refs/belljar/x").unwrap();
        let pushed = push(&["report-status-v2"]);
        let landed = Update { name, ..pushed.updates[0].clone() };
        let name = pushed.updates[0].name.clone();
        let outcomes = vec![Outcome { name, result: Ok(Arrived::Elsewhere(landed)) }];
        let report = Report { unpack: Ok(()), outcomes, progress: String::new() };
        let text = String::from_utf8(report.bytes(&pushed)).unwrap();
        assert!(text.contains("ok refs/heads/x\n0022option refname refs/belljar/x\n"), "{text}");
        assert!(text.contains(&format!("option new-oid {}\n", "a".repeat(40))), "{text}");
        let text = String::from_utf8(report.bytes(&push(&["report-status"]))).unwrap();
        assert_eq!(text, "000eunpack ok\n0014ok refs/heads/x\n0000");
    }

    #[test]
    fn much_is_cut_into_packets() {
        let mut bytes = Vec::new();
        side_band(&mut bytes, Band::Progress, &vec![b'x'; 200_000]);
        let packets = pkt::all(&bytes).unwrap();
        assert_eq!(packets.len(), 4);
    }
}

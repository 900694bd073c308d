//! The list of refs that a git server sends first, in protocol 0 (gitprotocol-pack(5), "Reference Discovery"), and how smart HTTP
//! wraps it (gitprotocol-http(5)).

use crate::daemon::Service;
use crate::pkt::{self, Packet, PktError, Reader};
use crate::{Capabilities, ObjectFormat, ObjectId};
use thiserror::Error;

/// A list of refs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// The first line over HTTP: `# service=git-receive-pack`.
    pub service: Option<Service>,
    pub refs: Vec<Advertised>,
    pub capabilities: Capabilities,
    pub shallow: Vec<ObjectId>,
    /// The hash, which decides how an empty list is written.
    pub format: ObjectFormat,
}

/// One ref. Names are bytes: `HEAD`, `.have` and `refs/tags/v1^{}` are here too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    pub id: ObjectId,
    pub name: Vec<u8>,
}

/// Not a list of refs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdvertisementError {
    #[error(transparent)]
    Packets(#[from] PktError),
    #[error("not a list of refs")]
    Malformed,
}

impl Advertisement {
    /// Parses a complete list.
    pub fn parse(bytes: &[u8]) -> Result<Advertisement, AdvertisementError> {
        let mut packets = pkt::all(bytes)?.into_iter().peekable();
        let service = match packets.peek() {
            Some(Packet::Data(line)) if line.starts_with(SERVICE) => Some(service(line)?),
            _ => None,
        };
        if service.is_some() && (packets.next(), packets.next()).1 != Some(Packet::Flush) {
            return Err(AdvertisementError::Malformed);
        }
        let mut lines = Vec::new();
        for packet in packets.by_ref() {
            match packet {
                Packet::Data(line) => lines.push(line),
                Packet::Flush => break,
                Packet::Delim | Packet::ResponseEnd => return Err(AdvertisementError::Malformed),
            }
        }
        if packets.next().is_some() || lines.is_empty() {
            return Err(AdvertisementError::Malformed);
        }
        of_lines(service, &lines)
    }

    /// Writes it as a server does.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(service) = self.service {
            pkt::append(&mut bytes, format!("# service={}\n", service.name()).as_bytes());
            bytes.extend_from_slice(pkt::FLUSH);
        }
        let none = [Advertised { id: ObjectId::zero(self.format), name: NO_REFS.to_vec() }];
        let refs = if self.refs.is_empty() { &none[..] } else { &self.refs[..] };
        for (index, Advertised { id, name }) in refs.iter().enumerate() {
            let mut line = format!("{id} ").into_bytes();
            line.extend_from_slice(name);
            if index == 0 {
                line.push(0);
                line.extend_from_slice(self.capabilities.text().as_bytes());
            }
            line.push(b'\n');
            pkt::append(&mut bytes, &line);
        }
        for id in &self.shallow {
            pkt::append(&mut bytes, format!("shallow {id}\n").as_bytes());
        }
        bytes.extend_from_slice(pkt::FLUSH);
        bytes
    }
}

fn service(line: &[u8]) -> Result<Service, AdvertisementError> {
    match trimmed(&line[SERVICE.len()..]) {
        b"git-receive-pack" => Ok(Service::ReceivePack),
        b"git-upload-pack" => Ok(Service::UploadPack),
        _ => Err(AdvertisementError::Malformed),
    }
}

fn of_lines(service: Option<Service>, lines: &[Vec<u8>]) -> Result<Advertisement, AdvertisementError> {
    let mut refs = Vec::new();
    let mut shallow = Vec::new();
    let mut capabilities = Capabilities::default();
    let mut format = ObjectFormat::Sha1;
    for (index, line) in lines.iter().enumerate() {
        if let Some(id) = line.strip_prefix(b"shallow ") {
            shallow.push(ObjectId::parse(trimmed(id)).map_err(|_| AdvertisementError::Malformed)?);
            continue;
        }
        let (line, words) = match line.iter().position(|byte| *byte == 0) {
            Some(end) => (&line[..end], Some(&line[end + 1..])),
            None => (trimmed(line), None),
        };
        match words {
            Some(words) if index == 0 && lines[0].len() < FIRST && std::str::from_utf8(words).is_ok() => {
                capabilities = Capabilities::parse(words);
            }
            None if index > 0 => {}
            _ => return Err(AdvertisementError::Malformed),
        }
        let space = line.iter().position(|byte| *byte == b' ').ok_or(AdvertisementError::Malformed)?;
        let id = ObjectId::parse(&line[..space]).map_err(|_| AdvertisementError::Malformed)?;
        if index > 0 && id.format() != format {
            return Err(AdvertisementError::Malformed);
        }
        format = id.format();
        let name = line[space + 1..].to_vec();
        if name != NO_REFS {
            refs.push(Advertised { id, name });
        }
    }
    Ok(Advertisement { service, refs, capabilities, shallow, format })
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Adds a capability to a list of refs that is forwarded. Other bytes are forwarded unchanged: this only asks something of a
/// client, and no safety depends on it.
#[derive(Debug)]
pub struct AddCapability {
    word: &'static str,
    packets: Reader,
    is_done: bool,
}

impl AddCapability {
    pub fn new(word: &'static str) -> AddCapability {
        AddCapability { word, packets: Reader::new(BEGINNING), is_done: false }
    }

    /// The bytes to forward for these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.is_done {
            return bytes.to_vec();
        }
        self.packets.feed(bytes);
        let mut passed = Vec::new();
        while !self.is_done {
            match self.packets.take() {
                Ok(Some(Packet::Data(mut line))) => {
                    if let Some(end) = line.iter().position(|byte| *byte == 0) {
                        self.is_done = true;
                        let words = Capabilities::parse(&line[end + 1..]);
                        if !words.has(self.word) && line.len() + self.word.len() < pkt::MAX_DATA_BYTES {
                            let at = line.len() - usize::from(line.ends_with(b"\n"));
                            let word = format!(" {}", self.word);
                            line.splice(at..at, word.into_bytes());
                        }
                    }
                    pkt::append(&mut passed, &line);
                }
                Ok(Some(Packet::Flush)) => passed.extend_from_slice(pkt::FLUSH),
                Ok(Some(Packet::Delim)) => passed.extend_from_slice(b"0001"),
                Ok(Some(Packet::ResponseEnd)) => passed.extend_from_slice(b"0002"),
                Ok(None) => return passed,
                Err(_) => self.is_done = true,
            }
        }
        passed.extend_from_slice(&self.finish());
        passed
    }

    /// The bytes that were held back, at the end.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = self.packets.rest().to_vec();
        self.packets = Reader::new(0);
        self.is_done = true;
        rest
    }
}

const SERVICE: &[u8] = b"# service=";
/// With room for the added capability.
const FIRST: usize = pkt::MAX_DATA_BYTES - 16;
const NO_REFS: &[u8] = b"capabilities^{}";
/// The service, a version and the first ref.
const BEGINNING: usize = 3 * (pkt::MAX_DATA_BYTES + 4);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn list(refs: &[&str]) -> Advertisement {
        Advertisement {
            service: Some(Service::ReceivePack),
            refs: refs
                .iter()
                .map(|name| Advertised { id: A.parse().unwrap(), name: name.as_bytes().to_vec() })
                .collect(),
            capabilities: ["report-status", "agent=git/2"].into_iter().collect(),
            shallow: Vec::new(),
            format: ObjectFormat::Sha1,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for list in [list(&[]), list(&["refs/heads/main", "refs/heads/x", ".have"])] {
            assert_eq!(Advertisement::parse(&list.bytes()), Ok(list));
        }
    }

    #[test]
    fn lists_that_are_none() {
        for bytes in [
            &b""[..],
            b"0000",
            b"001f# service=git-receive-pack\n",
            b"001d# service=git-other-pack\n00000000",
            b"0009hello0000",
        ] {
            assert!(Advertisement::parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    fn passed(bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut add = AddCapability::new("no-thin");
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut passed = add.feed(first);
        passed.extend(add.feed(second));
        passed.extend(add.finish());
        passed
    }

    #[test]
    fn a_capability_is_added_once() {
        for mut list in [list(&[]), list(&["refs/heads/main", "refs/heads/x"])] {
            let bytes = list.bytes();
            list.capabilities.add("no-thin");
            for cut in 0..bytes.len() {
                let passed = passed(&bytes, cut);
                assert_eq!(Advertisement::parse(&passed).as_ref(), Ok(&list), "{cut}");
                assert_eq!(super::tests::passed(&passed, 7), passed);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_no_list_passes(bytes: Vec<u8>, cut in 0usize..32) {
            let _ = Advertisement::parse(&bytes);
            let passed = passed(&bytes, cut);
            prop_assert!(passed == bytes || passed.len() == bytes.len() + 8);
        }
    }
}

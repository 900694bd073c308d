//! Parses the request of a receive-pack client: a list of commands, perhaps options, then a pack (gitprotocol-pack(5)).
//!
//! Accepts only what git clients write. Bytes that another parser could read differently (two lists of capabilities, a signed list
//! inside of the list, ids of two lengths) are refused.

use crate::pkt::{Packet, PktError, Reader};
use crate::{Capabilities, NotARefName, NotAnObjectId, ObjectFormat, ObjectId, RefName};
use std::collections::HashSet;
use thiserror::Error;

/// The request of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Push {
    pub updates: Vec<Update>,
    /// The end of the client's history, if it is shallow.
    pub shallow: Vec<ObjectId>,
    pub capabilities: Capabilities,
    /// The options of `git push -o` for the server's hooks.
    pub options: Vec<Vec<u8>>,
}

/// The move of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub old: ObjectId,
    pub new: ObjectId,
    pub name: RefName,
}

/// The kind of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Create,
    Move,
    Delete,
}

impl Update {
    pub fn change(&self) -> Change {
        match (self.old.is_zero(), self.new.is_zero()) {
            // From zeros to zeros removes nothing, but it is a request for a deletion.
            (_, true) => Change::Delete,
            (true, false) => Change::Create,
            (false, false) => Change::Move,
        }
    }
}

impl Push {
    /// Does a pack follow? Not if all updates are deletions.
    pub fn brings_pack(&self) -> bool {
        self.updates.iter().any(|update| update.change() != Change::Delete)
    }

    /// The hash function of its ids.
    pub fn format(&self) -> ObjectFormat {
        self.updates.first().map_or(ObjectFormat::Sha1, |update| update.new.format())
    }
}

/// Not a push that can be judged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PushError {
    #[error(transparent)]
    Packets(#[from] PktError),
    #[error("a packet that has no place in a push")]
    UnexpectedPacket,
    #[error("`{0}` is not a command of a push")]
    NotACommand(String),
    #[error("`{0}` is not the name of a ref")]
    BadName(String),
    #[error("signed pushes are not taken")]
    Certificate,
    #[error("capabilities outside of the first command")]
    CapabilitiesTwice,
    #[error("object names of another kind than the push says")]
    MixedFormats,
    #[error("`{0}` is updated twice")]
    Twice(RefName),
    #[error("more than {MAX_UPDATES} refs in one push")]
    TooMany,
    #[error("more options than anybody reads")]
    TooManyOptions,
    #[error("the push ends before its commands do")]
    CutOff,
}

/// Collects a push from bytes as they arrive.
#[derive(Debug)]
pub struct Collect {
    packets: Reader,
    push: Push,
    names: HashSet<RefName>,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Commands,
    Options,
    Over,
}

impl Default for Collect {
    fn default() -> Collect {
        Collect {
            packets: Reader::new(MAX_BYTES),
            push: Push::default(),
            names: HashSet::new(),
            part: Part::Commands,
        }
    }
}

impl Collect {
    /// Adds bytes; `true` as soon as all commands have arrived.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<bool, PushError> {
        self.packets.feed(bytes);
        while self.part != Part::Over {
            match self.packets.take()? {
                Some(packet) => self.packet(packet)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The request, and the beginning of the pack. A list without a command is git's way to test a connection.
    pub fn finish(self) -> Result<(Push, Vec<u8>), PushError> {
        match self.part {
            Part::Over => Ok((self.push, self.packets.rest().to_vec())),
            Part::Commands | Part::Options => Err(PushError::CutOff),
        }
    }

    fn packet(&mut self, packet: Packet) -> Result<(), PushError> {
        match (self.part, packet) {
            (Part::Commands, Packet::Data(line)) => self.line(&line),
            (Part::Commands, Packet::Flush) => {
                self.same_format()?;
                let has_options = self.push.capabilities.has("push-options");
                self.part = if has_options { Part::Options } else { Part::Over };
                Ok(())
            }
            (Part::Options, Packet::Data(line)) if self.push.options.len() < MAX_OPTIONS => {
                self.push.options.push(without_newline(&line).to_vec());
                Ok(())
            }
            (Part::Options, Packet::Data(_)) => Err(PushError::TooManyOptions),
            (Part::Options, Packet::Flush) => {
                self.part = Part::Over;
                Ok(())
            }
            (_, Packet::Delim | Packet::ResponseEnd) | (Part::Over, _) => Err(PushError::UnexpectedPacket),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), PushError> {
        let not_a_command = || PushError::NotACommand(shown(line));
        if let Some(id) = without_newline(line).strip_prefix(b"shallow ") {
            if self.push.shallow.len() == MAX_UPDATES {
                return Err(PushError::TooMany);
            }
            self.push.shallow.push(ObjectId::parse(id).map_err(|NotAnObjectId| not_a_command())?);
            return Ok(());
        }
        // git reads capabilities from every line with a NUL, even from a certificate's: here only from the first.
        let (command, capabilities) = match line.iter().position(|byte| *byte == 0) {
            Some(end) => (&line[..end], Some(&line[end + 1..])),
            None => (without_newline(line), None),
        };
        if command == b"push-cert" {
            return Err(PushError::Certificate);
        }
        if let Some(capabilities) = capabilities {
            if !self.push.updates.is_empty() || capabilities.contains(&0) {
                return Err(PushError::CapabilitiesTwice);
            }
            if capabilities.len() > MAX_CAPABILITIES || std::str::from_utf8(capabilities).is_err() {
                return Err(not_a_command());
            }
            self.push.capabilities = Capabilities::parse(capabilities);
        }
        let update = update(command).ok_or_else(not_a_command)??;
        if self.push.updates.len() == MAX_UPDATES {
            return Err(PushError::TooMany);
        }
        if !self.names.insert(update.name.clone()) {
            return Err(PushError::Twice(update.name));
        }
        self.push.updates.push(update);
        Ok(())
    }

    fn same_format(&self) -> Result<(), PushError> {
        let named = self.push.capabilities.value("object-format");
        let format = named.unwrap_or(ObjectFormat::Sha1.name());
        let updates = self.push.updates.iter().flat_map(|update| [&update.old, &update.new]);
        match updates.chain(&self.push.shallow).all(|id| id.format().name() == format) {
            true => Ok(()),
            false => Err(PushError::MixedFormats),
        }
    }
}

/// `old new name`, with one space each.
fn update(command: &[u8]) -> Option<Result<Update, PushError>> {
    let mut words = command.splitn(3, |byte| *byte == b' ');
    let old = ObjectId::parse(words.next()?).ok()?;
    let new = ObjectId::parse(words.next()?).ok()?;
    let name = words.next()?;
    Some(match RefName::parse(name) {
        Ok(name) => Ok(Update { old, new, name }),
        Err(NotARefName) => Err(PushError::BadName(shown(name))),
    })
}

/// git strips one newline from the end of a line.
fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(SHOWN)].escape_ascii().to_string()
}

impl Push {
    /// Writes it as a client does, up to where the pack begins.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for id in &self.shallow {
            crate::pkt::append(&mut bytes, format!("shallow {id}\n").as_bytes());
        }
        for (index, Update { old, new, name }) in self.updates.iter().enumerate() {
            let capabilities = match index {
                0 => format!("\0 {}", self.capabilities.text()),
                _ => String::new(),
            };
            crate::pkt::append(&mut bytes, format!("{old} {new} {name}{capabilities}").as_bytes());
        }
        bytes.extend_from_slice(crate::pkt::FLUSH);
        if self.capabilities.has("push-options") {
            for option in &self.options {
                crate::pkt::append(&mut bytes, option);
            }
            bytes.extend_from_slice(crate::pkt::FLUSH);
        }
        bytes
    }
}

/// A mirror of a large repository has thousands of refs; a sandbox's work has few.
pub const MAX_UPDATES: usize = 1000;
const MAX_OPTIONS: usize = 100;
const MAX_CAPABILITIES: usize = 4096;
/// Size limit of all commands and options of a push.
const MAX_BYTES: usize = 1024 * 1024;
const SHOWN: usize = 120;

#[cfg(test)]
mod tests;

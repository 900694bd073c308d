//! How often what happened, in bounded room, whatever a program inside does: for the lines of a log, and for the summary of a run.

use crate::decide::reserved;
use belljar_spec::egress::{Destination, Reason, Refusal, Refused};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Of what there may be very many. Each has lines of its own: who knocks until there are no more hides nothing else. Apart are
/// also those of which a program can have as many as it likes (names, addresses, ports), and those that matter most among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Many {
    Names,
    Addresses,
    Metadata,
    Ports,
    Connections,
    Requests,
    Fetches,
    Models,
    Pushes,
    Uses,
    Incidents,
    Relayed,
    Questions,
    Commands,
}

impl Many {
    pub(crate) const ALL: [Many; 14] = [
        Many::Names,
        Many::Addresses,
        Many::Metadata,
        Many::Ports,
        Many::Connections,
        Many::Requests,
        Many::Fetches,
        Many::Models,
        Many::Pushes,
        Many::Uses,
        Many::Incidents,
        Many::Relayed,
        Many::Questions,
        Many::Commands,
    ];

    /// What a connection or a request that was refused is counted with.
    pub(crate) fn of(refusal: &Refusal) -> Many {
        match &refusal.destination {
            _ if refusal.request.is_some() => Many::Requests,
            Destination::Address(address) if reserved::is_metadata(*address) => Many::Metadata,
            Destination::Address(_) => Many::Addresses,
            Destination::Name(_) | Destination::Text(_) if refusal.reason == Reason::PortNotAllowed => {
                Many::Ports
            }
            Destination::Name(_) | Destination::Text(_) => Many::Connections,
        }
    }

    /// As the log says it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Many::Names => "names",
            Many::Addresses => "addresses",
            Many::Metadata => "metadata",
            Many::Ports => "ports",
            Many::Connections => "connections",
            Many::Requests => "requests",
            Many::Fetches => "fetches",
            Many::Models => "models",
            Many::Pushes => "pushes",
            Many::Uses => "uses",
            Many::Incidents => "incidents",
            Many::Relayed => "relayed",
            Many::Questions => "questions",
            Many::Commands => "commands",
        }
    }
}

/// The lines about one of [`Many`].
#[derive(Default)]
pub(crate) struct Tally {
    /// How often each was seen, by a hash of what tells it from the others: a key may be long, and there may be many. The
    /// hash is another one in every process, so no program inside finds two that are counted as one.
    times: HashMap<u64, u64>,
    hashing: RandomState,
    /// How many were written.
    pub(crate) lines: u64,
    /// The log says that there are no more.
    pub(crate) stopped: bool,
}

impl Tally {
    /// How often this was seen, with this time. None once there are more different ones than lines.
    pub(crate) fn count(&mut self, key: &str) -> Option<u64> {
        let key = self.hashing.hash_one(key);
        if self.times.len() as u64 >= LINES && !self.times.contains_key(&key) {
            return None;
        }
        let times = self.times.entry(key).or_default();
        *times += 1;
        Some(*times)
    }

    /// Whether there may be one more line.
    pub(crate) fn has_room(&self) -> bool {
        self.lines < LINES
    }
}

/// What was refused, in the order in which it came.
#[derive(Default)]
pub(crate) struct Summary {
    places: HashMap<String, usize>,
    refused: Vec<Refused>,
    /// For each of [`Many`].
    counted: [usize; Many::ALL.len()],
}

impl Summary {
    pub(crate) fn remember(&mut self, of: Many, refusal: &Refusal) {
        let key = format!("{} {}", of.word(), key(refusal));
        if let Some(place) = self.places.get(&key) {
            self.refused[*place].times += 1;
        } else if self.counted[of as usize] < REMEMBERED {
            self.counted[of as usize] += 1;
            self.places.insert(key, self.refused.len());
            self.refused.push(Refused { refusal: refusal.clone(), times: 1 });
        }
    }

    pub(crate) fn all(&self) -> &[Refused] {
        &self.refused
    }
}

/// What tells a refusal from others.
pub(crate) fn key(refusal: &Refusal) -> String {
    let Refusal { destination, port, reason, request, .. } = refusal;
    let request = request.as_ref().map(|request| (&request.method, &request.path));
    format!("{destination:?} {port:?} {} {request:?}", reason.code())
}

pub(crate) fn is_power_of_ten(mut number: u64) -> bool {
    while number > 1 && number.is_multiple_of(10) {
        number /= 10;
    }
    number == 1
}

/// Different refusals of each of [`Many`] that a summary tells apart.
pub(crate) const REMEMBERED: usize = 1000;
/// Lines about each of [`Many`] in one log.
pub(crate) const LINES: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_place_and_a_word_of_its_own() {
        let words: std::collections::BTreeSet<&str> = Many::ALL.map(Many::word).into();
        assert_eq!(words.len(), Many::ALL.len());
        for (index, of) in Many::ALL.into_iter().enumerate() {
            assert_eq!(of as usize, index);
        }
    }

    #[test]
    fn a_tally_counts_rightly_for_as_long_as_it_counts() {
        let mut tally = Tally::default();
        for number in 0..LINES {
            assert_eq!(tally.count(&number.to_string()), Some(1));
        }
        assert_eq!(tally.count("1999"), Some(2));
        assert_eq!(tally.count("one more"), None);
    }
}

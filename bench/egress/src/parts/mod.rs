//! What is measured, a file each.

mod bulk;
mod connections;
mod dns;
mod memory;
mod start;
mod tls;

use crate::Outcome;
use crate::stage::Stage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Connections,
    Bulk,
    Tls,
    Dns,
    Memory,
    Start,
}

impl Part {
    /// All of them, if none is named.
    pub(crate) fn chosen(names: &[&str]) -> Outcome<Vec<Part>> {
        if names.is_empty() {
            return Ok(ALL.map(|(_, part)| part).to_vec());
        }
        let part = |name: &&str| {
            let found = ALL.into_iter().find(|(known, _)| known == name).map(|(_, part)| part);
            found.ok_or_else(|| {
                let all = ALL.map(|(name, _)| name).join(", ");
                format!("there is no part `{name}`: use a number of rounds, then any of {all}").into()
            })
        };
        names.iter().map(part).collect()
    }

    pub(crate) async fn run(self, stage: &Stage, rounds: usize) -> Outcome<()> {
        match self {
            Part::Connections => connections::run(stage, rounds).await,
            Part::Bulk => bulk::run(stage, rounds).await,
            Part::Tls => tls::run(stage, rounds).await,
            Part::Dns => dns::run(stage, rounds).await,
            Part::Memory => memory::run(stage).await,
            Part::Start => start::run(stage, rounds),
        }
    }
}

const ALL: [(&str, Part); 6] = [
    ("connections", Part::Connections),
    ("bulk", Part::Bulk),
    ("tls", Part::Tls),
    ("dns", Part::Dns),
    ("memory", Part::Memory),
    ("start", Part::Start),
];
